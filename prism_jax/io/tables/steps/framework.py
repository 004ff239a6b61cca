"""Which training software a row of a steps table ran on, from the words of its source, table and notes."""

from __future__ import annotations

from ....framework import recognised
from .record import StepRecord


def framework_of_record(record: StepRecord) -> str:
    """Name of a framework in `framework.FRAMEWORKS`; empty where nothing says. How each is recognised stands in its own file."""
    return recognised(notes=record.notes, table=record.table, source=record.source, gpu=record.gpu)
