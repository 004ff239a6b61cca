"""Tables of measured kernels as the likelihood needs them: cells of (table, shape), and sums of products per table.

A *table* is what was measured with one op, dtype, GPU and software; a *class* is an op and dtype, whose tables are alike. The
measured quantity is log efficiency: log of achieved over peak FLOP/s.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

import numpy as np
import pandas as pd

from prism_jax.core.errors import DataError
from prism_jax.core.robust import robust_sd
from prism_jax.system import catalog

from ..data.checks import numbers_of
from ..data.columns import ModelColumn
from . import laws, residual_field

COLUMNS = (
    ModelColumn("op", ("kernel", "operation"), text=True),
    *(ModelColumn(name, positive=True) for name in ("m", "n", "k", "groups", "batch")),
    ModelColumn("seq_len", ("sequence_length", "s"), positive=True),
    ModelColumn("n_head", ("heads", "num_heads"), positive=True),
    ModelColumn("n_kv_head", ("kv_heads", "num_kv_heads"), positive=True),
    ModelColumn("head_dim", ("qk_head_dim", "head_size"), positive=True),
    ModelColumn("causal", ("is_causal",), text=True),
    *(
        ModelColumn(name, positive=True)
        for name in ("c_in", "c_out", "height", "width", "filter_height", "filter_width")
    ),
    ModelColumn("stride", ("strides",), positive=True),
    ModelColumn("padding", ("pad",)),
    *(ModelColumn(name, positive=True) for name in ("rows", "columns")),
    ModelColumn("bytes", ("n_bytes", "bytes_moved"), positive=True),
    ModelColumn("dtype", ("precision",), required=True, text=True),
    ModelColumn("gpu", ("gpu_name", "device"), required=True, text=True),
    ModelColumn("duration_s", ("time", "latency", "duration"), positive=True),
    ModelColumn("tflops", ("tflops_per_s",), positive=True),
    ModelColumn("efficiency", ("fraction_of_peak",), positive=True),
    ModelColumn("software", ("library", "backend"), text=True),
    ModelColumn("source", ("source_repo",), text=True),
)
AXES = [f"a{axis}" for axis in range(9)]
_NUMBERS = ("m", "n", "k", "groups", "batch", "seq_len", "n_head", "n_kv_head", "head_dim", "bytes", "rows", "columns")
_OF_CONVOLUTION = ("c_in", "c_out", "height", "width", "filter_height", "filter_width", "stride", "padding")
START_LEVEL = float(np.log(0.5))  # log efficiency is counted from one half of the peak


def tidy(frame: pd.DataFrame) -> tuple[pd.DataFrame, int]:
    """Rows with `table`, `class`, `gpu`, `software`, sizes `a0`..`a8`, `log_efficiency`; how many rows had no shape or speed."""
    op = _ops(frame)
    size = _sizes(frame, op)
    efficiency = _efficiency(frame, op, size)
    of_class = op + " | " + _labels(frame, "dtype")
    gpu, software = _labels(frame, "gpu"), _labels(frame, "software")
    table = of_class + " | " + gpu + " | " + software
    out = pd.DataFrame({"class": of_class, "gpu": gpu, "software": software, "table": table}, index=frame.index)
    out["log_efficiency"] = np.log(efficiency) - START_LEVEL
    out[AXES] = size
    there = np.isfinite(size).all(axis=1) & np.isfinite(out["log_efficiency"].to_numpy()) & _is_known(out)
    return out.loc[there], int((~there).sum())


def _is_known(rows: pd.DataFrame) -> np.ndarray:
    """Whether a class has no law, or one, and a preset device whose datasheet the law reads."""
    known = {gpu: catalog.known_device(gpu) is not None for gpu in set(rows["gpu"])}
    lawful = {name: laws.law_of(name) is not None for name in set(rows["class"])}
    return np.array(
        [known[gpu] or not lawful[name] for gpu, name in zip(rows["gpu"], rows["class"], strict=True)], bool
    )


def _sizes(frame: pd.DataFrame, op: np.ndarray) -> np.ndarray:
    """Sizes [row, axis] along the axes of each op's family, filled up with ones; NaN where a column says nothing."""
    number = {name: numbers_of(frame, name) for name in (*_NUMBERS, *_OF_CONVOLUTION)}
    one = {name: np.nan_to_num(number[name], nan=1.0) for name in ("groups", "batch", "stride")}
    family = np.array([laws.family(name) for name in op], dtype=object)
    heads_per_kv = number["n_head"] / np.where(np.isnan(number["n_kv_head"]), number["n_head"], number["n_kv_head"])
    padding = np.nan_to_num(number["padding"], nan=0.0)
    edges = [
        np.floor((number[edge] + 2.0 * padding - number[f"filter_{edge}"]) / one["stride"]) + 1.0
        for edge in ("height", "width")
    ]
    edges = [np.where(edge >= 1.0, edge, np.nan) for edge in edges]
    filters = [number["filter_height"], number["filter_width"]]
    axes = {
        "gemm": [number["m"], number["n"], number["k"], one["groups"] * one["batch"]],
        "attention": [number["seq_len"], one["batch"] * number["n_head"], number["head_dim"], heads_per_kv],
        "memory": [number["bytes"]],
        "vector": [number["rows"], number["columns"]],
        "convolution": [
            one["batch"], number["c_in"], number["c_out"], *edges, *filters, one["stride"], one["groups"],
        ],
    }  # fmt: skip
    size = np.ones((len(op), len(AXES)))
    for name, columns in axes.items():
        own = family == name
        size[own, : len(columns)] = np.stack(columns, axis=1)[own]
    return size


