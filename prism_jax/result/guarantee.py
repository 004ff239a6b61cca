"""Confidence bounds for quantiles, or a refusal: a bound that is stated holds as often as it says.

Three kinds. From n independent draws of steps (brute force, measured steps) an order statistic bounds the quantile without any
assumption: the k-th smallest of n is at least the p-quantile with probability P(Binomial(n, p) < k). From a few independent
randomisations of a weighted estimate there are no independent steps, and Student's t on their shares bounds the quantile's level.
Refits to reweighted data are draws of the quantile itself: their spread bounds it, not that of their mean.

Of the first two, half of the allowed misses is spent on the draws. The other half is left for what neither kind knows of: shares
of few randomisations are not quite normal, and between columns and strata one interpolates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import bdtr, stdtrit

from ..errors import DataError
from ..report.codec import shown
from .monte_carlo import level_error, quantile

OF_DRAWS = 0.5  # of the allowed misses
FARTHEST = 0.1  # of the tail beyond p may lie beyond the level that bounds p; farther out randomisations say too little


@dataclass(frozen=True)
class Guarantee:
    """With `confidence`, at least a fraction `p` of steps takes at most `bound_s`."""

    p: float
    confidence: float
    bound_s: float
    kind: str  # order_statistic | randomisations | refits

    @shown
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


def independent_bound(samples_s: Float[np.ndarray, " sample"], p: float, confidence: float) -> Guarantee:
    """Bound by order statistic with a margin for what is not quite independent draws: strata, stalls integrated.

    Raises:
        DataError: too few samples; names how many are needed.
    """
    bound_s = order_statistic_bound(samples_s, p, _sure(confidence)).bound_s
    return Guarantee(p, confidence, bound_s, "order_statistic")


def randomised_bound(
    samples_s: Float[np.ndarray, " sample"],
    batches_s: Float[np.ndarray, "batch batch_sample"],
    p: float,
    confidence: float,
) -> Guarantee:
    """Quantile at the level that Student's t on the randomisations' shares puts above `p`.

    Raises:
        DataError: the level lies so far out in the tail that the randomisations say little of it.
    """
    n = len(batches_s)
    level = p + float(stdtrit(n - 1, _sure(confidence))) * level_error(samples_s, batches_s, p)
    if level > 1.0 - FARTHEST * (1.0 - p):
        raise DataError(
            f"{n} randomisations differ too much to bound the {p:g} quantile at confidence {confidence:g}; simulate more"
        )
    return Guarantee(p, confidence, float(quantile(samples_s, level)), "randomisations")


def _sure(confidence: float) -> float:
    """Confidence of which half of the misses are left over."""
    return 1.0 - OF_DRAWS * (1.0 - confidence)


def refit_bound(quantiles_s: Float[np.ndarray, " refit"], p: float, confidence: float) -> Guarantee:
    """One-sided Student bound of a quantile of which every refit to reweighted data gives one draw."""
    n = len(quantiles_s)
    spread = quantiles_s.std(ddof=1) * np.sqrt(1.0 + 1.0 / n)
    return Guarantee(p, confidence, float(quantiles_s.mean() + stdtrit(n - 1, confidence) * spread), "refits")
