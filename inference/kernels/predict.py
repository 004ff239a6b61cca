"""Efficiency of a kernel of any shape: draws, whether it extrapolates, the nearest measured shapes; and the density behind them.

    y[cell] = x (w[class] + d[table]) + noise
    w ~ N(0, (class_share class_scale)^2)     d ~ N(0, table_scale^2)     noise ~ N(0, sigma[table]^2)

Coefficients of all tables are integrated out: what the sampler sees are only spreads. Given these everything is normal: each
table is reduced to its sums of products, d is integrated table by table, then w class by class. The same algebra gives the
coefficients' conditional mean and covariance for predictions.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike

from prism_jax.core.errors import FitError
from prism_jax.core.registry import did_you_mean
from prism_jax.system import catalog

from ..engine.laplace import inverse
from ..engine.model import Draws, GroupScore
from ..engine.program import generator
from . import laws, residual_field
from .data import AXES, START_LEVEL, KernelsData, class_features, log_ideal_s, tidy


class Reduced(NamedTuple):
    """The tables, each with its own deviation integrated out.

    Attributes:
        precision, score: what a table says of its class's coefficients, [table, feature, feature], [table, feature].
        covariance: of its deviation, given those, [table, feature, feature].
        log_density: of its cells at coefficients zero, plus what `score` leaves, [table].
    """

    precision: Array
    score: Array
    covariance: Array
    log_density: Array


def reduce(data: KernelsData, noise: Array, table_scale: Array) -> Reduced:
    """Integrates the tables' own deviations; `noise` is [table], `table_scale` [feature]."""
    prior = table_scale**-2.0
    h = data.xy / noise[:, None] ** 2
    covariance, log_determinant = inverse(data.xx / noise[:, None, None] ** 2 + jnp.diag(prior))
    shift = jnp.einsum("tij,tj->ti", covariance, h)
    log_density: Array = (
        -jnp.asarray(data.weight) * jnp.log(noise)
        - 0.5 * data.yy / noise**2
        - 0.5 * log_determinant
        - jnp.log(table_scale).sum()
        + 0.5 * jnp.sum(h * shift, axis=1)
    )
    precision = jnp.diag(prior) - prior[:, None] * covariance * prior  # G - G (G + P)^-1 G = P - P (G + P)^-1 P
    return Reduced(precision, prior * shift, covariance, log_density)


def log_likelihood(data: KernelsData, noise: Array, table_scale: Array, class_scale: Array) -> Array:
    """Log density of all cells given the spreads by block, up to a constant."""
    table_scale, class_scale = table_scale[data.block], class_scale[data.block]
    found = reduce(data, noise, table_scale)
    covariance, log_determinant, score = _by_class(data, found, class_scale)
    quadratic = jnp.einsum("ci,cij,cj->c", score, covariance, score)
    own = jnp.log(class_scale[None] * jnp.asarray(data.class_share)[:, None])
    of_class = 0.5 * quadratic - 0.5 * log_determinant - own.sum(axis=1)
    return found.log_density.sum() + of_class.sum()


def _by_class(data: KernelsData, found: Reduced, class_scale: Array) -> tuple[Array, Array, Array]:
    """Covariance of each class's coefficients, log determinant of its inverse, and precision times mean."""
    n_class = len(data.classes)
    prior = jnp.diag(class_scale**-2.0)[None] / jnp.asarray(data.class_share)[:, None, None] ** 2
    precision = jax.ops.segment_sum(found.precision, data.table_class, n_class) + prior
    score = jax.ops.segment_sum(found.score, data.table_class, n_class)
    return *inverse(precision), score


