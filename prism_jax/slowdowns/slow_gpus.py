"""Slowdowns of GPUs from the readings of detectors: factor, interval, and whether a GPU is slow for good or in turn with others.

The factor of a GPU in one report is the value of the usual GPU over its own (its own over the usual one's where seconds are
measured). The usual GPU is the median of the report, or what the report states of it; where a report holds a part of the GPUs
(one node of many), it is the median over all reports. Over several reports the median counts; a report that lists extremes alone
says of the others that they are as usual. The interval is that of a median of repeats with the spread that repeats of GPUs have
(where nothing repeats, that between GPUs), widened by the digits that are printed and by what is not known of the usual GPU.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.robust import robust_sd
from .measured_speeds import ALL, OF_CLOCK, class_of
from .readings import DetectorReadings, GpuPlace, GpuReading, UsualValue

SLOW_SHARE = 0.03  # by which a slow GPU is slower than the usual one, at least
SLOW_SD = 4.0  # robust standard deviations over GPUs, beyond which one is slow
MOST_PARTIAL = 0.5  # share of the GPUs that a report needs to have a median of its own
PERSISTENT = 0.5  # share of its reports in which a persistently slow GPU is slow, at least
MEDIAN_ERROR = 1.2533  # standard error of a median of normal values over that of their mean
Z95 = 1.96
LIMITS = (0.01, 100.0)  # of factors
EXTREMES_ALONE = "# extremes alone: GPUs that are not listed are as usual"  # first line of a table of such
MOST_CELLS = 20_000_000  # of reports times GPUs; more reports are taken together in groups of successive ones

Pattern: TypeAlias = Literal["usual", "persistent", "rotating", "once"]


@dataclass(frozen=True)
class GpuSlowdown:
    """Slowdown of a GPU or node.

    Attributes:
        host: its host; empty where none is told.
        index: of the GPU in its host.
        rank: of the GPU in the job.
        factor: on the time of its kernels, the median over reports (1.05: 5% slower).
        low, high: interval of the factor, 95%.
        n_readings: values that say so.
        slow_share: share of the reports in which it is slow.
        pattern: usual; persistent: slow in at least half of the reports; rotating: in fewer; once: slow in the only report.
        slow_factor: median over the reports in which it is slow; that of all where there are none.
    """

    host: str
    index: int | None
    rank: int | None
    factor: float
    low: float
    high: float
    n_readings: int
    slow_share: float
    pattern: Pattern
    slow_factor: float

    @property
    def name(self) -> str:
        """The GPU as messages name it: "rank 5 (gpu1)", "gpu1:4", "gpu1"."""
        if self.rank is not None:
            return f"rank {self.rank} ({self.host})" if self.host else f"rank {self.rank}"
        return self.host if self.index is None else f"{self.host}:{self.index}"


@dataclass(frozen=True)
class GpuSlowdowns:
    """Slowdowns of the GPUs that detectors have measured.

    Attributes:
        gpus: slowest first.
        by_class: kernel class ("all" for every kernel) -> factors in the order of `gpus`, NaN where none is told.
        n_report: reports in all files.
        is_partial: whether reports list extremes alone.
        notes: what people should know.
    """

    gpus: tuple[GpuSlowdown, ...]
    by_class: Mapping[str, Floats]
    n_report: int
    is_partial: bool
    notes: tuple[str, ...]

    def table(self) -> str:
        """The table of slowdowns in CSV: place, and a factor for every kernel or one per class; of extremes it says so first."""
        with_rank = any(gpu.rank is not None for gpu in self.gpus)
        with_host = any(gpu.host for gpu in self.gpus)
        with_index = not with_rank and any(gpu.index is not None for gpu in self.gpus)
        place = [*(["rank"] if with_rank else []), *(["node"] if with_host else []), *(["gpu"] if with_index else [])]
        classes = {("slowdown" if name == ALL else name): factors for name, factors in self.by_class.items()}
        out = io.StringIO()
        out.write(f"{EXTREMES_ALONE}\n" if self.is_partial else "")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow([*place, *classes])
        for at in sorted(range(len(self.gpus)), key=lambda at: _order(self.gpus[at])):
            gpu = self.gpus[at]
            cells = {"rank": gpu.rank, "node": gpu.host, "gpu": gpu.index}
            told = [
                "" if math.isnan(f[at]) else f"{min(max(f[at], LIMITS[0]), LIMITS[1]):.6g}" for f in classes.values()
            ]
            writer.writerow(["" if cells[name] is None else cells[name] for name in place] + told)
        return out.getvalue()


def _order(gpu: GpuSlowdown) -> tuple[int, str, int]:
    return (-1 if gpu.rank is None else gpu.rank, gpu.host, -1 if gpu.index is None else gpu.index)


class _Factors(NamedTuple):
    """Logarithms of factors of one series, [report, place], NaN where a report does not list the place; and its bounds."""

    series: str
    log: Floats
    n: Floats
    usual: Floats  # [report] where the usual GPU is not at 0, as scores are against the best one
    doubt: Floats  # [report] half width of what is not known of the usual GPU
    is_partial: bool


def slowdowns_of_readings(files: Sequence[DetectorReadings], slow_share: float = SLOW_SHARE) -> GpuSlowdowns:
    """The slowdowns that the files of detectors tell, taken together.

    Args:
        files: at least one, each with readings.
        slow_share: by which a slow GPU is slower than the usual one, at least.

    Raises:
        DataError: some files name ranks alone, and others hosts alone.
    """
    files, notes = _placed(files)
    places = list(dict.fromkeys(one.place for file in files for one in file.readings))
    n_report = sum(file.n_report for file in files)
    n_row = max(1, min(n_report, MOST_CELLS // len(places)))
    tables = [_table(files, series, places, (n_report, n_row)) for series in _series(files)]
    is_partial = any(table.is_partial for table in tables)
    log = _median([table.log for table in tables])  # [report, place]
    doubt = max(float(np.nanmedian(table.doubt)) for table in tables) + max(file.rounding for file in files)
    n_reading = np.sum([np.nansum(table.n, axis=0) for table in tables], axis=0)
    factor = np.nanmedian(log, axis=0)
    spread_of_gpus = 0.0 if is_partial else SLOW_SD * robust_sd(factor, float(np.median(factor)))
    limit = max(math.log1p(slow_share), spread_of_gpus)
    there = ~np.isnan(log)
    usual = _median([table.usual[:, None] for table in tables])
    is_slow = there & (np.nan_to_num(log - usual) > limit)
    n_seen = np.maximum(there.sum(axis=0), 1)
    spread = _repeat_sd(log, robust_sd(factor))
    half = Z95 * MEDIAN_ERROR * spread / np.sqrt(n_seen) + doubt
    gpus: list[GpuSlowdown] = []
    for at, place in enumerate(places):
        share = float(is_slow[:, at].sum() / n_seen[at])
        slow = log[is_slow[:, at], at]
        value, low, high = (float(math.exp(factor[at] + sign * half[at])) for sign in (0.0, -1.0, 1.0))
        pattern = _pattern(share, int(n_seen[at]))
        slow_factor = float(math.exp(np.median(slow))) if len(slow) else value
        gpus.append(GpuSlowdown(*place, value, low, high, int(n_reading[at]), share, pattern, slow_factor))
    order = sorted(range(len(gpus)), key=lambda at: (-gpus[at].factor, -gpus[at].slow_share, _order(gpus[at])))
    by_class = {name: np.exp(values[order]) for name, values in _by_class(tables).items()}
    notes += [f"{_file_name(file)}: {note}" for file in files for note in file.notes]
    return GpuSlowdowns(tuple(gpus[at] for at in order), by_class, n_report, is_partial, tuple(dict.fromkeys(notes)))


def _file_name(file: DetectorReadings) -> str:
    return file.source.replace("\\", "/").rpartition("/")[2]


def _pattern(share: float, n_seen: int) -> Pattern:
    if share == 0.0:
        return "usual"
    if n_seen == 1:
        return "once"
    return "persistent" if share >= PERSISTENT else "rotating"


def _placed(files: Sequence[DetectorReadings]) -> tuple[list[DetectorReadings], list[str]]:
    """The files with one kind of places: ranks where all have them, or those that some file ties to ranks; else hosts."""
    known = {one.place for file in files for one in file.readings}
    of_index: dict[tuple[str, int | None], GpuPlace] = {
        (p.host, p.index): p for p in known if p.rank is not None and p.host and p.index is not None
    }
    of_rank = {
        p.rank: p for p in sorted(known, key=lambda p: (bool(p.host), p.index is not None)) if p.rank is not None
    }

    def full(place: GpuPlace) -> GpuPlace:
        if place.rank is not None:
            return of_rank[place.rank]
        return of_index.get((place.host, place.index), place)

    if of_rank and not all(full(place).rank is not None for place in known):
        kinds = {(file.source, file.readings[0].place.rank is not None) for file in files}
        named = {is_rank: source for source, is_rank in sorted(kinds)}
        raise DataError(
            f"{named.get(True, files[0].source)} names ranks, {named.get(False, files[-1].source)} hosts, and nothing ties one "
            "to the other. Read them one by one, or add a report that has both."
        )
    whole = {place.host for place in known if place.index is None and place.rank is None}
    single = {place.host for place in known if place.index is not None and place.rank is None}
    both = whole & single
    notes = [f"of {len(both):,} hosts GPUs are measured, and the host as a whole, which is left out"] if both else []

    def kept(one: GpuReading) -> bool:
        return not (one.place.host in both and one.place.index is None and one.place.rank is None)

    return [
        replace(file, readings=[one._replace(place=full(one.place)) for one in file.readings if kept(one)])
        for file in files
    ], notes


def _series(files: Sequence[DetectorReadings]) -> list[str]:
    return list(dict.fromkeys(one.series for file in files for one in file.readings))


def _table(
    files: Sequence[DetectorReadings], series: str, places: Sequence[GpuPlace], n_reports: tuple[int, int]
) -> _Factors:
    """Factors of one series in all reports of all files; `n_reports`: in the files, and rows that they become."""
    n_report, n_row = n_reports
    at = {place: number for number, place in enumerate(places)}
    rows: list[tuple[int, int, float]] = []
    references: dict[int, UsualValue] = {}
    kinds = set[str]()
    first = 0
    for file in files:
        own = [one for one in file.readings if one.series == series]
        rows += [((first + one.report) * n_row // n_report, at[one.place], one.value) for one in own]
        references |= {(first + n) * n_row // n_report: ref for (n, of), ref in file.references.items() if of == series}
        kinds |= {one.kind for one in file.readings if one.series == series}
        first += file.n_report
    sign = 1.0 if kinds <= {"time", "factor"} else -1.0
    report, place = (np.array([row[i] for row in rows], np.int64) for i in (0, 1))
    value = np.array([row[2] for row in rows], np.float64)
    log, n = _grid(report, place, sign * np.log(value), (n_row, len(places)))
    usual, doubt, is_factor = np.full(n_row, np.nan), np.zeros(n_row), kinds == {"factor"}
    for number, ref in references.items():
        usual[number], doubt[number] = sign * math.log(ref.value), 0.5 * math.log(ref.high / ref.low)
        log[number, np.isnan(log[number])] = usual[number]  # not among the extremes: as usual
    usual = np.where(np.isnan(usual), _usual(log), usual)
    if not is_factor:
        log, usual = log - usual[:, None], np.zeros(n_row)
    return _Factors(series, log, n, usual, doubt, bool(references))


def _grid(
    report: NDArray[np.int64], place: NDArray[np.int64], log: Floats, shape: tuple[int, int]
) -> tuple[Floats, Floats]:
    """Median and number of the values of every report and place [report, place]; NaN without any."""
    key = report * shape[1] + place
    order = np.lexsort((log, key))
    key, log = key[order], log[order]
    which, start, counts = np.unique(key, return_index=True, return_counts=True)
    grid, n = np.full(shape[0] * shape[1], np.nan), np.zeros(shape[0] * shape[1])
    grid[which] = 0.5 * (log[start + (counts - 1) // 2] + log[start + counts // 2])
    n[which] = counts
    return grid.reshape(shape), n.reshape(shape)


def _usual(log: Floats) -> Floats:
    """Logarithm of the usual GPU in every report [report]: its median, or that of all where it lists few of the GPUs."""
    there = ~np.isnan(log)
    total = float(np.median(_median_over_reports(log)))
    enough = there.sum(axis=1) >= max(2.0, MOST_PARTIAL * there.any(axis=0).sum())
    usual = np.full(len(log), total)
    if enough.any():
        usual[enough] = np.nanmedian(log[enough], axis=1)
    return usual


def _median_over_reports(log: Floats) -> Floats:
    seen = ~np.isnan(log).all(axis=0)
    return np.nanmedian(log[:, seen], axis=0)


def _median(tables: Sequence[Floats] | Floats) -> Floats:
    """Median over series [report, place], or of a table over its reports [place]; NaN where none tells."""
    stacked = np.asarray(tables)
    told = ~np.isnan(stacked).all(axis=0)
    found = np.full(told.shape, np.nan)
    found[told] = np.nanmedian(stacked[:, told], axis=0)
    return found


def _repeat_sd(log: Floats, of_gpus: float) -> float:
    """Robust spread of the reports of a GPU around its median, pooled over GPUs; of a single report that between GPUs."""
    away = log - np.nanmedian(log, axis=0)
    repeated = (~np.isnan(log)).sum(axis=0) > 1
    values = away[:, repeated]
    values = values[~np.isnan(values)]
    return robust_sd(values, 0.0) if len(values) else of_gpus


def _by_class(tables: Sequence[_Factors]) -> dict[str, Floats]:
    """Kernel class -> logarithms of factors [place]: the median over the series that tell of the class."""
    told: dict[str, list[Floats]] = {}
    for table in tables:
        kinds = OF_CLOCK if "CLOCK" in table.series.upper() else (class_of(table.series),)
        for kind in kinds:
            told.setdefault(kind, []).append(table.log)
    with np.errstate(all="ignore"):
        found = {kind: _median(_median(logs)) for kind, logs in told.items()}
    if ALL in found and len(found) > 1:  # a GPU has one factor for all, or one per class
        return {ALL: _median(_median([table.log for table in tables]))}
    return found
