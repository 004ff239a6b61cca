"""Measured kernels as the likelihood needs them: cells of (table, shape), and sums of products per table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from prism_jax.errors import DataError

from . import field as residual, shapes as shapes
from .table import AXES, tidy

FEWEST_CELLS = 5  # shapes of a table: a GPU's best figure alone says nothing about shapes


@dataclass(frozen=True)
class KernelsData:
    """Cells, and what the collapsed likelihood needs of them.

    Attributes:
        tables: names, "op | dtype | gpu | software", [table].
        table_gpus, table_software: of every table, [table].
        classes: names, "op | dtype".
        table_class: class of each table, [table].
        cell_table: table of each cell, [cell].
        size: sizes along the four axes, [cell, axis].
        log_efficiency: median over repeats, relative to one half, [cell].
        residual: what the features of the cell's own table leave, [cell].
        centre, spread: what standardises features, [class, feature].
        block: kind of each feature, [feature].
        xx, xy, yy, weight: robustly weighted sums of products of features and log efficiency, [table, feature, feature],
            [table, feature], [table], [table].
        reach, nugget, tail: of the field of residuals: doublings, share of unshared variance, degrees of freedom.
        stretch: measured over stated error of the field, leaving cells out one by one.
        n_dropped: rows without a shape or a speed.
        n_few: shapes of tables with fewer than five.
    """

    AXES: ClassVar[Mapping[str, str]] = {
        "table": "tables table_gpus table_software yy weight",
        "table -> class": "table_class",
        "table feature": "xy",
        "table feature feature": "xx",
        "class": "classes",
        "class feature": "centre spread",
        f"feature -> {len(shapes.BLOCKS)}": "block",
        "cell": "log_efficiency residual",
        "cell -> table": "cell_table",
        f"cell {len(AXES)}": "size",
    }

    tables: tuple[str, ...]
    table_gpus: tuple[str, ...]
    table_software: tuple[str, ...]
    classes: tuple[str, ...]
    table_class: np.ndarray
    cell_table: np.ndarray
    size: np.ndarray
    log_efficiency: np.ndarray
    residual: np.ndarray
    centre: np.ndarray
    spread: np.ndarray
    block: np.ndarray
    xx: np.ndarray
    xy: np.ndarray
    yy: np.ndarray
    weight: np.ndarray
    reach: float = 2.0
    nugget: float = 0.1
    tail: float = 4.0
    stretch: float = 1.0
    n_dropped: int = 0
    n_few: int = 0


def from_frame(frame: pd.DataFrame) -> KernelsData:
    """Cells, statistics and the field of residuals of a checked table.

    Raises:
        DataError: no row has both a shape and a speed.
    """
    rows, n_dropped = tidy(frame)
    if rows.empty:
        raise DataError(
            "no row has both a shape (m, n, k; or seq_len, n_head, head_dim) and a speed (duration, tflops or efficiency)."
        )
    cells, n_few = _cells(rows)
    classes, of_class = np.unique(cells["class"].to_numpy(dtype=str), return_inverse=True)
    tables, first, of_table = np.unique(cells["table"].to_numpy(dtype=str), return_index=True, return_inverse=True)
    table_class = np.zeros(len(tables), dtype=np.int64)
    table_class[of_table] = of_class
    size = cells[AXES].to_numpy(dtype=np.float64)
    y = cells["log_efficiency"].to_numpy(dtype=np.float64)
    n_sm = np.array([shapes.n_sm(str(gpu)) for gpu in cells["gpu"]], dtype=np.float64)
    x, block, centre, spread = _class_features([str(c) for c in classes], of_class, size, n_sm)
    left, robust = _leftover(x, y, of_table, len(tables))
    xx, xy, yy, weight = _sums(x, y, robust, of_table, len(tables))
    field = residual.fitted(np.log2(size), left, of_table)
    return KernelsData(
        tables=tuple(str(t) for t in tables),
        table_gpus=tuple(str(gpu) for gpu in cells["gpu"].to_numpy()[first]),
        table_software=tuple(str(name) for name in cells["software"].to_numpy()[first]),
        classes=tuple(str(c) for c in classes),
        table_class=table_class,
        cell_table=of_table.astype(np.int64),
        size=size,
        log_efficiency=y,
        residual=left,
        centre=centre,
        spread=spread,
        block=block,
        xx=xx,
        xy=xy,
        yy=yy,
        weight=weight,
        reach=field.reach,
        nugget=field.nugget,
        tail=field.tail,
        stretch=field.stretch,
        n_dropped=n_dropped,
        n_few=n_few,
    )


def _cells(rows: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Median of the repeats of every shape of every table; and how many shapes of small tables were left aside.

    Raises:
        DataError: there are small tables only.
    """
    cells = rows.groupby(["class", "table", "gpu", "software", *AXES], sort=True, as_index=False)[
        "log_efficiency"
    ].median()
    few = cells.groupby("table")["log_efficiency"].transform("size").to_numpy(dtype=np.int64) < FEWEST_CELLS
    if few.all():
        raise DataError(
            f"no op, dtype, GPU and software with {FEWEST_CELLS} or more measured shapes. Measure more shapes of one of them."
        )
    return cells.loc[~few].reset_index(drop=True), int(few.sum())


def _sums(
    x: np.ndarray, y: np.ndarray, robust: np.ndarray, of_table: np.ndarray, n_table: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Weighted sums over the cells of each table: xx, xy, yy, and of the weights."""
    tables = [(x[of], y[of], robust[of]) for of in (of_table == t for t in range(n_table))]
    return (
        np.stack([(a * w[:, None]).T @ a for a, _, w in tables]),
        np.stack([(a * w[:, None]).T @ b for a, b, w in tables]),
        np.array([w @ b**2 for _, b, w in tables]),
        np.array([w.sum() for *_, w in tables]),
    )


def _class_features(
    classes: list[str], of_class: np.ndarray, size: np.ndarray, n_sm: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Standardised features [cell, feature], their blocks, and centre and spread by class; the first feature stays 1."""
    x = np.zeros((len(size), shapes.n_features()))
    centre, spread = np.zeros((len(classes), x.shape[1])), np.ones((len(classes), x.shape[1]))
    block = np.zeros(x.shape[1], dtype=np.int64)
    for c, name in enumerate(classes):
        of = of_class == c
        x[of], block = shapes.features(shapes.family(name), size[of], n_sm[of])
        centre[c], spread[c] = x[of].mean(axis=0), x[of].std(axis=0)
    centre[:, 0] = 0.0
    spread = np.where(spread > 1e-6, spread, 1.0)
    return (x - centre[of_class]) / spread[of_class], block, centre, spread


def _leftover(x: np.ndarray, y: np.ndarray, of_table: np.ndarray, n_table: int) -> tuple[np.ndarray, np.ndarray]:
    """Residuals of a ridge regression per table, reweighted, and the weights: 1 within 4 robust deviations, then falling."""
    left, robust = np.zeros(len(y)), np.ones(len(y))
    for t in range(n_table):
        of = of_table == t
        penalty = 0.1 * np.eye(x.shape[1])  # a tenth of one cell: decides only what the cells leave open
        penalty[0, 0] = 1e-6
        for _ in range(3):
            weighted = x[of] * robust[of][:, None]
            left[of] = y[of] - x[of] @ np.linalg.solve(weighted.T @ x[of] + penalty, weighted.T @ y[of])
            scale = max(1.4826 * float(np.median(np.abs(left[of]))), 1e-4)
            robust[of] = np.minimum(1.0, 4.0 * scale / np.maximum(np.abs(left[of]), 1e-12))
    return left, robust
