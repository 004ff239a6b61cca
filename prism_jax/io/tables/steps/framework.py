"""Which training software a row of a steps table ran on, from the words of its source, table and notes."""

from __future__ import annotations

from ....framework import FRAMEWORKS, recognised
from .record import StepRecord


def framework_of_record(record: StepRecord) -> str:
    """Name of a framework in `framework.FRAMEWORKS`; empty where nothing says. How each is recognised stands in its own file.

    A column of its own decides where one of the frameworks is recognised in it.
    """
    stated = record.framework
    if stated.strip().lower() in FRAMEWORKS:
        return stated.strip().lower()
    before_2022 = (
        stated if record.date and record.date < "2022-06" else ""
    )  # notes of these years name Megatron-LM of 2021
    own = recognised(notes=before_2022, table=stated, source="", gpu="") if stated else ""
    return own or recognised(notes=record.notes, table=record.table, source=record.source, gpu=record.gpu)
