"""Progress bars on a terminal; nothing is printed to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .verbosity import TALK


@contextmanager
def progress(text: str, total: float = 1.0) -> Iterator[Callable[[float], None]]:
    """A bar on stderr; yields a function that takes how much of `total` is done."""
    if TALK.quiet or not sys.stderr.isatty():
        yield lambda done: None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)
        yield lambda done: bar.update(task, completed=done)
