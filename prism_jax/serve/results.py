"""The saved reports of a folder as rows: what they are of, their figures, when and how they were made; what is pinned.

A report is told by the first bytes of its file; a row is made of its JSON once, and again when the file has changed. Nothing is
imported for it that a kind of report needs.
"""

from __future__ import annotations

import json
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from ..core.errors import DataError, printable
from ..core.read_file import parse_json, read_text
from ..core.report import SCHEMA, Report
from ..core.write_file import write_text
from ..show.reports import REMEDY, report_of

T = TypeVar("T")
MOST_BYTES = 64 * 2**20  # of a report
MOST_NESTS = 2**20  # lists and objects of a report, each some 100 bytes in memory
MOST_KEPT, MOST_KEPT_BYTES = 256, 2**23  # pages and the like that are kept, and bytes of their files
MOST_DEPTH, MOST_FILES = 4, 20_000  # folders below DIR, and files in JSON that are looked at
MOST_TEXT, MOST_NUMBER = 300, 1e300  # letters of a text in a row; a number there
HEAD = f'"{SCHEMA}": "prism-jax/'.encode()
HEAD_BYTES = 200
OWN = ".prism-jax"  # folder below DIR for what can be made again: pictures, and the lock
JOBS = (".yaml", ".yml", ".toml")
OF_RUNS = (".run", ".work", ".progress", ".cancel")
NO_INPUTS = (*OF_RUNS, ".html", ".htm", ".png", ".svg", ".pdf")  # nor pages and pictures, which commands write
PINS = "pinned.txt"  # names of pinned reports, a line each


@dataclass(frozen=True)
class SavedFile:
    """A file below DIR.

    Attributes:
        name: below DIR, with slashes.
        size_bytes, modified_s: as the system has them; Unix time.
    """

    name: str
    size_bytes: int
    modified_s: float

    @property
    def when(self) -> str:
        """Date and time of its last change, UTC."""
        try:
            return datetime.fromtimestamp(self.modified_s, UTC).strftime("%Y-%m-%d %H:%M")
        except (ValueError, OverflowError, OSError):
            return ""  # a year that no calendar has


@dataclass(frozen=True)
class SavedReport:
    """A saved report as a row; NaN is None, as in its JSON.

    Attributes:
        file: where it is.
        kind: of report; empty where the file is damaged.
        data: its keys at the top that rows show, and its record.
        problem: why it cannot be read; empty where it can.
    """

    file: SavedFile
    kind: str
    data: Mapping[str, Any]
    problem: str = ""

    @property
    def record(self) -> Mapping[str, Any]:
        """Versions, inputs and command of the run."""
        record = self.data.get("record")
        return record if isinstance(record, dict) else self.data

    @property
    def command(self) -> str:
        """The command that made it; empty where it was made in Python."""
        return shown(self.record.get("command") or "")

    @cached_property
    def job(self) -> str:
        """The job that it is of; empty where it is of several or none."""
        job = self.data.get("job") or inputs_of(self.record).get("job")
        return shown((job.get("name") if isinstance(job, dict) else job) or "")

    def number(self, *keys: str) -> float | None:
        """A number inside the report; None where it has none there."""
        value: Any = self.data
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < MOST_NUMBER
        return float(value) if is_number else None


def is_report(path: Path) -> bool:
    """Whether a file begins as saved reports do."""
    with path.open("rb") as opened:
        return HEAD in opened.read(HEAD_BYTES)


def inputs_of(record: Mapping[str, Any]) -> Mapping[str, Any]:
    """Inputs in the record of a run; none where it has none."""
    found = record.get("inputs")
    return found if isinstance(found, dict) else {}


def shown(value: Any) -> str:
    """A text of a report, as long as a row has room for."""
    text = printable(str(value)[: MOST_TEXT + 1])
    return text if len(text) <= MOST_TEXT else f"{text[:MOST_TEXT]} ..."


SHOWN = ("job", "step_time_s", "model_band_s", "mfu", "memory_bytes_per_gpu", "fits", "record")
RECORDED = ("command", "inputs", "versions")  # of kinds whose record stands next to their figures


