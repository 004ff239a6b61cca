"""Reads the SQLite export of Nsight Systems as the events of every device.

Ranks are the devices with kernels, or the processes where all use one device. Kernels, copies and graphs of a device are linked
to the calls that launched them by process and correlation number. Steps are NVTX ranges of the processes of a device; NVTX ranges
with the names of ops are taken as annotations, as those of the PyTorch profiler are.

The file is opened read-only and as immutable, loads nothing, and may hold views or triggers: only tables are read, row by row in
the order in which they lie there, no text longer than a name is taken, and the work of a statement is bounded.

Source: Nsight Systems user guide, SQLite schema reference.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ..core.errors import DataError
from ..core.read_file import check_input
from .names import annotation
from .rank_events import Event, ProfileHeader, RankEvents, enumerate_events
from .step_marks import MARKS, StepMarks, step_event

KERNEL, COPY, SET = (f"CUPTI_ACTIVITY_KIND_{name}" for name in ("KERNEL", "MEMCPY", "MEMSET"))
GRAPH, RUNTIME, NVTX, STRINGS = (
    "CUPTI_ACTIVITY_KIND_GRAPH_TRACE",
    "CUPTI_ACTIVITY_KIND_RUNTIME",
    "NVTX_EVENTS",
    "StringIds",
)
KINDS = {1: "HtoD", 2: "DtoH", 8: "DtoD", 10: "PtoP"}
RANGES = (59, 60)  # pushed and popped; started and ended
MAX_ROWS = 16_000_000  # of a table
MAX_NAME = 2_000
MAX_NAMES = 200_000
MAX_RANKS = 4_096
MAX_WORK = 5_000  # millions of instructions of SQLite's machine
_PROCESS = ~0xFFFFFF  # globalTid with its thread left out is globalPid
_US = 1e-3


def nsight_events(path: Path) -> Iterator[RankEvents]:
    """The devices of a file, each as a rank.

    Raises:
        DataError: cannot be read, damaged, no such export, too large, or without kernels.
    """
    check_input(path)
    with _explained(path), _connected(path) as database:
        yield from _Export(path, database).ranks()


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        if "interrupted" in str(error):
            raise DataError(
                f"{path}: takes more than {MAX_WORK:,} million instructions to read. Record fewer steps."
            ) from None
        raise _damaged(path, error) from None
    except (sqlite3.Error, OverflowError, MemoryError) as error:
        raise _damaged(path, error) from None


def _damaged(path: Path, error: Exception) -> DataError:
    reason = "".join(one if one.isprintable() else "?" for one in str(error))[:150]
    return DataError(
        f"{path}: not a whole SQLite export of Nsight Systems: {reason}. Export it again: nsys export --type sqlite"
    )


@contextmanager
def _connected(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection that reads alone, within limits; closed whatever happens, even where the file is none."""
    with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1", uri=True)) as database:
        database.text_factory = lambda raw: raw.decode("utf-8", "replace")
        for limit, most in (
            (sqlite3.SQLITE_LIMIT_LENGTH, 2**20),
            (sqlite3.SQLITE_LIMIT_SQL_LENGTH, 2**20),
            (sqlite3.SQLITE_LIMIT_ATTACHED, 0),
            (sqlite3.SQLITE_LIMIT_VDBE_OP, 10_000),
        ):
            database.setlimit(limit, most)
        for pragma in ("trusted_schema=OFF", "cell_size_check=ON", "mmap_size=0", "cache_size=-16000", "query_only=ON"):
            database.execute(f"PRAGMA {pragma}")
        left = iter(range(MAX_WORK))
        database.set_progress_handler(lambda: 0 if next(left, None) is not None else 1, 1_000_000)
        yield database


