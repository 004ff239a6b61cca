"""StepTimeDistribution: what `predict` returns. Quantiles with their Monte Carlo error, probabilities, a guarantee."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float

from .guarantee import Guarantee, order_statistic_bound, smallest_sample, upper_bound

QUANTILES = (0.05, 0.5, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class StepTimeDistribution:
    """Distribution of the step time over fleets and steps.

    Attributes:
        samples_s: [sample] equally likely step times, sorted.
        batches_s: [batch, batch_sample] the same from independent randomisations, for the Monte Carlo error.
        deterministic_s: step time without any variability.
        method: "symmetric" or "brute_force".
        n_samples: simulated columns (symmetric) or steps (brute force).
        tail_columns: effective number of simulated columns (or steps) beyond the p95; how much the upper quantiles rest on.
        notes: what the user should know about how this was computed.
    """

    samples_s: Float[np.ndarray, " sample"]
    batches_s: Float[np.ndarray, "batch batch_sample"]
    deterministic_s: float
    method: str
    n_samples: int
    tail_columns: float
    notes: tuple[str, ...] = field(default=())

    @property
    def mean_s(self) -> float:
        """Mean step time, seconds."""
        return float(self.samples_s.mean())

    @property
    def std_s(self) -> float:
        """Standard deviation of the step time, seconds."""
        return float(self.samples_s.std())

    def quantile(self, p: float) -> float:
        """Step time that a fraction `p` of steps does not exceed, seconds."""
        return float(np.quantile(self.samples_s, p))

    def mc_error(self, p: float) -> float:
        """Standard error of `quantile(p)` from the spread over independent randomisations, seconds."""
        estimates = np.quantile(self.batches_s, p, axis=1)
        return float(estimates.std(ddof=1) / np.sqrt(len(estimates)))

    def prob_above(self, time_s: float) -> float:
        """P(step > time_s)."""
        return float((self.samples_s > time_s).mean())

    def prob_slower(self, fraction: float) -> float:
        """P(step > (1 + fraction) x median)."""
        return self.prob_above((1.0 + fraction) * self.quantile(0.5))

    def guarantee(self, p: float = 0.95, confidence: float = 0.99) -> Guarantee:
        """Upper confidence bound of a quantile of the *modelled* distribution.

        By order statistic where steps are independent (brute force) and numerous enough, else from the randomisations' spread.
        """
        if self.method == "brute_force" and len(self.samples_s) >= smallest_sample(p, confidence):
            return order_statistic_bound(self.samples_s, p, confidence)
        return upper_bound(self.quantile(p), self.batches_s, p, confidence)
