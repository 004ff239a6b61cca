"""JSON files one by one, as people keep traces: plain, packed with gzip, in a tar archive of either kind, in a folder.

Nothing is ever unpacked onto the disk: the members of an archive are read where they lie, in the order in which they lie there.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO, cast

from ...errors import DataError
from ..traces.streams import CHUNK_BYTES, chunks, head

ENDINGS = (".json", ".json.gz", ".tar.gz", ".tgz", ".tar")
MAX_FILES = 10_000
MAX_ARCHIVE = 2**30  # bytes of all members, headers included
START = 2**16  # bytes that a document is recognised by
_TAR, _TAR_AT = b"ustar", 257
_SCHEMA = re.compile(r"\"schema\"\s*:\s*\"[0-9.]+(-chakra[0-9.]*)?\"")
_NODES = re.compile(r"\"nodes\"\s*:\s*\[")
_EVENTS = re.compile(r"\"(traceEvents|deviceProperties|schemaVersion|distributedInfo)\"\s*:")


@dataclass(frozen=True)
class JsonDocument:
    """A JSON file, or a member of an archive; its pieces are read before the next document is asked for.

    Attributes:
        name: what messages call it: the file, and the member after a colon.
        start: its first 64 KiB.
        pieces: all of its content, unpacked.
    """

    name: str
    start: str
    pieces: Iterator[bytes]

    @property
    def is_trace(self) -> bool:
        """Whether it is an execution trace."""
        return not self.is_profile and bool(_SCHEMA.search(self.start) or _NODES.search(self.start))

    @property
    def is_profile(self) -> bool:
        """Whether it is a profile of the PyTorch profiler (Kineto)."""
        return bool(_EVENTS.search(self.start))


def documents(path: Path) -> Iterator[JsonDocument]:
    """The JSON files that `path` names: itself, the members of an archive, or those of a folder, by name.

    Raises:
        DataError: cannot be read; a damaged archive; too many or too large.
    """
    for file in _files(path):
        start = head(file, START)
        if start[_TAR_AT : _TAR_AT + len(_TAR)] == _TAR:
            yield from _members(file)
        else:
            yield JsonDocument(str(file), start.decode("utf-8", "replace"), chunks(file))


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    try:
        names = sorted(islice(os.listdir(path), MAX_FILES + 1))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror or error}") from None
    if len(names) > MAX_FILES:
        raise DataError(f"{path}: more than {MAX_FILES:,} files")
    return [path / name for name in names if name.lower().endswith(ENDINGS) and not name.startswith(".")]


def _members(file: Path) -> Iterator[JsonDocument]:
    """The JSON files in a tar archive."""
    stream = _Pieces(file)
    number = 0
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", stream), mode="r|") as archive:
            for member in archive:
                number += 1
                if number > MAX_FILES:
                    raise DataError(f"{file}: an archive of more than {MAX_FILES:,} files")
                own = Path(member.name).name
                content = archive.extractfile(member) if member.isreg() else None
                if content is None or not own.endswith(".json") or own.startswith("."):
                    continue
                first = content.read(START)
                name = f"{file}:{member.name[:200]!r}".replace("'", "")
                yield JsonDocument(name, first.decode("utf-8", "replace"), _rest(first, content))
    except (tarfile.TarError, EOFError, ValueError, OverflowError, UnicodeError) as error:
        raise DataError(f"{file}: a damaged tar archive after member {number}: {str(error)[:100]}") from None


def _rest(first: bytes, content: IO[bytes]) -> Iterator[bytes]:
    yield first
    while piece := content.read(CHUNK_BYTES):
        yield piece


class _Pieces:
    """The unpacked content of a file, to be read in any sizes."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._pieces = chunks(file)
        self._left = b""
        self._n_bytes = 0

    def read(self, size: int = -1) -> bytes:
        """At most `size` bytes; as many unless the file ends."""
        parts, n = [self._left], len(self._left)
        while n < size and (piece := next(self._pieces, b"")):
            parts.append(piece)
            n += len(piece)
            self._n_bytes += len(piece)
            if self._n_bytes > MAX_ARCHIVE:
                raise DataError(
                    f"{self.file}: an archive of more than {MAX_ARCHIVE >> 30} GiB. Unpack it into a folder."
                )
        whole = b"".join(parts)
        taken, self._left = whole[:size], whole[size:]
        return taken


def holds_execution_traces(path: str | Path) -> bool:
    """Whether there is an execution trace; of a single file the first trace or profile in it decides.

    A folder in which PyTorch's profiler has named its files (`.pt.trace.json`) holds profiles.
    """
    path = Path(path)
    try:
        if not path.exists() or (path.is_dir() and any(".pt.trace.json" in file.name for file in _files(path))):
            return False
        found = (one.is_trace for one in documents(path) if one.is_trace or one.is_profile)
        return any(found) if path.is_dir() else next(found, False)
    except (DataError, OSError, ValueError):
        return False
