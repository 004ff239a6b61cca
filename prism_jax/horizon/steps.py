"""Models the time of K steps of one fleet.

What persists multiplies K, what drifts fades, what is independent averages out. With a step's spread s, its part r that persists
(which GPUs and nodes the fleet has), and a part a that drifts with lag-k correlation ρ^k:

    Var[sum of K] = K² r² + a² (K (1 + ρ)/(1 - ρ) - 2ρ (1 - ρ^K)/(1 - ρ)²) + K (s² - r² - a²)

Two parts drift, each with a correlation of its own: the step factor, and the popularity of experts. K independent draws, K s²,
are far too narrow: of a million steps nothing but r is left.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from ..core.arrays import Floats
from ..result.distribution import StepTimeDistribution
from ..result.spread import AllocationSpread
from ..variability.tree import Variability

if TYPE_CHECKING:
    from jax import Array

    from ..job.job import Job
    from ..simulate.replica_maximum import StepFactor


def variance_of_sum(variance: float, ar1: float, n_steps: int) -> float:
    """Variance of the sum of `n_steps` values with lag-k correlation `ar1^k`.

    Notes: `variance * (n (1 + r) / (1 - r) - 2 r (1 - r^n) / (1 - r)^2)`.
    """
    r = ar1
    return variance * (n_steps * (1.0 + r) / (1.0 - r) - 2.0 * r * (1.0 - r**n_steps) / (1.0 - r) ** 2)


@dataclass(frozen=True)
class StepSum:
    """Law of the time of many steps of one fleet, seconds.

    Attributes:
        mean_s: of a step, over fleets and steps.
        noise_free_s: step without any variability.
        fleet_s: standard deviation of a fleet's mean step over fleets: what persists.
        drift_s, ar1: standard deviation and lag-1 correlation of the part that drifts.
        popularity_s, popularity_ar1: the same of the part that goes with the popularity of experts.
        free_s: standard deviation of the part that is independent from step to step: regimes, calls, stalls.
    """

    mean_s: float
    noise_free_s: float
    fleet_s: float = 0.0
    drift_s: float = 0.0
    ar1: float = 0.0
    free_s: float = 0.0
    popularity_s: float = 0.0
    popularity_ar1: float = 0.0

    @classmethod
    def fixed(cls, step_s: float) -> StepSum:
        """Steps that all take the same time."""
        return cls(step_s, step_s)

    @classmethod
    def of_spread(
        cls,
        distribution: StepTimeDistribution,
        spread: AllocationSpread,
        variability: Variability,
        popularity: StepFactor | None = None,
    ) -> StepSum:
        """Step law from the spreads within and between allocations of a prediction; the step factor and `popularity` drift."""
        within = spread.within_s**2
        drift = min((distribution.mean_s * variability.step.cv) ** 2, within) if variability.step_ar1 != 0.0 else 0.0
        popular = 0.0 if popularity is None else min((distribution.mean_s * popularity.sd) ** 2, within - drift)
        return cls(
            mean_s=distribution.mean_s,
            noise_free_s=distribution.deterministic_s,
            fleet_s=spread.between_s,
            drift_s=drift**0.5,
            ar1=variability.step_ar1,
            free_s=(within - drift - popular) ** 0.5,
            popularity_s=popular**0.5,
            popularity_ar1=0.0 if popularity is None else popularity.ar1,
        )

    def within_variance(self, n_steps: int) -> float:
        """Variance of the sum over one fleet."""
        drifting = ((self.drift_s, self.ar1), (self.popularity_s, self.popularity_ar1))
        return sum(variance_of_sum(s**2, ar1, n_steps) for s, ar1 in drifting) + n_steps * self.free_s**2

    def variance(self, n_steps: int) -> float:
        """Variance of the sum over fleets."""
        return (n_steps * self.fleet_s) ** 2 + self.within_variance(n_steps)

    def draws_s(self, n_steps: int, n_world: int, rng: np.random.Generator) -> Floats:
        """Seconds of `n_steps` steps, each world another fleet; [world].

        Notes: Gamma of the mean and variance above, so that times are positive; Normal where steps are many.
        """
        mean, variance = n_steps * self.mean_s, self.variance(n_steps)
        if variance <= 1e-18 * mean**2:
            return np.full(n_world, mean)
        return rng.gamma(mean**2 / variance, variance / mean, n_world)


def step_sum(job: Job, *, key: Array) -> StepSum:
    """Law of the sum of steps of a job, by the symmetric method."""
    from ..graph.draws import folded
    from ..simulate.allocation import allocation_spread
    from ..simulate.predict import predict
    from ..simulate.program import lower

    distribution, work = predict(job, key=key), lower(job).work
    if job.variability.is_zero and work is None:
        return StepSum.fixed(distribution.deterministic_s)
    spread = allocation_spread(lower(job), distribution, folded(key, 3))
    return StepSum.of_spread(distribution, spread, job.variability, None if work is None else work.popularity)
