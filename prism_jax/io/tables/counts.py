"""Counts in tables: whole numbers up to the largest that makes sense."""

from __future__ import annotations

import math

from ...errors import DataError
from ..job.document import short


def whole_number(value: float, told: object, high: int | None, where: str) -> int:
    """A number of a table as an integer.

    Args:
        value: the number; NaN for what is none.
        told: as it stands in the table, for messages.
        high: the largest that makes sense; None for no end.
        where: row and field, for messages.

    Raises:
        DataError: not a whole number from 0 to `high`.
    """
    if not math.isfinite(value) or value != int(value):
        raise DataError(f"{where} = {short(told)} is not a whole number")
    if value < 0:
        raise DataError(f"{where} = {short(told)}, but it must not be negative")
    if high is not None and value > high:
        raise DataError(f"{where} = {short(told)}, but at most {high:,} can be simulated")
    return int(value)
