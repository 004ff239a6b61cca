"""Parts of values that slices take."""

from __future__ import annotations

import re

from ..text.types import Computation, Instruction, Module
from .values import Value

_RANGE = re.compile(r"\[(\d{1,18}):(\d{1,18})(?::\d{1,18})?\]")


def part_of(module: Module, computation: Computation, at: Instruction, value: Value) -> Value:
    """What a slice is of a value; `slices` stays where it is one of those that a loop wrote."""
    source = module.operand(computation, at, 0)
    if not source.shapes:
        return value
    if value.slices is not None and at.n_bytes == value.slices.n_bytes:
        return value
    share = at.shapes[0].n_elements / max(source.shapes[0].n_elements, 1)
    start = value.start + round(value.n_bytes * _offset(at, source))
    return Value(value.storage, value.maker, value.n_bytes * min(share, 1.0), start)


def _offset(at: Instruction, source: Instruction) -> float:
    """Where a slice begins, as a share of the whole; 0 where only the run tells."""
    ranges = _RANGE.findall(at.attributes.get("slice", ""))
    dims = source.shapes[0].dims
    if len(ranges) != len(dims):
        return 0.0
    offset = 0
    for (first, _), size in zip(ranges, dims, strict=True):
        offset = offset * size + int(first)
    return offset / max(source.shapes[0].n_elements, 1)
