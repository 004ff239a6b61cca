"""Kept work: what a long command has done so far, in a file of its own, so that it goes on where it was interrupted.

Searches, studies and unfinished fits keep arrays in an archive (`core/archive.py`), written whole or not at all. The identity in
it stands for everything that decides the answer: jobs or data as they were loaded, whatever files they came from, options, seed,
and the code. Work of anything else is refused, and so is what no command keeps: what is read is checked array by array.
"""

from __future__ import annotations

import hashlib
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from .archive import opened, write_archive
from .content import content_hash
from .errors import DataError
from .lazy import np
from .processes import terminated_by_an_exception
from .registry import MODULES_THAT_ADDED

SAVE_EVERY_S, MOST_SAVING = 10.0, 0.05  # and the largest share of the time that saving may take
REMEDY = "Give another file, or remove it to start over."
OF_ANOTHER = "its job or data, a file that these name, an option, the seed or the code of prism-jax differ"
PACKAGES = ("prism_jax", "inference")
SETTINGS = ("jax_enable_x64", "jax_default_prng_impl", "jax_threefry_partitionable")  # of JAX, that digits depend on
# of other packages, those that figures and draws come from
MAKE_NUMBERS = ("jax", "jaxlib", "numpy", "scipy", "numpyro")


def identity(*parts: object) -> str:
    """Text that is the same for the same work by the same code, in every process.

    Args:
        parts: what decides the answer, as `content_hash` takes it; of a class its code counts, too.
    """
    classes = (base for part in parts if isinstance(part, type) for base in part.__mro__)
    modules = {own.__module__ for own in classes} | MODULES_THAT_ADDED
    settings = jax_settings()
    return content_hash(
        own_code(),
        tuple(settings.get(name) for name in SETTINGS),
        *(_code_of(name) for name in sorted(modules)),
        *parts,
    )


def jax_settings() -> dict[str, Any]:
    """Options of JAX that digits depend on; none before it is imported."""
    config = getattr(sys.modules.get("jax"), "config", None)
    return {} if config is None else {name: getattr(config, name, None) for name in SETTINGS}


@lru_cache(maxsize=1)
def own_code() -> str:
    """Digest of every file of the two packages (code, presets, calibrations), and of which other packages they run on."""
    digest = hashlib.blake2b("\n".join(f"{name} {version(name)}" for name in MAKE_NUMBERS).encode(), digest_size=16)
    root = Path(__file__).parents[2]
    for file in sorted(file for package in PACKAGES for file in (root / package).rglob("*") if file.is_file()):
        if "__pycache__" not in file.parts:
            content = file.read_bytes()
            digest.update(f"{file.relative_to(root).as_posix()} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _code_of(module: str) -> str:
    """Digest of the file of a module that is not ours; empty where it has none, or is."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if module.partition(".")[0] in PACKAGES or file is None or not Path(file).is_file():
        return ""
    return hashlib.blake2b(Path(file).read_bytes(), digest_size=16).hexdigest()


@dataclass(frozen=True)
class Expected:
    """Type, shape and bounds that an array of kept work must have.

    Attributes:
        kind: of NumPy's scalars: "f", "iu", "b" or "U".
        shape: None where any length will do.
        least, most: bounds of its numbers, of all or [last axis].
        may_be_nan, may_be_infinite: whether numbers may be missing, or beyond any bound.
    """

    kind: str
    shape: tuple[int | None, ...]
    least: Any = -math.inf
    most: Any = math.inf
    may_be_nan: bool = False
    may_be_infinite: bool = False

    def problem(self, value: Any) -> str:
        """Reason why an array is refused; empty if it is not."""
        if value.dtype.kind not in self.kind or len(value.shape) != len(self.shape):
            return "of another type"
        if any(length is not None and length != own for length, own in zip(self.shape, value.shape, strict=True)):
            return "of another length"
        if value.dtype.kind in "bU":
            return ""
        inside = np.isfinite(value) & (value >= self.least) & (value <= self.most)
        other = (np.isnan(value) & self.may_be_nan) | (np.isinf(value) & self.may_be_infinite)
        return "" if (inside | other).all() else "out of bounds"


Schema = Mapping[str, Expected]


class WorkFile:
    """The file in which a command keeps its work; none where nobody asked for one.

    Args:
        kind: what the archive is of: "search".
        own: `identity` of the work.
    """

    def __init__(self, path: Path | None, kind: str, own: str) -> None:
        self._path, self._kind, self._own = path, kind, own
        self._saved_at, self._saving_s = time.monotonic(), 0.0

    def read(self, schema: Callable[[Mapping[str, Any]], Schema], *, in_parts: bool = False) -> dict[str, Any] | None:
        """The arrays that an earlier run has kept; None where there is no file.

        Args:
            schema: what is not an array -> name of every array ("PART/ITEM") -> what it must be.
            in_parts: parts may be missing, whole.

        Raises:
            DataError: the file is damaged, of other work, or holds what this command does not keep.
        """
        if self._path is None or not self._path.exists():
            return None
        with opened(self._path, self._kind, REMEDY) as archive:
            wanted, found = {}, None
            if archive.about.get("identity") == self._own:
                wanted = schema(archive.about)
                found = {name: archive.load(name) for name in archive.headers}
        if found is None:
            raise self.of_another()
        if unknown := sorted(found.keys() - wanted.keys()):
            raise self.refused(f"it holds {unknown[0][:40]!r}")
        parts = {name.partition("/")[0] for name in (found if in_parts else wanted)}
        for name, expected in wanted.items():
            if name in found and (problem := expected.problem(found[name])):
                raise self.refused(f"{name} is {problem}")
            if name not in found and name.partition("/")[0] in parts:
                raise self.refused(f"{name} is missing")
        return found

    def of_another(self) -> DataError:
        """The error of a file that is of other work."""
        return DataError(f"{self._path}: belongs to another {self._kind}: {OF_ANOTHER}. {REMEDY}")

    def refused(self, why: str) -> DataError:
        """The error of a file that contradicts itself."""
        return DataError(f"{self._path}: not the file of a {self._kind}: {why}. {REMEDY}")

    def save(self, arrays: Mapping[str, Any], **about: Any) -> None:
        """Writes the file, if there is one to write.

        Args:
            about: what is not an array, for JSON.
        """
        start = time.monotonic()
        if self._path is not None:
            write_archive(self._path, self._kind, {"identity": self._own, **about}, arrays)
        self._saved_at = time.monotonic()
        self._saving_s = self._saved_at - start

    @property
    def is_due(self) -> bool:
        """Whether it is time to save again."""
        return time.monotonic() - self._saved_at > max(SAVE_EVERY_S, self._saving_s / MOST_SAVING)


_to_save: list[Callable[[], None]] = []  # of the blocks that are being run


@contextmanager
def saved_at_the_end(save: Callable[[], None]) -> Iterator[None]:
    """Saves what was done inside the block, also where Ctrl-C, an error or SIGTERM ends it."""
    with terminated_by_an_exception():
        _to_save.append(save)
        try:
            yield
        finally:
            _to_save.remove(save)
            save()


def save_all() -> None:
    """Saves what was done inside all blocks of `saved_at_the_end`, where the process is about to end."""
    for save in _to_save:
        save()
