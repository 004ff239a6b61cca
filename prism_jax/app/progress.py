"""What a use case says while it works."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

Progress: TypeAlias = Callable[[float, str], None]  # share that is done, 0-1, and of what


def silent(share: float, what: str) -> None:
    """Says nothing."""


def part(progress: Progress, what: str) -> Callable[[float], None]:
    """`progress` for one kind of work: takes the share that is done."""
    return lambda share: progress(share, what)
