"""The file that an interrupted fit continues from: an archive of arrays, tied to its data, settings and seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from prism_jax._core.archive import Archive, opened, write_archive
from prism_jax.errors import DataError

from .settings import Settings

KIND = "unfinished fit"
REMEDY = "Remove it to begin anew."
KEPT = jax.tree.structure((0, 0, 0))  # of a block: position, diverging, leapfrog steps


class Checkpoint:
    """Saves and loads the states of all chains and the draws so far."""

    def __init__(self, path: Path, arrays: Mapping[str, Any], settings: Settings, key: jax.Array) -> None:
        self.path, self._settings = path, settings
        self._mark = _fingerprint(arrays, settings, key)

    def save(self, states: Sequence[Any], kept: Sequence[Any], n_block: int) -> None:
        """Writes the file whole, or leaves the last one."""
        parts = {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(list(states)))}
        parts |= {f"kept_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(list(kept)))}
        write_archive(self.path, KIND, {"mark": self._mark, "n_block": n_block}, parts)

    def load(self, like: Sequence[Any]) -> tuple[list[Any], list[Any], int] | None:
        """States, kept draws and number of blocks done; None where there is no file.

        Args:
            like: states of the same structure, as a new run has them.

        Raises:
            DataError: the file is damaged, or belongs to other data, settings or another seed.
        """
        if not self.path.exists():
            return None
        with opened(self.path, KIND, REMEDY) as archive:
            if archive.about["mark"] != self._mark:
                raise DataError("an unfinished fit of other data, settings or seed.")
            leaves, shape = jax.tree.flatten(list(like))
            n_block = int(archive.about["n_block"])
            n_kept = max(0, n_block - self._settings.n_warmup // self._settings.block)
            self._check(archive, leaves, n_kept, like[0].z.shape)
            states = jax.tree.unflatten(shape, [archive.load(f"state_{i}") for i in range(len(leaves))])
            width = KEPT.num_leaves
            blocks = [[archive.load(f"kept_{width * i + j}") for j in range(width)] for i in range(n_kept)]
            return states, [jax.tree.unflatten(KEPT, block) for block in blocks], n_block

    def _check(self, archive: Archive, leaves: Sequence[Any], n_kept: int, position: tuple[int, ...]) -> None:
        """Whether the arrays are those of this run.

        Raises:
            DataError: one is missing, unknown, or of another type or shape.
        """
        drawn = (self._settings.n_chain, self._settings.block)
        wanted = {f"state_{i}": (np.asarray(leaf).dtype.kind, np.shape(leaf)) for i, leaf in enumerate(leaves)}
        if KEPT.num_leaves * n_kept + len(wanted) != len(archive.headers):
            raise DataError("draws are missing or too many.")
        for block in range(n_kept):
            for i, kept in enumerate((("f", (*drawn, *position)), ("b", drawn), ("iu", drawn))):
                wanted[f"kept_{KEPT.num_leaves * block + i}"] = kept
        for name, (kind, shape) in wanted.items():
            if name not in archive.headers:
                raise DataError(f"draws are missing ({name}).")
            if archive.headers[name].kind not in kind or archive.headers[name].shape != shape:
                raise DataError(f"{name} is damaged.")

    def remove(self) -> None:
        """After the fit is stored."""
        self.path.unlink(missing_ok=True)


def _fingerprint(arrays: Mapping[str, Any], settings: Settings, key: jax.Array) -> str:
    digest = hashlib.sha256(repr(sorted(asdict(settings).items())).encode())
    is_typed = jax.numpy.issubdtype(key.dtype, jax.dtypes.prng_key)
    digest.update(np.asarray(jax.random.key_data(key) if is_typed else key).tobytes())
    for name in sorted(arrays):
        value = np.asarray(arrays[name])
        digest.update(f"{name}{value.shape}{value.dtype}".encode())
        digest.update(value.tobytes())
    return digest.hexdigest()
