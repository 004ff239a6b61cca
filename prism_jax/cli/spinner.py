"""What is going on, on a terminal only: nothing is printed to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .verbosity import TALK


@contextmanager
def spinner(text: str) -> Iterator[Callable[[str], None]]:
    """A line with a spinner on stderr; yields a function that changes its text."""
    if TALK.quiet or not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(text) as status:
        yield lambda new: status.update(new)
