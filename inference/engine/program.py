"""A model with its data as the samplers want it: a potential over unconstrained sites, and the way back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from numpyro.infer import init_to_median, init_to_value
from numpyro.infer.util import constrain_fn, initialize_model, potential_energy

from .parts import Part
from .pytree import Arrays, traced

Sites = dict[str, Any]


@dataclass(frozen=True)
class Program:
    """What every method needs of a model and its data.

    Attributes:
        run: the NumPyro model as a function of the traced arrays.
        arrays: the data's arrays.
        start: unconstrained sites at which a method begins.
        potential: (arrays, unconstrained sites) -> negative log joint density.
        constrain: (arrays, unconstrained sites) -> all sites, deterministic ones too.
    """

    run: Callable[[Arrays], None]
    arrays: Arrays
    start: Sites
    potential: Callable[[Arrays, Sites], Any]
    constrain: Callable[[Arrays, Sites], Sites]

    @property
    def n_dim(self) -> int:
        """Number of unconstrained parameters."""
        return sum(int(np.size(value)) for value in self.start.values())

    @cached_property
    def energy(self) -> Callable[[np.ndarray], tuple[float, np.ndarray]]:
        """Unconstrained vector [dim] -> negative log joint density and its gradient; compiled once for all who ask."""
        both = self._both

        def call(vector: np.ndarray) -> tuple[float, np.ndarray]:
            value, slope = both(jnp.asarray(vector), self.arrays)
            return float(value), np.asarray(slope, dtype=float)

        return call

    def given(self, arrays: Arrays) -> Program:
        """The same model on other arrays of the same shapes; what is compiled for one serves the other."""
        other = replace(self, arrays={name: jnp.asarray(value) for name, value in arrays.items()})
        vars(other).update(_both=self._both, convert=self.convert)
        return other

    @cached_property
    def _both(self) -> Callable[..., tuple[Any, Any]]:
        _, unravel = self.ravel()
        return jax.jit(jax.value_and_grad(lambda vector, given: self.potential(given, unravel(vector))))

    @cached_property
    def convert(self) -> Callable[[Arrays, Sites], Sites]:
        """(arrays, unconstrained draws [draw, ...]) -> all sites; compiled once."""
        return jax.jit(lambda given, drawn: jax.lax.map(partial(self.constrain, given), drawn, batch_size=64))

    def ravel(self) -> tuple[np.ndarray, Callable[[Any], Sites]]:
        """The start as one vector, and the function that makes sites of a vector."""
        flat, unravel = ravel_pytree(self.start)
        return np.asarray(flat), unravel


def program(model: Part[Any], data: Any, key: jax.Array) -> Program:
    """The program of `model` on `data`. Call it, and what it returns, in float64 (`jax.enable_x64`)."""
    arrays, rebuild = traced(data)
    arrays = {name: jnp.asarray(value) for name, value in arrays.items()}
    start = {name: jnp.asarray(value, dtype=float) for name, value in model.start(data).items()}

    def run(given: Arrays) -> None:
        model.program(rebuild(given))

    strategy = init_to_value(values=start) if start else init_to_median

    def begin(chosen: jax.Array, given: Arrays) -> Sites:
        return initialize_model(
            chosen, run, init_strategy=strategy, dynamic_args=True, model_args=(given,), validate_grad=False
        ).param_info.z

    return Program(
        run=run,
        arrays=arrays,
        start=dict(jax.jit(begin)(key, arrays)),  # jitted: op by op, every op is compiled by itself
        potential=lambda given, sites: potential_energy(run, (given,), {}, sites),
        constrain=lambda given, sites: constrain_fn(run, (given,), {}, sites, return_deterministic=True),
    )


def constrained(made: Program, sites: Sites) -> dict[str, np.ndarray]:
    """All sites of unconstrained draws [draw, ...]."""
    return {name: np.asarray(value) for name, value in made.convert(made.arrays, sites).items()}
