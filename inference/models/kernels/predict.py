"""Efficiency of a kernel of any shape from a kernels fit: draws, whether it extrapolates, and the nearest measured shapes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import NamedTuple

import jax
import numpy as np
import pandas as pd
from jax import Array
from numpy.typing import ArrayLike

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean
from prism_jax.system import catalog

from ...model import Draws, Score
from . import collapsed as collapsed, field as residual, laws as laws, shapes as shapes
from .data import KernelsData, class_features, log_ideal_s
from .table import AXES, START_LEVEL, tidy

MOST_DRAWS = 200  # coefficient draws; noise is drawn anew for each
FAR = 1.5  # doublings to the nearest measured shape: with the usual grids of one per doubling, beyond the neighbouring cell
PER_DOUBLING = (
    0.15  # added log spread per doubling beyond the measured range: half of what efficiency changes at its steepest
)
RULE = f"outside the measured range of a size, or farther than {FAR:g} doublings from every measured shape, or a GPU not measured"
CEILING = 1.05  # times the best efficiency measured in the class, and at least 1: no prediction lies above


@dataclass(frozen=True)
class Efficiency:
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
    *,
    gpu: str,
    dtype: str,
    m: ArrayLike = 1.0,
    n: ArrayLike = 1.0,
    k: ArrayLike = 1.0,
    groups: ArrayLike = 1.0,
    size: ArrayLike | None = None,
    op: str = "gemm",
    software: str | None = None,
    key: Array,
) -> Efficiency:
    """Share of peak FLOP/s of kernels on `gpu`.

    Args:
        m, n, k, groups: sizes, [row]; for attention rows of a sequence, batch x heads, head width, heads per key-value head.
        size: all sizes, [row, axis], in the place of these four (`shapes` states the axes of every op; those left out are 1).
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
    four = np.broadcast_arrays(*(np.atleast_1d(np.asarray(x, dtype=np.float64)) for x in (m, n, k, groups)))
    size = np.stack(four, axis=1) if size is None else np.asarray(size, dtype=np.float64)
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
    """What speaks for a query.

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
        self.rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
        self.of_class, self.of_table = collapsed.coefficients(data, self.draws, self.rng)
        self.field = residual.Field(data.reach, data.nugget, data.tail, data.stretch)

    def at(self, name: str, gpu: str, software: str | None, size: np.ndarray) -> Efficiency:
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
        near = residual.krige(measured, np.zeros(len(measured)), inside, self.field)
        cells = use.cells[near.near]
        left = self._left(use, cells, name) if use.table >= 0 else None
        weight = residual.weights(inside, measured[near.near], self.field)
        carried = 0.0 if left is None else np.einsum("rk,drk->dr", weight, left)
        variance = np.ones(len(size)) if left is None else near.variance
        beyond = np.linalg.norm(asked - inside, axis=1)
        spread = use.noise[:, None] * self.field.stretch * np.sqrt(variance)[None]
        noise = spread * self.rng.standard_t(self.field.tail, (len(use.weights), len(size)))
        noise = noise + PER_DOUBLING * beyond * self.rng.standard_normal((len(use.weights), 1))
        best = max(1.0, CEILING * float(np.exp(START_LEVEL + data.log_efficiency[self._class_cells(c)].max())))
        distance = np.sqrt(near.distance**2 + beyond**2)
        return Efficiency(
            draws=np.minimum(np.exp(START_LEVEL + smooth + carried + noise), best),
            extrapolates=(beyond > 1e-9) | (distance > FAR) | use.stranger,
            distance=distance,
            nearest=data.size[cells],
            nearest_efficiency=np.exp(START_LEVEL + data.log_efficiency[cells]),
            table=data.tables[use.table] if use.table >= 0 else "",
        )

    def _law(self, name: str, gpu: str, size: np.ndarray) -> np.ndarray | float:
        """What the law of the class says of log efficiency, [row]; 0 without one."""
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
    """Which tables are of class `c` and that GPU, [table]."""
    return (data.table_class == c) & (np.array(data.table_gpus) == gpu)


def scores(data: KernelsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
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
        out.append(Score(group=str(group), coverage_90=mean["covered"], extra=extra))
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


def interval(values: np.ndarray) -> dict[str, float]:
    """Median and 5-95 % of draws."""
    low, mid, high = np.quantile(values, [0.05, 0.5, 0.95])
    return {"median": float(mid), "p5": float(low), "p95": float(high)}
