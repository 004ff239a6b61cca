"""The model of a row of a steps table as the row trains it: with its adapters, on sequences packed as its recipe has it."""

from __future__ import annotations

from dataclasses import replace

from .....workload.transformer.spec import TransformerSpec
from ..model import model_of_record
from ..record import StepRecord
from .adapters import adapters_of_record
from .packing import documents_of_record


def trained_model(record: StepRecord) -> TransformerSpec:
    """Its architecture with what is trained of it, and what its tokens attend to.

    Raises:
        UnsupportedRowError: sizes that nobody published.
    """
    model = model_of_record(record)
    window = documents_of_record(record) if model.window is None else model.window
    return replace(model, adapters=adapters_of_record(record), window=window)
