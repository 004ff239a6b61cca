"""Confidence bounds for quantiles.

Three kinds. From n independent draws of steps (brute force, measured steps) an order statistic bounds the quantile without any
assumption: the k-th smallest of n is at least the p-quantile with probability P(Binomial(n, p) < k). From a few independent
randomisations of a weighted estimate there are no independent steps, and Student's t on their spread bounds the quantile.
Refits to reweighted data are draws of the quantile itself: their spread bounds it, not that of their mean.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import bdtr, stdtrit

from ..errors import DataError


@dataclass(frozen=True)
class Guarantee:
    """With `confidence`, at least a fraction `p` of steps takes at most `bound_s`."""

    p: float
    confidence: float
    bound_s: float
    kind: str  # order_statistic | randomisations | refits

    def sentence(self) -> str:
        """The guarantee in words."""
        return (
            f"with {100 * self.confidence:.6g}% confidence at least {100 * self.p:.6g}% of steps "
            f"take at most {self.bound_s:.4g} s under this model"
        )


def order_statistic_bound(samples_s: Float[np.ndarray, " sample"], p: float, confidence: float) -> Guarantee:
    """Distribution-free bound from independent samples.

    Raises:
        DataError: too few samples; names how many are needed.
    """
    n = len(samples_s)
    needed = smallest_sample(p, confidence)
    if n < needed:
        raise DataError(f"{n} samples cannot bound the {p:g} quantile with confidence {confidence:g}; {needed} can")
    k = np.arange(1, n + 1)
    # P(X_(k) >= q_p) = P(fewer than k of n fall below q_p) = bdtr(k - 1, n, p)
    first = int(k[np.searchsorted(bdtr(k - 1, n, p), confidence)])
    return Guarantee(p, confidence, float(np.sort(samples_s)[first - 1]), "order_statistic")


def smallest_sample(p: float, confidence: float) -> int:
    """Fewest independent samples whose maximum bounds the p-quantile: 1 - p^n >= confidence."""
    return int(np.ceil(np.log1p(-confidence) / np.log(p)))


def upper_bound(
    estimate_s: float, batches_s: Float[np.ndarray, "batch sample"], p: float, confidence: float
) -> Guarantee:
    """One-sided Student bound from independent randomisations around the pooled estimate."""
    n = len(batches_s)
    error = np.quantile(batches_s, p, axis=1).std(ddof=1) / np.sqrt(n)
    return Guarantee(p, confidence, float(estimate_s + stdtrit(n - 1, confidence) * error), "randomisations")


def refit_bound(quantiles_s: Float[np.ndarray, " refit"], p: float, confidence: float) -> Guarantee:
    """One-sided Student bound of a quantile of which every refit to reweighted data gives one draw."""
    n = len(quantiles_s)
    spread = quantiles_s.std(ddof=1) * np.sqrt(1.0 + 1.0 / n)
    return Guarantee(p, confidence, float(quantiles_s.mean() + stdtrit(n - 1, confidence) * spread), "refits")
