"""Divisors of sizes that a table states."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt

from ....bounds import MOST_SAMPLES


def divisors(n: int) -> Iterator[int]:
    """All divisors of `n >= 1`, rising, in a time that grows with its root; of a size that no model or plan has `n` alone."""
    if n > MOST_SAMPLES:
        yield n
        return
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    yield from small
    yield from (n // d for d in reversed(small) if d * d != n)
