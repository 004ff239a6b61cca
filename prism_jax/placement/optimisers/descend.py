"""Adam (Optax) on a gradient that the caller compiles."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array


def descend(gradient: Callable[[Array, int], Array], start: Array, n_step: int, rate: float) -> Array:
    """Where `n_step` steps of Adam lead from `start`.

    Args:
        gradient: of the parameters and the number of the step.
        start: parameters.
        n_step: steps.
        rate: learning rate.
    """
    optimiser = optax.adam(rate)
    with jax.numpy_dtype_promotion("standard"):  # Optax mixes its step count with floats
        state = optimiser.init(start)
    parameters = start
    for step in range(n_step):
        found = gradient(parameters, step)
        with jax.numpy_dtype_promotion("standard"):
            updates, state = optimiser.update(found, state)
            parameters = jnp.asarray(optax.apply_updates(parameters, updates))
    return parameters
