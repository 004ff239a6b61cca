"""Draws a world: how fast every GPU is, how long every job takes, and what a scheduler has seen and makes of it.

A job of n steps runs as fast as its slowest GPU: seconds = duration x max over its GPUs of the factor x mean of n step factors,
whose variance is s² (1 + ρ) / (1 - ρ) / n for steps of standard deviation s and lag-1 autocorrelation ρ. A tenth of the steps has
been seen before, on other GPUs of the same cluster: that is what estimates are made of.

The steps that were seen ran on some GPUs, the job will run on others: given seconds seen, the duration is seen x M₂ / M₁ with
M₁ and M₂ the slowest factors of two independent draws of as many GPUs. The point estimate is its mean. A new estimate is one
object and one line in the registry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt

import numpy as np

from ..core.arrays import Floats, Ints
from ..core.errors import DataError
from ..core.registry import Registry
from ..variability.tree import Variability
from .jobs import QueuedJobs

# a step where the trace does not say: it decides how far step noise averages out, which it nearly always does
STEP_S = 1.0
SEEN = 0.1  # of the steps, before the job is queued
NODE_SIZE = 8


@dataclass(frozen=True, eq=False)
class World:
    """One draw.

    Attributes:
        jobs: what was submitted.
        factor: [gpu] slowdown, fastest first.
        work_s: [job] seconds on GPUs of factor one.
        seen_s: [job] whole duration as its first steps suggest it, on the GPUs that they ran on.
        deadline_s: [job] on the clock of the trace.
        seed: of what a policy draws: which of the free GPUs a job gets that does not choose.
    """

    jobs: QueuedJobs
    factor: Floats
    work_s: Floats
    seen_s: Floats
    deadline_s: Floats
    seed: int


def spread_to(variability: Variability, cv: float) -> Variability:
    """Variability of the same shape with a coefficient of variation of `cv` between GPUs, in matrix products.

    Raises:
        DataError: its GPUs do not differ.
    """
    own = variability.of("gemm").gpu.cv
    if cv == 0.0:
        return variability.scaled(0.0)
    if not own > 0.0:
        raise DataError(
            f"variability {variability.name}: its GPUs do not differ, so that no spread can be scaled to {cv:g}"
        )
    return variability.scaled(cv / own)


def draw_world(jobs: QueuedJobs, n_gpus: int, variability: Variability, slack: float, seed: int) -> World:
    """One world.

    Args:
        n_gpus: of the cluster, in nodes of eight.
        variability: of matrix products between GPUs and nodes, and of steps.
        slack: where the trace has no deadlines: mean time to spare over the duration; every job has half of it to one and a half.
        seed: the same seed gives the same uniform numbers for every variability.
    """
    fleet_rng, step_rng, seen_rng, slack_rng = (np.random.default_rng([seed, stream]) for stream in range(4))
    factor = _factors(n_gpus, variability, fleet_rng)
    steps = np.maximum(jobs.duration_s / STEP_S, 1.0)
    noise = variability.step.cv * sqrt((1.0 + variability.step_ar1) / (1.0 - variability.step_ar1))
    work_s = jobs.duration_s * _mean_of(steps, noise, step_rng)
    slowest = slowest_of(factor, jobs.gpus, seen_rng.random(len(jobs)))
    seen_s = jobs.duration_s * slowest * _mean_of(np.maximum(SEEN * steps, 1.0), noise, seen_rng)
    deadline_s = jobs.deadline_s
    if deadline_s is None:
        spare = slack * slack_rng.uniform(0.5, 1.5, len(jobs))
        deadline_s = jobs.submit_s + jobs.duration_s * (1.0 + spare)
    return World(jobs, factor, work_s, seen_s, deadline_s, seed)


def slowest_of(factor: Floats, n_drawn: Floats | Ints, level: Floats) -> Floats:
    """Factor of the slowest of `n_drawn` GPUs drawn from a fleet, at probability `level`.

    Args:
        factor: [gpu] in increasing order.
    """
    place = (len(factor) * level ** (1.0 / n_drawn)).astype(np.int64)
    return factor[np.minimum(place, len(factor) - 1)]


def _factors(n_gpus: int, variability: Variability, rng: np.random.Generator) -> Floats:
    own = variability.of("gemm")
    node = own.node.ppf_normal(rng.standard_normal(-(-n_gpus // NODE_SIZE)))
    return np.sort(own.gpu.ppf_normal(rng.standard_normal(n_gpus)) * np.repeat(node, NODE_SIZE)[:n_gpus])


def _mean_of(n_steps: Floats, noise: float, rng: np.random.Generator) -> Floats:
    """Mean step factor of every job; kept above zero."""
    return np.maximum(1.0 + noise / np.sqrt(n_steps) * rng.standard_normal(len(n_steps)), 0.01)


N_DRAWS = 4096
HIGH, MIDDLE = 0.95, 0.5


@dataclass(frozen=True)
class DurationEstimate:
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
    DurationEstimate("mean", "mean of the distribution: a point estimate", None),
    DurationEstimate("p50", "median", _constant(MIDDLE)),
    DurationEstimate("p95", "duration that is exceeded in 5% of cases", _constant(HIGH)),
    DurationEstimate(
        "matched",
        "quantile by slack: p95 where there is none, the median where there is as much as the job lasts",
        matched_level,
    ),
)
ESTIMATES: Registry[DurationEstimate] = Registry("estimate", lambda: SHIPPED, error=DataError)
