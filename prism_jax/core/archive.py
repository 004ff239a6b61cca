"""Archives of arrays: what fits, calibrations, unfinished fits and searches are kept in.

A NumPy archive (.npz, which `numpy.load` opens) of plain arrays, with what is no array as JSON in the entry `about.json`. Nothing
is compressed, so that what is read is never larger than the file, and no code but Python's and NumPy's reads it. Archives are
untrusted: every entry is checked by its header and its checksum before any is loaded; no pickle.
"""

from __future__ import annotations

import json
import math
import os
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, BinaryIO

from .errors import DataError
from .lazy import np
from .read_file import open_input
from .write_file import atomic_path

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Arrays = Mapping[str, NDArray[Any]]

ABOUT, ENDING = "about.json", ".npy"
SCALARS = frozenset("biufU")  # kinds of NumPy's scalars that may be kept: truth values, numbers, text
MOST_ENTRIES = 1 << 17
MOST_ABOUT = 1 << 25  # bytes of JSON; each may become ten in memory
MOST_NESTS = 1 << 20  # lists and objects in it, each 64 bytes in memory
CENTRAL = b"PK\x01\x02"  # begins what the archive's directory says of each entry
PART = 1 << 20  # bytes read at once
HDF5 = b"\x89HDF"
MAX_BYTES = 4 << 30  # of a file


@dataclass(frozen=True)
class ArrayHeader:
    """Shape, type and size of an array, from its header.

    Attributes:
        shape, kind, itemsize: of the array; `kind` as in NumPy's dtypes ("f").
        n_bytes: of its entry, header included.
    """

    shape: tuple[int, ...]
    kind: str
    itemsize: int
    n_bytes: int


@dataclass(frozen=True)
class Archive:
    """An archive that is whole.

    Attributes:
        about: what is no array.
        headers: name -> header of every array.
    """

    about: Mapping[str, Any]
    headers: Mapping[str, ArrayHeader]
    _zip: zipfile.ZipFile

    def load(self, name: str) -> NDArray[Any]:
        """One array; it cannot be written to.

        Raises:
            KeyError: there is none of this name.
        """
        header = self.headers[name]
        with self._zip.open(name + ENDING) as stream:
            _, is_fortran, dtype = _parsed(stream)
            flat = np.frombuffer(stream.read(), dtype)
        return flat.reshape(header.shape, order="F" if is_fortran else "C")


