"""Defines a training run: so many steps, what interrupts them, what is done about it, and its expected time by the exact form.

Work is done in intervals of D seconds, each followed by a checkpoint that blocks for w seconds. An interruption, at a rate of
λ per second, loses the interval and costs an outage of R seconds, in which the next interruption may strike. Every interval
starts anew:

    E[T] = W / D · e^{λR} (e^{λ(D + w)} - 1) (1 / λ + N)

where N is the time until an interruption is noticed, in which no other can strike. A checkpoint that takes b seconds more behind
the steps until it can be loaded costs what an outage longer by b costs (b at most D + w). The checkpoint interval that is best
follows.

Source: Young (1974) and Daly (2006, "A higher order estimate of the optimum checkpoint interval") expand this form for small
λ(D + w); first-order lines in λ turn negative where it says a few percent. Functions take NumPy or JAX arrays of one shape,
in any one unit of time, and are differentiable in all arguments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.arrays import Floats, namespace
from ..core.errors import Problem, SpecError
from .checkpoint import Checkpoint, Recovery
from .reliability import HOUR_S, Reliability, fewest_spares
from .steps import StepSum

if TYPE_CHECKING:
    from ..job.job import Job

N_NEWTON = 8  # quadratic from a start that is exact for short and for long intervals: float64 is reached after six


def expected_time(work: Any, interval: Any, blocking: Any, outage: Any, rate: Any, noticed: Any = 0.0) -> Any:
    """Expected wall time of `work`; infinite where an interval is not to be finished in practice.

    Args:
        work: time of all steps without interruptions and checkpoints.
        interval: of work between checkpoints.
        blocking: time that training pauses to write a checkpoint.
        outage: from an interruption to the first new step.
        rate: interruptions per time.
        noticed: from an interruption to the outage.

    Example:
        >>> round(expected_time(100.0, 1.0, 0.05, 0.2, 0.02), 2)
        106.53
    """
    xp = namespace(work, interval, blocking, outage, rate, noticed)
    span = interval + blocking
    with np.errstate(over="ignore"):  # infinite, as said
        return work / interval * span * xp.exp(rate * outage) * growth(rate * span) * (1.0 + rate * noticed)


def growth(exponent: Any) -> Any:
    """(e^x - 1) / x, one at zero."""
    xp = namespace(exponent)
    small = abs(exponent) < 1e-8  # half of it is below float64's last digit
    safe = xp.where(small, 1.0, exponent)
    return xp.where(small, 1.0 + 0.5 * exponent, xp.expm1(safe) / safe)


def best_interval(blocking: Any, rate: Any) -> Any:
    """Interval of work between checkpoints that minimises the expected time; infinite where nothing interrupts.

    Notes:
        With x = λD and a = λw the derivative vanishes where x + expm1(-(x + a)) = 0, whatever the outage costs. Newton's method
        starts at Young's √(2a) for small a and at its limit 1 for large a.
    """
    xp = namespace(blocking, rate)
    a = blocking * rate
    none = a <= 0.0
    positive = xp.where(none, 1.0, a)
    x = xp.sqrt(1.0 - xp.exp(-2.0 * positive))
    for _ in range(N_NEWTON):
        decay = xp.expm1(-(x + positive))
        x = x + (x + decay) / decay
    interrupted = rate > 0.0
    free = xp.where(interrupted, 0.0, xp.inf)  # a checkpoint that costs nothing is taken all the time
    return xp.where(none, free, x / xp.where(interrupted, rate, 1.0))


MOST_STEPS = 10**12


@dataclass(frozen=True)
class TrainingRun:
    """All that decides when a job is done.

    Attributes:
        n_steps: to be done.
        steps: law of the sum of steps.
        n_gpus, node_size: of the job.
        reliability, checkpoint, recovery: what interrupts it, and what is done about it.
        level: [draw] equally likely factors on the step time: what the cost model does not know; None: nothing.

    Raises:
        SpecError: no steps, or more than can be counted.
    """

    n_steps: int
    steps: StepSum
    n_gpus: int
    node_size: int
    reliability: Reliability
    checkpoint: Checkpoint
    recovery: Recovery
    level: Floats | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.n_steps <= MOST_STEPS:
            raise SpecError.of(Problem("n_steps", f"{self.n_steps:,}, but it must be between 1 and {MOST_STEPS:,}"))

    @property
    def n_node(self) -> int:
        """Nodes of the job."""
        return ceil(self.n_gpus / self.node_size)

    @property
    def rate_s(self) -> float:
        """Interruptions per second."""
        return self.reliability.rate_h(self.n_gpus, self.node_size) / HOUR_S

    @property
    def noticed_s(self) -> float:
        """Seconds until an interruption is noticed, on average over causes."""
        rates = [hazard.rate_h(self.n_gpus, self.node_size) for hazard in self.reliability.hazards]
        whole = sum(rates)
        noticed = (rate * hazard.noticed_s for rate, hazard in zip(rates, self.reliability.hazards, strict=True))
        return sum(noticed) / whole if whole > 0.0 else 0.0

    @property
    def n_spare(self) -> int:
        """Spare nodes: those stated, or the fewest that suffice."""
        stated = self.recovery.spares
        return fewest_spares(self.reliability, self.n_gpus, self.node_size) if stated is None else stated

    @property
    def outage_s(self) -> float:
        """Seconds from the start after an interruption to the first new step at full pace."""
        return self.recovery.quickest_s() + self.checkpoint.load_s + self.recovery.warmup_s(self.steps.mean_s)

    @cached_property
    def interval_steps(self) -> int:
        """Steps between checkpoints: those stated, or the best by the exact form, once the last one is loadable."""
        interval_s = self.checkpoint.interval_s
        if interval_s is None:
            best_s = float(best_interval(self.checkpoint.blocking_s, self.rate_s))
            best_s /= 1.0 + self.recovery.planned_share
            least = self.checkpoint.background_s - self.checkpoint.blocking_s
            interval_s = max(best_s, least, self.steps.mean_s)
        return int(min(max(round(min(interval_s / self.steps.mean_s, 1e15)), 1), self.n_steps))

    @property
    def interval_s(self) -> float:
        """Seconds of work between checkpoints."""
        return self.interval_steps * self.steps.mean_s

    @property
    def slowdown(self) -> float:
        """Mean pace of kept steps: 1 without slow phases; each cause by itself, as if phases did not meet."""
        pace = 1.0
        for phase in self.reliability.slow_phases:
            mean_h = phase.duration_s * np.exp(0.5 * phase.duration_log_sd**2) / HOUR_S
            busy = 1.0 - np.exp(-phase.rate_h(self.n_gpus, self.node_size) * mean_h)
            pace += busy * (phase.slowdown - 1.0) * np.exp(0.5 * phase.slowdown_log_sd**2)
        return float(pace)

    def expected_s(self, interval_s: Any = None, rate_s: Any = None, step_factor: Any = 1.0) -> Any:
        """Expected wall time by the exact form, seconds; arguments are arrays or None for those of the run.

        Args:
            interval_s: of work between checkpoints.
            rate_s: interruptions per second.
            step_factor: on the time of every step, at the same steps between checkpoints.

        Notes: rates are taken as constant, nodes as there when they are needed, slow phases as their mean pace.
        """
        factor = self.slowdown * step_factor
        interval = (self.interval_s if interval_s is None else interval_s) * factor
        work = self.n_steps * self.steps.mean_s * factor
        blocking = self.checkpoint.blocking_s + self.recovery.planned_share * interval / factor
        rate = self.rate_s if rate_s is None else rate_s
        outage = self.outage_s + self.checkpoint.background_s
        return expected_time(work, interval, blocking, outage, rate, self.noticed_s)

    def gradient(self) -> dict[str, float]:
        """Derivatives of the expected time: seconds by second of the interval, and by second of the mean time to failure."""
        import jax

        mtbf_s = 1.0 / self.rate_s
        with jax.enable_x64(True):
            # one program, not forty
            time_s = jax.jit(jax.grad(lambda d, m: self.expected_s(d, 1.0 / m), argnums=(0, 1)))
            interval, mtbf = time_s(self.interval_s, mtbf_s)
        return {"interval_s": float(interval), "mtbf_s": float(mtbf)}

    def as_known(self) -> TrainingRun:
        """The run as if its rates and the level of its step were known exactly: what is left is chance."""
        hazards = tuple(replace(hazard, log_sd=0.0) for hazard in self.reliability.hazards)
        return replace(self, reliability=replace(self.reliability, hazards=hazards), level=None)


def steps_of(job: Job, n_steps: int | None, n_tokens: float | None) -> int:
    """Steps to be done, from their number or from tokens (samples, images: what the job counts).

    Raises:
        SpecError: neither is given, both are, or none is to be done.
    """
    if (n_steps is None) == (n_tokens is None):
        raise SpecError("steps and tokens: give one of both, --steps N or --tokens T")
    if n_steps is not None:
        count = n_steps
    else:
        assert n_tokens is not None
        if not 0.0 < n_tokens < float("inf"):
            raise SpecError.of(Problem("tokens", f"{n_tokens:g}, but it must be finite and above 0"))
        count = ceil(n_tokens / job.model.units_per_step(job.plan))
    if not 1 <= count <= MOST_STEPS:
        told = f"{count:,}" if abs(count) < 10**18 else f"a number of {len(str(count)):,} digits"
        raise SpecError.of(Problem("steps", f"{told}, but it must be between 1 and {MOST_STEPS:,}"))
    return count
