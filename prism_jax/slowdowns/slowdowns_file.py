"""Measured slowdowns of single GPUs, from a CSV table, or from a report of a detector, made a table (`detectors.py`).

Columns: where, and how slow. Where is `gpu` (the index along the plan's axis order; also `rank`, `global_rank`), or a node (all
GPUs of that host), or a node and `gpu` (the index inside it, from 0; also `local_rank`, `gpu_id`, ...), or both in one column
("gpu013:4"). A node stands in the column `node`, `host` or `hostname` (...): a number from 0 or a host name, the same throughout
a table. Next to a rank it can only be a name. Which node a host is follows from the list of the job's hosts in the order of ranks
where there is one (`node_names.py`), and rows of other hosts are left out; without a list hosts are nodes in the order of their
first rows.

How slow is `slowdown` (factor, 1.05 = 5% slower) or one column per compute class (`gemm`, `attention`, `memory`, and those that
a caller has added); or what was measured: a rate (`speed`, `tflops`, `tokens_per_s`, `memory_gb_s`), seconds, or an SM clock, as
`measured_speeds` tells by names. There a GPU may have several rows, of which the median counts, and other columns do not matter.
Links have columns of their own: `link` (within the node), `nic` (its ports to other nodes), `rail` (the port of that GPU alone);
2 is half the rate. `link` and `nic` are of the node, the slowest of its rows. Links that are not listed stay unknown, too.
Reasons for which it throttles are counted and said. What `dcgmi dmon` and `nvidia-smi dmon` print is such a table.
GPUs that are not listed, and those whose factor is left empty, stay unknown. Those that a table of extremes (`EXTREMES_ALONE` in
its first line) does not list are as usual where a command needs all.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import compress
from pathlib import Path

import numpy as np

from ..core.errors import DataError
from ..core.kernels import KERNEL_CLASSES, LINKS
from ..tables.csv_rows import CsvRow, CsvTable, number_of, read_packed_text
from ..tables.document import short
from ..tables.monitor_text import as_csv
from .detectors import about_of, detectors_of, read_detectors
from .measured_speeds import ALL as ALL_CLASSES, Recognised, SpeedColumn, at_work, class_of, combined, recognised
from .node_names import HOST
from .slow_gpus import EXTREMES_ALONE, slowdowns_of_readings
from .slowdown_columns import (
    ALL,
    LINK_COLUMNS,
    PERCENT,
    RAIL,
    ListedHosts,
    TableColumns,
    as_columns,
    column_of,
    factor_of,
    spelled_rows,
    table_columns,
    without_comments,
)
from .throttling import IDLE, Throttling, active

MAX_ROWS = 1_000_000
MAX_DIGITS = 30
NOT_AVAILABLE = frozenset(("[n/a]", "n/a", "[not supported]", "not supported", "nan", "-"))


@dataclass(frozen=True)
class SlowdownTable:
    """Content of a table of slowdowns.

    Attributes:
        factors: kernel class (or "all", "link", "nic") -> device -> factor.
        hosts: [node] names, where the table or the list of hosts has names, empty for nodes without one; node n holds devices
            `n * node_size` and on.
        notes: how columns were read, where that does not go without saying.
        is_order: whether hosts are nodes in the order of their first rows, for want of anything better.
        is_partial: whether a detector lists extremes alone, so that the other GPUs are as usual: the first line says so.
    """

    factors: Mapping[str, Mapping[int, float]]
    hosts: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    is_order: bool = False
    is_partial: bool = False

    def with_usual(self, n_devices: int) -> SlowdownTable:
        """The table with factor 1 for the GPUs of a job that a detector of extremes does not list; other tables as they are."""
        if not self.is_partial:
            return self
        usual = dict.fromkeys(range(n_devices), 1.0)
        return replace(self, factors={kind: {**usual, **known} for kind, known in self.factors.items()})


def read_slowdowns(path: str | Path, n_devices: int, node_size: int, hosts: Sequence[str] = ()) -> SlowdownTable:
    """The table in a CSV file.

    Args:
        n_devices: of the job; rows beyond them are refused.
        node_size: GPUs per node.
        hosts: names of the job's nodes, in the order of ranks; empty where nobody says.

    Raises:
        DataError: the file cannot be read, a column is missing or unknown, a value is not a positive number, a place is neither
            an index inside the job nor a host name, or a GPU is listed twice; names row and field.
    """
    text, notes = _as_table(path)
    n_node = -(-n_devices // node_size)
    if len(hosts) > n_node:
        raise DataError(f"--hosts: {len(hosts)} hosts, but the job has {n_node} nodes of {node_size} GPUs")
    plain = as_columns(without_comments(as_csv(text, str(path))))
    table = CsvTable(plain, str(path), MAX_ROWS, ":")
    table.columns = tuple(map(column_of, table.columns))
    if any(table.columns.count(name) > 1 for name in table.columns if name):
        raise DataError(f"{path}:1: two columns hold the same slowdowns. Keep one.")
    found = _read(table, n_devices, node_size, hosts)
    return replace(found, notes=(*notes, *found.notes), is_partial=text.startswith(EXTREMES_ALONE))


def _as_table(path: str | Path) -> tuple[str, tuple[str, ...]]:
    """The text of a table, of a file of a detector the table that it makes, and notes on how that was read.

    Raises:
        DataError: it cannot be read.
    """
    detectors = ()
    with suppress(DataError):  # of a file that cannot be read, the reader of tables says so
        detectors = detectors_of(path)
    if detectors:
        made = slowdowns_of_readings([read_detectors(path, detectors)])
        return made.table(), (f"{path}: read as {about_of(detectors)}", *made.notes)
    return read_packed_text(Path(path), "a table of slowdowns in CSV, or a report of a detector"), ()


def _read(table: CsvTable, n_devices: int, node_size: int, listed: Sequence[str]) -> SlowdownTable:
    columns = table_columns(table.columns, table.name)
    order = {name: node for node, name in enumerate(listed)}
    known = ListedHosts(listed) if listed else None
    places = _Places(columns.node, columns.gpu, n_devices, node_size, columns.inside, columns.label, order, known)
    if columns.measured:
        found, notes = _measured(table, columns, places)
    else:
        found, notes = _factors(table, columns, places)
    other = f"{places.n_other:,} rows are of hosts that are not in --hosts"
    if not any(found.values()):
        why = f": {other}" if places.n_other else ""
        raise DataError(f"{table.name}: no rows{why}. Give at least one GPU, or leave the option out.")
    names = {number: name for name, number in places.hosts.items()}
    hosts = tuple(names.get(number, "") for number in range(max(names, default=-1) + 1))
    notes = (*notes, f"{table.name}: {other} and were left out") if places.n_other else notes
    return SlowdownTable(found, hosts, notes, bool(hosts) and not listed and not columns.label)


Factors = dict[str, dict[int, float]]


def _factors(table: CsvTable, columns: TableColumns, places: _Places) -> tuple[Factors, tuple[str, ...]]:
    """Slowdowns as they stand in the table, one row per GPU; speeds under that name are recognised."""
    found: dict[str, dict[int, float]] = {column: {} for column in columns.factors}
    lines: dict[tuple[str, int], tuple[str, str]] = {}
    for line, row in spelled_rows(table, columns.gpu):
        where = table.place(line)
        if places.is_elsewhere(row):
            continue
        devices = places.devices(row, where)
        for column in columns.factors:
            if not row[column]:
                continue
            factor, known = _positive(factor_of(row[column], column), column, where), found[column]
            if any(device in known for device in devices):
                raise DataError(f"{where} {places.field}: {places.told(row)} is listed twice")
            known.update(dict.fromkeys(devices, factor))
            lines.update({(column, device): (where, row[column]) for device in devices})
    notes: list[str] = []
    factors: Factors = {}
    for column, known in found.items():
        values = np.array(list(known.values()))
        plain = not known or column in LINK_COLUMNS
        told = Recognised(values) if plain else recognised(values, column, table.name)
        factors[ALL_CLASSES if column in (ALL, PERCENT) else column] = dict(
            zip(known, told.factor.tolist(), strict=True)
        )
        notes += [told.note] if told.note else []
        for device, factor in zip(known, told.factor.tolist(), strict=True):
            if not 0.01 <= factor <= 100.0:
                where, text = lines[column, device]
                raise DataError(
                    f"{where} {column}: {text}, but a slowdown lies between 0.01 and 100 (1.05 = 5% slower)"
                )
    return _with_ports(factors, places), tuple(notes)


def _with_ports(factors: Factors, places: _Places) -> Factors:
    """Links and NICs of every device: of its node the slowest row, of its rail its own where that is slower."""
    for column in set(LINKS) & factors.keys():
        of_node: dict[int, float] = {}
        for device, factor in factors[column].items():
            node = device // places.node_size
            of_node[node] = max(factor, of_node.get(node, 0.0))
        factors[column] = {device: of_node[node] for node in sorted(of_node) for device in places.of_node(node)}
    rail = factors.pop(RAIL, {})
    if rail:
        nic = factors.get("nic", {})
        factors["nic"] = nic | {device: max(factor, nic.get(device, 0.0)) for device, factor in rail.items()}
    return factors


def _measured(table: CsvTable, columns: TableColumns, places: _Places) -> tuple[Factors, tuple[str, ...]]:
    """Slowdowns from rates, seconds or clocks, the median over the rows of a GPU and kernel."""
    values: dict[SpeedColumn, dict[str, dict[int, list[float]]]] = {one: {} for one in columns.measured}
    rows = [row for row in spelled_rows(table, columns.gpu) if not places.is_elsewhere(row.fields)]
    busy = _busy([row.fields for row in rows], columns) if columns.measured[0].kind == "clock" else [True] * len(rows)
    for (line, row), counts in zip(rows, busy, strict=True):
        where = table.place(line)
        devices = places.devices(row, where)
        series = row[columns.series] if columns.series else ""
        for one in columns.measured:
            if counts and row[one.column] and row[one.column].lower() not in NOT_AVAILABLE:
                of_gpu = values[one].setdefault(series, {})
                value = _positive(row[one.column].partition(" ")[0], one.column, where)
                for device in devices:
                    of_gpu.setdefault(device, []).append(value)
    throttled = _throttled(rows, busy, columns, places).notes(table.name)
    factors: Factors = {}
    for one, by_series in values.items():
        by_class: dict[str, dict[str, dict[int, list[float]]]] = {}
        for series, of_gpu in by_series.items():
            named = class_of(series) if one.classes == (ALL_CLASSES,) and len(by_series) > 1 else ALL_CLASSES
            by_class.setdefault(named, {})[series] = of_gpu
        for named, part in by_class.items():
            factor = combined({name: {d: np.array(v) for d, v in of.items()} for name, of in part.items()}, one.kind)
            for kind in one.classes if named == ALL_CLASSES else (named,):
                factors[kind] = factor
    if ALL_CLASSES in factors and len(factors) > 1:  # kernels that name no class stand for all that none names
        rest = factors.pop(ALL_CLASSES)
        factors |= {name: rest for name in KERNEL_CLASSES.names if name not in factors}
    told = ", ".join(f"{one.column} ({_middle(values[one]):g})" for one in columns.measured)
    over = "its own over the median" if columns.measured[0].kind == "time" else "the median over its own"
    return factors, (f"{table.name}: the slowdown of a GPU is {over}: {told}", *throttled)


def _throttled(rows: Sequence[CsvRow], busy: Sequence[bool], columns: TableColumns, places: _Places) -> Throttling:
    """Reasons for which GPUs throttle while they work."""
    found = Throttling(columns.reasons)
    for row in compress(rows, busy) if columns.reasons else ():
        found.add(places.label_of(row.fields), row.fields)
    return found


def _middle(by_series: Mapping[str, Mapping[int, Sequence[float]]]) -> float:
    """Median of everything that was measured."""
    found = [value for of_gpu in by_series.values() for values in of_gpu.values() for value in values]
    return float(f"{np.median(found) if found else math.nan:.4g}")


def _busy(rows: Sequence[Mapping[str, str]], columns: TableColumns) -> list[bool]:
    """Whether a row's clock is that of work: by utilization, else by power, else where the driver calls no GPU idle."""
    utilization, power = (
        {at: number_of(row[name].partition(" ")[0]) for at, row in enumerate(rows) if name}
        for name in (columns.utilization, columns.power)
    )
    if known := at_work(utilization, power):
        return list(known.values())
    works = [not ((active(columns.reasons, row) or 0) & IDLE) for row in rows] if columns.reasons else []
    return works if any(works) else [True] * len(rows)


