"""Logs of tools: GPUs over time (`nvidia-smi --query-gpu=... --format=csv`, `dcgmi dmon`), and tests of collectives.

Logs of nccl-tests and rccl-tests (all_reduce_perf and its siblings) are of any version, several tests per file or not.

    # nThread 1 nGpus 8 minBytes 8 maxBytes 134217728 step: 2(factor) ...
    #  Rank  0 Group  0 Pid  12345 on  node-a device  0 [0x0f] NVIDIA A100-SXM4-80GB
    #       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
    #        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
        1048576        262144     float     sum      -1    52.88   19.83   34.70      0    51.94   20.19   35.33      0

Every row gives two: out of place and in place. What a launcher puts before a line ("[1,0]<stdout>:", "0: ") is taken off.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prism_jax.core.errors import DataError
from prism_jax.tables.streams import lines

from .columns import plain
from .raw_table import NOT_AVAILABLE, RawTable, as_floats, column_of, hash_as_one, raw_table, read_delimited

NAMES = {
    "timestamp": "time",
    "uuid": "gpu_uuid",
    "gpu_uuid": "gpu_uuid",
    "index": "gpu_index",
    "gpu_index": "gpu_index",
    "pci_bus_id": "gpu_bus_id",
    "gpu_bus_id": "gpu_bus_id",
    "name": "gpu_model",
    "gpu_name": "gpu_model",
    "hostname": "node",
    "host": "node",
    "clocks_sm": "clock_mhz",
    "clocks_current_sm": "clock_mhz",
    "clocks_gr": "clock_gr_mhz",
    "clocks_current_graphics": "clock_gr_mhz",
    "temperature_gpu": "temp_c",
    "power_draw": "power_w",
    "power_draw_instant": "power_instant_w",
    "power_draw_average": "power_average_w",
}
"""Name in a query of nvidia-smi -> ours."""

_TELLING = (
    "clocks_sm",
    "clocks_current_sm",
    "temperature_gpu",
    "power_draw",
    "power_draw_instant",
    "power_draw_average",
)
_QUERIES = (
    "clocks", "temperature", "power", "utilization", "memory", "pstate", "fan", "pci", "driver", "serial", "count", "vbios",
    "ecc", "enforced", "compute", "persistence", "display", "encoder", "mig", "module", "fabric", "gsp", "accounting",
)  # fmt: skip
_DCGM = {
    "SMCLK": "clock_mhz",
    "TMPTR": "temp_c",
    "GPUT": "temp_c",
    "GTEMP": "temp_c",
    "POWER": "power_w",
    "POWR": "power_w",
}
_ENTITY = re.compile(r"\s{0,9}GPU\s{1,9}(\d{1,5})\s")
MAX_ROWS = 20_000_000


def is_gpu_header(names: Sequence[str]) -> bool:
    """Whether all columns are those of a query of nvidia-smi, so that nothing was timed."""
    known = {plain(name) for name in names}
    return not known.isdisjoint(_TELLING) and all(name in NAMES or name.startswith(_QUERIES) for name in known)


def read_nvidia_smi(path: Path) -> RawTable:
    """A log of nvidia-smi in CSV, with units or without.

    Raises:
        DataError: as `read_delimited`.
    """
    table = read_delimited(path, lambda names: [name for name in names if plain(name) in NAMES])
    ours: dict[str, str] = {}
    for name in table.frame.columns:
        ours.setdefault(NAMES[plain(name)], name)
    frame = pd.DataFrame({new: column_of(table.frame, old) for new, old in ours.items()})
    frame = frame.rename(columns=_first(frame, ("power_average_w", "power_instant_w"), "power_w"))
    frame = frame.rename(columns=_first(frame, ("clock_gr_mhz",), "clock_mhz"))
    frame = frame.rename(columns=_first(frame, ("gpu_uuid", "gpu_bus_id", "gpu_index"), "gpu"))
    return RawTable(str(path), frame, tuple(frame.columns), table.row_hash, is_gpu_log=True)


def _first(frame: pd.DataFrame, names: Sequence[str], ours: str) -> dict[str, str]:
    found = next((name for name in names if name in frame), None)
    return {found: ours} if found and ours not in frame else {}


def is_dcgm_line(line: bytes) -> bool:
    """Whether only logs of `dcgmi dmon` have such a line."""
    return line.lstrip().startswith(b"#Entity")


def read_dcgm(path: Path) -> RawTable:
    """A log of `dcgmi dmon`; it has no times, so that it says what is typical of a GPU.

    Raises:
        DataError: cannot be read, no rows, or none of the fields 100 (SMCLK), 150 (TMPTR), 155 (POWER).
    """
    names: list[str] = []
    rows: list[dict[str, str | float]] = []
    for number, raw in lines(path, cut=True):
        line = raw.decode("utf-8", "replace")
        if is_dcgm_line(raw):
            names = line.replace("#Entity", " ").split()
        elif names and (entity := _ENTITY.match(line)):
            fields = line[entity.end() :].replace("Not Supported", "N/A").split()
            if len(fields) != len(names):
                raise DataError(
                    f"{path}:{number}: {len(fields)} values, but the header names {len(names)}. Remove the line."
                )
            values = {_DCGM[name]: text for name, text in zip(names, fields, strict=True) if name in _DCGM}
            rows.append({"gpu": entity[1], **values})
            if len(rows) > MAX_ROWS:
                raise DataError(f"{path}: more than {MAX_ROWS:,} rows. Split it.")
    if not rows:
        raise DataError(f"{path}: a log of dcgmi dmon without a row of a GPU. Record it again.")
    frame = pd.DataFrame(rows)
    if len(frame.columns) == 1:
        raise DataError(f"{path}: neither clock, temperature nor power. Record them with dcgmi dmon -e 100,150,155.")
    frame = frame.replace(list(NOT_AVAILABLE), None)
    return raw_table(str(path), frame, is_gpu_log=True)


MAX_TESTS = 10_000_000  # rows
_OP = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoall|sendrecv|broadcast|reduce|gather|scatter|hypercube)_perf\w{0,8}\b"
)
_IN_NAME = re.compile(r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|send_?recv|broadcast", re.IGNORECASE)
_PREFIX = re.compile(r"^\s{0,20}(?:\[\d{1,6},\d{1,6}\](?:<std\w{2,4}>)?:\s?|\d{1,6}:\s)")
_RANK = re.compile(
    r"#\s{1,20}Rank\s{1,20}(\d{1,9})\s.{0,80}?\bon\s{1,40}(\S{1,255})\s{1,20}device\s{1,20}\d{1,4}\s{0,9}\[[^\]]{0,40}\]\s{0,9}(.{0,120})"
)
_STARTS = re.compile(r"#\s{0,9}nThreads?\b")
_LIBRARY = re.compile(r"\b([NR]CCL) version\s?:?\s{0,9}([0-9][0-9.]{0,20})")
_LIBRARY_CODE = re.compile(r"nccl-library=(\d{4,6})\b")


@dataclass
class Test:
    """What is known of the test whose rows come next."""

    op: str = ""
    library: str = ""
    hosts: dict[int, str] = field(default_factory=dict)
    devices: dict[int, str] = field(default_factory=dict)
    columns: list[str] = field(default_factory=list)


def is_nccl_line(line: bytes) -> bool:
    """Whether only these logs have such a line."""
    return b"algbw" in line and b"busbw" in line and b"size" in line and b"#" in line


def read_nccl_tests(path: Path, collective: str = "") -> RawTable:
    """Rows of all tests in a log.

    Args:
        collective: which was run, where the log itself does not say it; else its file name may.

    Raises:
        DataError: cannot be read, no row of results, the log does not say which collective was run, or says another.
    """
    rows = []
    for row in _rows(path, collective):
        rows.append(row)
        if len(rows) > MAX_TESTS:
            raise DataError(f"{path}: more than {MAX_TESTS:,} rows. Split it.")
    if not rows:
        raise DataError(f"{path}: a log of nccl-tests without a row of results. Did the test fail?")
    frame = pd.DataFrame(rows)
    if not all(frame["op"]):
        raise DataError(
            f"{path}: the log does not say which collective was run. Say it, for example by --collective all_reduce"
        )
    has_devices = as_floats(column_of(frame, "n_gpus")) > 0
    for name in ("n_gpus", "n_nodes", "gpus_per_node"):
        frame[name] = np.where(has_devices, as_floats(column_of(frame, name)), np.nan)
    notes = [] if has_devices.all() else [f"{path.name}: tests without a list of devices; their n_gpus is blank"]
    return RawTable(str(path), frame, tuple(frame.columns), hash_as_one(frame), notes=tuple(notes))


def _rows(path: Path, collective: str) -> Iterator[dict[str, Any]]:
    in_name = _IN_NAME.search(path.name)
    test = Test(op=_spelled(collective or (in_name[0] if in_name else "")))
    for _, raw in lines(path, cut=True):
        line = _PREFIX.sub("", raw.decode("utf-8", "replace"))
        fields = line.split()
        if "time" in test.columns and len(fields) > 3 and fields[0].isdecimal() and fields[1].isdecimal():
            yield from _row(test, fields)
        else:
            _learn(test, line)
            if collective and test.op != _spelled(collective):
                raise DataError(
                    f"{path}: a log of {test.op}, not of {collective}. Leave --collective {collective} out."
                )


def _learn(test: Test, line: str) -> None:
    if op := _OP.search(line):
        test.op = _spelled(op[1])
    if library := _LIBRARY.search(line):
        test.library = f"{library[1]} {library[2].rstrip('.')}"
    if code := _LIBRARY_CODE.search(line):
        test.library = f"NCCL {int(code[1]) // 10000}.{int(code[1]) // 100 % 100}.{int(code[1]) % 100}"
    if _STARTS.search(line):
        test.hosts, test.devices, test.columns = {}, {}, []
    if rank := _RANK.search(line):
        test.hosts[int(rank[1])], test.devices[int(rank[1])] = rank[2], rank[3].strip()
    if is_nccl_line(line.encode()):
        test.columns = line.replace("#wrong", "wrong").replace("#", " ").split()


def _row(test: Test, fields: list[str]) -> Iterator[dict[str, Any]]:
    """Out of place and in place; where the line is cut off, the time is blank."""
    values = list(itertools.zip_longest(test.columns, fields[: len(test.columns)], fillvalue=""))
    known = dict(reversed(values))
    times = [text for name, text in values if name == "time"]
    hosts = set(test.hosts.values())
    n_gpus = len(test.hosts)
    for text, in_place in zip(times[:2], ("out", "in"), strict=False):
        yield {
            "op": test.op,
            "message_bytes": known["size"],
            "time_us": text,
            "in_place": in_place,
            "dtype": known.get("type", ""),
            "n_gpus": n_gpus,
            "n_nodes": len(hosts),
            "gpus_per_node": n_gpus / len(hosts) if hosts else 0,
            "gpu": next(iter(test.devices.values()), ""),
            "library": test.library,
        }


def _spelled(op: str) -> str:
    plain = op.lower().replace("_", "")
    names = ("all_reduce", "all_gather", "reduce_scatter", "alltoall", "send_recv")
    return next((name for name in names if name.replace("_", "") == plain), op.lower())
