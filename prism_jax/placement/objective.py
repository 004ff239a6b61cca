"""What is to be small about the step time: weights on the sorted steps. Quantiles, and the mean of the slowest steps."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float
from scipy.stats import t as student_t

from .._typing import Floats
from ..errors import DataError
from ..hints import did_you_mean

QUANTILE = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
OBJECTIVES = (*QUANTILE, "cvar95")
SMOOTHING = 0.02  # width of the smoothed quantile in probability: a fifth of steps beyond p90 share the gradient
CONFIDENCE = 0.9


def check_objective(name: str) -> None:
    """Raises a DataError on an unknown objective."""
    if name not in OBJECTIVES:
        raise DataError(
            f"objective {name!r} is unknown{did_you_mean(name, OBJECTIVES)}; known are {', '.join(OBJECTIVES)}"
        )


def weights(name: str, n: int) -> Floats:
    """Weights [n] of sorted steps that add up to one: linear interpolation for quantiles, the slowest 5 % for cvar95."""
    weight = np.zeros(n)
    if name == "cvar95":
        upper = np.clip((np.arange(n) + 1 - 0.95 * n) / (0.05 * n), 0.0, 1.0 / (0.05 * n))
        return upper / upper.sum()
    place = QUANTILE[name] * (n - 1)
    low = int(place)
    weight[low] = 1.0 - (place - low)
    weight[min(low + 1, n - 1)] += place - low
    return weight


def smooth_weights(name: str, n: int) -> Floats:
    """The same, spread over neighbours in rank, so that more than one step has a gradient."""
    if name == "cvar95":
        return weights(name, n)
    rank = (np.arange(n) + 0.5) / n
    width = min(SMOOTHING, 1.0 - QUANTILE[name])
    weight = np.exp(-0.5 * ((rank - QUANTILE[name]) / width) ** 2)
    return weight / weight.sum()


def value(times_s: Float[Array, "*batch step"], weight: Float[Array, " step"]) -> Float[Array, "*batch"]:
    """The objective, seconds; differentiable."""
    return jnp.sort(times_s, axis=-1) @ weight


def values(times_s: Floats, name: str) -> Floats:
    """The objective of every row of steps, on the host, seconds."""
    return np.sort(times_s, axis=-1) @ weights(name, times_s.shape[-1])


def mean_and_error(of_batch: Floats) -> tuple[float, float]:
    """Mean of independent batches [batch] and its standard error.

    An estimate is the mean of its batches', so that differences between methods on the same draws are estimates like any other:
    the tail's noise, which they share, cancels batch by batch.
    """
    return float(of_batch.mean()), float(of_batch.std(ddof=1) / np.sqrt(len(of_batch)))


def fresh_interval(estimate: float, error: float, n_batch: int) -> tuple[float, float]:
    """Where 90 % of estimates from as many fresh draws fall: both they and this estimate err."""
    half = float(student_t.ppf(0.5 + 0.5 * CONFIDENCE, n_batch - 1)) * np.sqrt(2.0) * error
    return float(estimate - half), float(estimate + half)
