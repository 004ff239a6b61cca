"""Progress: how a long computation says how far it is. One signature for everything that takes a `progress` argument."""

from __future__ import annotations

from typing import Protocol, runtime_checkable


@runtime_checkable  # the type checker of the tests asks
class Progress(Protocol):
    """Called now and then while something runs."""

    def __call__(self, done: float, what: str = "", /) -> None:
        """Takes the share that is done, 0-1, and what is being done; an empty text where only one thing is done."""
        ...


def silent(_done: float, _what: str = "", /) -> None:
    """Progress that nobody watches."""


def part_of(progress: Progress, start: float, end: float) -> Progress:
    """Progress of a part of the work: its shares 0-1 are reported as shares from `start` to `end` of the whole."""

    def report(done: float, what: str = "", /) -> None:
        progress(start + (end - start) * done, *((what,) if what else ()))

    return report
