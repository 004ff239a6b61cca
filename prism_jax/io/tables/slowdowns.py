"""Measured slowdowns of single GPUs, from a CSV table.

Columns: `gpu` (index along the plan's axis order) or `node` (all GPUs of that host), and `slowdown` (factor, 1.05 =
5 % slower) or one column per compute class (`gemm`, `attention`, `memory`, and those that a caller has added). GPUs that are not
listed stay unknown.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...errors import DataError
from ...hints import did_you_mean
from ...kernels import KERNEL_CLASSES
from ..job.document import short

MAX_ROWS = 1_000_000
MAX_DIGITS = 30
ALL = "slowdown"  # column of a factor for every class


def read_slowdowns(path: str | Path, n_devices: int, node_size: int) -> Mapping[str, Mapping[int, float]]:
    """Kernel class (or "all") -> device -> factor.

    Raises:
        DataError: the file cannot be read, a column is missing or unknown, a value is not a positive number, an index lies
            outside the job, or a GPU is listed twice; names row and field.
    """
    try:
        with open(path, newline="", encoding="utf-8-sig") as file:
            return _read(csv.DictReader(file), str(path), n_devices, node_size)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise DataError(f"{path}: cannot be read as CSV: {reason}") from None


def _read(rows: csv.DictReader[str], path: str, n_devices: int, node_size: int) -> Mapping[str, Mapping[int, float]]:
    header = rows.fieldnames = [name.strip() for name in rows.fieldnames or ()]
    place, columns = _columns(header, path)
    of_column = {column: "all" if column == ALL else column for column in columns}
    found: dict[str, dict[int, float]] = {name: {} for name in of_column.values()}
    for number, row in enumerate(rows, start=2):
        if number > MAX_ROWS:
            raise DataError(f"{path}: more than {MAX_ROWS:,} rows")
        where = f"{path}:{number}"
        if None in row or None in row.values():
            raise DataError(f"{where}: another number of fields than the header has")
        index = _index(row[place], place, where)
        devices = [index] if place == "gpu" else range(index * node_size, (index + 1) * node_size)
        if devices[-1] >= n_devices:
            raise DataError(
                f"{where} {place}: {index}, but the job has {n_devices} GPUs (counted from 0, {node_size} per node)"
            )
        for column in columns:
            factor = _factor(row[column], column, where)
            for device in devices:
                if device in found[of_column[column]]:
                    raise DataError(f"{where} {place}: {index} is listed twice")
                found[of_column[column]][device] = factor
    if not any(found.values()):
        raise DataError(f"{path}: no rows. Give at least one GPU, or leave the option out.")
    return found


def _columns(header: Sequence[str], path: str) -> tuple[str, list[str]]:
    factors_known = (ALL, *KERNEL_CLASSES.names)
    known = ("gpu", "node", *factors_known)
    for name in header:
        if name not in known:
            raise DataError(
                f"{path}:1 {name}: unknown column{did_you_mean(name, known, '')}; known are {', '.join(known)}"
            )
    if len(set(header)) < len(header):
        raise DataError(f"{path}:1: a column is there twice. Keep one.")
    places = [name for name in ("gpu", "node") if name in header]
    factors = [name for name in factors_known if name in header]
    if len(places) != 1 or not factors or (ALL in factors and len(factors) > 1):
        raise DataError(
            f"{path}:1: needs one of gpu or node, and slowdown or some of {', '.join(KERNEL_CLASSES.names)}"
        )
    return places[0], factors


def _index(text: str, field: str, where: str) -> int:
    if not text.strip().isdecimal() or len(text) > MAX_DIGITS:
        raise DataError(f"{where} {field}: {short(text)} is not a whole number from 0")
    return int(text)


def _factor(text: str, field: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise DataError(f"{where} {field}: {short(text)} is not a number") from None
    if not 0.01 <= value <= 100.0:
        raise DataError(f"{where} {field}: {text}, but a slowdown lies between 0.01 and 100 (1.05 = 5 % slower)")
    return value
