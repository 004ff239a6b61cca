"""The shape of the micro-batch factor: the recorded pool, or the family that predicts held-out steps better.

Families are fitted to log factors of some steps and judged by the mean log density of the others; the pool is judged as a kernel
density. Families: normal, Student's t (location and scale by expectation maximisation, degrees of freedom from a short list), and
a mixture of two normals; `FACTOR_SHAPES` takes those of a caller. (The families of `variability` have mean one and are stated,
not fitted, so they have a registry of their own.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
from scipy.special import gammaln, ndtr, ndtri, stdtrit

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.registry import Registry

POOL = "pool"
N_FOLD = 5
MOST = 400  # values that are fitted or judged at once
MARGIN = 0.01  # nats per value by which a family must beat the pool
FREEDOMS = (3.0, 5.0, 10.0)
ROUNDS = 40
LEAST_SD = 1e-9


class FactorShape(NamedTuple):
    """A fitted distribution of log factors."""

    log_density: Callable[[Floats], Floats]
    quantile: Callable[[Floats], Floats]


class ShapeCandidate(NamedTuple):
    """One family of shapes: its name, and the shape that fits given log factors best."""

    name: str
    fit: Callable[[Floats], FactorShape]


class ShapeChoice(NamedTuple):
    """Chosen shape: `name` of the family or `POOL`, and the held-out log density per value of every candidate, in nats."""

    name: str
    scores: Mapping[str, float]


def choose_shape(log_factor: Floats) -> ShapeChoice:
    """The best shape for [mb, replica, step] log factors; the pool if there are too few steps to tell."""
    n_step = log_factor.shape[-1]
    if n_step < 2 or log_factor.std() < LEAST_SD:
        return ShapeChoice(POOL, {})
    n_fold = min(N_FOLD, n_step)
    fold = np.arange(n_step) % n_fold
    parts = [(_thin(log_factor[..., fold != k]), _thin(log_factor[..., fold == k])) for k in range(n_fold)]
    scores = {
        known.name: float(np.mean([known.fit(train).log_density(test).mean() for train, test in parts]))
        for known in (ShapeCandidate(POOL, _kernel), *FACTOR_SHAPES)
    }
    best = max(FACTOR_SHAPES.names, key=lambda name: scores[name])
    return ShapeChoice(best if scores[best] > scores[POOL] + MARGIN else POOL, scores)


def reshaped(sorted_log_factor: Floats, name: str) -> Floats:
    """The sorted log factors of a pool moved to the quantiles of the family `name` fitted to them; unmoved for the pool."""
    n = len(sorted_log_factor)
    if name == POOL:
        return sorted_log_factor
    return FACTOR_SHAPES.named(name).fit(_thin(sorted_log_factor)).quantile((np.arange(n) + 0.5) / n)


def _thin(values: Floats) -> Floats:
    """Picks at most `MOST` values evenly."""
    flat = values.ravel()
    return flat[np.linspace(0, flat.size - 1, min(MOST, flat.size)).astype(int)]


def _normal(values: Floats) -> FactorShape:
    mean, sd = float(values.mean()), max(float(values.std()), LEAST_SD)
    return FactorShape(lambda x: _log_normal(x, mean, sd), lambda u: mean + sd * ndtri(u))


def _student_t(values: Floats) -> FactorShape:
    fits = [_scaled_t(values, freedom) for freedom in FREEDOMS]
    return max(fits, key=lambda fit: float(fit.log_density(values).mean()))


def _scaled_t(values: Floats, freedom: float) -> FactorShape:
    centre, scale = float(np.median(values)), max(float(values.std()), LEAST_SD)
    for _ in range(ROUNDS):
        weight = (freedom + 1.0) / (freedom + ((values - centre) / scale) ** 2)
        centre = float((weight * values).sum() / weight.sum())
        scale = max(float(np.sqrt((weight * (values - centre) ** 2).mean())), LEAST_SD)
    constant = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - 0.5 * np.log(freedom * np.pi) - np.log(scale)
    return FactorShape(
        lambda x: constant - (freedom + 1) / 2 * np.log1p(((x - centre) / scale) ** 2 / freedom),
        lambda u: centre + scale * stdtrit(freedom, u),
    )


def _mixture(values: Floats) -> FactorShape:
    """Two normals; neither narrower than a hundredth of the whole, so that no single value becomes one."""
    least = max(0.01 * float(values.std()), LEAST_SD)
    mean = np.quantile(values, [0.25, 0.9])
    sd, share = np.full(2, max(float(values.std()), least)), np.full(2, 0.5)
    for _ in range(ROUNDS):
        log_part = np.log(share)[:, None] + _log_normal(values, mean[:, None], sd[:, None])
        part = np.exp(log_part - np.logaddexp.reduce(log_part, axis=0))
        total = np.maximum(part.sum(axis=1), 1e-12)
        mean = (part @ values) / total
        spread = (part * (values - mean[:, None]) ** 2).sum(axis=1) / total
        sd, share = np.maximum(np.sqrt(spread), least), np.clip(total / len(values), 1e-6, 1.0)
    grid = np.linspace((mean - 8 * sd).min(), (mean + 8 * sd).max(), 4001)
    below = (share[:, None] * ndtr((grid - mean[:, None]) / sd[:, None])).sum(axis=0)
    return FactorShape(
        lambda x: np.logaddexp.reduce(np.log(share)[:, None] + _log_normal(x, mean[:, None], sd[:, None]), axis=0),
        lambda u: np.interp(u, below / below[-1], grid),
    )


def _kernel(values: Floats) -> FactorShape:
    """Gaussian kernels as wide as Silverman's rule says."""
    low, high = np.quantile(values, [0.25, 0.75])
    spread = min(float(values.std()), float(high - low) / 1.34) or float(values.std())
    width = max(0.9 * spread * len(values) ** -0.2, LEAST_SD)
    return FactorShape(
        lambda x: np.logaddexp.reduce(_log_normal(x[:, None], values, width), axis=1) - np.log(len(values)),
        lambda u: np.quantile(values, u),
    )


def _log_normal(x: Floats, mean: Floats | float, sd: Floats | float) -> Floats:
    return -0.5 * ((x - mean) / sd) ** 2 - np.log(sd) - 0.5 * np.log(2 * np.pi)


SHIPPED = (
    ShapeCandidate("normal", _normal),
    ShapeCandidate("student_t", _student_t),
    ShapeCandidate("mixture", _mixture),
)
FACTOR_SHAPES: Registry[ShapeCandidate] = Registry("factor shape", lambda: SHIPPED, error=DataError)
