"""What is going on, on a terminal only: nothing is printed to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress

from ..start_jax import start_jax
from .verbosity import TALK

Tell = Callable[[float, str], None]  # share that is done, 0-1, and of what


@contextmanager
def working(text: str = "loading JAX") -> Iterator[Tell]:
    """Gets JAX ready, and shows a line with a spinner on stderr; yields a function that changes the line."""
    start_jax()
    if TALK.quiet or not sys.stderr.isatty():
        yield _silent
        return
    with Console(stderr=True).status(text) as status:
        yield lambda share, what: status.update(f"{what}, {share:.0%}" if share else what)


@contextmanager
def counting(text: str = "loading JAX") -> Iterator[Tell]:
    """Gets JAX ready, and shows a bar on stderr; yields a function that moves the bar."""
    start_jax()
    if TALK.quiet or not sys.stderr.isatty():
        yield _silent
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=1.0)
        yield lambda share, what: bar.update(task, completed=share, description=what)


def _silent(share: float, what: str) -> None:
    """Where nobody looks."""
