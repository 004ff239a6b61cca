"""Numbers that reports keep for their pictures: few of many, with no more digits than a picture shows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

import numpy as np

DIGITS = 7  # significant: float32
T = TypeVar("T")


def short_numbers(values: Iterable[float], digits: int = DIGITS) -> tuple[float, ...]:
    """Rounds numbers to significant digits.

    Example:
        >>> short_numbers([1.23456789, 2.0], 3)
        (1.23, 2.0)
    """
    return tuple(float(f"{value:.{digits}g}") for value in values)


def evenly(items: Sequence[T], most: int) -> list[T]:
    """Selects at most `most` items, evenly spaced, with the first and the last.

    Example:
        >>> evenly(range(10), 4)
        [0, 3, 6, 9]
    """
    chosen = np.unique(np.linspace(0, len(items) - 1, min(most, len(items))).round().astype(int))
    return [items[at] for at in chosen]
