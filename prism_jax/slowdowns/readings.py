"""Readings of detectors: which GPU or node, what was measured, in which report of the file; and what a detector is.

A file holds one report or many (one per logging interval, scrape or run). A report that lists all GPUs needs no reference: the
middle GPU is it. One that lists extremes alone brings its reference along, as far as it states one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

from ..core.errors import DataError
from ..core.read_file import parse_json
from ..tables.csv_rows import number_of, read_packed_text
from ..tables.document import short
from ..tables.streams import lines
from .node_names import HOST

MAX_READINGS = 2_000_000
MAX_INDEX = 9_999_999  # of a rank
MOST_LINES = 20_000_000  # of a log
PRINTED = re.compile(r"[^\x20-\x7e]")

Measured: TypeAlias = Literal["rate", "time", "clock", "factor"]


class GpuPlace(NamedTuple):
    """GPU or node that a reading is of; `index` counts the GPUs of the host, `rank` those of the job; None where not told.

    Without both it is a host as a whole.
    """

    host: str = ""
    index: int | None = None
    rank: int | None = None


class GpuReading(NamedTuple):
    """One measurement of a GPU or node.

    Attributes:
        report: number of the report in the file, from 0.
        series: what was measured: a kernel, a score; readings of one series are comparable.
        kind: of the value: a rate, seconds, a clock, or a factor on time (2: twice as slow).
        value: positive.
    """

    place: GpuPlace
    report: int
    series: str
    kind: Measured
    value: float


class UsualValue(NamedTuple):
    """Value of the usual GPU in a report that lists extremes alone: best guess, and between what it lies."""

    value: float
    low: float
    high: float


@dataclass
class DetectorReadings:
    """Content of a file of a detector.

    Attributes:
        source: the file, for messages.
        readings: in the order of the file.
        references: (report, series) -> value of the usual GPU, where the report lists extremes alone.
        n_report: reports in the file.
        rounding: largest relative error of the values by the digits that are printed.
        notes: what people should know.
        unusable: series -> how many of its values were left out, since they are not positive and finite.
    """

    source: str
    readings: list[GpuReading] = field(default_factory=list)
    references: dict[tuple[int, str], UsualValue] = field(default_factory=dict)
    n_report: int = 0
    rounding: float = 0.0
    notes: list[str] = field(default_factory=list)
    unusable: Counter[str] = field(default_factory=Counter[str])

    def add(self, where: str, place: GpuPlace, series: str, kind: Measured, value: float) -> None:
        """Adds a reading of the last report; values that are not positive and finite say nothing and are left out.

        Raises:
            DataError: too many readings.
        """
        if not 0.0 < value < 1e300:
            self.unusable[short_name(series)] += 1
            return
        if len(self.readings) >= MAX_READINGS:
            raise DataError(f"{where}: more than {MAX_READINGS:,} readings. Split the file.")
        self.readings.append(GpuReading(place, max(self.n_report - 1, 0), short_name(series), kind, value))

    def extend(self, other: DetectorReadings) -> None:
        """Adds the reports of another detector in the same file behind those of this one."""
        self.readings += [one._replace(report=self.n_report + one.report) for one in other.readings]
        self.references |= {(self.n_report + n, of): value for (n, of), value in other.references.items()}
        self.n_report += other.n_report
        self.rounding = max(self.rounding, other.rounding)
        self.notes += other.notes


@dataclass(frozen=True)
class DetectorFile:
    """File of a detector, read line by line or as one JSON document."""

    path: Path

    @property
    def name(self) -> str:
        """The path, for messages."""
        return str(self.path)

    def lines(self) -> Iterator[tuple[int, str]]:
        """Number and text of every line.

        Raises:
            DataError: cannot be read, or too many lines.
        """
        for number, line in lines(self.path, cut=True):
            if number > MOST_LINES:
                raise DataError(f"{self.path}: more than {MOST_LINES:,} lines. Split it.")
            yield number, line.decode("utf-8", "replace")

    @cached_property
    def document(self) -> Any:
        """The value in JSON.

        Raises:
            DataError: cannot be read, too large, no JSON.
        """
        return parse_json(read_packed_text(self.path, "a report of a detector"), self.name)


@dataclass(frozen=True)
class SlowdownDetector:
    """Program whose reports say which GPUs are slow.

    Attributes:
        name: in `prism-jax show detectors`.
        about: its files, for messages and lists.
        read: the readings of a file.
        sign: regular expression of a line that only such files have; None for JSON.
        owns: whether a JSON document is one of its reports; None for text.
    """

    name: str
    about: str
    read: Callable[[DetectorFile], DetectorReadings]
    sign: re.Pattern[str] | None = None
    owns: Callable[[Any], bool] | None = None


def place_of(where: str, host: object = "", index: object = None, rank: object = None) -> GpuPlace:
    """The place that a report names by host, index in it, and rank; blanks are not told.

    Raises:
        DataError: a host that no launcher would take, or an index that is none.
    """
    name = "" if host in (None, "") else str(host).strip()
    if name and not HOST.fullmatch(name):
        raise DataError(f"{where}: {short(name)} is no host name (letters, digits, dots, - and _)")
    return GpuPlace(name, _index(where, index), _index(where, rank))


def _index(where: str, value: object) -> int | None:
    if value is None or value == "":
        return None
    number = number_of(str(value))
    if not (0 <= number <= MAX_INDEX and number == int(number)):
        raise DataError(f"{where}: {short(str(value))} is not the index of a GPU or rank")
    return int(number)


def short_name(text: str) -> str:
    """Name of a series as it is kept: printable, at most 80 characters."""
    return PRINTED.sub("?", text.strip())[:80]


def number_in(value: object) -> float:
    """The number in a value of JSON, with or without a unit behind it; NaN for anything else."""
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return float("nan")
    return number_of(value.strip().partition(" ")[0] if isinstance(value, str) else repr(value))


def objects_in(value: object) -> list[Mapping[str, Any]]:
    """Objects of a list in JSON; none where it is no list."""
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def object_in(value: object) -> Mapping[str, Any]:
    """The object in a value of JSON; an empty one where it is none."""
    return value if isinstance(value, Mapping) else {}
