"""What is going on, on a terminal only: nothing is printed to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..progress import Progress
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


def shown(tell: Callable[[str], None], text: str = "") -> Progress:
    """Progress as a text of `spinner`: what is being done, or `text` where that is not said, and the share that is done."""
    return lambda done, what="", /: tell(f"{what or text}, {done:.0%}")
