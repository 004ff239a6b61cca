"""Temporary files beside their targets, and what killed processes left of them.

A process holds a lock on its temporary file, which the system lets go of when the process ends, also by `kill -9` or a crash. So
an unlocked temporary file is a leftover, and whoever writes the same target next removes it. Where there are no such locks
(Windows, some network disks) leftovers stay.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MARK = ".prism-jax-"  # in the name of every temporary file, so that no file of a user is taken for one
STEM, ENDING = (
    40,
    20,
)  # characters of the target's name in that of the temporary file, which must not be too long for the disk


@contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """A new empty file beside `target`, with its ending, that is removed in the end if it is still there.

    Raises:
        OSError: it cannot be made.
    """
    remove_leftovers(target)
    handle, path = _locked(target)
    try:
        if fcntl is None:
            os.close(handle)  # nobody may rename a file that is open
        yield path
    finally:  # Ctrl-C included
        path.unlink(missing_ok=True)
        if fcntl is not None:
            os.close(handle)


def remove_leftovers(target: Path) -> None:
    """Removes the temporary files of `target` whose processes have ended."""
    begins, ends = _name(target)
    with suppress(OSError), os.scandir(target.parent) as entries:
        for entry in entries:
            if entry.name.startswith(begins) and entry.name.endswith(ends) and entry.is_file(follow_symlinks=False):
                _remove_unlocked(entry.path)


def _name(target: Path) -> tuple[str, str]:
    """How the names of its temporary files begin and end."""
    return f".{target.stem[:STEM]}{MARK}", target.suffix[-ENDING:]


def _locked(target: Path) -> tuple[int, Path]:
    """A new file and the open handle that holds its lock."""
    begins, ends = _name(target)
    while True:
        handle, name = tempfile.mkstemp(prefix=begins, suffix=ends, dir=target.parent)
        if fcntl is not None:
            with suppress(OSError):  # a disk without locks
                fcntl.flock(handle, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink > 0:
            return handle, Path(name)
        os.close(handle)  # another process took it for a leftover before it was locked


def _remove_unlocked(name: str) -> None:
    if fcntl is None:
        return
    with suppress(OSError):  # of another user, locked, or gone by now
        handle = os.open(name, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.unlink(name)
        finally:
            os.close(handle)