def write_archive(path: str | Path, kind: str, about: Mapping[str, Any], arrays: Arrays) -> None:
    """Writes arrays of numbers, truth values or text, whole or not at all.

    Args:
        kind: what it is ("fit"), asked for by `opened`.
        about: what JSON can hold, NumPy's numbers and the infinities included.

    Raises:
        DataError: the file cannot be written.
        OSError: the disk is full.
    """
    said = json.dumps({"kind": kind, **about}, default=_plain).encode()
    if len(said) > MOST_ABOUT or _n_nests(said) > MOST_NESTS:
        raise DataError(f"{path}: the names in this {kind} are more than can be read again ({len(said):,} bytes)")
    with atomic_path(path) as temporary, zipfile.ZipFile(temporary, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr(zipfile.ZipInfo(ABOUT), said)
        for name, value in arrays.items():
            with archive.open(zipfile.ZipInfo(name + ENDING), "w", force_zip64=True) as stream:
                np.lib.format.write_array(stream, np.asanyarray(value, order="C"), (1, 0), allow_pickle=False)


def kind_of(path: str | Path) -> str:
    """Kind of the archive at `path`, as it states it; empty where it cannot be read."""
    try:
        with open_input(path) as stream, _entries(stream, MAX_BYTES) as archive:
            return str(_about(archive).get("kind", ""))
    except Exception:  # damage reports itself by many kinds of error
        return ""


@contextmanager
def opened(path: str | Path, kind: str, remedy: str, max_bytes: int = MAX_BYTES) -> Iterator[Archive]:
    """The archive at `path`; whatever is wrong with it, also inside the block, is one kind of error.

    Args:
        kind: what it has to be ("fit").
        remedy: what to do where it is not.
        max_bytes: size of the largest file that is opened.

    Raises:
        DataError: there is no such file, it is of another kind, too large or damaged, or the block failed on what it holds.
    """
    path = Path(path)
    if not os.path.lexists(path):
        raise DataError(f"{path}: no such file. {remedy}")
    try:
        with open_input(path) as stream, _entries(stream, max_bytes) as archive:
            about = _about(archive)
            if about.get("kind") != kind:
                raise DataError(f"not the file of a {kind} but of {about.get('kind')!r:.40}.")
            yield Archive(about, _checked(archive), archive)
    except DataError as error:
        raise DataError(f"{path}: {error.text} {remedy}") from error
    except Exception as error:  # damage reports itself by many kinds of error
        raise unreadable(path, kind, error, remedy) from error


def unreadable(path: Path, kind: str, error: Exception, remedy: str) -> DataError:
    """The error of a file on whose content something failed."""
    reason = " ".join(str(error).split())[:200]
    return DataError(f"{path}: not the file of a {kind} ({type(error).__name__}: {reason}). {remedy}")


@contextmanager
def _entries(stream: BinaryIO, max_bytes: int) -> Iterator[zipfile.ZipFile]:
    """The zip file, its directory bounded before it is parsed."""
    size = os.fstat(stream.fileno()).st_size
    if size > max_bytes:
        raise ValueError(f"larger than {max_bytes >> 20} MiB")
    if stream.read(len(HDF5)) == HDF5:
        raise ValueError("netCDF, which earlier versions wrote")
    if _n_entries(stream) > MOST_ENTRIES:
        raise ValueError(f"more than {MOST_ENTRIES} arrays")
    with zipfile.ZipFile(stream) as archive:
        entries = archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("compressed, which ours never are")
        if sum(max(entry.file_size, entry.compress_size) for entry in entries) > size:
            raise ValueError("arrays that overlap")
        if len({entry.filename for entry in entries}) < len(entries):
            raise ValueError("two arrays of one name")
        yield archive


def _n_entries(stream: IO[bytes]) -> int:
    """Counts the entries: at least as many as the archive's directory has."""
    stream.seek(0)
    found, rest = 0, b""
    while part := stream.read(PART):
        found += (rest + part).count(CENTRAL)
        rest = part[1 - len(CENTRAL) :]
    return found


def _about(archive: zipfile.ZipFile) -> Mapping[str, Any]:
    if archive.getinfo(ABOUT).file_size > MOST_ABOUT:
        raise ValueError(f"{ABOUT} is larger than {MOST_ABOUT >> 20} MiB")
    text = archive.read(ABOUT)
    if _n_nests(text) > MOST_NESTS:
        raise ValueError(f"{ABOUT} has more than {MOST_NESTS:,} lists")
    found = json.loads(text)
    if not isinstance(found, dict):
        raise ValueError(f"{ABOUT} is no object")
    return found


def _n_nests(text: bytes) -> int:
    return text.count(b"[") + text.count(b"{")


def _checked(archive: zipfile.ZipFile) -> dict[str, ArrayHeader]:
    """Headers of all arrays; their bytes agree with their checksums."""
    headers = {}
    for entry in archive.infolist():
        if entry.filename == ABOUT:
            continue
        if not entry.filename.endswith(ENDING):
            raise ValueError(f"{entry.filename[:40]!r} is no array")
        with archive.open(entry) as stream:
            shape, _, dtype = _parsed(stream)
            n_bytes = math.prod(shape) * dtype.itemsize
            rest = 0
            while part := stream.read(PART):  # to the end, where the checksum is compared
                rest += len(part)
        if dtype.kind not in SCALARS or rest != n_bytes:
            raise ValueError(f"{entry.filename[:40]!r} is damaged")
        headers[entry.filename.removesuffix(ENDING)] = ArrayHeader(shape, dtype.kind, dtype.itemsize, entry.file_size)
    return headers


def _parsed(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether columns come first, and dtype, as the header has them; at most 10,000 bytes of it are read."""
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array of another version")
    shape, is_fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if min(shape, default=0) < 0:
        raise ValueError("an array of negative length")
    return shape, is_fortran, dtype


def _plain(value: Any) -> Any:
    """NumPy's numbers in JSON."""
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} cannot be written as JSON")