class _Export:
    """The tables of one export."""

    def __init__(self, path: Path, database: sqlite3.Connection) -> None:
        self.path, self.database = path, database
        found = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table' LIMIT 10000")
        self.tables = {name for name, sql in found if isinstance(sql, str) and sql.split()[:2] == ["CREATE", "TABLE"]}
        self.names: dict[int, str] = {}
        if not self.tables & {KERNEL, GRAPH}:
            raise DataError(
                f"{path}: no table {KERNEL}: no kernels were recorded, or this is no export of Nsight Systems. Record with "
                "--trace cuda,nvtx and export with nsys export --type sqlite."
            )

    def rows(self, table: str, columns: Sequence[str], text: str = "") -> Iterator[tuple[Any, ...]]:
        """Whole numbers of the columns of a table; those that it lacks are -1, as are empty ones.

        Args:
            text: a further column, whose values are texts; "" where it is empty.

        Raises:
            DataError: more rows than are read.
        """
        if table not in self.tables:
            return
        known = {row[1] for row in self.database.execute(f"PRAGMA table_info({table})")}
        if columns[0] not in known:
            raise DataError(
                f"{self.path}: table {table} has no column {columns[0]}. Export it again: nsys export --type sqlite"
            )
        wanted = ", ".join(f'"{one}"' if one in known else "NULL" for one in columns)
        if text:
            wanted += f", substr({text}, 1, {MAX_NAME})" if text in known else ", NULL"
        for n, row in enumerate(self.database.execute(f'SELECT {wanted} FROM "{table}"')):
            if n >= MAX_ROWS:
                raise DataError(f"{self.path}: table {table} has more than {MAX_ROWS:,} rows. Record fewer steps.")
            if text:
                yield (
                    *(value if type(value) is int else -1 for value in row[:-1]),
                    row[-1] if isinstance(row[-1], str) else "",
                )
            else:
                yield tuple(value if type(value) is int else -1 for value in row)

    def name(self, number: int) -> str:
        """Text of the table of names."""
        if number not in self.names:
            row = None
            if STRINGS in self.tables:
                ask = f"SELECT substr(value, 1, {MAX_NAME}) FROM {STRINGS} WHERE id = ?"
                row = self.database.execute(ask, (number,)).fetchone()
            if len(self.names) >= MAX_NAMES:
                raise DataError(f"{self.path}: more than {MAX_NAMES:,} different names")
            self.names[number] = row[0] if row and isinstance(row[0], str) else ""
        return self.names[number]

    def ranks(self) -> Iterator[RankEvents]:
        """The ranks in their order."""
        places, origin_ns = self._places()
        by_device = len({device for _, device in places}) > 1
        rank_keys = sorted({self._key(place, by_device) for place in places})
        if not places:
            raise DataError(f"{self.path}: no kernels were recorded. Record with --trace cuda,nvtx.")
        if len(rank_keys) > MAX_RANKS:
            raise DataError(f"{self.path}: kernels of {len(rank_keys):,} devices, but at most {MAX_RANKS:,} are read")
        for part, key in enumerate(rank_keys):
            mine = sorted(place for place in places if self._key(place, by_device) == key)
            header = ProfileHeader(marks=MARKS)
            header.values["baseTimeNanoseconds"] = max(origin_ns, 0)
            yield RankEvents(header, self._events(mine, origin_ns, header), part, len(rank_keys))

    @staticmethod
    def _key(place: tuple[int, int], by_device: bool) -> int:
        return place[1] if by_device else place[0]

    def _places(self) -> tuple[set[tuple[int, int]], int]:
        """Processes and devices with kernels, and the first start."""
        places: set[tuple[int, int]] = set()
        origin_ns = 2**62
        for table in (KERNEL, GRAPH):
            for start, device, process in self.rows(table, ("start", "deviceId", "globalPid")):
                places.add((process, device))
                origin_ns = min(origin_ns, start)
                if len(places) > MAX_RANKS:
                    return places, origin_ns
        return places, origin_ns

    def _events(
        self, places: Sequence[tuple[int, int]], origin_ns: int, header: ProfileHeader
    ) -> Iterator[tuple[int, Event, Event]]:
        """Events of the processes and devices of one rank."""
        with _explained(self.path):
            yield from self._read(places, origin_ns, header)

    def _read(
        self, places: Sequence[tuple[int, int]], origin_ns: int, header: ProfileHeader
    ) -> Iterator[tuple[int, Event, Event]]:
        processes = {process: index for index, process in enumerate(dict.fromkeys(process for process, _ in places))}
        marks = StepMarks(str(self.path))
        ranges = list(self._ranges(processes, origin_ns, marks))
        steps, note = marks.steps()
        header.notes += [note] * bool(note)
        yield from enumerate_events(
            [*map(step_event, steps), *ranges], self._work(processes, set(places), origin_ns, header)
        )

    def _ranges(self, processes: dict[int, int], origin_ns: int, marks: StepMarks) -> Iterator[Event]:
        """Annotations of the processes; steps go to `marks`."""
        columns = ("start", "end", "eventType", "globalTid", "textId")
        for start, end, kind, thread, text, written in self.rows(NVTX, columns, "text"):
            if kind not in RANGES or end < start or thread & _PROCESS not in processes:
                continue
            name = written or (self.name(text) if text >= 0 else "")
            start_us, duration_us = (start - origin_ns) * _US, (end - start) * _US
            marks.add(name, start_us, duration_us)
            try:
                known = annotation(name) is not None
            except ValueError:
                known = False
            if known:
                yield {"cat": "user_annotation", "name": name, "ts": start_us, "dur": duration_us, "tid": thread}

    def _work(
        self, processes: dict[int, int], places: set[tuple[int, int]], origin_ns: int, header: ProfileHeader
    ) -> Iterator[tuple[Event, Event]]:
        links, n_linked = set[int](), 0
        shared = ("start", "end", "deviceId", "globalPid", "streamId", "correlationId")
        for table, last, category in (
            (KERNEL, "demangledName", "kernel"),
            (GRAPH, "graphExecId", "kernel"),
            (COPY, "copyKind", "gpu_memcpy"),
            (SET, "memKind", "gpu_memset"),
        ):
            for start, end, device, process, stream, link, code in self.rows(table, (*shared, last)):
                if (process, device) not in places:
                    continue
                if table == KERNEL:
                    name = self.name(code)
                else:
                    name = {GRAPH: "CUDA graph", COPY: f"Memcpy {KINDS.get(code, code)}", SET: "Memset"}[table]
                correlation = _link(link, processes[process])
                if correlation >= 0:
                    links.add(correlation)
                event: Event = {"cat": category, "name": name, **_time(start, end, origin_ns), "tid": stream}
                yield event, {"stream": stream + (processes[process] << 32), "correlation": correlation}
        for start, end, thread, link, name in self.rows(
            RUNTIME, ("start", "end", "globalTid", "correlationId", "nameId")
        ):
            index = processes.get(thread & _PROCESS)
            if index is None:
                continue
            words, correlation = self.name(name), _link(link, index)
            waits = "StreamWaitEvent" in words
            if waits or correlation in links:
                n_linked += not waits
                yield (
                    {"cat": "cuda_runtime", "name": words, **_time(start, end, origin_ns), "tid": thread},
                    {"correlation": correlation},
                )
        header.by_time = n_linked == 0


def _link(correlation: int, process: int) -> int:
    """Correlation number that no other process of the file has."""
    return correlation + (process << 48) if 0 <= correlation < 2**48 else -1


def _time(start: int, end: int, origin_ns: int) -> Event:
    return {"ts": (start - origin_ns) * _US, "dur": (end - start) * _US}
