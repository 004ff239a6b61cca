"""`LINE_FORMATS`: the text logs that are read, one file per framework. Where two say as much, the first counts."""

from __future__ import annotations

from ....._core.registry import Registry
from .....errors import DataError
from .deepspeed import PIPELINE, STEP_LINES, THROUGHPUT, WALL_CLOCK_BREAKDOWN
from .hugging_face import PROGRESS_BAR, RECORDS, TRAIN_RUNTIME
from .line_format import LineFormat
from .maxtext import MAXTEXT
from .megatron import MEGATRON
from .nanotron import NANOTRON
from .nemo import NEMO, NEMO_BAR
from .torchtitan import TORCHTITAN

SHIPPED = (
    MEGATRON,
    NEMO,
    NEMO_BAR,
    NANOTRON,
    TORCHTITAN,
    STEP_LINES,
    THROUGHPUT,
    PIPELINE,
    WALL_CLOCK_BREAKDOWN,
    MAXTEXT,
    PROGRESS_BAR,
    RECORDS,
    TRAIN_RUNTIME,
)
LINE_FORMATS: Registry[LineFormat] = Registry("log format", lambda: SHIPPED, error=DataError)


def frameworks() -> str:
    """Whose logs are read, in words."""
    names = list(dict.fromkeys(known.framework for known in LINE_FORMATS))
    return f"{', '.join(names[:-1])} and {names[-1]}"


def looked_for() -> str:
    """What lines are looked for, one per framework, in words."""
    found: dict[str, str] = {}
    for known in LINE_FORMATS:
        found.setdefault(known.framework, known.looks_for)
    return ", ".join(f"{text} ({name})" for name, text in found.items())


def is_step_line(line: bytes) -> bool:
    """Whether a line of a text log says something of a step, be it right or wrong."""
    return any(known.marker in line and _parses(known, line.decode("utf-8", "replace")) for known in LINE_FORMATS)


def _parses(known: LineFormat, line: str) -> bool:
    try:
        return known.parse(line, "") is not None
    except DataError:
        return True
