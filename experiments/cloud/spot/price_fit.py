"""The law of a spot price from a series of snapshots or change points."""

from __future__ import annotations

import numpy as np

from prism_jax.cloud.spot import PriceLaw
from prism_jax.core.arrays import Flags, Floats
from prism_jax.core.errors import DataError

JUMP = 6.0  # changes beyond so many typical ones are jumps: four standard deviations of a normal law
LEAST_POINTS = 8
RETURN_POINTS = 50  # of a record that may show that a price returns to its mean: of fewer the mean itself is not known
NO_RETURN = 2.9  # standard errors that a return to the mean must be off none: the 5% point of Dickey and Fuller's test
WALK = 1e-3  # return per point of a price that shows none
MORE_JUMP = 0.15  # log price: a record that shows no jump does not rule one out, so one more is counted, of this size


def fit_price(t_s: Floats, price: Floats) -> PriceLaw:
    """The law of a series of snapshots or change points, at any spacing.

    Args:
        t_s: seconds, rising, [point].
        price: above 0, [point].

    Raises:
        DataError: too few points, times that do not rise, or prices that are none.

    Notes:
        Changes of log price beyond six times their median size are jumps; the rest is an autoregression between points of the
        median spacing, or a random walk where the record does not show that the price returns to a mean.
    """
    t_s, price = np.asarray(t_s, dtype=float), np.asarray(price, dtype=float)
    if len(t_s) != len(price) or len(t_s) < LEAST_POINTS:
        raise DataError(f"{len(t_s)} prices, but at least {LEAST_POINTS} with a time each are needed")
    if not (np.isfinite(price).all() and (price > 0.0).all()):
        raise DataError("prices must be finite and above 0")
    if not (np.isfinite(t_s).all() and (np.diff(t_s) > 0.0).all()):
        raise DataError("times of prices must rise")
    log_price = np.log(price)
    mean, span = log_price.mean(), t_s[-1] - t_s[0]
    steps, gap = np.diff(log_price), float(np.median(np.diff(t_s)))
    is_jump = np.abs(steps) > JUMP * np.median(np.abs(steps[steps != 0.0])) if (steps != 0.0).any() else steps > 0.0
    sd, back, start = _between_jumps(log_price - mean, ~is_jump)
    jump_sd = float(np.sqrt((np.sum(steps[is_jump] ** 2) + MORE_JUMP**2) / (is_jump.sum() + 1)))
    return PriceLaw(sd, back / gap, float((is_jump.sum() + 1) / span), jump_sd, start)


def _between_jumps(off: Floats, goes_on: Flags) -> tuple[float, float, float]:
    """Long-run standard deviation, return per point, and where the price is, of log prices `off` their mean, [point].

    Args:
        goes_on: [point - 1] whether the next point follows without a jump.
    """
    x, y = off[:-1][goes_on], off[1:][goes_on]
    if len(x) <= 2:
        return 0.0, WALK, 0.0
    slope = float(x @ y / max(x @ x, 1e-300))
    error = float(np.sqrt((y - slope * x).var() / max(x @ x, 1e-300)))
    if len(x) >= RETURN_POINTS and 1.0 - slope > NO_RETURN * error > 0.0:
        slope = float(np.clip(slope, 0.01, 1.0 - WALK))
        return float(np.sqrt((y - slope * x).var() / (1.0 - slope**2))), -float(np.log(slope)), float(off[-1])
    return float(np.sqrt(((y - x) ** 2).mean() / (2.0 * WALK))), WALK, 0.0
