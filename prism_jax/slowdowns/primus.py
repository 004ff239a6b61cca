"""Reads the reports of AMD's Primus preflight: square products of every rank, and the node smoke test.

The performance report (Markdown, or the log) has a table with host, node, rank and one column per size, in microseconds and in
TFLOP/s. The report of the smoke test has a row per node with `min / median / max` over its GPUs; the step waits for the slowest
of them, so the node counts by its minimum. The verdict of one node in JSON has the GPUs themselves.

Source: AMD-AGI/Primus, primus/tools/preflight: square_gemm.py, node_smoke.py.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from .readings import (
    DetectorFile,
    DetectorReadings,
    SlowdownDetector,
    number_in,
    object_in,
    objects_in,
    place_of,
    short_name,
)

_TITLE = re.compile(r"={3,}\s?Square GEMM (Latency|TFLOPS)", re.IGNORECASE)
_SIZE = re.compile(r"\d{2,6}x\d{2,6}x\d{2,6}")
_STATS = re.compile(r"(\d[\d.]{0,15})\s?/\s?(\d[\d.]{0,15})\s?/\s?(\d[\d.]{0,15})")
_HEADER = re.compile(
    r"^(?=.{0,500}(?:GEMM|TFLOP))(?=.{0,500}\bmin\b)\s{0,20}\|\s{0,20}(?:Host|Node)[^|]{0,40}\|", re.IGNORECASE
)
_OF_NODE = re.compile(
    r"\b([A-Za-z0-9_][\w.-]{0,252})[:,]? {1,9}GEMM\b.{0,80}?\bmin[=: ]{1,3}([\d.]{1,20}).{0,40}?\bmax[=: ]{1,3}[\d.]",
    re.IGNORECASE,
)
SIGN = re.compile(rf"{_TITLE.pattern}|{_HEADER.pattern}|Tier 2 perf summary|{_OF_NODE.pattern}", re.IGNORECASE)
NODES_NOTE = "a node counts by the slowest of its GPUs, which the report does not name"


def read_preflight(file: DetectorFile) -> DetectorReadings:
    """Products of ranks or nodes in a report of a preflight.

    Raises:
        DataError: cannot be read, or a place that is none.
    """
    found = DetectorReadings(file.name, n_report=1)
    kind, sizes, is_node_table = "", list[str](), False
    tables: set[str] = set()
    for number, line in file.lines():
        where = f"{file.name}:{number}"
        if title := _TITLE.search(line):
            kind, sizes, is_node_table = title[1].lower(), [], False
            if kind in tables:
                found.n_report += 1
                tables.clear()
            tables.add(kind)
        elif _HEADER.match(line):
            sizes, is_node_table, kind = _cells(line), True, ""
        elif is_node_table and "|" in line:
            _add_node(found, where, sizes, _cells(line))
        elif kind and "Rank" in line and (named := _SIZE.findall(line)):
            sizes = named
        elif kind == "tflops" and sizes:
            _add_rank(found, where, sizes, _cells(line))
        elif of_node := _OF_NODE.search(line):
            found.add(where, place_of(where, of_node[1]), "gemm TFLOP/s", "rate", number_in(of_node[2]))
    if any(one.place.rank is None for one in found.readings):
        found.notes.append(NODES_NOTE)
    return found


def _cells(line: str) -> list[str]:
    """Cells of a row of Markdown, or words of a row of a log."""
    if "|" in line:
        return [cell.strip() for cell in line.strip().strip("|").split("|")][:100]
    return line.split()[-100:]


def _add_rank(found: DetectorReadings, where: str, sizes: Sequence[str], cells: Sequence[str]) -> None:
    """Adds a row of host, node, rank and one value per size; a log may have words in front."""
    cells = cells[-len(sizes) - 3 :]
    values = [number_in(cell) for cell in cells[3:]]
    if len(cells) != len(sizes) + 3 or not (cells[2].isdecimal() and cells[1].isdecimal()) or values != values:
        return
    place = place_of(where, cells[0], rank=cells[2])
    for size, value in zip(sizes, values, strict=True):
        found.add(where, place, f"gemm {size} TFLOP/s", "rate", value)


def _add_node(found: DetectorReadings, where: str, columns: Sequence[str], cells: Sequence[str]) -> None:
    """Adds a row of a node: "min / median / max" of products and of memory in one cell, or the minimum in a column of its own."""
    if len(cells) != len(columns):
        return
    named = list(zip(columns, cells, strict=True))
    hosts = [cell for name, cell in named if "host" in name.lower()] or [cells[0]]
    for name, cell in named:
        stats, words = _STATS.fullmatch(cell), set(name.lower().replace("(", " ").replace("/", " ").split())
        values = list(map(number_in, stats.groups())) if stats else [number_in(cell)] if "min" in words else []
        if values and min(values) > 0.0:
            series = "memory GB/s" if words & {"hbm", "memory", "mem"} else "gemm TFLOP/s"
            found.add(where, place_of(where, hosts[0]), series, "rate", min(values))


def read_smoke_verdict(file: DetectorFile) -> DetectorReadings:
    """GPUs of one node, or of several in a list, from the verdict of a smoke test.

    Raises:
        DataError: cannot be read, no JSON, or a place that is none.
    """
    found = DetectorReadings(file.name, n_report=1)
    nodes = objects_in(file.document) or [object_in(file.document)]
    for node in nodes:
        host = node.get("host", "")
        for at, gpu in enumerate(objects_in(object_in(node.get("tier1")).get("per_gpu"))):
            where = f"{file.name}: host {short_name(str(host))}, GPU {at}"
            place, details = place_of(where, host, gpu.get("gpu", at)), object_in(gpu.get("details"))
            found.add(where, place, "gemm TFLOP/s", "rate", number_in(details.get("gemm_tflops")))
            found.add(where, place, "memory GB/s", "rate", number_in(details.get("hbm_gbs")))
    return found


def _is_verdict(document: Any) -> bool:
    first = next(iter(objects_in(document)), object_in(document))
    return isinstance(object_in(first.get("tier1")).get("per_gpu"), list)


PREFLIGHT = SlowdownDetector(
    "primus-preflight", "reports of Primus preflight (square GEMM, smoke test)", read_preflight, sign=SIGN
)
SMOKE_TEST = SlowdownDetector(
    "primus-smoke-test", "verdicts of the Primus node smoke test in JSON", read_smoke_verdict, owns=_is_verdict
)
