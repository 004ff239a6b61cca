"""The detectors whose reports are read, by name, and which of them wrote a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from ..core.errors import DataError
from ..core.read_file import check_input
from ..core.registry import Registry
from ..tables.streams import head
from .megatron import MEGATRON_SNIFF_TEST, MEGATRON_STRAGGLER
from .nvrx import NVRX
from .primus import PREFLIGHT, SMOKE_TEST
from .prometheus import DCGM_EXPORTER, PROMETHEUS
from .readings import DetectorFile, DetectorReadings, SlowdownDetector
from .run_summaries import READINESS, TRACEML

DETECTORS: Registry[SlowdownDetector] = Registry(
    "detector",
    lambda: (
        NVRX,
        MEGATRON_STRAGGLER,
        MEGATRON_SNIFF_TEST,
        PREFLIGHT,
        SMOKE_TEST,
        TRACEML,
        READINESS,
        DCGM_EXPORTER,
        PROMETHEUS,
    ),
    error=DataError,
)
_JSON = re.compile(rb"(?:\xef\xbb\xbf)?\s{0,1000}(?:\{|\[\s{0,1000}\{)")
TABLES = (".csv", ".tsv", ".parquet", ".pq")  # names of files that are no reports of detectors
SIGN_LINES = 2_000_000  # how far lines that tell are looked for
MOST_NAMED = 3  # series whose values are unusable


def is_table(path: str | Path) -> bool:
    """Whether a file is named as a table, and so is no report of a detector."""
    return Path(path).name.lower().removesuffix(".gz").endswith(TABLES)


def detectors_of(path: str | Path) -> tuple[SlowdownDetector, ...]:
    """The detectors that wrote a file, by its content; none where none did, or the file is named as a table.

    A log may hold reports of several, which come in the order of their first lines.

    Raises:
        DataError: cannot be read.
    """
    file = DetectorFile(Path(path))
    if is_table(path):
        return ()
    if _JSON.match(head(file.path)):
        with suppress(DataError):  # of a log that begins so the lines tell
            return tuple(islice((one for one in _all() if one.owns is not None and one.owns(file.document)), 1))
    found: dict[str, SlowdownDetector] = {}
    signs = [one for one in _all() if one.sign is not None]
    for number, line in file.lines():
        told = next((one for one in signs if one.sign is not None and one.sign.search(line[:2000])), None)
        if told is not None and told.name not in found:
            found[told.name] = told
            signs.sort(key=lambda one: one.name not in found)  # a line that several know is of one that is there
        if number > SIGN_LINES:
            break
    return tuple(found.values())


def read_detectors(path: str | Path, detectors: Sequence[SlowdownDetector] = ()) -> DetectorReadings:
    """The readings of a file of detectors, in the order of the detectors.

    Args:
        detectors: that wrote it; by default they are recognised.

    Raises:
        DataError: cannot be read, no detector is known by it, or nothing is measured in it.
    """
    known = detectors or detectors_of(path)
    if not known:
        check_input(path)
        if is_table(path):
            table = "A table of slowdowns needs no reading: give it as --slowdowns of predict, search or place."
            raise DataError(f"{path}: no report of a detector. {table}")
        raise DataError(f"{path}: no report of a detector. Known are {'; '.join(one.about for one in _all())}.")
    found, empty = DetectorReadings(str(path)), list[str]()
    for one in known:
        read = one.read(DetectorFile(Path(path)))
        if read.readings:
            found.extend(read)
        else:
            empty.append(f"from {one.name}, but it measures no GPU{_why_empty(read)}")
    if not found.readings:
        raise DataError(f"{path}: {'; '.join(empty)}. Give a report with figures per GPU or node.")
    found.notes += empty
    return found


def _why_empty(read: DetectorReadings) -> str:
    """Why a report has no readings, as far as it is known, in parentheses."""
    if read.unusable:
        named = ", ".join(f"{series}: {n:,}" for series, n in read.unusable.most_common(MOST_NAMED))
        return f" (values that are 0, negative or no finite numbers: {named})"
    return f" ({read.notes[-1]})" if read.notes else ""


def about_of(detectors: Sequence[SlowdownDetector]) -> str:
    """Says what the files of these detectors are, for messages."""
    return ", ".join(one.about for one in detectors)


def _all() -> Iterator[SlowdownDetector]:
    """All detectors; those that were added last come first, so that they can claim files of their own."""
    yield from reversed([DETECTORS.named(name) for name in DETECTORS.names])
