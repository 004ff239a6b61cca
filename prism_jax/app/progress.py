"""What a use case says while it works."""

from __future__ import annotations

from ..progress import Progress


def part(progress: Progress, what: str) -> Progress:
    """`progress` for one kind of work, which need not say what it is."""
    return lambda done, own="", /: progress(done, own or what)
