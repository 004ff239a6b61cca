"""How alike two configurations are expected to be: a sum of effects, each shared by those that agree in its labels.

Every coordinate of the shape is a Gaussian process over configurations. An effect either is constant or bends smoothly with the
logarithm of the GPU count, and is weaker between metrics (a step timed inside, an interval between logs) than within one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from .data import REFERENCE_LOG2_GPUS, SLOPE_SD, StepsData
from .runs import LABELS


@dataclass(frozen=True)
class Effect:
    """Shared by configurations that agree in `labels`; bends over `reach` times the length, 0 = constant."""

    name: str
    labels: tuple[str, ...]
    reach: float = 0.0


EFFECTS = (
    Effect("scale", (), 2.0),
    Effect("benchmark", ("benchmark",)),
    Effect("benchmark and scale", ("benchmark",), 2.0),
    Effect("GPU and scale", ("gpu",), 1.0),
    Effect("benchmark, GPU and scale", ("benchmark", "gpu"), 1.0),
    Effect("release", ("benchmark", "gpu", "round"), 1.0),
    Effect("submitter", ("submitter",)),
    Effect("submitter, GPU and scale", ("submitter", "gpu"), 1.0),
    Effect("system", ("benchmark", "system")),
)
METRIC = LABELS.index("metric")
LEVEL_SD = 3.0  # of a metric's mean coordinate; configurations within a benchmark have sd 1


@dataclass(frozen=True)
class Places:
    """Configurations to compare: codes [place, label], log2 of GPUs [place], index of the fitted configuration or -1 [place]."""

    codes: Any
    log2_gpus: Any
    unit: Any

    @staticmethod
    def of(data: StepsData) -> Places:
        """The configurations that were fitted."""
        return Places(data.codes, data.log2_gpus, np.arange(len(data.units)))


def covariance(
    amplitude: Any, own: Any, length: Any, coupling: Any, slope: Any, a: Places, b: Places, xp: Any = jnp
) -> Any:
    """Prior covariance of the coordinates, [component, place a, place b].

    Args:
        amplitude: standard deviation of every effect, [component, effect].
        own: of what is a configuration's own, [component].
        length: doublings of the GPU count over which effects bend.
        coupling: correlation of effects between metrics, 0 to 1.
        slope: prior growth per doubling, [component].
        xp: `jax.numpy` in the program, `numpy` in predictions.
    """
    alike = shared(length, coupling, a, b, xp)
    n_effect, n_a, n_b = alike.shape
    total = (amplitude**2 @ alike.reshape(n_effect, n_a * n_b)).reshape(
        -1, n_a, n_b
    )  # one product: the fit's inner loop
    same_metric = _same(a.codes[:, METRIC], b.codes[:, METRIC], xp)
    total = total + LEVEL_SD**2 * same_metric + own[:, None, None] ** 2 * _same(a.unit, b.unit, xp)
    ramp = growth(a.log2_gpus)[:, None] * growth(b.log2_gpus)[None, :]
    return total + (SLOPE_SD * slope)[:, None, None] ** 2 * ramp


def variance(amplitude: Any, own: Any, slope: Any, places: Places) -> Any:
    """Prior variance of the coordinates of single places, whether or not their labels are known; [component, place]."""
    constant = LEVEL_SD**2 + own**2 + (amplitude**2).sum(axis=1)
    return constant[:, None] + (SLOPE_SD * slope[:, None] * growth(places.log2_gpus)[None]) ** 2


def shared(length: Any, coupling: Any, a: Places, b: Places, xp: Any = jnp) -> Any:
    """Correlation of every effect between places, [effect, place a, place b]."""
    same = {name: _same(a.codes[:, i], b.codes[:, i], xp) for i, name in enumerate(LABELS)}
    between = same["metric"] + (1.0 - same["metric"]) * coupling
    gap = a.log2_gpus[:, None] - b.log2_gpus[None, :]
    parts = []
    for effect in EFFECTS:
        alike = between
        for name in effect.labels:
            alike = alike * same[name]
        parts.append(alike * xp.exp(-0.5 * (gap / (effect.reach * length)) ** 2) if effect.reach else alike)
    return xp.stack(parts)


def growth(log2_gpus: Any) -> Any:
    """Doublings of the GPU count above the reference; [place]."""
    return log2_gpus - REFERENCE_LOG2_GPUS


def _same(a: Any, b: Any, xp: Any) -> Any:
    """1 where labels are known and equal; [place a, place b]."""
    a, b = a[:, None], b[None, :]
    return xp.where((a == b) & (a >= 0), 1.0, 0.0)
