"""Journal: what a search has found so far, in its own file, so that an interrupted search goes on where it stopped.

Arrays in a NumPy archive without pickled objects, with the list of their keys, written whole or not at all; a fingerprint of the
job, the space, the objective, the seed and the version says which search it belongs to.
"""

from __future__ import annotations

import hashlib
import json
import time
import zipfile
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np

from .._core.files import atomic_path
from .._core.input_file import check_input
from .._typing import Floats
from ..errors import DataError
from ..progress import Progress
from .plans.cost_cache import Rows

CHUNK = 256  # plans scored between two looks at the clock
SAVE_EVERY_S = 10.0
SCORES, PLANS = "scores", "plans"
Key = tuple[str, str]  # what was made, and which of its arrays


class Journal:
    """Remembers scores by name; in memory only if there is no file."""

    def __init__(self, path: Path | None, fingerprint: str) -> None:
        self._path, self._fingerprint = path, fingerprint
        self._arrays: dict[Key, Any] = {} if path is None or not path.exists() else _read(path, fingerprint)
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

    def _save_now_and_then(self) -> None:
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Writes the file, if there is one to write."""
        if self._path is None:
            return
        with atomic_path(self._path) as temporary, open(temporary, "wb") as file:
            arrays = {f"array_{i}": value for i, value in enumerate(self._arrays.values())}
            keys = np.array(json.dumps(list(self._arrays)))
            np.savez_compressed(file, fingerprint=np.array(self._fingerprint), keys=keys, **arrays)
        self._saved_at = time.monotonic()


def fingerprint(*parts: object) -> str:
    """Text that is the same for the same search by the same version."""
    try:
        own = version("prism-jax")
    except PackageNotFoundError:
        own = "unknown"
    return hashlib.sha256("\n".join(map(repr, (own, *parts))).encode()).hexdigest()[:32]


def _read(path: Path, wanted: str) -> dict[Key, Any]:
    remedy = "Give another file, or remove it to start over."
    check_input(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            written = str(archive["fingerprint"])
            keys = [(str(owner), str(item)) for owner, item in json.loads(str(archive["keys"]))]
            arrays = {key: archive[f"array_{i}"] for i, key in enumerate(keys)}
    except (OSError, ValueError, zipfile.BadZipFile, EOFError, KeyError) as error:
        raise DataError(f"{path}: not the file of a search ({type(error).__name__}). {remedy}") from None
    if written != wanted:
        raise DataError(
            f"{path}: belongs to another search (job, calibration, space, objective, seed or version differ). {remedy}"
        )
    return arrays
