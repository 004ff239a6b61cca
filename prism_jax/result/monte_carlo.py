"""Monte Carlo error of quantiles, from the samples of a few independent randomisations.

The error of a quantile is first one of its level: with F_b(t) the share of randomisation b's samples up to t,

    s(p)^2 = mean over levels p' near p of  var_b F_b(q(p')) / n_b

and the quantile function of all samples turns a level p +- 2 s into seconds. Shares are sums over what was drawn, so that their
variance is right however few samples lie beyond the quantile, where quantiles of single randomisations are cut off; between
distant levels the quantile function is smooth, where the density at one point is not. A few levels are averaged because strata
meet single levels exactly: half of all Sobol points lie below the median in every randomisation.

Source: Woodruff, Confidence intervals for medians and other position measures, JASA 47 (1952).
"""

from __future__ import annotations

from typing import Literal

import numpy as np
from jaxtyping import Float
from numpy.typing import ArrayLike
from scipy.special import stdtrit

from .._typing import Floats

SIDES: tuple[Literal["left", "right"], ...] = ("left", "right")  # samples that are equal count half
NEAR = np.linspace(-0.1, 0.1, 5)  # of p (1 - p): levels whose variances are averaged
REACH = 2.0  # level errors to either side at which the quantile function is read
INTERPOLATION = 3e-4  # of the distance from the median, or of the spread: what maps of scores and grids leave
DEGREES = 2  # of freedom per randomisation but one: levels that are averaged err in part by themselves
TWO_SIDED, NORMAL = 0.975, 1.959964  # the probability for which errors are calibrated, and its normal score


def quantile(samples_s: Float[np.ndarray, " sample"], p: ArrayLike) -> Floats:
    """Quantiles of equally likely samples, sorted; sample i of n stands at level (i - 1/2) / n, as strata do."""
    n = len(samples_s)
    place = np.clip(np.asarray(p, dtype=np.float64) * n - 0.5, 0.0, n - 1.0)
    low = np.minimum(place.astype(np.intp), max(n - 2, 0))
    step = samples_s[np.minimum(low + 1, n - 1)] - samples_s[low]
    return samples_s[low] + (place - low) * step


def level_error(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float
) -> float:
    """Standard error s(p) of the level at which the quantile `p` of all samples lies; all are sorted."""
    times_s = quantile(samples_s, p + NEAR * p * (1.0 - p))
    ends = [np.searchsorted(batch, times_s, side) for side in SIDES for batch in batches_s]
    share = np.reshape(ends, (len(SIDES), len(batches_s), -1)).mean(axis=0) / batches_s.shape[1]
    return float(np.sqrt(share.var(axis=0, ddof=1).mean() / len(batches_s)))


def quantile_error(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float
) -> float:
    """Standard error of the quantile `p` of all samples, in their unit."""
    error = level_error(samples_s, batches_s, p)
    low, high = max(p - REACH * error, 0.0), min(p + REACH * error, 1.0)
    if high == low:
        return 0.0
    return error * float(quantile(samples_s, high) - quantile(samples_s, low)) / (high - low)


def half_width(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float, prob: float
) -> float:
    """How far the quantile lies from the truth at most with probability `prob` on either side: Student's t."""
    degrees = DEGREES * (len(batches_s) - 1)
    return float(stdtrit(degrees, prob)) * quantile_error(samples_s, batches_s, p)


def stated_error(
    samples_s: Float[np.ndarray, " sample"], batches_s: Float[np.ndarray, "batch batch_sample"], p: float
) -> float:
    """Error such that the truth lies within 1.96 of it as often as within a known standard error: in 95 % of repeats.

    Notes:
        Randomisations are few, so that theirs is a Student interval; where hardly anything is drawn at random, interpolation is
        the larger part.
    """
    drawn = half_width(samples_s, batches_s, p, TWO_SIDED) / NORMAL
    low, middle, high, here = quantile(samples_s, [0.16, 0.5, 0.84, p])
    return float(np.hypot(drawn, INTERPOLATION * max(abs(here - middle), 0.5 * (high - low))))
