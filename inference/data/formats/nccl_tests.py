"""Logs of nccl-tests and rccl-tests (all_reduce_perf and its siblings), of any version, several tests per file or not.

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
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prism_jax.errors import DataError
from prism_jax.io.traces.streams import lines

from .raw_table import RawTable, as_floats, column_of, hash_as_one

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
