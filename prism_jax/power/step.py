"""Watts and joules of a training step, from the seconds of its phases: `step_power(explain.breakdown(...), device)`.

    watts = sum over phases of seconds x watts / sum of seconds

Each phase draws what its kind of work draws. Under a power limit every kind of work runs at the highest clock that keeps its own
power below the limit; compute stretches by the share of its seconds that follows the clock, communication does not, and whoever
waits for others waits as much longer as they compute longer. GPU energy alone: hosts, switches and cooling are not part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .._core.arrays import Values, is_numpy, is_traced, namespace
from ..errors import Problem, SpecError
from ..hints import did_you_mean
from .law import WAITING, PowerLaw, slowdown
from .laws import GpuKind, power_law

# Kind of work of every phase that `explain.breakdown` names, and of compute where it is split by kernel class.
KIND_OF = {
    "compute": "compute",
    "gemm": "gemm",
    "attention": "attention",
    "memory": "memory",
    "slowed": "communication",
    "tp_comm": "communication",
    "cp_comm": "communication",
    "ep_comm": "communication",
    "dp_comm": "communication",
    "pp_comm": "communication",
    "bubble": WAITING,
    "waiting_for_stragglers": WAITING,
    "stalls": "stalled",
}
COMPUTE = ("compute", "gemm", "attention", "memory")  # which whoever waits for others waits for
ROUNDING = 1e-6  # of the step: seconds this little below zero are a difference of two sums


@dataclass(frozen=True)
class StepPower:
    """Power of one GPU over a step; the mean of all GPUs of a job. GPU energy alone.

    Attributes:
        watts: mean over the step.
        joules: per GPU and step.
        step_s: seconds of the step, longer under a limit.
        clock: mean over the step, of the top clock.
        phase_s: phase -> seconds under the limit.
        phase_watts: phase -> watts while it lasts.
        source: of the figures of the law.
    """

    watts: Values
    joules: Values
    step_s: Values
    clock: Values
    phase_s: Mapping[str, Values]
    phase_watts: Mapping[str, Values]
    source: str


def step_power(
    phase_s: Mapping[str, Values],
    device: GpuKind,
    *,
    law: PowerLaw | None = None,
    power_limit_watts: Values | None = None,
) -> StepPower | None:
    """Watts and joules per GPU of a step whose phases take `phase_s`.

    Args:
        phase_s: phase -> seconds of an average GPU without a limit: `compute`, or `gemm`, `attention`, `memory` and `slowed`
            (what they lose to communication beside them; `explain.power_phases` splits them); exposed
            `tp_comm`, `cp_comm`, `ep_comm`, `dp_comm`, `pp_comm`; `bubble`, `waiting_for_stragglers`, `stalls`.
        device: whose `power_watts` is TDP.
        law: of its power; None: the preset's.
        power_limit_watts: per GPU; None: TDP.

    Returns:
        None of a device whose power nothing is known of (`power_law`).

    Raises:
        SpecError: an unknown phase, negative or no seconds, or a limit that is no positive number.
    """
    found = law or power_law(device)
    _check(phase_s, power_limit_watts)
    if found is None:
        return None
    xp = namespace(found, phase_s, power_limit_watts, device.power_watts)
    limit = 1.0 if power_limit_watts is None else xp.minimum(1.0, power_limit_watts / device.power_watts)
    clocks = {kind: found.clock_under(limit, found.busy[kind]) for kind in set(map(KIND_OF.__getitem__, phase_s))}
    seconds = _seconds(found, {name: xp.maximum(value, 0.0) for name, value in phase_s.items()}, clocks)
    watts = {
        name: device.power_watts * found.share(clocks[KIND_OF[name]], found.busy[KIND_OF[name]]) for name in phase_s
    }
    step_s = sum(seconds.values())
    joules = sum(seconds[name] * watts[name] for name in phase_s)
    clock = sum(seconds[name] * clocks[KIND_OF[name]] for name in phase_s) / step_s
    number = float if is_numpy(xp) else _as_it_is
    return StepPower(
        watts=number(joules / step_s),
        joules=number(joules),
        step_s=number(step_s),
        clock=number(clock),
        phase_s={name: number(value) for name, value in seconds.items()},
        phase_watts={name: number(value) for name, value in watts.items()},
        source=found.source,
    )


def _as_it_is(value: Values) -> Values:
    return value


def _seconds(law: PowerLaw, phase_s: Mapping[str, Values], clocks: Mapping[str, Values]) -> dict[str, Values]:
    """Seconds of phases at these clocks."""
    out = {name: value * slowdown(law.bound[KIND_OF[name]], clocks[KIND_OF[name]]) for name, value in phase_s.items()}
    computes = [name for name in phase_s if KIND_OF[name] in COMPUTE]
    if computes:
        before = sum(phase_s[name] for name in computes)
        longer = sum(out[name] for name in computes) / (before + 1e-30)
        out |= {name: phase_s[name] * longer for name in phase_s if KIND_OF[name] == WAITING}
    return out


def _check(phase_s: Mapping[str, Any], limit_watts: Any) -> None:
    for name in phase_s:
        if name not in KIND_OF:
            known = f"known are {', '.join(KIND_OF)}{did_you_mean(name, KIND_OF, '')}"
            raise SpecError.of(Problem(name, f"is no phase of a step; {known}"), "phases")
    if limit_watts is not None and not is_traced(limit_watts) and not 0 < limit_watts < float("inf"):
        raise SpecError.of(Problem("power_limit_watts", f"{limit_watts}, but it must be finite and greater than 0"))
    if any(is_traced(value) for value in phase_s.values()):
        return
    whole = sum(phase_s.values())
    if not 0 < whole < float("inf"):
        raise SpecError(f"phases take {whole} seconds, but they must take some, and finitely many")
    for name, value in phase_s.items():
        if not value >= -ROUNDING * whole:
            raise SpecError.of(Problem(name, f"{value} s, but it must not be negative"), "phases")
