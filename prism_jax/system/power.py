"""Power of a GPU (watts) by clock and work, the clock that a limit allows and its cost in time; and the power of a step.

    P(c) = TDP (idle + (1 - idle) busy g(c))        c: clock / top clock
    g(c) = c^k                    c >= floor        voltage falls with the clock
         = floor^(k-1) c          below             voltage is at its least, so that a slower step takes more energy
    t(c) = t(1) (1 - bound + bound / c)             bound: share of the seconds that follow the clock

Powers are shares of the device's own limit (TDP), so that one law serves a generation; the top clock is the one that matrix
products hold there. A generation that was not measured has the law of all GPUs; devices that are no GPUs have none.

In a step every phase draws what its kind of work draws, and the watts are the mean over its seconds. Under a limit every kind of
work runs at the highest clock that keeps its own power below it; compute stretches by the share of its seconds that follows the
clock, communication does not, and whoever waits waits as much longer. GPU energy alone: hosts, switches and cooling are not part.

Source: dynamic power C V^2 f; sweeps of 38 and 60 clocks of A100 and A40 (Perseus, arXiv 2312.06902), power limits of V100, A40
and RTX 6000 (Zeus, NSDI 2023); see `experiments/power`. Inputs may be JAX arrays.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Protocol

from ..core.arrays import Values, is_numpy, is_traced, namespace
from ..core.errors import Problem, SpecError
from ..core.registry import did_you_mean

LOWEST_CLOCK = 0.15  # of the top clock: 210 of 1,410 MHz on A100, 345 of 1,980 MHz on H100
MOST_EXPONENT = 10.0
WAITING = "waiting"
"""Kind of work that lasts as long as the work of others, so that it stretches as compute does."""


@dataclass(frozen=True)
class PowerLaw:
    """Power of one kind of GPU.

    Attributes:
        idle_share: power at the least work, of TDP, in [0, 1).
        exponent: k, of the clock in dynamic power while voltage falls with it, >= 1.
        floor_clock: clock below which voltage stays, of the top clock, in (0, 1].
        busy: kind of work -> dynamic power at the top clock, of TDP - idle, >= 0. More than 1 is held back by the limit.
        bound: kind of work -> share of its seconds that follow the clock, in [0, 1]; `WAITING` follows compute instead.
        lowest_clock: lowest share of the top clock that the GPU can hold, in (0, 1]; a limit below its power is exceeded.
        source: of the figures.

    Raises:
        SpecError: a figure is out of its range.
    """

    idle_share: Values
    exponent: Values
    floor_clock: Values
    busy: Mapping[str, Values]
    bound: Mapping[str, Values]
    lowest_clock: float = LOWEST_CLOCK
    source: str = ""

    def __post_init__(self) -> None:
        _check("idle_share", self.idle_share, 0.0, 0.99)
        _check("exponent", self.exponent, 1.0, MOST_EXPONENT)
        _check("floor_clock", self.floor_clock, 0.01, 1.0)
        _check("lowest_clock", self.lowest_clock, 0.01, 1.0)
        for kind, value in self.busy.items():
            _check(f"busy of {kind}", value, 0.0, 2.0)
        for kind, value in self.bound.items():
            _check(f"bound of {kind}", value, 0.0, 1.0)

    def dynamic(self, clock: Values) -> Values:
        """g: dynamic power at `clock`, of that at the top clock."""
        xp = namespace(self, clock)
        k, floor = self.exponent, self.floor_clock
        above = xp.maximum(clock, floor)
        return xp.where(clock >= floor, above**k, floor ** (k - 1.0) * clock)

    def share(self, clock: Values, busy: Values) -> Values:
        """Returns the power as a share of TDP."""
        return self.idle_share + (1.0 - self.idle_share) * busy * self.dynamic(clock)

    def clock_under(self, limit_share: Values, busy: Values) -> Values:
        """The highest clock, of the top one, at which work draws no more than a limit.

        Args:
            limit_share: power limit, of TDP.
            busy: dynamic power of the work at the top clock, of TDP - idle.

        Returns:
            1 where the limit holds nothing back, `lowest_clock` where no clock is low enough.
        """
        xp = namespace(self, limit_share, busy)
        room = (limit_share - self.idle_share) / (1.0 - self.idle_share) / xp.maximum(busy, 1e-12)
        return xp.clip(self.clock_at(room), self.lowest_clock, 1.0)

    def clock_at(self, dynamic: Values) -> Values:
        """The clock of a dynamic power: the inverse of `dynamic`, which goes on beyond the top clock."""
        xp = namespace(self, dynamic)
        k, floor = self.exponent, self.floor_clock
        knee = floor**k
        above = xp.maximum(dynamic, knee) ** (1.0 / k)
        below = xp.maximum(dynamic, 0.0) / floor ** (k - 1.0)
        return xp.where(dynamic >= knee, above, below)


def slowdown(bound: Values, clock: Values) -> Values:
    """Seconds at a clock over those at the top clock.

    Args:
        bound: share of the seconds at the top clock that follow the clock.
        clock: of the top clock.
    """
    return 1.0 - bound + bound / clock


def _check(name: str, value: Values, least: float, most: float) -> None:
    if not is_traced(value) and not least <= value <= most:
        raise SpecError.of(Problem(name, f"{value}, but it must be between {least:g} and {most:g}"), "power law")


_PACKAGE = __name__.rpartition(".")[0]


class GpuKind(Protocol):
    """Properties of a GPU that decide which power law holds; `system.hardware.Device` is one.

    Attributes:
        generation: key of its generation.
        power_watts: its power limit.
    """

    @property
    def generation(self) -> str: ...
    @property
    def power_watts(self) -> float: ...


def power_law(device: GpuKind) -> PowerLaw | None:
    """The law of a device; None of those that no law of this form is known to hold for (TPU and others that are no GPUs)."""
    kept = _presets()
    if device.generation in kept["without"]:
        return None
    return _law(device.generation) if device.generation in kept["generation"] else population_law()


def population_law() -> PowerLaw:
    """The law of a GPU that nothing was measured of."""
    return _law("")


@cache
def _law(generation: str) -> PowerLaw:
    kept = _presets()
    own, every = kept["generation"].get(generation, {}), kept["population"]
    merged: dict[str, Any] = every | own
    merged |= {name: every[name] | own.get(name, {}) for name in ("busy", "bound")}
    return PowerLaw(**merged)


@cache
def _presets() -> dict[str, Any]:
    import tomllib  # only needed when a preset is asked for

    return tomllib.loads((files(_PACKAGE) / "presets" / "power.toml").read_text(encoding="utf-8"))


# Kind of work of every phase that `explain.explain.breakdown` names, and of compute where it is split by kernel class.
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
            (time lost to communication meanwhile; `explain.explain.power_phases` splits them); exposed
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
    _step_check(phase_s, power_limit_watts)
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


def _step_check(phase_s: Mapping[str, Any], limit_watts: Any) -> None:
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
