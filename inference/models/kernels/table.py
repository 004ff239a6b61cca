"""Tables of measured kernels: their columns, and one row per measurement with sizes, log efficiency, table and class.

A *table* is what was measured with one op, dtype, GPU and software; a *class* is an op and dtype, whose tables are alike. The
measured quantity is log efficiency: log of achieved over peak FLOP/s.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from prism_jax.system import catalog

from ...data.columns import Column
from . import laws as laws, shapes as shapes

COLUMNS = (
    Column("op", ("kernel", "operation"), text=True),
    *(Column(name, positive=True) for name in ("m", "n", "k", "groups", "batch")),
    Column("seq_len", ("sequence_length", "s"), positive=True),
    Column("n_head", ("heads", "num_heads"), positive=True),
    Column("n_kv_head", ("kv_heads", "num_kv_heads"), positive=True),
    Column("head_dim", ("qk_head_dim", "head_size"), positive=True),
    Column("causal", ("is_causal",), text=True),
    *(Column(name, positive=True) for name in ("c_in", "c_out", "height", "width", "filter_height", "filter_width")),
    Column("stride", ("strides",), positive=True),
    Column("padding", ("pad",)),
    *(Column(name, positive=True) for name in ("rows", "columns")),
    Column("bytes", ("n_bytes", "bytes_moved"), positive=True),
    Column("dtype", ("precision",), required=True, text=True, may_be_blank=False),
    Column("gpu", ("gpu_name", "device"), required=True, text=True, may_be_blank=False),
    Column("duration_s", ("time", "latency", "duration"), positive=True),
    Column("tflops", ("tflops_per_s",), positive=True),
    Column("efficiency", ("fraction_of_peak",), positive=True),
    Column("software", ("library", "backend"), text=True),
    Column("source", ("source_repo",), text=True),
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
    number = {name: _numbers(frame, name) for name in (*_NUMBERS, *_OF_CONVOLUTION)}
    one = {name: np.nan_to_num(number[name], nan=1.0) for name in ("groups", "batch", "stride")}
    family = np.array([shapes.family(name) for name in op], dtype=object)
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
    fused = np.array([shapes.family(name) == "attention" for name in op], dtype=bool)
    return np.where(full & fused, op + shapes.FULL, op)


def _labels(frame: pd.DataFrame, name: str, default: str = "") -> np.ndarray:
    """A column of labels as objects, without the separator of table names."""
    if name not in frame:
        return np.full(len(frame), default, dtype=object)
    return np.array([str(x).replace("|", "/") for x in frame[name].astype(object).fillna(default)], dtype=object)


def _numbers(frame: pd.DataFrame, name: str) -> np.ndarray:
    return frame[name].to_numpy(dtype=np.float64) if name in frame else np.full(len(frame), np.nan)


def _efficiency(frame: pd.DataFrame, op: np.ndarray, size: np.ndarray) -> np.ndarray:
    """Efficiency as stated; else speed over datasheet peak; else over the fastest measured with that GPU and dtype.

    Passes over memory and element-wise kernels count bytes, and the peak is the bandwidth.
    """
    work = np.full(len(frame), np.nan)
    for name in np.unique(op):
        of = op == name
        work[of] = shapes.flops(str(name), size[of])
    rate = np.where(
        np.isnan(_numbers(frame, "tflops")), work / _numbers(frame, "duration_s"), _numbers(frame, "tflops") * 1e12
    )
    gpu, dtype = _labels(frame, "gpu"), _labels(frame, "dtype")
    speeds = pd.DataFrame({"gpu": gpu, "dtype": dtype, "rate": rate})
    fastest = speeds.groupby(["gpu", "dtype"])["rate"].transform("max").to_numpy(dtype=np.float64)
    peak = np.array([_peak(*one) for one in zip(op, gpu, dtype, strict=True)])
    stated = _numbers(frame, "efficiency")
    return np.where(np.isnan(stated), rate / np.where(np.isnan(peak), fastest, peak), stated)


def _peak(op: str, gpu: str, dtype: str) -> float:
    return (
        shapes.hbm_bytes_per_s(gpu)
        if shapes.family(op) in ("memory", "vector")
        else shapes.peak_flops_per_s(gpu, dtype)
    )
