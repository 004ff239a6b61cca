"""Files that are whole or absent: the one way in which every command writes texts, bytes and JSON; and the record of a run.

A temporary file next to the target is filled, flushed to disk and renamed. A link is written through, an existing file keeps its
mode, and what is no regular file (a pipe, a device, a folder) is refused, since the rename would replace it.

A process holds a lock on its temporary file, which the system lets go of when the process ends, also by `kill -9` or a crash. So
an unlocked temporary file is a leftover, and whoever writes the same target next removes it. Where there are no such locks
(Windows, some network disks) leftovers stay.
"""

from __future__ import annotations

import errno
import json
import math
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .._version import __version__
from .errors import DataError
from .lazy import LazyModule

# Used when something is written, which `--help` and `check` do not.
metadata = LazyModule("importlib.metadata")
platform = LazyModule("platform")
subprocess = LazyModule("subprocess")
tempfile = LazyModule("tempfile")

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None

MARK = ".prism-jax-"  # in the name of every temporary file, so that no file of a user is taken for one
# characters of the target's name in that of the temporary file, which must not be too long for the disk
STEM, ENDING = 40, 20


@contextmanager
def temporary_file(target: Path) -> Iterator[Path]:
    """A new empty file in the folder of `target`, with its ending, that is removed in the end if it is still there.

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
    """Beginning and ending of the names of its temporary files."""
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


# of the machine: no other name would help
FAULTS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM})
KINDS = (
    (stat.S_ISDIR, "a folder stands there"),
    (stat.S_ISFIFO, "that is a pipe, which writing would replace by a file"),
    (stat.S_ISSOCK, "that is a socket, which writing would replace by a file"),
    (stat.S_ISCHR, "that is a device, which writing would replace by a file"),
    (stat.S_ISBLK, "that is a device, which writing would replace by a file"),
)


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary file next to `path` that becomes `path` when the block ends well, and disappears when it does not.

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


def check_folder(option: str, folder: str | Path) -> None:
    """Whether files can be written in a folder, which is made where there is none.

    Raises:
        DataError: it cannot be made, or is a file.
    """
    path = Path(folder)
    if path.exists() and not path.is_dir():
        raise DataError(f"{option}: {path} is a file. Name a folder.")
    if not path.parent.is_dir():
        raise DataError(f"{option}: there is no folder {path.parent}. Make it, or name another.")


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
    """A new empty file next to `target`; what the user called it is `path`."""
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


def write_text(path: str | Path, text: str) -> None:
    """Writes `text` as UTF-8, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def write_bytes(path: str | Path, data: bytes) -> None:
    """Writes `data`, whole or not at all."""
    with atomic_path(path) as temporary:
        temporary.write_bytes(data)


def write_files(folder: str | Path, files: Mapping[str, str], *, overwrite: bool = True) -> tuple[str, ...]:
    """Writes files into a folder, each whole or not at all, and returns their paths.

    Raises:
        DataError: one cannot be written, or is there already and is not to be replaced; then none is written.
    """
    top = Path(folder)
    there = [name for name in files if (top / name).exists()]
    if there and not overwrite:
        raise DataError(
            f"{top / there[0]}: is there already. Name another folder, or replace it with --force (overwrite=True)."
        )
    check_folder("--save-dir", top)
    try:
        top.mkdir(exist_ok=True)
    except OSError as error:
        raise DataError(f"--save-dir: {top} cannot be made: {error.strerror}. Name another folder.") from None
    for name in files:
        check_target(top / name)
    for name, text in files.items():
        write_text(top / name, text)
    return tuple(str(top / name) for name in files)


def to_json(value: object) -> str:
    """`value` as JSON: dataclasses, mappings, NumPy numbers and arrays; NaN and infinity, which JSON lacks, as null."""
    return json.dumps(plain(value), indent=2, ensure_ascii=False, allow_nan=False)


def run_record(inputs: Mapping[str, Any], seed: int | None) -> dict[str, Any]:
    """Facts needed to repeat a run: versions, git revision of the code (None outside a checkout), inputs, seed."""
    return {
        "versions": {
            "prism-jax": __version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in ("jax", "jaxlib", "numpy")},
        },
        "git_revision": git_revision(),
        "inputs": plain(inputs),
        "seed": seed,
    }


def git_revision() -> str | None:
    """Commit of the checkout this package runs from, with "+changes" if tracked files differ; None outside a checkout."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return None
    try:
        return _revision_of(root) or None
    except (OSError, subprocess.SubprocessError):
        return None


@cache  # an answer, not a failure: a process goes on with the code that it has loaded
def _revision_of(root: Path) -> str:
    describe = ("describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes")
    command = ["git", "--no-optional-locks", "-C", str(root), *describe]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()


@cache
def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def plain(value: Any, of_dataclass: Callable[[Any], dict[str, Any]] | None = None) -> Any:
    """`value` as dicts, lists, texts, finite numbers, booleans and None; `of_dataclass` says what a dataclass becomes, if not its
    fields.
    """
    if is_dataclass(value) and not isinstance(value, type):
        if of_dataclass is not None:
            return of_dataclass(value)
        return {item.name: plain(getattr(value, item.name)) for item in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(item, of_dataclass) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [plain(item, of_dataclass) for item in value]
    to_list = getattr(value, "tolist", None)  # of arrays and numbers of NumPy, which is not imported for them
    if to_list is not None:
        return plain(to_list())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return str(value) if isinstance(value, Path) else value
