"""Measured slowdowns of single GPUs, from a CSV table.

Columns: where, and how slow. Where is `gpu` (the index along the plan's axis order), or a node (all GPUs of that host), or a node
and `gpu` (the index inside it, from 0). A node stands in the column `node`, `host` or `hostname`: a number from 0 or a host name,
the same throughout a table. Hosts are nodes in the order of their first rows.

How slow is `slowdown` (factor, 1.05 = 5 % slower) or one column per compute class (`gemm`, `attention`, `memory`, and those that
a caller has added). GPUs that are not listed, and those whose factor is left empty, stay unknown.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ..core.errors import DataError
from ..core.kernels import KERNEL_CLASSES
from ..core.registry import did_you_mean
from ..tables.csv_rows import CsvTable, number_of, read_packed_text
from ..tables.document import short

MAX_ROWS = 1_000_000
MAX_DIGITS = 30
ALL = "slowdown"  # column of a factor for every class
GPU = "gpu"
NODE_COLUMNS = ("node", "host", "hostname")
HOST = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,252}")  # what launchers take in a file of hosts


@dataclass(frozen=True)
class SlowdownTable:
    """What a table says.

    Attributes:
        factors: kernel class (or "all") -> device -> factor.
        hosts: [node] names, where the table has names; node n holds devices `n * node_size` and on.
    """

    factors: Mapping[str, Mapping[int, float]]
    hosts: tuple[str, ...] = ()


def read_slowdowns(path: str | Path, n_devices: int, node_size: int) -> SlowdownTable:
    """The table in a CSV file.

    Args:
        n_devices: of the job; rows beyond them are refused.
        node_size: GPUs per node.

    Raises:
        DataError: the file cannot be read, a column is missing or unknown, a value is not a positive number, a place is neither
            an index inside the job nor a host name, or a GPU is listed twice; names row and field.
    """
    text = read_packed_text(Path(path), "a table of slowdowns in CSV")
    return _read(CsvTable(text, str(path), MAX_ROWS, ":"), n_devices, node_size)


def _read(table: CsvTable, n_devices: int, node_size: int) -> SlowdownTable:
    header, path = table.columns, table.name
    node, columns = _columns(header, path)
    of_column = {column: "all" if column == ALL else column for column in columns}
    found: dict[str, dict[int, float]] = {name: {} for name in of_column.values()}
    places = _Places(node, GPU in header, n_devices, node_size)
    for line, row in table.rows():
        where = table.place(line)
        devices = places.devices(row, where)
        for column in columns:
            if not row[column]:
                continue
            factor, known = _factor(row[column], column, where), found[of_column[column]]
            if any(device in known for device in devices):
                raise DataError(f"{where} {places.field}: {places.told(row)} is listed twice")
            known.update(dict.fromkeys(devices, factor))
    if not any(found.values()):
        raise DataError(f"{path}: no rows. Give at least one GPU, or leave the option out.")
    return SlowdownTable(found, tuple(places.hosts))


@dataclass
class _Places:
    """Devices of a row.

    Attributes:
        node: column of the node; empty where `gpu` counts all GPUs of the job.
        has_gpu: whether there is a column `gpu`.
        hosts: name -> node, in the order of their first rows.
        named: whether nodes have names; None before the first row.
    """

    node: str
    has_gpu: bool
    n_devices: int
    node_size: int
    hosts: dict[str, int] = field(default_factory=dict)
    named: bool | None = None

    @property
    def field(self) -> str:
        """Column that a message is about."""
        return GPU if self.has_gpu else self.node

    def told(self, row: Mapping[str, str]) -> str:
        """The place as the row has it."""
        inside = f" of {row[self.node].strip()}" if self.node and self.has_gpu else ""
        return row[self.field].strip() + inside

    def devices(self, row: Mapping[str, str], where: str) -> range:
        """Devices that the row is about; the last node of a job may be smaller than the others."""
        if not self.node:
            gpu = _index(row[GPU], GPU, where)
            return self._inside(range(gpu, gpu + 1), str(gpu), where)
        told = row[self.node].strip()
        first = self._node(told, where) * self.node_size
        if self.has_gpu:
            gpu = _index(row[GPU], GPU, where)
            if gpu >= self.node_size:
                text = (
                    f"{gpu}, but beside a {self.node} it counts the GPUs of that node, from 0 to {self.node_size - 1}"
                )
                raise DataError(f"{where} {GPU}: {text}")
            return self._inside(range(first + gpu, first + gpu + 1), self.told(row), where)
        last = first + self.node_size
        return range(first, min(last, self.n_devices)) if self.named else self._inside(range(first, last), told, where)

    def _node(self, text: str, where: str) -> int:
        """Index of a node from its number or name."""
        named = not _is_index(text)
        if named:
            _check_host(text, self.node, where)
        if self.named is not None and named != self.named:
            kinds = ("a name", "numbers") if named else ("a number", "names")
            raise DataError(
                f"{where} {self.node}: {short(text)} is {kinds[0]}, but the rows above have {kinds[1]}. Use one of both."
            )
        self.named = named
        if not named:
            return int(text)
        n_node = -(-self.n_devices // self.node_size)
        if text not in self.hosts and len(self.hosts) >= n_node:
            raise DataError(f"{where} {self.node}: {text} is host number {n_node + 1}, but the job has {n_node} nodes")
        return self.hosts.setdefault(text, len(self.hosts))

    def _inside(self, devices: range, told: str, where: str) -> range:
        """`devices`, if the job has them."""
        if devices[-1] >= self.n_devices:
            size = f"{self.n_devices} GPUs (counted from 0, {self.node_size} per node)"
            raise DataError(f"{where} {self.field}: {told}, but the job has {size}")
        return devices


def _columns(header: Sequence[str], path: str) -> tuple[str, list[str]]:
    """Column of the node (empty for none), and the columns of factors."""
    factors_known = (ALL, *KERNEL_CLASSES.names)
    known = (GPU, *NODE_COLUMNS, *factors_known)
    for name in header:
        if name not in known:
            raise DataError(
                f"{path}:1 {name}: unknown column{did_you_mean(name, known, '')}; known are {', '.join(known)}"
            )
    nodes = [name for name in NODE_COLUMNS if name in header]
    factors = [name for name in factors_known if name in header]
    one_place = len(nodes) == 1 or (not nodes and GPU in header)
    if not one_place or not factors or (ALL in factors and len(factors) > 1):
        raise DataError(
            f"{path}:1: needs one of gpu or node (or host, hostname), and slowdown or some of {', '.join(KERNEL_CLASSES.names)}"
        )
    return nodes[0] if nodes else "", factors


def _check_host(text: str, column: str, where: str) -> None:
    """Whether launchers take the name; what reads as a number is a slip."""
    try:
        float(text)
    except ValueError:
        if HOST.fullmatch(text):
            return
    else:
        raise DataError(f"{where} {column}: {short(text)} is not a whole number from 0, nor a host name")
    raise DataError(
        f"{where} {column}: {short(text)} is not a whole number from 0, nor a host name (letters, digits, dots, - and _)"
    )


def _is_index(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS


def _index(text: str, column: str, where: str) -> int:
    if not _is_index(text.strip()):
        raise DataError(f"{where} {column}: {short(text)} is not a whole number from 0")
    return int(text)


def _factor(text: str, column: str, where: str) -> float:
    value = number_of(text)
    if math.isnan(value):
        raise DataError(f"{where} {column}: {short(text)} is not a number")
    if not 0.01 <= value <= 100.0:
        raise DataError(f"{where} {column}: {text}, but a slowdown lies between 0.01 and 100 (1.05 = 5 % slower)")
    return value
