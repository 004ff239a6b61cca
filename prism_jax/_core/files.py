"""Files that are whole or absent: the one way in which every command writes.

A temporary file beside the target is filled, flushed to disk and renamed. A link is written through, an existing file keeps its
mode, and what is no regular file (a pipe, a device, a folder) is refused, since the rename would replace it. What a killed
process left of its temporary file is removed by the next one that writes the same target (`temporary.py`).
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from ..errors import DataError
from .temporary import temporary_file

FAULTS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM}
)  # of the machine: no other name would help
KINDS = (
    (stat.S_ISDIR, "a folder stands there"),
    (stat.S_ISFIFO, "that is a pipe, which writing would replace by a file"),
    (stat.S_ISSOCK, "that is a socket, which writing would replace by a file"),
    (stat.S_ISCHR, "that is a device, which writing would replace by a file"),
    (stat.S_ISBLK, "that is a device, which writing would replace by a file"),
)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary file beside `path` that becomes `path` when the block ends well, and disappears when it does not.

    The temporary name keeps the ending of `path`, which some writers (pictures, gzip) read the format from.

    Raises:
        DataError: no file can be written there; see `check_target`.
        OSError: the disk is full or failed, with the name of `path`.
    """
    target, mode = _target(Path(path))
    with _naming(path), _temporary(Path(path), target) as temporary:
        yield temporary
        _settle(temporary, mode)
        temporary.replace(target)
    _sync(target.parent)


def check_target(path: str | Path) -> None:
    """Whether a file could be written at `path`, to be asked before long work; a temporary file is made there to know.

    Raises:
        DataError: its folder does not exist or may not be written, its name is none that the disk takes, or what is there is a
            folder, a pipe, a device, a socket or read-only.
        OSError: the disk is full or failed.
    """
    target, _ = _target(Path(path))
    with _naming(path), _temporary(Path(path), target):
        pass


def check_file(_option: str, path: str | Path) -> None:
    """`check_target` for the value of an option."""
    check_target(path)


def check_timeline(option: str, path: str | Path) -> None:
    """Whether a timeline could be written at `path`, which `option` names.

    Raises:
        DataError: another ending; or as `check_target`.
    """
    if not str(path).endswith((".json", ".json.gz")):
        raise DataError(f"{option}: {path}: the name must end in .json or .json.gz")
    check_target(path)


def _target(path: Path) -> tuple[Path, int | None]:
    """The file that `path` is or links to, and its mode; None where it is not there yet."""
    try:
        found = path.stat()
    except FileNotFoundError:
        found = None
    except (OSError, ValueError) as error:  # too long a name, a loop of links, a file in place of a folder
        raise _refused(path, error) from None
    if found is not None:
        for is_kind, what in KINDS:
            if is_kind(found.st_mode):
                raise DataError(f"{path}: {what}. Name a file.")
        if not os.access(path, os.W_OK):
            raise DataError(f"{path}: this file is read-only. Name another file, or allow to write it.")
    target = Path(os.path.realpath(path)) if path.is_symlink() else path
    if not target.parent.is_dir():
        raise DataError(f"{path}: there is no folder {target.parent}. Make it, or name another.")
    return target, None if found is None else stat.S_IMODE(found.st_mode)


@contextmanager
def _temporary(path: Path, target: Path) -> Iterator[Path]:
    """A new empty file beside `target`; what the user called it is `path`."""
    with ExitStack() as stack:
        try:
            temporary = stack.enter_context(temporary_file(target))
        except OSError as error:
            if error.errno in FAULTS:
                raise
            raise _refused(path, error) from None
        yield temporary


def _refused(path: Path, error: OSError | ValueError) -> DataError:
    why = error.strerror if isinstance(error, OSError) else error
    return DataError(f"{path}: cannot be written: {why}. Name another file.")


@contextmanager
def _naming(path: str | Path) -> Iterator[None]:
    """Faults of the machine carry the name that the user gave, not that of the temporary file or none."""
    try:
        yield
    except OSError as error:
        if error.errno not in FAULTS:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(path)) from error


def _settle(temporary: Path, mode: int | None) -> None:
    """Flushes to disk, with the mode of the file that is replaced, or of any new file (mkstemp makes it private)."""
    if mode is None:
        mask = os.umask(0)
        os.umask(mask)
        mode = 0o666 & ~mask
    with temporary.open("rb+") as stream:
        temporary.chmod(mode)
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    """Flushes the rename to disk, where the system can."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
