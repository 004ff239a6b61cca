"""Blank virtual stages from rows of the same recipe: publishers print them in one table and drop them in the next."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from .record import StepRecord

_VERSION = re.compile(r"[\s_-]{0,9}v?\d{1,9}(\.\d{1,9}){0,9}$")


def fill_virtual_stages(records: Sequence[StepRecord]) -> list[StepRecord]:
    """The records, those with a pipeline and blank `vpp` with the value that all their siblings state.

    Notes:
        Siblings have the source (whatever its version), model, device, layers, micro-batch and degrees other than dp in
        common: a recipe whose batch and number of devices scale. Where they state several values, or none, it stays blank.
    """
    stated: defaultdict[tuple[object, ...], set[int]] = defaultdict(set)
    for record in records:
        if record.vpp is not None:
            stated[_recipe(record)].add(record.vpp)
    return [_filled(record, stated[_recipe(record)]) for record in records]


def _filled(record: StepRecord, stated: set[int]) -> StepRecord:
    if record.vpp is not None or (record.pp or 1) == 1 or len(stated) != 1:
        return record
    return replace(record, vpp=next(iter(stated)))


def _recipe(record: StepRecord) -> tuple[object, ...]:
    family = _VERSION.sub("", record.source)
    sizes = (record.n_layers, record.micro_batch, record.tp, record.pp, record.cp or 1, record.ep or 1)
    return (family, record.model_name, record.gpu, *sizes)
