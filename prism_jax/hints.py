"""Hints for misspelt names."""

from __future__ import annotations

from collections.abc import Iterable


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """Text to append to "unknown ...": the nearest known name, else all of them."""
    names = list(known)
    close = nearest(name, names)
    return f", did you mean {close}?" if close else f"; known are {', '.join(names)}"


def nearest(name: object, known: Iterable[str]) -> str | None:
    """The known name most like `name`, if one is near."""
    from difflib import get_close_matches  # only where something is wrong

    close = get_close_matches(str(name), list(known), n=1, cutoff=0.6)
    return close[0] if close else None
