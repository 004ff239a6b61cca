"""A training run: so many steps, what interrupts them, what is done about it, and its expected time by the exact form."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from .._typing import Floats
from ..errors import Problem, SpecError
from .checkpoint import Checkpoint
from .recovery import Recovery
from .reliability import HOUR_S, Reliability
from .renewal import best_interval, expected_time
from .spares import fewest_spares
from .steps import StepSum

if TYPE_CHECKING:
    from ..job import Job

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
            time_s = jax.grad(lambda d, m: self.expected_s(d, 1.0 / m), argnums=(0, 1))
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
