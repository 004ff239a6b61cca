"""Files that people name, opened and read: regular files alone, without waiting, and no further than a limit; and JSON in them.

A name may stand for a pipe that nobody writes to, a device without an end, a folder, a file that grows while it is read, or a
small file that unpacks to a large one. Every reader of prism-jax opens its files here. Whatever is wrong with JSON, a key that
stands twice included, is one kind of error that names the place. While `only_below` holds, files elsewhere are refused, whoever
names them: a command, or another file.
"""

from __future__ import annotations

import gzip
import json
import os
import stat
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO

from .errors import DataError

GZIP = b"\x1f\x8b"
# what ships is always read
OWN = tuple(Path(__file__).resolve().parents[2] / name for name in ("prism_jax", "inference", "examples"))
_FOLDERS: list[Path] = []  # below which alone files are read, and what ships; empty: everywhere
_FLAGS = ("O_RDONLY", "O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY")  # those that the system has


@contextmanager
def only_below(*folders: str | Path) -> Iterator[None]:
    """Refuses files elsewhere, also behind links, in this process; inside another one, both hold what may be read."""
    added = [Path(os.path.realpath(folder)) for folder in folders]
    _FOLDERS.extend(added)
    try:
        yield
    finally:
        for folder in added:
            _FOLDERS.remove(folder)


def also_below(*folders: str | Path) -> AbstractContextManager[None]:
    """Adds folders to those of `only_below`, if that holds."""
    return only_below(*folders) if _FOLDERS else nullcontext()


def _check_place(path: str | Path) -> None:
    if _FOLDERS and not any(Path(os.path.realpath(path)).is_relative_to(folder) for folder in (*_FOLDERS, *OWN)):
        raise _refusal(path, f"lies outside of {_FOLDERS[0]}, below which files are read. Put it there.")


def open_input(path: str | Path, remedy: str = "") -> BinaryIO:
    """The regular file at `path`, open for reading bytes.

    Args:
        remedy: a sentence that says what to give instead of a file that cannot be read.

    Raises:
        DataError: nothing is there, it may not be read, it is no regular file (a folder, a pipe, a socket, a device), or it lies
            outside of the folders of `only_below`.
    """
    with explained(path, remedy):
        _check_place(path)
        _check_kind(path, os.stat(path).st_mode)  # before it is opened, which some devices act upon
        descriptor = os.open(path, sum(getattr(os, flag, 0) for flag in _FLAGS))
        try:
            _check_kind(path, os.fstat(descriptor).st_mode)  # the name may stand for another file by now
            return os.fdopen(descriptor, "rb")
        except BaseException:
            os.close(descriptor)
            raise


def check_input(path: str | Path) -> None:
    """Whether there is a regular file at `path` that may be read; for readers that open files themselves.

    Raises:
        DataError: as `open_input`.
    """
    open_input(path).close()


def read_bytes(path: str | Path, max_bytes: int, remedy: str, *, unpack: bool = False) -> bytes:
    """The content of a file.

    Args:
        max_bytes: of the content, unpacked.
        remedy: a sentence that says what to give instead of a file that is too large or cannot be read.
        unpack: whether content that is packed with gzip is unpacked.

    Raises:
        DataError: as `open_input`; the file is too large, or gzip that is damaged.
    """
    with explained(path), open_input(path, remedy) as file:
        if os.fstat(file.fileno()).st_size > max_bytes:
            raise _too_large(path, max_bytes, remedy)
        packed = unpack and file.read(len(GZIP)) == GZIP
        file.seek(0)
        raw = _unpacked_whole(path, file, max_bytes + 1) if packed else file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise _too_large(path, max_bytes, remedy)
    return raw


CHUNK_BYTES = 2**18
MAX_RATIO = 100  # of unpacked to packed size, as far as it was read; text packs 5 to 50 times, a bomb 1,000 times
SPARE_BYTES = 2**23  # unpacked, from which the ratio counts
LOOK_AHEAD_BYTES = 2**26  # unpacked, .2 s, before any of it is parsed