def _ops(frame: pd.DataFrame) -> np.ndarray:
    """Names of operations; attention without a causal mask, where a column says so, is an operation of its own."""
    op = _labels(frame, "op", "gemm")
    full = np.array([text.strip().lower() in ("0", "false", "no") for text in _labels(frame, "causal")], dtype=bool)
    fused = np.array([laws.family(name) == "attention" for name in op], dtype=bool)
    return np.where(full & fused, op + laws.FULL, op)


def _labels(frame: pd.DataFrame, name: str, default: str = "") -> np.ndarray:
    """A column of labels as objects, without the separator of table names."""
    if name not in frame:
        return np.full(len(frame), default, dtype=object)
    return np.array([str(x).replace("|", "/") for x in frame[name].astype(object).fillna(default)], dtype=object)


def _efficiency(frame: pd.DataFrame, op: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Efficiency as stated; else speed over datasheet peak; else over the fastest measured with that GPU and dtype.

    Passes over memory and element-wise kernels count bytes, and the peak is the bandwidth.
    """
    work = np.full(len(frame), np.nan)
    for name in np.unique(op):
        of = op == name
        work[of] = laws.flops(str(name), size[of])
    rate = np.where(
        np.isnan(numbers_of(frame, "tflops")),
        work / numbers_of(frame, "duration_s"),
        numbers_of(frame, "tflops") * 1e12,
    )
    gpu, dtype = _labels(frame, "gpu"), _labels(frame, "dtype")
    speeds = pd.DataFrame({"gpu": gpu, "dtype": dtype, "rate": rate})
    fastest = speeds.groupby(["gpu", "dtype"])["rate"].transform("max").to_numpy(dtype=np.float64)
    peak = np.array([_peak(*one) for one in zip(op, gpu, dtype, strict=True)])
    stated = numbers_of(frame, "efficiency")
    return np.where(np.isnan(stated), rate / np.where(np.isnan(peak), fastest, peak), stated)


def _peak(op: str, gpu: str, dtype: str) -> float:
    return laws.hbm_bytes_per_s(gpu) if laws.family(op) in ("memory", "vector") else laws.peak_flops_per_s(gpu, dtype)


LAW_SHARE = 0.02  # what pooling the constants of a law leaves open, over what is open without a law
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
        constants: logarithms of the constants of each class's law, [class, constant]; zeros where it has none.
        law: what the law says of log efficiency, 0 where there is none, [cell].
        n_dropped: rows without a shape or a speed.
        n_few: shapes of tables with fewer than five.
    """

    tables: Annotated[tuple[str, ...], "table"]
    table_gpus: Annotated[tuple[str, ...], "table"]
    table_software: Annotated[tuple[str, ...], "table"]
    classes: Annotated[tuple[str, ...], "class"]
    table_class: Annotated[np.ndarray, "table -> class"]
    cell_table: Annotated[np.ndarray, "cell -> table"]
    size: Annotated[np.ndarray, f"cell {len(AXES)}"]
    log_efficiency: Annotated[np.ndarray, "cell"]
    residual: Annotated[np.ndarray, "cell"]
    centre: Annotated[np.ndarray, "class feature"]
    spread: Annotated[np.ndarray, "class feature"]
    block: Annotated[np.ndarray, f"feature -> {len(laws.BLOCKS)}"]
    xx: Annotated[np.ndarray, "table feature feature"]
    xy: Annotated[np.ndarray, "table feature"]
    yy: Annotated[np.ndarray, "table"]
    weight: Annotated[np.ndarray, "table"]
    reach: float = 2.0
    nugget: float = 0.1
    tail: float = 4.0
    stretch: float = 1.0
    n_dropped: int = 0
    n_few: int = 0
    constants: Annotated[np.ndarray, f"class {laws.MOST_CONSTANTS}"] = field(default_factory=lambda: np.zeros(0))
    law: Annotated[np.ndarray, "cell"] = field(default_factory=lambda: np.zeros(0))

    @property
    def class_share(self) -> np.ndarray:
        """[class] how far coefficients of a class may lie from 0: constants of a law were pooled over its GPUs before."""
        return np.array([1.0 if laws.law_of(name) is None else LAW_SHARE for name in self.classes])

    def __post_init__(self) -> None:
        """Fits that were stored before there were laws have fewer axes and no law."""
        if not self.constants.size:
            object.__setattr__(self, "constants", np.zeros((len(self.classes), laws.MOST_CONSTANTS)))
        if not self.law.size:
            object.__setattr__(self, "law", np.zeros(len(self.cell_table)))
        if self.size.ndim == 2 and self.size.shape[1] < len(AXES):
            missing = np.ones((len(self.size), len(AXES) - self.size.shape[1]))
            object.__setattr__(self, "size", np.concatenate([self.size, missing], axis=1))


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
    gpus = cells["gpu"].to_numpy(dtype=str)
    names = [str(c) for c in classes]
    constants, law = _laws(names, of_class, gpus, size, y)
    x, block, centre, spread = _class_features(names, of_class, size, gpus, constants)
    left, robust = _leftover(x, y - law, of_table, len(tables))
    xx, xy, yy, weight = _sums(x, y - law, robust, of_table, len(tables))
    field = residual_field.fitted(np.log2(size), left, of_table)
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
        constants=constants,
        law=law,
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
            f"no op, dtype, GPU and software with {FEWEST_CELLS} or more measured laws. Measure more shapes of one of them."
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


def _laws(
    classes: list[str], of_class: np.ndarray, gpus: np.ndarray, size: np.ndarray, y: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Constants of each class's law, pooled over its GPUs, and what it says of every cell; zeros where it has none."""
    constants, said = np.zeros((len(classes), laws.MOST_CONSTANTS)), np.zeros(len(y))
    for c, name in enumerate(classes):
        law, op = laws.law_of(name), name.split(" | ")[0]
        if law is None:
            continue
        parts = []
        for gpu in np.unique(gpus[of_class == c]):
            of = (of_class == c) & (gpus == gpu)
            ideal = log_ideal_s(name, str(gpu), size[of])
            parts.append((of, catalog.device(str(gpu)), ideal))
        seconds = [(device, size[of], ideal - START_LEVEL - y[of]) for of, device, ideal in parts]
        constants[c] = laws.pooled(law, op, seconds)
        for of, device, ideal in parts:
            said[of] = ideal - START_LEVEL - law.at(op, size[of], device, constants[c])
    return constants, said


def log_ideal_s(name: str, gpu: str, size: np.ndarray) -> np.ndarray:
    """Log seconds [row] at the whole peak, or bandwidth, of a GPU; NaN where that is not known."""
    op, dtype = name.split(" | ")[:2]
    is_memory = laws.family(op) in ("memory", "vector")
    peak = laws.hbm_bytes_per_s(gpu) if is_memory else laws.peak_flops_per_s(gpu, dtype)
    return np.log(laws.flops(op, size) / peak)


def class_features(name: str, size: np.ndarray, gpu: str, constants: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Features [row, feature] of shapes of a class on one GPU, and their blocks: by shape, or the slopes of its law."""
    law = laws.law_of(name)
    plain, block = laws.features("gemm", np.ones((1, 4)), np.ones(1))
    if law is None:
        return laws.features(laws.family(name), size, np.full(len(size), float(laws.n_sm(gpu))))
    x = np.zeros((len(size), plain.shape[1]))
    x[:, 0] = 1.0
    slopes = law.slopes(name.split(" | ")[0], size, catalog.device(gpu), constants)
    x[:, np.flatnonzero(block == laws.BLOCKS.index("shape"))[: slopes.shape[1]]] = slopes
    return x, block


def _class_features(
    classes: list[str], of_class: np.ndarray, size: np.ndarray, gpus: np.ndarray, constants: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Standardised features [cell, feature], their blocks, and centre and spread by class; the first feature stays 1."""
    x = np.zeros((len(size), laws.n_features()))
    centre, spread = np.zeros((len(classes), x.shape[1])), np.ones((len(classes), x.shape[1]))
    block = np.zeros(x.shape[1], dtype=np.int64)
    for c, name in enumerate(classes):
        of = of_class == c
        for gpu in np.unique(gpus[of]):
            own = of & (gpus == gpu)
            x[own], block = class_features(name, size[own], str(gpu), constants[c])
        centre[c], spread[c] = x[of].mean(axis=0), x[of].std(axis=0)
        law = laws.law_of(name)
        # No deviation of a constant, no deviation from the law; deviations in units of the constants' priors
        if law is not None:
            centre[c], spread[c] = 0.0, 1.0
            own = np.flatnonzero(block == laws.BLOCKS.index("shape"))[: len(law.constants)]
            spread[c, own] = [1.0 / (laws.PRIORS * sd) for *_, sd in law.constants]
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
            scale = max(robust_sd(left[of], 0.0), 1e-4)
            robust[of] = np.minimum(1.0, 4.0 * scale / np.maximum(np.abs(left[of]), 1e-12))
    return left, robust
