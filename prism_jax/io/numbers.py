"""Numbers as files spell them: digits of ASCII, where Python would also take underscores and the digits of other scripts."""

from __future__ import annotations

import math
import re

MAX_CHARACTERS = 100
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")


def number_of(text: str) -> float:
    """The number that a text spells; NaN where it spells none, "nan" and "inf" included. Too large a number is infinite."""
    text = text.strip()
    return float(text) if len(text) <= MAX_CHARACTERS and _NUMBER.fullmatch(text) else math.nan


def is_plain(text: str) -> bool:
    """Whether `float` and `int` read from a text, or from several joined, only what all tools would read from it."""
    return text.isascii() and "_" not in text
