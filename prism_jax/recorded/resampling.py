"""Step times that were not recorded, from recorded step times alone: the smoothed Bayesian bootstrap.

Redrawing recorded steps repeats their values, so no drawn step is longer than the longest one, though of two equal samples one
has the longest step of both half of the time: intervals of a p95 would be too short. So every refit gives random weights
(Dirichlet, all ones) to the n + 1 intervals between and beyond the n sorted log step times, and draws evenly within them. Beyond
the longest and the shortest step the excess is exponential, its scale the mean excess of the sqrt(n) outermost steps over the
next one.

Source: Rubin, "The Bayesian Bootstrap", 1981; smoothed as in Banks, "Histospline Smoothing the Bayesian Bootstrap", 1988; tail as
in Hill, "A Simple General Approach to Inference About the Tail of a Distribution", 1975.
"""

from __future__ import annotations

import numpy as np

from .._typing import Floats

FEWEST_OUTERMOST = 3


def resampled(step_s: Floats, *, n_refit: int, per_refit: int, seed: int) -> Floats:
    """Step times of the same law as the recorded ones.

    Args:
        step_s: [step] recorded step times, positive, seconds.
        n_refit: reweightings of the recorded steps.
        per_refit: draws of each.
        seed: same seed, same answer.

    Returns:
        [refit, draw] seconds. Equal recorded steps are repeated exactly.
    """
    log_s = np.sort(np.log(step_s))
    n, rng = len(log_s), np.random.default_rng(seed)
    upper, lower = _tail(log_s), _tail(-log_s[::-1])
    cuts = np.concatenate([[-np.inf], log_s, [np.inf]])
    rows = []
    for weight in rng.dirichlet(np.ones(n + 1), n_refit):
        cell = rng.choice(n + 1, size=per_refit, p=weight)
        below, above = cuts[cell], cuts[cell + 1]
        inside = np.where(np.isfinite(below), below, log_s[0])
        width = np.where(np.isfinite(above), above, log_s[-1]) - inside
        drawn = inside + width * rng.random(per_refit)
        excess = rng.exponential(size=per_refit)
        drawn += np.where(cell == n, upper * excess, 0.0) - np.where(cell == 0, lower * excess, 0.0)
        rows.append(np.exp(drawn))
    return np.stack(rows)


def _tail(log_s: Floats) -> float:
    """Mean excess of the highest of sorted values over the next one below them."""
    n_outermost = min(max(FEWEST_OUTERMOST, round(len(log_s) ** 0.5)), len(log_s) - 1)
    return float((log_s[-n_outermost:] - log_s[-n_outermost - 1]).mean()) if n_outermost else 0.0
