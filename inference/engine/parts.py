"""Posteriors that factorise: parts that share no parameter and no data are sampled one by one, and their draws put side by side.

The draws of independent parts may be paired in any order. A part has few dimensions, where approximations are good and chains
short; the whole would have the dimensions of all.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from zlib import crc32

import jax
import numpy as np

from .sampled import Sampled

PartData = TypeVar("PartData", contravariant=True)
WHOLE = ""
"""Name of the only part of a posterior that does not factorise."""


class Part(Protocol[PartData]):
    """What the engine samples: a density and where to begin; a model, or a part of one.

    Notes: `PartData` is a frozen dataclass as described in `model.Model`.
    """

    def program(self, data: PartData) -> None:
        """The NumPyro model. Runs under jit in float64; arrays of `data` are traced, everything else is static."""
        ...

    def start(self, data: PartData) -> dict[str, Any]:
        """Values of the sites at which chains and variational guides begin, from moments of the data."""
        ...


def key_of(key: jax.Array, name: str) -> jax.Array:
    """Seed of a part; that of the whole is the seed itself."""
    return key if name == WHOLE else jax.random.fold_in(key, crc32(name.encode()))


def together(joined: Callable[..., Mapping[str, np.ndarray]], found: Mapping[str, Sampled]) -> Sampled:
    """The draws of all parts under the names that `joined`, of the model, gives them.

    Notes:
        Parts whose chains went on for longer are thinned to the draws of the shortest. A draw counts as divergent where it is in
        any part; the Pareto shape is that of the worst one.
    """
    if set(found) == {WHOLE}:
        return found[WHOLE]
    n_draw = min(one.diverging.shape[1] for one in found.values())
    thin = [_thinned(one, n_draw) for one in found.values()]
    return Sampled(
        draws=dict(joined(dict(zip(found, (one.draws for one in thin), strict=True)))),
        diverging=np.any([one.diverging for one in thin], axis=0),
        n_leapfrog=np.sum([one.n_leapfrog for one in thin], axis=0),
        k_hat=float(np.max([one.k_hat for one in thin])),
        flat=_side_by_side(thin),
    )


def columns(flat: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Unconstrained draws [draw, dim] of the whole, split into those of its parts."""
    return np.split(flat, np.cumsum(sizes)[:-1], axis=1)


def _side_by_side(found: Sequence[Sampled]) -> np.ndarray | None:
    flat = [one.flat for one in found if one.flat is not None]
    return np.concatenate(flat, axis=1) if len(flat) == len(found) else None


def _thinned(one: Sampled, n_draw: int) -> Sampled:
    n_chain, n_have = one.diverging.shape
    keep = np.linspace(0, n_have - 1, n_draw).round().astype(int)
    flat = one.flat
    return Sampled(
        draws={name: value[:, keep] for name, value in one.draws.items()},
        diverging=one.diverging[:, keep],
        n_leapfrog=one.n_leapfrog[:, keep],
        k_hat=one.k_hat,
        flat=None if flat is None else flat.reshape(n_chain, n_have, -1)[:, keep].reshape(n_chain * n_draw, -1),
    )
