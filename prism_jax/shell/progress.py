"""What is going on, on a terminal only: nothing is printed to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich import progress as rich_progress
from rich.console import Console
from rich.markup import escape

from ..printable import printable
from ..progress import Progress, silent
from ..start_jax import start_jax
from .verbosity import VERBOSITY


@contextmanager
def working(text: str = "loading JAX") -> Iterator[Progress]:
    """Gets JAX ready, and shows a line with a spinner on stderr; yields a function that changes the line."""
    start_jax()
    if VERBOSITY.quiet or not sys.stderr.isatty():
        yield silent
        return
    with Console(stderr=True).status(text) as status:
        yield lambda done, what="", /: status.update(_shown(f"{what or text}, {done:.0%}" if done else what or text))


@contextmanager
def counting(text: str = "loading JAX") -> Iterator[Progress]:
    """Gets JAX ready, and shows a bar on stderr; yields a function that moves the bar."""
    start_jax()
    if VERBOSITY.quiet or not sys.stderr.isatty():
        yield silent
        return
    with rich_progress.Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=1.0)
        yield lambda done, what="", /: bar.update(task, completed=done, description=_shown(what or text))


def _shown(text: str) -> str:
    """`text` as rich shows it as it is."""
    return escape(printable(text))
