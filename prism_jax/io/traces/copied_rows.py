"""Rows of a plain table that stand there twice, as when a file was appended to itself: they would count as twice the work."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from ...recorded.trace.op_table import OpTable

_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)  # 2^64 over the golden ratio, as in Fibonacci hashing


def without_copies(table: OpTable) -> OpTable:
    """The table without rows that are the same as one before in every column, with a note of how many there were.

    Ops of a stream run one after another, so that two of the same start and duration are one. Those that took no time stay.
    """
    columns = _columns(table)
    marks = _marks(columns)
    ordered = np.sort(marks)
    if not (ordered[1:] == ordered[:-1]).any():
        return table
    copied = _copied(columns, np.argsort(marks, kind="stable")) & (table.duration_s > 0.0)
    n = int(copied.sum())
    if n == 0:
        return table
    kept = {name: values[~copied] for name, values in columns.items()}
    note = f"{n:,} of {len(table):,} rows are the same as one before and left out"
    return replace(table, **kept, notes=(*table.notes, note))  # pyright: ignore[reportArgumentType]


def _columns(table: OpTable) -> dict[str, NDArray]:
    found = {item.name: getattr(table, item.name) for item in fields(table)}
    return {name: values for name, values in found.items() if isinstance(values, np.ndarray)}


def _marks(columns: dict[str, NDArray]) -> NDArray[np.uint64]:
    """A number [row] that is the same for rows that are the same, and else the same by chance only."""
    marks = np.zeros(len(columns["step"]), np.uint64)
    for values in columns.values():
        wide = np.float64 if values.dtype.kind == "f" else np.int64
        marks = (marks ^ (values.astype(wide) + wide(0)).view(np.uint64)) * _MULTIPLIER
        marks ^= marks >> np.uint64(29)
    return marks


def _copied(columns: dict[str, NDArray], order: NDArray[np.intp]) -> NDArray[np.bool_]:
    """Which rows [row] equal the one before them in an order in which equal rows are neighbours, first ones first."""
    same = np.ones(len(order) - 1, bool)
    for values in columns.values():
        same &= values[order[1:]] == values[order[:-1]]
    copied = np.zeros(len(order), bool)
    copied[order[1:]] = same
    return copied
