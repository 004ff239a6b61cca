"""Reads the text that monitors of GPUs print, `dcgmi dmon` and `nvidia-smi dmon`, as rows of named columns.

A header that begins with # names the columns in short ("#Entity SMCLK POWER", "# gpu pwr gtemp sm mclk pclk"), a line of units
follows, and both are repeated. What a fleet's shell puts before every line ("gpu013: GPU 0 ...") is the host.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from ..core.errors import DataError

COLUMNS: Mapping[str, str] = {
    "SMCLK": "sm_clock_mhz",
    "POWER": "power_w",
    "POWR": "power_w",
    "TMPTR": "temp_c",
    "GPUT": "temp_c",
    "GTEMP": "temp_c",
    "GPUTL": "gpu_util",
    "DVCCTR": "clocks_event_reasons.active",
    "pclk": "sm_clock_mhz",
    "pwr": "power_w",
    "gtemp": "temp_c",
    "sm": "gpu_util",
    "pviol": "clocks_event_reasons.sw_power_cap",
    "tviol": "clocks_event_reasons.hw_thermal_slowdown",
}
"""Short name -> column: fields 100, 155, 150, 203 and 112 of DCGM (dcgm_fields.cpp), `man nvidia-smi` of its dmon."""

GPU, HOST = "gpu", "host"
FIRST_LINES = 50  # among which a header must stand
MOST_COLUMNS = 100
_PREFIX = re.compile(r"\s{0,9}(?:([A-Za-z0-9_][A-Za-z0-9_.-]{0,252}):[ \t]+)?(?=\S)")
_ENTITY = re.compile(r"GPU[ /]\s{0,9}(\d{1,5})(?=\s|$)")


class MonitorRow(NamedTuple):
    """One sample of a GPU: the number of its line, and column -> text; `gpu` always, `host` where lines begin with one."""

    line: int
    fields: dict[str, str]


def header_of(line: str) -> tuple[str, ...]:
    """Short names of the columns, "gpu" or "Entity" among them; empty where the line is no header of a monitor."""
    match = _PREFIX.match(line)
    rest = line[match.end() :] if match else ""
    if not rest.startswith("#"):
        return ()
    names = tuple(rest[1:].replace(",", " ").split()[:MOST_COLUMNS])
    of_smi = "gpu" in names and not COLUMNS.keys().isdisjoint(names)
    return names if of_smi or names[:1] == ("Entity",) else ()


def monitor_rows(lines: Iterable[tuple[int, str]], source: str) -> Iterator[MonitorRow]:
    """Rows of whole GPUs, with those columns that `COLUMNS` knows.

    Args:
        lines: number and text.
        source: for messages.

    Raises:
        DataError: a row has more or fewer values than its header names.
    """
    names: tuple[str, ...] = ()
    for number, line in lines:
        if found := header_of(line):
            names = found
        elif names and (fields := _fields(line, names, f"{source}:{number}")):
            yield MonitorRow(number, fields)


def _fields(line: str, names: tuple[str, ...], where: str) -> dict[str, str]:
    """Values of a row; none of a line of units, or of what is no whole GPU."""
    match = _PREFIX.match(line)
    if match is None:
        return {}
    rest, host = line[match.end() :], match[1]
    rest = rest.replace("Not Supported", "N/A").replace(",", " ")
    if names[0] == "Entity":
        entity = _ENTITY.match(rest)
        if entity is None:
            return {}
        names, gpu, values = names[1:], entity[1], rest[entity.end() :].split()
    else:
        values = rest.split()
        gpu = values[names.index("gpu")] if len(values) > names.index("gpu") else ""
        if not (gpu.isascii() and gpu.isdecimal()):
            return {}
    if len(values) != len(names):
        raise DataError(f"{where}: {len(values)} values, but the header names {len(names)}. Remove the line.")
    found = {COLUMNS[name]: value for name, value in zip(names, values, strict=True) if name in COLUMNS}
    return {**({HOST: host} if host else {}), GPU: gpu, **found}


def as_csv(text: str, source: str) -> str:
    """The text of a monitor as CSV, every row on its line; any other text as it is.

    Raises:
        DataError: as `monitor_rows`.
    """
    if not any(header_of(line) for line in islice(io.StringIO(text), FIRST_LINES)):
        return text
    rows = list(monitor_rows(enumerate(io.StringIO(text), 1), source))
    columns = list(dict.fromkeys(name for row in rows for name in row.fields))
    out = io.StringIO()
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()  # on the first line, which holds no row
    at = 2
    for row in rows:
        out.write("\n" * (row.line - at))
        writer.writerow(row.fields)
        at = row.line + 1
    return out.getvalue()
