"""`TRACE_FORMATS`: the formats that `open_trace` knows."""

from __future__ import annotations

from collections.abc import Iterator

from ..._core.registry import Registry
from ...errors import DataError
from .format import TraceFormat
from .kineto.format import KINETO
from .logs.formats import OF_SCALARS
from .logs.mllog import MLLOG
from .logs.text.read import TEXT_LOG
from .plain_table import PLAIN_CSV, PLAIN_PARQUET
from .straggler_parquet import STRAGGLER_PARQUET

SHIPPED = (
    TEXT_LOG,
    MLLOG,
    PLAIN_CSV,
    KINETO,
    *OF_SCALARS,
    PLAIN_PARQUET,
    STRAGGLER_PARQUET,
)  # any text that nobody else claims is a log
TRACE_FORMATS: Registry[TraceFormat] = Registry("trace format", lambda: SHIPPED, error=DataError)


def added_formats() -> Iterator[TraceFormat]:
    """The formats of callers, the one added last first: they are asked before those of the package."""
    return reversed([known for known in TRACE_FORMATS if known not in SHIPPED])


def what_is_read() -> str:
    """All formats in words, for messages."""
    words = [known.about for known in reversed(tuple(TRACE_FORMATS))]
    return f"{', '.join(words[:-1])} and {words[-1]}"