class Results:
    """Index of a folder; threads may share it.

    Args:
        folder: DIR.

    Attributes:
        n_beyond: JSON files that the last look left out, since `MOST_FILES` of them had been read.
    """

    n_beyond = 0

    @property
    def beyond(self) -> str:
        """Says what the last look left out; empty where that is nothing."""
        told = (
            f"JSON files beyond the first {MOST_FILES:,}, not listed: {self.n_beyond:,}. Serve a folder below this one."
        )
        return told if self.n_beyond else ""

    def __init__(self, folder: Path) -> None:
        self._folder, self._lock = folder, Lock()
        self._looking, self._looked = Lock(), 0.0
        self._reports: list[SavedReport] = []
        self._known: dict[str, tuple[SavedFile, SavedReport | None]] = {}
        self._kept: OrderedDict[tuple[str, ...], tuple[tuple[int, ...], Any]] = OrderedDict()

    def files(self) -> Iterator[SavedFile]:
        """Files below DIR that are not hidden, unordered; links are not followed."""
        yield from _files(self._folder, "", MOST_DEPTH)

    def reports(self) -> list[SavedReport]:
        """Saved reports, the latest first; callers that wait together share one look that began after they came."""
        came = time.monotonic()
        with self._looking:
            if self._looked < came:
                self._looked = time.monotonic()
                self._reports = self._look()
            return list(self._reports)

    def _look(self) -> list[SavedReport]:
        known, self._known, n_beyond = self._known, {}, 0
        for file in self.files():
            if not file.name.endswith(".json"):
                continue
            if len(self._known) == MOST_FILES:
                n_beyond += 1
            else:
                before = known.get(file.name)
                row = before[1] if before and before[0] == file else self._row(file)
                self._known[file.name] = (file, row)
        self.n_beyond = n_beyond
        found = [row for _, row in self._known.values() if row is not None]
        return sorted(found, key=lambda row: (-row.file.modified_s, row.file.name))

    def _row(self, file: SavedFile) -> SavedReport | None:
        """A file as a row; None where it is no report."""
        path = self._folder / file.name
        try:
            if not is_report(path):
                return None
            data = json.loads(_content(path))
            kind = shown(str(data[SCHEMA]).split("/")[1])
            keys = (*SHOWN, *(RECORDED if "record" not in data else ()))
            return SavedReport(file, kind, {key: data[key] for key in keys if key in data})
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError, DataError) as error:
            return SavedReport(file, "", {}, f"damaged: {error}"[:300])

    def opened(self, name: str) -> Report:
        """The report in a file.

        Raises:
            DataError: no report, or damaged.
        """
        return report_of(parse_json(_content(self._folder / name), name), name)

    def kept(self, what: str, names: Sequence[str], make: Callable[[], T]) -> T:
        """A value that is made of files, once, and kept until one of them has changed.

        Args:
            what: is made: a word of the caller.
            names: of the files that it is made of.
        """
        stats = [(self._folder / name).stat() for name in names]
        now = tuple(number for one in stats for number in (one.st_mtime_ns, one.st_size))
        key = (what, *names)
        with self._lock:
            found = self._kept.pop(key, None)
            if found is not None and found[0] == now:
                self._kept[key] = found  # the last that was asked for
                return found[1]
        made = make()
        with self._lock:
            self._kept[key] = (now, made)
            while sum(sum(of[1::2]) + MOST_KEPT_BYTES // MOST_KEPT for of, _ in self._kept.values()) > MOST_KEPT_BYTES:
                self._kept.popitem(last=False)
        return made

    def jobs(self) -> list[SavedFile]:
        """Files of jobs below DIR (YAML, TOML), the latest first."""
        return _latest(one for one in self.files() if one.name.endswith(JOBS))

    def inputs(self, reports: Iterable[SavedReport]) -> tuple[list[SavedFile], list[SavedFile]]:
        """Files of jobs, and logs, tables, profiles and the like, the latest first; without those that a look left out.

        Args:
            reports: that are listed elsewhere.
        """
        known, jobs, others = {PINS, *(one.file.name for one in reports)}, list[SavedFile](), list[SavedFile]()
        for one in self.files():
            if one.name.endswith(JOBS):
                jobs.append(one)
            elif not (one.name in known or one.name.lower().endswith(NO_INPUTS) or self._is_beyond(one.name)):
                others.append(one)
        return _latest(jobs), _latest(others)

    def _is_beyond(self, name: str) -> bool:
        return self.n_beyond > 0 and name.endswith(".json") and name not in self._known

    def n_unnamed(self) -> int:
        """How many files of DIR have names that no address and no command can have, so that they are not shown."""
        with suppress(OSError), os.scandir(self._folder) as entries:
            return sum(not entry.name.isprintable() for entry in entries)
        return 0

    def pinned(self) -> list[str]:
        """Names of the reports that are pinned, in the order of pinning."""
        path = self._folder / PINS
        if path.is_symlink() or not path.is_file():
            return []
        lines = read_text(path, 2**20, f"Remove {PINS}.").splitlines()
        return list(dict.fromkeys(line for line in lines if line))

    def pin(self, name: str, is_pinned: bool) -> None:
        """Pins a report, or takes its pin away."""
        if (self._folder / PINS).is_symlink():
            raise DataError(f"{PINS}: is a link, which writing would follow. Remove it.")
        with self._lock:
            others = [one for one in self.pinned() if one != name]
            lines = [*others, name] if is_pinned else others
            write_text(self._folder / PINS, "".join(f"{line}\n" for line in lines))


def _content(path: Path) -> str:
    """The text of a report, of so few lists and objects that it takes no more than ten times its size in memory."""
    text = read_text(path, MOST_BYTES, REMEDY)
    if text.count("[") + text.count("{") > MOST_NESTS:
        raise DataError(f"{path.name}: more than {MOST_NESTS:,} lists and objects, as no report has. Make it again.")
    return text


def _latest(files: Iterable[SavedFile]) -> list[SavedFile]:
    return sorted(files, key=lambda file: (-file.modified_s, file.name))


def _files(folder: Path, above: str, depth: int) -> Iterator[SavedFile]:
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return
    for entry in entries:
        if entry.name.startswith(".") or not entry.name.isprintable():  # no address and no command can name it
            continue
        try:
            if entry.is_dir(follow_symlinks=False):
                if depth > 1:
                    yield from _files(folder / entry.name, f"{above}{entry.name}/", depth - 1)
            elif entry.is_file(follow_symlinks=False):
                found = entry.stat(follow_symlinks=False)
                yield SavedFile(above + entry.name, found.st_size, found.st_mtime)
        except OSError:
            continue  # removed since it was listed
