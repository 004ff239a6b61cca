"""Fields of a row of a table: numbers, seconds, counts and truths, blank as None; errors name row and field."""

from __future__ import annotations

import math
from typing import Any

from ...errors import DataError
from ..job.document import short
from ..numbers import number_of
from .counts import whole_number

_BOOLEANS = {"true": True, "false": False}


def number_field(value: Any, field: str, where: str) -> float | None:
    """A number that is not negative, or None for blank."""
    if value is None or (isinstance(value, str) and not value.strip()):
        return None
    number = _parsed(value)
    if math.isnan(number):
        raise DataError(f"{where}: {field} = {short(value)} is not a number. Leave it blank if it is unknown.")
    if not 0.0 <= number < math.inf:
        raise DataError(f"{where}: {field} = {short(value)}, but it must be finite and not negative")
    return number


def seconds_field(value: Any, field: str, where: str) -> float | None:
    """Seconds of a step, or None for blank."""
    number = number_field(value, field, where)
    if number == 0.0:
        raise DataError(
            f"{where}: {field} = {short(value)}, but no step takes no time. Leave it blank if it is unknown."
        )
    return number


def integer_field(value: Any, field: str, where: str) -> int | None:
    """A whole number that is not negative, or None for blank."""
    if number_field(value, field, where) is None:
        return None
    return whole_number(_parsed(value), value, None, f"{where}: {field}")


def boolean_field(value: Any, field: str, where: str) -> bool | None:
    """True or false, or None for blank."""
    if value is None or value == "":
        return None
    told = str(value).strip().lower() if isinstance(value, (str, bool)) else ""
    if told not in _BOOLEANS:
        raise DataError(f"{where}: {field} = {short(value)}, but it must be true or false")
    return _BOOLEANS[told]


def _parsed(value: Any) -> float:
    """A number, or a text that spells one; NaN for what is neither."""
    if isinstance(value, str):
        return number_of(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return math.nan
    try:
        return float(value)
    except OverflowError:
        return math.inf
