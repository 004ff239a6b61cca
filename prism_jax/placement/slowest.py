"""Mean and spread of the slowest GPU of a node, per kind of work: all that an assignment changes in the duration of an op.

An op lasts v_m (1 + sd r) on GPU m, with v_m its persistent factor over the op's mix of kernel classes and r its residual; the
group waits for the slowest. The maximum's mean and standard deviation are integrated on the host in float64, once per node. The
simulation then adds the same standardised noise to every assignment: exact where the GPUs of a group are alike, exact in mean and
variance where they are not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.scipy.stats import norm
from numpy.typing import NDArray
from scipy.special import ndtr

from .._typing import Floats
from ..graph.score import ScoreChain
from .fleet import Fleet

RESIDUAL_SCORES = np.linspace(-9.0, 9.0, 1801)
GRID_SCORES = np.linspace(-6.5, 8.0, 146)  # of the slowest member; F from 4e-11 to 1 - 6e-16
BLOCK = 4096  # nodes at a time


@dataclass(frozen=True)
class Residual:
    """Standardised call residual as a function of a normal score."""

    value: Floats  # at RESIDUAL_SCORES, increasing

    @classmethod
    def of(cls, chain: ScoreChain | None) -> Residual | None:
        """Host form of a chain."""
        if chain is None:
            return None
        z = RESIDUAL_SCORES
        value = float(chain.offset) + float(chain.slope) * z
        for knot, bend in zip(np.asarray(chain.knots), np.asarray(chain.bends), strict=True):
            value = value + float(bend) * np.maximum(z - float(knot), 0.0)
        return cls(np.maximum.accumulate(value + 1e-12 * z))

    def slowest(self, factor: Floats, sd: float) -> tuple[Floats, Floats]:
        """Mean and standard deviation [node] of max over members of factor (1 + sd r); factor [node, member]."""
        top = factor.max(axis=-1)
        y = np.interp(GRID_SCORES, RESIDUAL_SCORES, self.value)  # in residuals of the slowest
        x = 1.0 + sd * y
        below = np.ones((len(factor), len(y)))
        for m in range(factor.shape[-1]):
            own = (x * (top / factor[:, m])[:, None] - 1.0) / sd
            below *= ndtr(np.interp(own, self.value, RESIDUAL_SCORES))
        mean = y[-1] - np.trapezoid(below, y, axis=-1)
        square = y[-1] ** 2 - 2.0 * np.trapezoid(below * y, y, axis=-1)
        return top * (1.0 + sd * mean), top * sd * np.sqrt(np.maximum(square - mean**2, 0.0))

    def of_alike(self, n: int) -> tuple[float, float]:
        """Mean and standard deviation of the largest of `n` residuals, by the same rule."""
        sd = 1e-3  # cancels
        mean, spread = self.slowest(np.ones((1, n)), sd)
        return float((mean[0] - 1.0) / sd), float(spread[0] / sd)


def slowest_tables(
    fleet: Fleet, parts: Sequence[tuple[int, ...]], share: Floats, sd: Floats, residual: Residual | None
) -> tuple[Floats, Floats]:
    """Mean and standard deviation of the slowest GPU's factor, [row, node, part].

    Args:
        fleet: factors.
        parts: GPUs of a node that belong to one group.
        share: [row, compute_class] mix of a kind of work, adding up to one.
        sd: [row] standard deviation of its call residual over its mean.
        residual: None if nothing varies from call to call.
    """
    shape = (len(share), fleet.n_node, len(parts))
    loc, scale = np.empty(shape), np.zeros(shape)
    for p, gpus in enumerate(parts):
        for row in range(len(share)):
            factor = np.sort(np.einsum("c,cnm->nm", share[row], fleet.factor[:, :, list(gpus)]), axis=-1)
            if residual is None or sd[row] <= 0.0:
                loc[row, :, p] = factor[:, -1]
                continue
            alike, where = np.unique(factor, axis=0, return_inverse=True)
            blocks = [residual.slowest(alike[i : i + BLOCK], sd[row]) for i in range(0, len(alike), BLOCK)]
            loc[row, :, p], scale[row, :, p] = (np.concatenate(part)[where] for part in zip(*blocks, strict=True))
    return loc, scale


def peak_table(fleet: Fleet, parts: Sequence[tuple[int, ...]], compute_class: int) -> Floats:
    """Slowest persistent factor [node, part] in one compute class, for work without residual."""
    return np.stack([fleet.factor[compute_class][:, list(gpus)].max(axis=-1) for gpus in parts], axis=-1)


def slower_of(loc: tuple[Array, Array], scale: tuple[Array, Array]) -> tuple[Array, Array]:
    """Mean and standard deviation of the larger of two independent normals (Clark, 1961, equations 2 and 3)."""
    (m1, m2), (s1, s2) = loc, scale
    spread = jnp.sqrt(jnp.maximum(s1 * s1 + s2 * s2, 1e-20))
    alpha = (m1 - m2) / spread
    upper, lower, density = norm.cdf(alpha), norm.cdf(-alpha), norm.pdf(alpha)
    mean = m1 * upper + m2 * lower + spread * density
    d1, d2 = m1 - mean, m2 - mean  # moments about the mean: no cancellation in float32
    variance = (s1 * s1 + d1 * d1) * upper + (s2 * s2 + d2 * d2) * lower + (d1 + d2) * spread * density
    return mean, jnp.sqrt(jnp.maximum(variance, 1e-20))  # not zero, where its slope is infinite


def rows_of(seconds: Floats, sd: Floats) -> tuple[Floats, Floats, NDArray[np.int32]]:
    """Distinct mixes of kernel classes, their residual spread, and which one every kind of work has.

    Args:
        seconds: [kind, compute_class] busy seconds.
        sd: [kind] residual standard deviation over mean.
    """
    total = seconds.sum(axis=-1, keepdims=True)
    share = np.where(total > 0, seconds / np.where(total > 0, total, 1.0), 1.0 / seconds.shape[-1])
    rounded = np.column_stack([np.round(share, 5), np.where(total[:, 0] > 0, np.round(sd, 7), 0.0)])
    _, first, row = np.unique(rounded, axis=0, return_index=True, return_inverse=True)
    return share[first], np.where(total[first, 0] > 0, sd[first], 0.0), row.astype(np.int32)
