"""Divisors of sizes that a table states."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt


def divisors(n: int) -> Iterator[int]:
    """All divisors of `n >= 1`, rising; the time grows with its root, so that a row with a huge size costs nothing."""
    small = [d for d in range(1, isqrt(n) + 1) if n % d == 0]
    yield from small
    yield from (n // d for d in reversed(small) if d * d != n)
