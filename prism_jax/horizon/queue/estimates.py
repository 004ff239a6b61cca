"""What a scheduler takes for the duration of a job: one number of the distribution that a tenth of its steps leaves.

The steps that were seen ran on some GPUs, the job will run on others: given seconds seen, the duration is seen x M₂ / M₁ with
M₁ and M₂ the slowest factors of two independent draws of as many GPUs. The point estimate is its mean. A new estimate is one
object and one line in the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..._core.registry import Registry
from ..._typing import Floats
from ...errors import DataError
from .world import World, slowest_of

N_DRAWS = 4096
HIGH, MIDDLE = 0.95, 0.5


@dataclass(frozen=True)
class Estimate:
    """One way to put a distribution of durations into a number.

    Attributes:
        name: as reports have it.
        about: one line.
        level: world -> [job] probability that the duration stays below the estimate; None for the mean.
    """

    name: str
    about: str
    level: Callable[[World], Floats] | None

    def seconds(self, world: World) -> Floats:
        """[job] estimated duration."""
        level = None if self.level is None else self.level(world)
        gpus, found = world.jobs.gpus, np.empty(len(world.jobs))
        for n_gpus in np.unique(gpus):
            rows, ratio = gpus == n_gpus, _ratio(world.factor, float(n_gpus))
            found[rows] = ratio.mean() if level is None else np.quantile(ratio, level[rows])
        return world.seen_s * found


def _ratio(factor: Floats, n_gpus: float) -> Floats:
    """Draws of M₂ / M₁; the same uniform numbers for all sizes."""
    levels = np.random.default_rng(0).random((2, N_DRAWS))
    slowest = slowest_of(factor, np.full_like(levels, n_gpus), levels)
    return slowest[1] / slowest[0]


def _constant(level: float) -> Callable[[World], Floats]:
    return lambda world: np.full(len(world.jobs), level)


def matched_level(world: World) -> Floats:
    """[job] 1 / (1 + slack over seen duration), from 0.5 to 0.95: the less time there is to spare, the more careful."""
    slack = (world.deadline_s - world.jobs.submit_s) / world.seen_s - 1.0
    return np.clip(1.0 / (1.0 + np.maximum(slack, 0.0)), MIDDLE, HIGH)


SHIPPED = (
    Estimate("mean", "mean of the distribution: a point estimate", None),
    Estimate("p50", "median", _constant(MIDDLE)),
    Estimate("p95", "duration that is exceeded in 5 % of cases", _constant(HIGH)),
    Estimate(
        "matched",
        "quantile by slack: p95 where there is none, the median where there is as much as the job lasts",
        matched_level,
    ),
)
ESTIMATES: Registry[Estimate] = Registry("estimate", lambda: SHIPPED, error=DataError)
