"""StepTimeDistribution: what `predict` returns. Quantiles with their Monte Carlo error, probabilities, a guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from .guarantee import Guarantee, independent_bound, randomised_bound
from .monte_carlo import half_width, quantile, stated_error
from .step_times import SampleStatistics


@dataclass(frozen=True)
class StepTimeDistribution(SampleStatistics):
    """Distribution of the step time over fleets and steps.

    Attributes:
        samples_s: [sample] equally likely step times, sorted.
        batches_s: [batch, batch_sample] the same from independent randomisations, each sorted, for the Monte Carlo error.
        deterministic_s: step time without any variability.
        method: "symmetric" or "brute_force".
        n_samples: simulated columns (symmetric) or steps (brute force).
        tail_columns: effective number of simulated columns (or steps) beyond the p95; how much the upper quantiles rest on.
        notes: what the user should know about how this was computed.
        fleets_s: [fleet, step] steps of the same fleets in the order of time, of methods that know which steps belong together.
    """

    samples_s: Float[np.ndarray, " sample"]
    batches_s: Float[np.ndarray, "batch batch_sample"]
    deterministic_s: float
    method: str
    n_samples: int
    tail_columns: float
    notes: tuple[str, ...] = field(default=())
    fleets_s: Float[np.ndarray, "fleet step"] | None = None

    @property
    def by_fleet_s(self) -> Float[np.ndarray, "fleet step"]:
        """Step times, seconds: each row the steps of one fleet in the order of time.

        One step per fleet, which tells nothing of sums over steps, unless `predict` was asked for several (`steps_per_fleet`).
        """
        return self.samples_s[:, None] if self.fleets_s is None else self.fleets_s

    def quantile(self, p: float) -> float:
        """Step time that a fraction `p` of steps does not exceed, seconds."""
        return float(quantile(self.samples_s, p))

    def mc_error(self, p: float) -> float:
        """Standard error of `quantile(p)` from independent randomisations, seconds; 95 % of repeats lie within 1.96 of it."""
        return stated_error(self.samples_s, self.batches_s, p)

    def interval(self, p: float, level: float = 0.9) -> tuple[float, float]:
        """Interval of the quantile `p` of the modelled distribution, seconds: Monte Carlo error alone."""
        half = half_width(self.samples_s, self.batches_s, p, 0.5 + 0.5 * level)
        return self.quantile(p) - half, self.quantile(p) + half

    def guarantee(self, p: float = 0.95, confidence: float = 0.99) -> Guarantee:
        """Upper confidence bound of a quantile of the *modelled* distribution.

        By order statistic where steps are independent (brute force), else from what the randomisations differ by.

        Raises:
            DataError: there are too few of them to bound the quantile; the remedy is more samples.
        """
        if self.method == "brute_force" and self.by_fleet_s.shape[1] == 1:
            return independent_bound(self.samples_s, p, confidence)
        return randomised_bound(self.samples_s, self.batches_s, p, confidence)
