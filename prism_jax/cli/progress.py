"""Progress bars on a terminal; nothing is printed to a file or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from ..progress import Progress, silent
from .verbosity import TALK


@contextmanager
def progress(text: str) -> Iterator[Progress]:
    """A bar on stderr; yields what the computation calls with the share that is done."""
    if TALK.quiet or not sys.stderr.isatty():
        yield silent
        return
    from rich import progress as rich_progress
    from rich.console import Console

    with rich_progress.Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=1.0)
        yield lambda done, what="", /: bar.update(task, completed=done, description=what or text)