def unpacked(path: str | Path, file: BinaryIO) -> Iterator[bytes]:
    """The content of a gzip file, piece by piece.

    Raises:
        DataError: it unpacks to far more than any text does; told before the first piece where the first 64 MiB show it.
    """
    for _ in zip(_checked(path, file), range(LOOK_AHEAD_BYTES // CHUNK_BYTES), strict=False):
        pass
    file.seek(0)
    yield from _checked(path, file)


def _checked(path: str | Path, file: BinaryIO) -> Iterator[bytes]:
    stream, n_bytes = gzip.GzipFile(fileobj=file), 0
    while chunk := stream.read(CHUNK_BYTES):
        n_bytes += len(chunk)
        if n_bytes > max(SPARE_BYTES, MAX_RATIO * file.tell()):
            raise _refusal(path, f"unpacks to more than {MAX_RATIO} times its size, as no text does. Unpack it.")
        yield chunk


def _unpacked_whole(path: str | Path, file: BinaryIO, most: int) -> bytes:
    """The content of a gzip file up to a length."""
    parts, n_bytes = [], 0
    for chunk in unpacked(path, file):
        parts.append(chunk)
        n_bytes += len(chunk)
        if n_bytes >= most:
            break
    return b"".join(parts)[:most]


def read_text(path: str | Path, max_bytes: int, remedy: str, *, unpack: bool = False) -> str:
    """The text of a file in UTF-8, without a byte order mark; arguments as those of `read_bytes`.

    Raises:
        DataError: as `read_bytes`; the content is no UTF-8, or holds a NUL.
    """
    raw = read_bytes(path, max_bytes, remedy, unpack=unpack)
    if b"\0" in raw and not raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise _refusal(path, f"a binary file. {remedy}")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _refusal(path, f"not UTF-8 text (byte {error.start}). Save it as UTF-8. {remedy}") from None


def lines_of(text: str) -> Iterator[str]:
    """Lines of a text, one at a time: a list of all would double the memory."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


@contextmanager
def explained(path: str | Path, remedy: str = "") -> Iterator[None]:
    """Turns errors inside it, when a file is opened or read, into one kind of error, which names the file.

    Raises:
        DataError: the file cannot be read, or is gzip that is damaged.
    """
    try:
        yield
    except EOFError:
        raise _refusal(path, "the gzip file ends too early. Copy it again.") from None
    except (zlib.error, gzip.BadGzipFile):
        raise _refusal(path, "a damaged gzip file. Copy it again.") from None
    except ValueError as error:  # a NUL in the name
        raise DataError(f"{str(path)!r}: not a usable file name: {error}") from None
    except OSError as error:
        raise _refusal(path, f"cannot be read: {error.strerror or error}{'. ' * bool(remedy)}{remedy}") from None


def _check_kind(path: str | Path, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise _refusal(path, "a folder, not a file. Name a file inside it.")
    if not stat.S_ISREG(mode):
        raise _refusal(path, "not a regular file but a pipe, socket or device. Save its content to a file first.")


def _too_large(path: str | Path, max_bytes: int, remedy: str) -> DataError:
    shift, unit = next((shift, unit) for shift, unit in ((20, "MiB"), (10, "KiB"), (0, "bytes")) if max_bytes >> shift)
    size = f"{max_bytes >> shift} {unit}"
    return _refusal(path, f"larger than {size}. {remedy}")


def _refusal(path: str | Path, text: str) -> DataError:
    return DataError(f"{path}: {text}", text=text)


def parse_json(text: str, name: str, remedy: str = "") -> Any:
    """The value that a text in JSON describes.

    Args:
        text: the whole text; the value read from it takes up to 30 bytes of memory per character.
        name: what messages call the text.
        remedy: a sentence that says what to give instead of what is no JSON.

    Raises:
        DataError: not JSON, nested too deeply, a number of thousands of digits, or an object with the same key twice.
    """

    def once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            again = next(key for key, n in counts.items() if n > 1)
            raise DataError(f"{name}: the key {again[:60]!r} is there twice in one object. Keep one.")
        return found

    try:
        return json.loads(text, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise DataError(
            f"{name}:{error.lineno}:{error.colno} is not JSON: {error.msg}{'. ' * bool(remedy)}{remedy}"
        ) from None
    except RecursionError:
        raise DataError(f"{name} is not JSON: nested too deeply{'. ' * bool(remedy)}{remedy}") from None
    except ValueError:  # Python reads no decimal number of thousands of digits
        raise DataError(f"{name} is not JSON: a number of thousands of digits. Write it as 1e30.") from None
