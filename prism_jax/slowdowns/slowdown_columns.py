"""Columns and cells of tables of slowdowns, as people write them: where a row is, and how slow or how fast it is there.

A factor is called slowdown, factor or slow_factor, in any case, and may be a percentage ("20%", or 20 in a column `slowdown_pct`,
is 1.2), a multiple ("1.2x"), or have a decimal comma. A GPU is "cuda:4" or "GPU4" where others write 4. A host is the same with
its domain and without.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ..core.errors import DataError
from ..core.kernels import KERNEL_CLASSES, LINKS
from ..core.registry import did_you_mean
from ..tables.csv_rows import CsvRow, CsvTable, number_of
from .measured_speeds import SpeedColumn, quantities, words_of
from .throttling import is_reason

PERCENT = "slowdown_percent"
RAIL = "rail"  # the port of one GPU, where "nic" is those of a node
_FACTORS = frozenset(
    ("slowdown", "slowdown_factor", "slow_factor", "factor", "slow_down", "slowdown_ratio", "multiplier")
)
_PERCENTS = frozenset(("slowdown_pct", "slowdown_percent", "slowdown_percentage", "percent_slower", "pct_slower"))
_GPU = re.compile(r"(?:(?:cuda|gpu|device|hip|rocm|nvidia|rank)[ :_#-]?\s?)?([0-9]{1,30})", re.IGNORECASE)
_ADDRESS = re.compile(r"[0-9.]+")
_COMMA = re.compile(r"[0-9]{1,2},[0-9]{1,12}")
_FIRST_LINES = 100
ALL = "slowdown"  # column of a factor for every class
GPU = "gpu"
GPU_COLUMNS = ("gpu", "gpu_index", "local_rank", "gpu_id", "device_index", "device_id", "index", "device", "gpu_idx")
RANK_COLUMNS = ("rank", "global_rank", "world_rank")
NODE_COLUMNS = ("node", "host", "hostname", "node_name", "node_id", "node_rank", "host_name", "machine", "instance")
PLACE_NAMES = frozenset((*GPU_COLUMNS, *RANK_COLUMNS, *NODE_COLUMNS))
POWERS = (
    "power_draw_w", "power_w", "power_draw", "power", "power_draw_instant_w", "power_draw_average_w", "power_draw_instant",
    "power_draw_average", "power_usage", "dcgm_fi_dev_power_usage",
)  # fmt: skip
LINK_COLUMNS = (*LINKS, RAIL)
COLUMNS = {  # for the help; `slowdowns_file` says how they are understood
    "host": f"node, a number from 0 or a name; also {', '.join(NODE_COLUMNS[2:5])}, ...",
    GPU: f"GPU of the node, or of the job where no node is named; also {', '.join(GPU_COLUMNS[1:4])}, ...",
    "rank": f"GPU of the job; also {', '.join(RANK_COLUMNS[1:])}",
    ALL: "factor on the time of every kernel (1.05: 5% slower)",
    "gemm": "factor on kernels of a class, in place of slowdown; also attention, memory",
    "speed": "measurement in place of factors; also tflops, duration_s, sm_clock_mhz; of a GPU's rows the median",
    "link": "factor on transfers within a node (2: half the rate); nic: to other nodes; rail: by the port of a GPU",
}


class TableColumns(NamedTuple):
    """Columns of a table: of the node and of the GPU (empty for none), of factors or of measurements, and more.

    Attributes:
        inside: whether a GPU is counted within its node.
        series: what a measurement is of.
        label: name of a node whose place a rank tells.
        reasons: for which a GPU throttles.
    """

    node: str
    gpu: str
    inside: bool
    factors: tuple[str, ...]
    measured: tuple[SpeedColumn, ...] = ()
    series: str = ""
    utilization: str = ""
    power: str = ""
    label: str = ""
    reasons: tuple[str, ...] = ()


def table_columns(header: Sequence[str], path: str) -> TableColumns:
    """Tells which columns a header has.

    Args:
        path: of the table, for messages.

    Raises:
        DataError: a column is unknown, or one that is needed is missing.
    """
    of_gpu = tuple(name for name in (ALL, PERCENT, *KERNEL_CLASSES.names) if name in header)
    links = tuple(name for name in LINK_COLUMNS if name in header)
    places = {name: "_".join(words_of(name)) for name in header}
    measured = () if of_gpu else quantities([name for name in header if places[name] not in PLACE_NAMES], f"{path}:1")
    factors = () if measured else (*of_gpu, *links)
    known = (GPU, *NODE_COLUMNS[:3], ALL, *KERNEL_CLASSES.names, *LINK_COLUMNS)
    reasons = tuple(filter(is_reason, header))
    if reasons and not measured and not factors:
        raise DataError(
            f"{path}:1: {reasons[0]} says that a GPU throttles, not how slow it is. Log its clock too (clocks.sm of nvidia-smi, "
            "field 100 of dcgmi dmon)."
        )
    if not measured:
        for name in header:
            if name not in factors and places[name] not in PLACE_NAMES:
                raise DataError(
                    f"{path}:1 {name}: unknown column{did_you_mean(name, known, '')}; known are {', '.join(known)}, and what was "
                    "measured (speed, tflops, duration_s, sm_clock_mhz)"
                )
    nodes = [name for name in header if places[name] in NODE_COLUMNS]
    ranks, locals_ = ([name for name in header if places[name] in of] for of in (RANK_COLUMNS, GPU_COLUMNS))
    if measured and len(locals_) > 1:  # a log of GPUs names one in several ways
        locals_ = sorted(locals_, key=lambda name: GPU_COLUMNS.index(places[name]))[:1]
    label = nodes[0] if ranks and nodes else ""
    if ranks:  # the index along the plan's axes; the node's name does not matter
        nodes, locals_ = [], ranks
    one_place = len(nodes) <= 1 and len(locals_) <= 1 and len(nodes) + len(locals_) > 0
    if not one_place or not (factors or measured) or (len(of_gpu) > 1 and not {ALL, PERCENT}.isdisjoint(of_gpu)):
        raise DataError(
            f"{path}:1: needs one of gpu or node (or host, hostname), and slowdown or some of {', '.join(KERNEL_CLASSES.names)}"
        )

    def first(names: Sequence[str]) -> str:
        return next((name for name in header if places[name] in names), "")

    return TableColumns(
        nodes[0] if nodes else "",
        locals_[0] if locals_ else "",
        not ranks,
        factors,
        measured,
        first(("kernel", "kernel_name", "op", "benchmark", "test")),
        first(("utilization_gpu", "gpu_utilization", "gpu_util", "sm_util", "dcgm_fi_dev_gpu_util")),
        first(POWERS),
        label,
        reasons,
    )


# --- Spellings -------------------------------------------------------------------------------------------------------


def without_comments(text: str) -> str:
    """The text with empty lines in the place of comments (#) in front of its header."""
    lines = text.split("\n", _FIRST_LINES)
    for at, line in enumerate(lines[:_FIRST_LINES]):
        if line.strip() and not line.lstrip("\ufeff \t").startswith("#"):
            break
        lines[at] = ""
    return "\n".join(lines)


def as_columns(text: str) -> str:
    """A table whose columns stand apart by spaces alone, with commas; any other text as it is."""
    header = text.lstrip().partition("\n")[0]
    if len(header.split()) < 2 or any(mark in header for mark in ',;|\t"'):
        return text
    return "\n".join(",".join(line.split()) for line in text.split("\n"))


def column_of(name: str) -> str:
    """The name of a column of factors as it is read; any other name as it stands."""
    plain = "_".join(words_of(name))
    if plain in _PERCENTS or (plain in _FACTORS and "%" in name):
        return PERCENT
    if plain in _FACTORS:
        return ALL
    return plain if plain in (*KERNEL_CLASSES.names, *LINKS, RAIL) else name


def factor_of(text: str, column: str) -> str:
    """The factor in a cell as a plain number; other texts stay."""
    value = text.strip()
    if value.endswith("%") or column == PERCENT:
        number = number_of(value.removesuffix("%").strip())
        return text if number != number else f"{1.0 + number / 100.0:.12g}"
    if _COMMA.fullmatch(value):
        return value.replace(",", ".")
    return value[:-1].strip() if value[-1:] in ("x", "X", "×") else text


def spelled_rows(table: CsvTable, gpu: str) -> Iterator[CsvRow]:
    """Rows with the index of the GPU alone in column `gpu`, if there is one."""
    for row in table.rows():
        found = _GPU.fullmatch(row.fields[gpu].strip()) if gpu else None
        yield row if found is None else row._replace(fields={**row.fields, gpu: found[1]})


class ListedHosts:
    """Finds the host of a list that a name means: itself, in another case, or with its domain or without."""

    def __init__(self, names: Sequence[str]) -> None:
        self._exact = frozenset(names)
        self._alike: dict[str, str] = {}
        for key in (str.lower, _short):
            for name in names:
                other = self._alike.setdefault(key(name), name)
                if other != name:
                    self._alike[key(name)] = ""  # two hosts are called so: nothing tells which

    def named(self, name: str) -> str:
        """The listed name, or the name as it stands."""
        if name in self._exact:
            return name
        return self._alike.get(name.lower()) or self._alike.get(_short(name)) or name


def _short(name: str) -> str:
    return name.lower() if _ADDRESS.fullmatch(name) else name.lower().partition(".")[0]
