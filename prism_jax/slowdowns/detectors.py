"""The detectors whose reports are read, by name, and which of them wrote a file."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from ..core.errors import DataError
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
SIGN_LINES = 2_000_000  # how far the first line that tells is looked for


def detector_of(path: str | Path) -> SlowdownDetector | None:
    """The detector that wrote a file, by its content; None where none did, or the file is named as a table.

    Raises:
        DataError: cannot be read.
    """
    file = DetectorFile(Path(path))
    if file.path.name.lower().removesuffix(".gz").endswith(TABLES):
        return None
    if _JSON.match(head(file.path)):
        with suppress(DataError):  # of a log that begins so the lines tell
            return next((one for one in _all() if one.owns is not None and one.owns(file.document)), None)
    signs = [one for one in _all() if one.sign is not None]
    for number, line in file.lines():
        for one in signs:
            if one.sign is not None and one.sign.search(line[:2000]):
                return one
        if number > SIGN_LINES:
            break
    return None


def read_detector(path: str | Path, detector: SlowdownDetector | None = None) -> DetectorReadings:
    """The readings of a file of a detector.

    Args:
        detector: that wrote it; by default it is recognised.

    Raises:
        DataError: cannot be read, no detector is known by it, or nothing is measured in it.
    """
    known = detector or detector_of(path)
    if known is None:
        raise DataError(f"{path}: no report of a detector. Known are {'; '.join(one.about for one in _all())}.")
    found = known.read(DetectorFile(Path(path)))
    if not found.readings:
        told = f" ({found.notes[-1]})" if found.notes else ""
        raise DataError(
            f"{path}: from {known.name}, but it measures no GPU{told}. Give a report with figures per GPU or node."
        )
    return found


def _all() -> Iterator[SlowdownDetector]:
    """All detectors; those that were added last come first, so that they can claim files of their own."""
    yield from reversed([DETECTORS.named(name) for name in DETECTORS.names])
