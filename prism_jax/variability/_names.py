"""Hints for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Text to append to "unknown ...": the nearest known name, else all of them."""
    names = list(known)
    close = get_close_matches(str(name), names, n=1, cutoff=0.6)
    return f", did you mean {close[0]}?" if close else f"; known are {', '.join(names)}"