def coefficients(
    data: KernelsData, draws: Mapping[str, np.ndarray], rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draws of class coefficients [draw, class, feature], and of class plus table coefficients [draw, table, feature]."""
    sites = zip(*(np.asarray(draws[name]) for name in ("table_scale", "class_scale", "log_noise")), strict=True)
    found = [_one_draw(data, table[data.block], one[data.block], np.exp(noise), rng) for table, one, noise in sites]
    return np.stack([of_class for of_class, _ in found]), np.stack([of_table for _, of_table in found])


def _one_draw(
    data: KernelsData, table_scale: np.ndarray, class_scale: np.ndarray, noise: np.ndarray, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """The algebra of `reduce` and `_by_class` once more, in NumPy, for given spreads."""
    prior = table_scale**-2.0
    covariance = np.linalg.inv(data.xx / noise[:, None, None] ** 2 + np.diag(prior))
    h = data.xy / noise[:, None] ** 2
    of_class = np.zeros((len(data.classes), len(prior)))
    for c in range(len(of_class)):
        of = data.table_class == c
        precision = np.diag((class_scale * data.class_share[c]) ** -2.0) + np.sum(
            np.diag(prior) - prior[:, None] * covariance[of] * prior, axis=0
        )
        score = np.sum(prior * np.einsum("tij,tj->ti", covariance[of], h[of]), axis=0)
        of_class[c] = _normal(np.linalg.inv(precision), score, rng)
    shared = of_class[data.table_class]
    right = h - np.einsum("tij,tj->ti", data.xx, shared) / noise[:, None] ** 2
    return of_class, shared + _normal(covariance, right, rng)


def _normal(covariance: np.ndarray, score: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draws of N(covariance score, covariance), [..., feature]."""
    symmetric = 0.5 * (covariance + np.swapaxes(covariance, -1, -2))
    factor = np.linalg.cholesky(symmetric)
    return np.einsum("...ij,...j->...i", symmetric, score) + np.einsum(
        "...ij,...j->...i", factor, rng.standard_normal(score.shape)
    )


MOST_DRAWS = 200  # coefficient draws; noise is drawn anew for each
FAR = 1.5  # doublings to the nearest measured shape: with the usual grids of one per doubling, beyond the neighbouring cell
# Added log spread per doubling beyond the measured range: half of what efficiency changes at its steepest
PER_DOUBLING = 0.15
RULE = f"outside the measured range of a size, or farther than {FAR:g} doublings from every measured shape, or a GPU not measured"
CEILING = 1.05  # times the best efficiency measured in the class, and at least 1: no prediction lies above


@dataclass(frozen=True)
class PredictedEfficiency:
    """Predicted share of peak.

    Attributes:
        draws: [draw, row].
        extrapolates: [row], see `RULE`.
        distance: doublings to the nearest measured shape, [row].
        nearest: the nearest measured sizes, nearest first, [row, neighbour, axis].
        nearest_efficiency: their efficiencies, [row, neighbour].
        table: "op | dtype | gpu | software" that was used; "" for a GPU that was not measured.
    """

    draws: np.ndarray
    extrapolates: np.ndarray
    distance: np.ndarray
    nearest: np.ndarray
    nearest_efficiency: np.ndarray
    table: str


def efficiency(
    data: KernelsData,
    draws: Draws,
    size: ArrayLike,
    *,
    gpu: str,
    dtype: str,
    op: str = "gemm",
    software: str | None = None,
    key: Array,
) -> PredictedEfficiency:
    """Share of peak FLOP/s of kernels on `gpu`.

    Args:
        size: [row, axis]: m, n, k of products; `laws` states the axes of every op, those left out are 1.
        software: as in the fit; by default the one with most measured shapes.

    Warns:
        UserWarning: where it extrapolates (see `RULE`): the smooth part stops at the edge of the measured range, the nearest
            measured shapes speak for the rest, and the spread grows with the distance.

    Raises:
        FitError: no kernel of this op and dtype was measured.
    """
    name = f"{op} | {dtype}"
    if name not in data.classes:
        raise FitError(
            f"no {op} in {dtype} was measured; there are {', '.join(data.classes)}{did_you_mean(name, data.classes, '')}"
        )
    size = np.asarray(size, dtype=np.float64)
    n_axis = size.shape[1]
    size = np.concatenate([size, np.ones((len(size), len(AXES) - n_axis))], axis=1)
    found = _Predictor(data, draws, key).at(name, gpu, software, size)
    found = replace(found, nearest=found.nearest[..., :n_axis])
    if found.extrapolates.any():
        first = int(np.argmax(found.extrapolates))
        near = " x ".join(f"{x:g}" for x in found.nearest[first, 0])
        warnings.warn(
            f"{int(found.extrapolates.sum())} of {len(size)} shapes extrapolate ({RULE}): "
            f"{' x '.join(f'{x:g}' for x in size[first])} falls back to the nearest measured shape, {near}, "
            f"{found.distance[first]:.1f} doublings away",
            UserWarning,
            stacklevel=2,
        )
    return found


class _Use(NamedTuple):
    """Evidence for a query.

    Attributes:
        table: index; -1 for a GPU that was not measured.
        cells: measured cells that may be neighbours.
        weights: coefficients, [draw, feature].
        noise: spread of the field, [draw].
        offset: what another software may differ by, [draw]; zero for one that was measured.
        stranger: whether the GPU was not measured.
    """

    table: int
    cells: np.ndarray
    weights: np.ndarray
    noise: np.ndarray
    offset: np.ndarray
    stranger: bool


class _Predictor:
    """A fit with its coefficients drawn once, for many queries."""

    def __init__(self, data: KernelsData, draws: Draws, key: Array) -> None:
        total = len(draws["log_noise"])
        keep = np.unique(np.linspace(0, total - 1, min(total, MOST_DRAWS)).round().astype(int))
        self.data, self.draws = data, {name: np.asarray(values)[keep] for name, values in draws.items()}
        self.rng = generator(key)
        self.of_class, self.of_table = coefficients(data, self.draws, self.rng)
        self.field = residual_field.ResidualField(data.reach, data.nugget, data.tail, data.stretch)

    def at(self, name: str, gpu: str, software: str | None, size: np.ndarray) -> PredictedEfficiency:
        data, use = self.data, self._use(name, gpu, software)
        c = data.classes.index(name)
        measured = np.log2(data.size[use.cells])
        asked = np.log2(size)
        low, high = measured.min(axis=0), measured.max(axis=0)
        law = laws.law_of(name)
        inside = np.clip(asked, low, high) if law is None else asked  # a law speaks of all sizes
        whole = np.where(inside == asked, size, 2.0**inside)  # 2^log2(size) is not size, and tiles count whole sizes
        x = class_features(name, whole, gpu, data.constants[c])[0]
        smooth = (
            use.weights @ ((x - data.centre[c]) / data.spread[c]).T + use.offset[:, None] + self._law(name, gpu, size)
        )
        # Residuals belong to each draw's own coefficients, so only neighbours and variance are taken from here.
        near = residual_field.krige(measured, np.zeros(len(measured)), inside, self.field)
        cells = use.cells[near.near]
        left = self._left(use, cells, name) if use.table >= 0 else None
        weight = residual_field.weights(inside, measured[near.near], self.field)
        carried = 0.0 if left is None else np.einsum("rk,drk->dr", weight, left)
        variance = np.ones(len(size)) if left is None else near.variance
        beyond = np.linalg.norm(asked - inside, axis=1)
        spread = use.noise[:, None] * self.field.stretch * np.sqrt(variance)[None]
        noise = spread * self.rng.standard_t(self.field.tail, (len(use.weights), len(size)))
        noise = noise + PER_DOUBLING * beyond * self.rng.standard_normal((len(use.weights), 1))
        best = max(1.0, CEILING * float(np.exp(START_LEVEL + data.log_efficiency[self._class_cells(c)].max())))
        distance = np.sqrt(near.distance**2 + beyond**2)
        return PredictedEfficiency(
            draws=np.minimum(np.exp(START_LEVEL + smooth + carried + noise), best),
            extrapolates=(beyond > 1e-9) | (distance > FAR) | use.stranger,
            distance=distance,
            nearest=data.size[cells],
            nearest_efficiency=np.exp(START_LEVEL + data.log_efficiency[cells]),
            table=data.tables[use.table] if use.table >= 0 else "",
        )

    def _law(self, name: str, gpu: str, size: np.ndarray) -> np.ndarray | float:
        """Log efficiency by the law of the class, [row]; 0 without one."""
        law, c = laws.law_of(name), self.data.classes.index(name)
        if law is None:
            return 0.0
        seconds = law.at(name.split(" | ")[0], size, catalog.device(gpu), self.data.constants[c])
        return log_ideal_s(name, gpu, size) - START_LEVEL - seconds

    def _left(self, use: _Use, cells: np.ndarray, name: str) -> np.ndarray:
        """Residuals of the neighbours under each draw, [draw, row, neighbour]."""
        unique, back = np.unique(cells, return_inverse=True)
        c, gpu = self.data.classes.index(name), self.data.table_gpus[use.table]
        x = class_features(name, self.data.size[unique], gpu, self.data.constants[c])[0]
        left = self.data.log_efficiency[unique] - self.data.law[unique]
        left = left - use.weights @ ((x - self.data.centre[c]) / self.data.spread[c]).T
        return left[:, back.reshape(cells.shape)]

    def _use(self, name: str, gpu: str, software: str | None) -> _Use:
        """The table of that GPU and software; else of that GPU, its level uncertain; else a new table of the class."""
        data, c = self.data, self.data.classes.index(name)
        tables = np.flatnonzero(_of_gpu(data, c, gpu)).tolist()
        exact = [t for t in tables if data.table_software[t] == software]
        count = np.bincount(data.cell_table, minlength=len(data.tables))
        if tables:
            t = exact[0] if exact else max(tables, key=lambda t: count[t])
            weights, noise = self.of_table[:, t], np.exp(self.draws["log_noise"][:, t])
            other = 0.0 if exact or software is None else 1.0
            offset = other * self.draws["table_scale"][:, 0] * self.rng.standard_normal(len(weights))
            return _Use(t, np.flatnonzero(data.cell_table == t), weights, noise, offset, False)
        scale = self.draws["table_scale"][:, data.block]
        weights = self.of_class[:, c] + scale * self.rng.standard_normal(scale.shape)
        return _Use(-1, self._class_cells(c), weights, np.exp(self.draws["noise_centre"]), np.zeros(len(weights)), True)

    def _class_cells(self, c: int) -> np.ndarray:
        return np.flatnonzero(self.data.table_class[self.data.cell_table] == c)


def _of_gpu(data: KernelsData, c: int, gpu: str) -> np.ndarray:
    """Indices of tables of class `c` and that GPU, [table]."""
    return (data.table_class == c) & (np.array(data.table_gpus) == gpu)


def scores(data: KernelsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[GroupScore]:
    """One score per group: relative errors of times, and those of the nearest measured shape and of the median.

    Rows of an op and dtype of which nothing was measured have no prediction and no score.
    """
    rows, _ = tidy(left_out)
    rows = rows.assign(group=left_out.loc[rows.index, column].astype(str))
    rows = rows.loc[rows["class"].isin(data.classes)].reset_index(drop=True)
    predictor = _Predictor(data, draws, key)
    columns = {name: np.zeros(len(rows)) for name in ("model", "nearest", "median", "covered", "extrapolates")}
    for index in rows.groupby("table").indices.values():
        name, gpu, software = (str(text) for text in rows.loc[index[0], ["class", "gpu", "software"]])
        size = rows.loc[index, AXES].to_numpy(dtype=np.float64)
        found = predictor.at(name, gpu, software, size)
        truth = np.exp(START_LEVEL + rows["log_efficiency"].to_numpy(dtype=np.float64)[index])
        low, high = np.quantile(found.draws, [0.05, 0.95], axis=0)
        columns["model"][index] = np.abs(truth / np.median(found.draws, axis=0) - 1.0)
        for kind, guess in _baselines(data, name, gpu, size).items():
            columns[kind][index] = np.abs(truth / guess - 1.0)
        columns["covered"][index] = (truth >= low) & (truth <= high)
        columns["extrapolates"][index] = found.extrapolates
    out = []
    for group, index in rows.groupby("group").indices.items():
        mean = {name: float(values[index].mean()) for name, values in columns.items()}
        extra = {
            "mape": mean["model"],
            "mape_nearest": mean["nearest"],
            "mape_median": mean["median"],
            "median_ape": float(np.median(columns["model"][index])),
            "median_ape_nearest": float(np.median(columns["nearest"][index])),
            "extrapolated": mean["extrapolates"],
            "n_rows": float(len(index)),
        }
        out.append(GroupScore(group=str(group), coverage_90=mean["covered"], extra=extra))
    return out


def _baselines(data: KernelsData, name: str, gpu: str, size: np.ndarray) -> dict[str, np.ndarray]:
    """Efficiency of the nearest measured shape (mean of ties) and the median, of this GPU, else of the class."""
    c = data.classes.index(name)
    of_gpu, of_class = _of_gpu(data, c, gpu), data.table_class == c
    cells = np.flatnonzero((of_gpu if of_gpu.any() else of_class)[data.cell_table])
    value = data.log_efficiency[cells]
    distance = np.linalg.norm(np.log2(size)[:, None] - np.log2(data.size[cells])[None], axis=-1)
    nearest = distance <= distance.min(axis=1, keepdims=True) + 1e-9
    log_nearest = (nearest * value).sum(axis=1) / nearest.sum(axis=1)
    return {
        "nearest": np.exp(START_LEVEL + log_nearest),
        "median": np.full(len(size), np.exp(START_LEVEL + np.median(value))),
    }
