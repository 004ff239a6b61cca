"""Numbers as tables spell them: digits of ASCII with a point and an exponent; no underscores, no words, no hexadecimal."""

from __future__ import annotations

import math
import re

from ...errors import DataError
from ..job.document import short

MAX_CHARACTERS = 100
LARGEST = 10**9  # of any count
_LARGEST_OF = {
    **dict.fromkeys(("layers", "n_layers", "L", "pp", "vpp", "v"), 10_000),
    **dict.fromkeys(("tp", "dp", "cp", "ep", "experts", "num_gpus", "gpus", "gpus_per_node"), 10**7),
}
"""Columns of what a plan divides: with more, no step can be simulated in minutes."""
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def number_of(text: str) -> float:
    """The number that a text spells; NaN where it spells none. Too large a number is infinite."""
    text = text.strip()
    return float(text) if len(text) <= MAX_CHARACTERS and _NUMBER.fullmatch(text) else math.nan


def whole_number(value: float, told: object, low: int, high: int, where: str) -> int:
    """A number of a table as an integer.

    Args:
        value: the number; NaN for what is none.
        told: as it stands in the table, for messages.
        low, high: of the values that make sense.
        where: row and field, for messages.

    Raises:
        DataError: not a whole number from `low` to `high`.
    """
    if not math.isfinite(value) or value != int(value):
        raise DataError(f"{where} = {short(told)} is not a whole number")
    if not low <= value <= high:
        raise DataError(f"{where} = {short(told)}, but it must lie between {low:,} and {high:,}")
    return int(value)


def largest(column: str) -> int:
    """The largest count that a column of a table may hold."""
    return _LARGEST_OF.get(column, LARGEST)
