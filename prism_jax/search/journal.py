"""Journal: what a search has found so far, in its own file, so that an interrupted search goes on where it stopped.

An archive of arrays (`core/archive.py`), `OWNER/ITEM`, written whole or not at all; a fingerprint of the job, the space, the
objective, the seed and the version says which search it belongs to. What is read is checked against what a search keeps.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from .._version import __version__
from ..core.archive import opened, write_archive
from ..core.arrays import Floats
from ..core.errors import DataError
from ..core.processes import Progress
from .plan_table import Rows

CHUNK = 256  # plans scored between two looks at the clock
SAVE_EVERY_S = 10.0
KIND = "search"
MAX_BYTES = 1 << 30
REMEDY = "Give another file, or remove it to start over."
SCORES, PLANS = "scores", "plans"
Key = tuple[str, str]  # what was made, and which of its arrays


@dataclass(frozen=True)
class Expected:
    """What an array in a journal must be.

    Attributes:
        kind: of NumPy's scalars: "f", or "iu".
        shape: None where any length will do.
        least, most: bounds of its values.
        may_be_nan: whether values may be missing.
    """

    kind: str
    shape: tuple[int | None, ...]
    least: float = -np.inf
    most: float = np.inf
    may_be_nan: bool = False

    def problem(self, value: Any) -> str:
        """What is wrong with an array; empty if nothing is."""
        if value.dtype.kind not in self.kind or len(value.shape) != len(self.shape):
            return "of another type"
        if any(length is not None and length != own for length, own in zip(self.shape, value.shape, strict=True)):
            return "of another length"
        inside = np.isfinite(value) & (value >= self.least) & (value <= self.most)
        return "" if (inside | (np.isnan(value) & self.may_be_nan)).all() else "out of bounds"


class Journal:
    """Remembers scores by name; in memory only if there is no file.

    Args:
        schema: "OWNER/ITEM" -> what that array must be.
    """

    def __init__(self, path: Path | None, fingerprint: str, schema: Mapping[str, Expected] | None = None) -> None:
        self._path, self._fingerprint = path, fingerprint
        self._arrays: dict[Key, Any] = {}
        if path is not None and path.exists():
            self._arrays = _read(path, fingerprint, schema or {})
        self._saved_at = time.monotonic()

    def scores(self, name: str, numbers: Rows, score: Callable[[Rows], Floats], progress: Progress) -> Floats:
        """`score(numbers)`, made in parts; parts that an earlier run has made are not made again."""
        done = self._arrays.get((name, SCORES))
        if done is not None and not np.array_equal(self._arrays[name, PLANS][: len(done)], numbers[: len(done)]):
            done = None
        while done is None or len(done) < len(numbers):
            start = 0 if done is None else len(done)
            part = score(numbers[start : start + CHUNK])
            done = part if done is None else np.concatenate([done, part])
            self._arrays |= {(name, SCORES): done, (name, PLANS): numbers}
            progress(len(done) / len(numbers), f"tails of {len(numbers):,} plans")
            self._save_now_and_then()
        return done

    def keep(self, name: str, make: Callable[[], Mapping[str, Floats]]) -> Mapping[str, Floats]:
        """Arrays that `make` gives, or gave in an earlier run."""
        if not any(owner == name for owner, _ in self._arrays):
            self._arrays |= {(name, item): value for item, value in make().items()}
            self.save()
        return {item: value for (owner, item), value in self._arrays.items() if owner == name}

    def refused(self, why: str) -> DataError:
        """The error of a journal that contradicts itself."""
        return DataError(f"{self._path}: not the file of a search: {why}. {REMEDY}")

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Writes the file, if there is one to write."""
        if self._path is None:
            return
        arrays = {f"{owner}/{item}": value for (owner, item), value in self._arrays.items()}
        write_archive(self._path, KIND, {"fingerprint": self._fingerprint}, arrays)
        self._saved_at = time.monotonic()


def fingerprint(*parts: object) -> str:
    """Text that is the same for the same search by the same version."""
    return hashlib.sha256("\n".join(map(repr, (__version__, *parts))).encode()).hexdigest()[:32]


def _read(path: Path, wanted: str, schema: Mapping[str, Expected]) -> dict[Key, Any]:
    """Arrays of the search `wanted`.

    Raises:
        DataError: the file is no journal, one of another search, or holds what no search keeps.
    """
    with opened(path, KIND, REMEDY, MAX_BYTES) as archive:
        if archive.about["fingerprint"] != wanted:
            raise DataError("belongs to another search (job, calibration, space, objective, seed or version differ).")
        found: dict[Key, Any] = {}
        for name in archive.headers:
            if name not in schema:
                raise DataError(f"not the file of a search: it holds {name[:40]!r}.")
            value = archive.load(name)
            if problem := schema[name].problem(value):
                raise DataError(f"not the file of a search: {name} is {problem}.")
            owner, _, item = name.partition("/")
            found[owner, item] = value
        owners = {owner for owner, _ in found}
        for name in schema:
            owner, _, item = name.partition("/")
            if owner in owners and (owner, item) not in found:
                raise DataError(f"not the file of a search: {name} is missing.")
        return found
