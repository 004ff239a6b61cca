"""The file that an interrupted fit continues from: plain arrays (.npz), tied to its data, settings and seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jax
import numpy as np

from prism_jax._core.input_file import open_input
from prism_jax.errors import DataError
from prism_jax.io.write import atomic_path

from .settings import Settings


class Checkpoint:
    """Saves and loads the states of all chains and the draws so far."""

    def __init__(self, path: Path, arrays: Mapping[str, Any], settings: Settings, key: jax.Array) -> None:
        self.path = path
        self._mark = _fingerprint(arrays, settings, key)

    def save(self, states: Sequence[Any], kept: Sequence[Any], n_block: int) -> None:
        """Writes the file whole, or leaves the last one."""
        parts = {"mark": np.array(self._mark), "n_block": np.array(n_block), "n_kept": np.array(len(kept))}
        parts |= {f"state_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(list(states)))}
        parts |= {f"kept_{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(list(kept)))}
        with atomic_path(self.path) as temporary, temporary.open("wb") as file:
            np.savez(file, **parts)  # pyright: ignore[reportArgumentType]

    def load(self, like: Sequence[Any]) -> tuple[list[Any], list[Any], int] | None:
        """States, kept draws and number of blocks done; None where there is no file.

        Args:
            like: states of the same structure, as a new run has them.

        Raises:
            DataError: the file is damaged, or belongs to other data, settings or another seed.
        """
        if not self.path.exists():
            return None
        remedy = "Remove it to begin anew."
        try:
            with open_input(self.path) as stream, np.load(stream, allow_pickle=False) as file:
                if str(file["mark"]) != self._mark:
                    raise DataError(f"{self.path}: an unfinished fit of other data, settings or seed. {remedy}")
                leaves, shape = jax.tree.flatten(list(like))
                states = jax.tree.unflatten(shape, [file[f"state_{i}"] for i in range(len(leaves))])
                n_kept, n_block = int(file["n_kept"]), int(file["n_block"])
                kept_shape = jax.tree.structure((0, 0, 0))  # position, diverging, leapfrog steps
                width = kept_shape.num_leaves
                names = [f"kept_{i}" for i in range(n_kept * width)]
                if not set(names) <= set(file.files):
                    raise DataError(f"{self.path}: draws are missing. {remedy}")
                per_block = [file[name] for name in names]
        except DataError:
            raise
        except Exception as error:  # a damaged archive reports itself by many kinds of error
            raise DataError(f"{self.path}: not a readable unfinished fit ({type(error).__name__}). {remedy}") from error
        kept = [jax.tree.unflatten(kept_shape, per_block[i * width : (i + 1) * width]) for i in range(n_kept)]
        return states, kept, n_block

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
