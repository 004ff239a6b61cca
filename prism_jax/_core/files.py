"""Files that are whole or absent."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DataError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary file beside `path` that becomes `path` when the block ends well, and disappears when it does not.

    The temporary name keeps the ending of `path`, which some writers (pictures, gzip) read the format from.

    Raises:
        DataError: the folder does not exist or cannot be written, or `path` is a folder.
    """
    target = Path(path)
    check_target(target)
    try:
        handle, name = tempfile.mkstemp(prefix=f".{target.stem}.", suffix=target.suffix, dir=target.parent)
    except OSError as error:
        raise DataError(f"{target}: cannot be written: {error.strerror}. Name another file.") from None
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        _settle(temporary)
        temporary.replace(target)
    finally:  # Ctrl-C included
        temporary.unlink(missing_ok=True)


def check_target(path: str | Path) -> None:
    """Whether a file could be written at `path`, to be asked before long work.

    Raises:
        DataError: its folder does not exist or may not be written, or `path` is a folder.
    """
    target = Path(path)
    if target.is_dir():
        raise DataError(f"{target}: a folder stands there. Name a file.")
    if not target.parent.is_dir():
        raise DataError(f"{target}: there is no folder {target.parent}. Make it, or name another.")
    if not os.access(target.parent, os.W_OK):
        raise DataError(f"{target}: the folder {target.parent} cannot be written. Name another.")


def _settle(temporary: Path) -> None:
    """Flushes to disk and gives the file the permissions any new file would have (mkstemp makes it private)."""
    mask = os.umask(0)
    os.umask(mask)
    temporary.chmod(0o666 & ~mask)
    with temporary.open("rb+") as stream:
        os.fsync(stream.fileno())
