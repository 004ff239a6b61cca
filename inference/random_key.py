"""Random keys by number, for callers that do without JAX."""

from __future__ import annotations

import jax


def random_key(seed: int, index: int) -> jax.Array:
    """The key of number `index` under a seed."""
    return jax.random.fold_in(jax.random.key(seed), index)