@dataclass
class _Places:
    """Devices that a row of a table is about.

    Attributes:
        node: column of the node; empty where `gpu` counts all GPUs of the job.
        gpu: column of the GPU; empty where rows are about whole nodes.
        inside: whether `gpu` may hold a node and an index in it ("gpu013:4").
        label: column of a node's name, where `gpu` says where it is.
        hosts: name -> node: as listed, or in the order of their first rows.
        listed: finds those that a list of hosts names; None without a list.
        named: whether nodes have names; None before the first row.
        n_other: rows of hosts that are not listed.
    """

    node: str
    gpu: str
    n_devices: int
    node_size: int
    inside: bool = False
    label: str = ""
    hosts: dict[str, int] = field(default_factory=dict)
    listed: ListedHosts | None = None
    named: bool | None = None
    n_other: int = 0

    @property
    def field(self) -> str:
        """Column that a message is about."""
        return self.gpu or self.node

    def told(self, row: Mapping[str, str]) -> str:
        """Returns the place as the row has it."""
        inside = f" of {row[self.node].strip()}" if self.node and self.gpu else ""
        return row[self.field].strip() + inside

    def label_of(self, row: Mapping[str, str]) -> str:
        """Returns the place as notes name it: "gpu013:4", "GPU 12"."""
        if self.node or not self.gpu:
            return f"{row[self.node].strip()}:{row[self.gpu].strip()}" if self.gpu else row[self.node].strip()
        own = row[self.gpu].strip()
        host = f" ({row[self.label].strip()})" if self.label else ""
        return own if ":" in own else f"GPU {own}{host}"

    def is_elsewhere(self, row: Mapping[str, str]) -> bool:
        """Whether the row is of a host that the job does not have, which is counted."""
        if self.listed is None or not (self.node or (self.inside and ":" in row[self.gpu])):
            return False
        name = self.listed.named(row[self.node or self.gpu].rsplit(":", 1)[0].strip())
        other = bool(name) and not _is_index(name) and name not in self.hosts
        self.n_other += other
        return other

    def devices(self, row: Mapping[str, str], where: str) -> range:
        """Devices that the row is about; the last node of a job may be smaller than the others."""
        if not self.node and not (self.inside and ":" in row[self.gpu]):
            gpu = _index(row[self.gpu], self.gpu, where)
            if self.label:
                self._name(row[self.label].strip(), gpu // self.node_size, where)
            return self._inside(range(gpu, gpu + 1), str(gpu), where)
        told, index = row[self.node or self.gpu].strip(), row[self.gpu].strip() if self.gpu else ""
        if ":" in told:
            told, index = (part.strip() for part in told.rsplit(":", 1))
        first = self._node(told, where) * self.node_size
        if index:
            gpu = _index(index, self.field, where)
            if gpu >= self.node_size:
                counted = f"next to a {self.node or 'node'}"
                text = f"{gpu}, but {counted} it counts the GPUs of that node, from 0 to {self.node_size - 1}"
                raise DataError(f"{where} {self.field}: {text}")
            return self._inside(range(first + gpu, first + gpu + 1), self.told(row), where)
        last = first + self.node_size
        return range(first, min(last, self.n_devices)) if self.named else self._inside(range(first, last), told, where)

    def of_node(self, node: int) -> range:
        """Returns the devices of a node."""
        return range(node * self.node_size, min((node + 1) * self.node_size, self.n_devices))

    def _node(self, text: str, where: str) -> int:
        """Index of a node from its number or name."""
        named = not _is_index(text)
        if named:
            _check_host(text, self.node or self.gpu, where)
            text = text if self.listed is None else self.listed.named(text)
        if self.named is not None and named != self.named:
            kinds = ("a name", "numbers") if named else ("a number", "names")
            column = self.node or self.gpu
            raise DataError(
                f"{where} {column}: {short(text)} is {kinds[0]}, but the rows above have {kinds[1]}. Use one of both."
            )
        self.named = named
        if not named:
            return int(text)
        n_node = -(-self.n_devices // self.node_size)
        if text not in self.hosts and len(self.hosts) >= n_node:
            raise DataError(
                f"{where} {self.node or self.gpu}: {text} is host number {n_node + 1}, but the job has {n_node} nodes"
            )
        return self.hosts.setdefault(text, len(self.hosts))

    def _name(self, name: str, node: int, where: str) -> None:
        """Keeps the name of a node whose place a rank tells."""
        if not name or _is_index(name):
            return
        _check_host(name, self.label, where)
        if self.hosts.setdefault(name, node) != node:
            text = f"{name} is node {self.hosts[name]}, but its row has a rank of node {node}"
            raise DataError(f"{where} {self.label}: {text} ({self.node_size} ranks per node)")

    def _inside(self, devices: range, told: str, where: str) -> range:
        """Returns `devices`, or refuses those that the job does not have."""
        if devices[-1] >= self.n_devices:
            size = f"{self.n_devices} GPUs (counted from 0, {self.node_size} per node)"
            raise DataError(f"{where} {self.field}: {told}, but the job has {size}")
        return devices


def _check_host(text: str, column: str, where: str) -> None:
    """Whether launchers take the name; a text that reads as a number is a slip."""
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


def _positive(text: str, column: str, where: str) -> float:
    value = number_of(text)
    if math.isnan(value):
        raise DataError(f"{where} {column}: {short(text)} is not a number")
    if not 0.0 < value < math.inf:
        raise DataError(
            f"{where} {column}: {short(text)}, but it must be more than 0 and finite (a slowdown of 1.05 = 5% slower)"
        )
    return value
