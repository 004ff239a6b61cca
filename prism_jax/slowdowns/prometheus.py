"""Reads metrics in Prometheus' text format, as the DCGM exporter serves them, and answers of Prometheus to range queries in JSON.

Of the metrics of DCGM the SM clock says how fast a GPU is; it counts while the GPU works (utilization, else power), and what is
known of temperature, power and throttling goes along. Of other metrics those whose names say that they are speeds or seconds
(`measured_speeds`) count. A host is the label `Hostname`, `hostname`, `node`, `host`, or `instance` without its port; a GPU
`gpu`, or `device` ("nvidia3"), `minor_number`; a rank `rank` or `global_rank`.

Source: NVIDIA/dcgm-exporter, README; Prometheus, exposition formats (text 0.0.4) and HTTP API (range queries).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..core.errors import DataError
from ..tables.csv_rows import number_of
from ..tables.document import short
from .measured_speeds import at_work, kind_of
from .readings import (
    MAX_READINGS,
    DetectorFile,
    DetectorReadings,
    GpuPlace,
    SlowdownDetector,
    object_in,
    objects_in,
    place_of,
    short_name,
)
from .throttling import Throttling

DCGM = {
    "DCGM_FI_DEV_SM_CLOCK": "clock",
    "DCGM_FI_DEV_GPU_UTIL": "utilization",
    "DCGM_FI_DEV_POWER_USAGE": "power",
    "DCGM_FI_DEV_GPU_TEMP": "temperature",
    "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS": "reasons",
    "DCGM_FI_DEV_CLOCKS_EVENT_REASONS": "reasons",
}
"""Metric -> what it is; other metrics of DCGM are not about speed."""

HOSTS = ("Hostname", "hostname", "node", "host", "exported_instance", "instance", "kubernetes_node")
INDICES = ("gpu", "gpu_id", "local_rank", "minor_number", "device")
RANKS = ("rank", "global_rank")
_SAMPLE = re.compile(r"([A-Za-z_:][A-Za-z0-9_:]{0,199})(?:\{(.{0,20000})\})?\s+(\S{1,40})(?:\s+(-?\d{1,20}))?\s*")
_LABEL = re.compile(r'\s*([A-Za-z_][A-Za-z0-9_]{0,199})\s*=\s*"((?:[^"\\]|\\.){0,5000})"\s*(?:,|$)')
_DIGITS = re.compile(r"(?:nvidia|cuda|gpu|amd|renderD)?(\d{1,7})", re.IGNORECASE)
BLANK = 1e18  # DCGM's values beyond it say that there is none
SIGN = re.compile(r"^# TYPE [A-Za-z_:][\w:]{0,199} (?:gauge|counter|untyped|summary|histogram)\b|^DCGM_FI_\w{1,100}\{")


class MetricSample(NamedTuple):
    """One value of a metric.

    Attributes:
        where: for messages.
        at: time, s; NaN where none is told.
        scrape: number of the scrape in the file, or the place in a range.
    """

    where: str
    name: str
    place: GpuPlace
    at: float
    scrape: float
    value: float


def read_metrics(file: DetectorFile) -> DetectorReadings:
    """Speeds of GPUs from metrics of one scrape or several.

    Raises:
        DataError: cannot be read, or no metric says how fast a GPU is.
    """
    return speeds_of_samples(file.name, text_samples(file))


def read_range(file: DetectorFile) -> DetectorReadings:
    """Speeds of GPUs from the answer to a range query.

    Raises:
        DataError: as `read_metrics`, or no answer of Prometheus.
    """
    return speeds_of_samples(file.name, range_samples(file))


def text_samples(file: DetectorFile) -> Iterator[MetricSample]:
    """Samples of a text in the order of the file; a metric of a GPU that comes again begins the next scrape.

    Raises:
        DataError: cannot be read, or a label that is no place.
    """
    seen, scrape = set[tuple[str, GpuPlace]](), 0
    for number, line in file.lines():
        sample = _SAMPLE.fullmatch(line) if line[:1] not in ("#", "") else None
        if sample is None or not _tells(sample[1]):
            continue
        where = f"{file.name}:{number}"
        place = _place(dict(_LABEL.findall(sample[2] or "")), where)
        if place is None:
            continue
        if (sample[1], place) in seen:
            seen, scrape = set(), scrape + 1
        seen.add((sample[1], place))
        at = float(sample[4]) / 1e3 if sample[4] else float("nan")
        yield MetricSample(where, sample[1], place, at, scrape, _value(sample[3]))


def range_samples(file: DetectorFile) -> Iterator[MetricSample]:
    """Samples of an answer of Prometheus: a matrix of ranges, or a vector.

    Raises:
        DataError: cannot be read, no JSON, an error of Prometheus, or series without a name.
    """
    answer = object_in(file.document)
    if answer.get("status") == "error":
        raise DataError(
            f"{file.name}: Prometheus answered {short(str(answer.get('error', 'with an error')))}. Ask again."
        )
    n_value = 0
    for number, series in enumerate(objects_in(object_in(answer.get("data")).get("result"))):
        where, labels = f"{file.name}: series {number + 1}", object_in(series.get("metric"))
        name = labels.get("__name__")
        if not isinstance(name, str):
            raise DataError(
                f"{where}: no name (functions such as rate() drop it). Query the metric itself, DCGM_FI_DEV_SM_CLOCK."
            )
        place = _place({str(k): str(v) for k, v in labels.items()}, where) if _tells(name) else None
        if place is None:
            continue
        points = series.get("values", [series.get("value")])
        for point in points if isinstance(points, list) else ():
            if isinstance(point, list) and len(point) == 2 and isinstance(point[0], (int, float)):
                n_value += 1
                if n_value > MAX_READINGS:
                    raise DataError(f"{file.name}: more than {MAX_READINGS:,} values. Ask for a longer step.")
                yield MetricSample(where, name, place, float(point[0]), float(point[0]), _value(str(point[1])))


def _tells(name: str) -> bool:
    """Whether a metric says something of speed."""
    return name in DCGM or (not name.startswith("DCGM_FI_") and kind_of(name) is not None)


def _value(text: str) -> float:
    value = number_of(text)
    return value if abs(value) < BLANK else float("nan")


def _place(labels: Mapping[str, str], where: str) -> GpuPlace | None:
    """The place that labels name; None where they name none."""
    host = next((labels[name] for name in HOSTS if labels.get(name)), "")
    rank = next((labels[name] for name in RANKS if labels.get(name)), None)
    index = next((found[1] for name in INDICES if (found := _DIGITS.fullmatch(labels.get(name, "")))), None)
    host = host.rpartition(":")[0] if re.fullmatch(r"[^:]+:\d{1,5}", host) else host
    return place_of(where, host, index, rank) if host or rank is not None or index is not None else None


def speeds_of_samples(source: str, samples: Iterator[MetricSample]) -> DetectorReadings:
    """The samples of speeds as readings, a scrape or time as a report; clocks only while the GPU works.

    Raises:
        DataError: no metric says how fast a GPU is.
    """
    found = DetectorReadings(source)
    speeds: list[MetricSample] = []
    state: dict[str, dict[tuple[GpuPlace, float], float]] = {}
    for sample in samples:
        known = DCGM.get(sample.name, "")
        if known and known != "clock":
            state.setdefault(known, {})[sample.place, sample.scrape] = sample.value
        elif sample.value > 0.0:
            speeds.append(sample)
        else:
            found.unusable[sample.name] += 1
    if not speeds and not found.unusable:
        raise DataError(
            f"{source}: no metric says how fast a GPU is. Record its SM clock (DCGM_FI_DEV_SM_CLOCK) under load."
        )
    works = at_work(state.get("utilization", {}), state.get("power", {}))
    scrapes = {one: number for number, one in enumerate(sorted({sample.scrape for sample in speeds}))}
    idle = 0
    for sample in speeds:
        kind = "clock" if sample.name in DCGM else kind_of(sample.name)
        if kind is None or (kind == "clock" and not works.get((sample.place, sample.scrape), True)):
            idle += kind is not None
            continue
        found.n_report = scrapes[sample.scrape] + 1
        found.add(sample.where, sample.place, sample.name, kind, sample.value)
    found.n_report = len(scrapes)
    if idle:
        found.notes.append(f"{idle:,} of {len(speeds):,} clocks are of GPUs that did not work, and do not count")
    found.notes += _throttled(state.get("reasons", {}), works)
    return found


def _throttled(
    reasons: Mapping[tuple[GpuPlace, float], float], works: Mapping[tuple[GpuPlace, float], bool]
) -> list[str]:
    """Notes on GPUs that throttle while they work."""
    counts = Throttling(("reasons",))
    for (place, scrape), mask in reasons.items():
        if mask == mask and works.get((place, scrape), True):
            name = f"rank {place.rank}" if place.rank is not None else f"{place.host}:{place.index}"
            counts.add(short_name(name), {"reasons": f"{int(mask)}"})
    return [note.removeprefix(": ") for note in counts.notes("")]


def _is_answer(document: Any) -> bool:
    result = object_in(object_in(document).get("data")).get("result")
    is_error = object_in(document).get("status") == "error" and "errorType" in object_in(document)
    return is_error or (
        isinstance(result, list) and all(isinstance(object_in(one).get("metric"), Mapping) for one in result)
    )


DCGM_EXPORTER = SlowdownDetector(
    "dcgm-exporter", "metrics of the DCGM exporter and others in Prometheus' text format", read_metrics, sign=SIGN
)
PROMETHEUS = SlowdownDetector(
    "prometheus", "saved answers of Prometheus to range queries in JSON", read_range, owns=_is_answer
)
