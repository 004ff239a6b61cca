"""A model with its data as the samplers want it: a potential over unconstrained sites, the way back, and the draws of it.

Arrays of the data are traced, the rest is static. Posteriors that factorise, in parts that share no parameter and no data, are
sampled part by part: a part has few dimensions, where approximations are good and chains short. The draws of independent parts
may be paired in any order.

`Scale` is the law of a spread (a standard deviation of log durations): log-normal, since spreads of measured fleets lie within a
few powers of ten and never at zero.

`Settings` says how long and how carefully a method works.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar
from zlib import crc32

import jax
import jax.numpy as jnp
import numpy as np
import numpyro.distributions as dist
from jax.flatten_util import ravel_pytree
from numpyro.infer import init_to_median, init_to_value
from numpyro.infer.util import constrain_fn, initialize_model, potential_energy

from prism_jax.core.errors import FitError

METHODS = ("nuts", "svi", "map", "least_squares")


@dataclass(frozen=True)
class Settings:
    """Attributes:
    n_chain: chains, side by side on as many cores.
    n_warmup: adaptation steps per chain; whole blocks.
    n_draw: draws kept per chain; whole blocks.
    n_extension: how often a fit draws as many again where the chains have too few draws to be judged good.
    block: iterations between two looks at the clock, and between two writes of the checkpoint.
    target_accept: acceptance that the step size is adapted to.
    max_tree_depth: at most 2^depth leapfrog steps per draw.
    n_svi_step: optimisation steps of the variational fit.
    n_approximate_draw: draws from an approximation (svi, map, least_squares).
    """

    n_chain: int = 4
    n_warmup: int = 500
    n_draw: int = 500
    block: int = 50
    target_accept: float = 0.85
    max_tree_depth: int = 9
    n_svi_step: int = 400
    n_approximate_draw: int = 2000
    n_extension: int = 2

    def __post_init__(self) -> None:
        for name in ("n_chain", "n_warmup", "n_draw", "block", "max_tree_depth", "n_svi_step", "n_approximate_draw"):
            if getattr(self, name) < 1:
                raise FitError(f"{name} = {getattr(self, name)}, but it must be at least 1")
        if self.n_extension < 0:
            raise FitError(f"n_extension = {self.n_extension}, but it must be at least 0")
        for name in ("n_warmup", "n_draw"):
            if getattr(self, name) % self.block:
                raise FitError(
                    f"{name} = {getattr(self, name)} is not a multiple of the block of {self.block} iterations"
                )

    @property
    def n_block(self) -> int:
        """Blocks in all, those of the warm-up too."""
        return (self.n_warmup + self.n_draw) // self.block


Data = TypeVar("Data")
Arrays = dict[str, Any]


def traced(data: Data) -> tuple[Arrays, Callable[[Mapping[str, Any]], Data]]:
    """The numeric arrays of `data` by field name, and the function that puts (traced) arrays back in their places."""
    arrays = {name: value for name, value in values(data).items() if is_numeric(value)}
    return arrays, lambda given: replace(data, **given)  # pyright: ignore[reportArgumentType, reportCallIssue]


def values(data: Any) -> dict[str, Any]:
    """Field name -> value."""
    return {field.name: getattr(data, field.name) for field in fields(data)}


def is_numeric(value: Any) -> bool:
    """Whether `value` is an array of numbers or truth values (text stays on the host)."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "biuf"


@dataclass(frozen=True)
class Scale:
    """Log-normal law of a spread: `median` (a fraction of the duration) and `factor`, one standard deviation as a factor."""

    median: float
    factor: float

    def law(self) -> dist.LogNormal:
        """The NumPyro distribution."""
        return dist.LogNormal(math.log(self.median), math.log(self.factor))


@dataclass(frozen=True)
class PosteriorDraws:
    """Draws of a posterior.

    Attributes:
        draws: site -> [chain, draw, ...]; one chain where the draws are independent.
        diverging: [chain, draw]; none for an approximation.
        n_leapfrog: [chain, draw]; zero for an approximation.
        k_hat: Pareto shape of the importance weights of an approximation; NaN for sampling.
        flat: the same draws as unconstrained vectors [draw, dim], for fits that begin where this one ended; not kept in files.
    """

    draws: dict[str, np.ndarray]
    diverging: np.ndarray
    n_leapfrog: np.ndarray
    k_hat: float = np.nan
    flat: np.ndarray | None = None


def independent(draws: dict[str, np.ndarray], k_hat: float, flat: np.ndarray) -> PosteriorDraws:
    """Draws [draw, ...] of an approximation, as one chain."""
    n_draw = len(next(iter(draws.values())))
    none = np.zeros((1, n_draw), dtype=int)
    return PosteriorDraws({name: value[None] for name, value in draws.items()}, none.astype(bool), none, k_hat, flat)


PartData = TypeVar("PartData", contravariant=True)
WHOLE = ""
"""Name of the only part of a posterior that does not factorise."""


class ModelPart(Protocol[PartData]):
    """Density that the engine samples, and where to begin; a model, or a part of one.

    Notes: `PartData` is a frozen dataclass as described in `model.Model`.
    """

    def program(self, data: PartData) -> None:
        """The NumPyro model. Runs under jit in float64; arrays of `data` are traced, everything else is static."""
        ...

    def start(self, data: PartData) -> dict[str, Any]:
        """Values of the sites at which chains and variational guides begin, from moments of the data."""
        ...


def generator(key: jax.Array, *more: int) -> np.random.Generator:
    """NumPy's random numbers under a key of JAX, and whole numbers that tell streams of one key apart.

    Notes:
        What a fit draws by itself is drawn here: compiling a sampler of JAX takes seconds (gamma) or tenths of them, and the
        numbers take milliseconds.
    """
    return np.random.default_rng([*np.asarray(jax.random.key_data(key)).tolist(), *more])


def key_of(key: jax.Array, name: str) -> jax.Array:
    """Seed of a part; that of the whole is the seed itself."""
    return key if name == WHOLE else jax.random.fold_in(key, crc32(name.encode()))


def together(joined: Callable[..., Mapping[str, np.ndarray]], found: Mapping[str, PosteriorDraws]) -> PosteriorDraws:
    """The draws of all parts under the names that `joined`, of the model, gives them.

    Notes:
        Parts whose chains went on for longer are thinned to the draws of the shortest. A draw counts as divergent where it is in
        any part; the Pareto shape is that of the worst one.
    """
    if set(found) == {WHOLE}:
        return found[WHOLE]
    n_draw = min(one.diverging.shape[1] for one in found.values())
    thin = [_thinned(one, n_draw) for one in found.values()]
    return PosteriorDraws(
        draws=dict(joined(dict(zip(found, (one.draws for one in thin), strict=True)))),
        diverging=np.any([one.diverging for one in thin], axis=0),
        n_leapfrog=np.sum([one.n_leapfrog for one in thin], axis=0),
        k_hat=float(np.max([one.k_hat for one in thin])),
        flat=_side_by_side(thin),
    )


def columns(flat: np.ndarray, sizes: Sequence[int]) -> list[np.ndarray]:
    """Unconstrained draws [draw, dim] of the whole, split into those of its parts."""
    return np.split(flat, np.cumsum(sizes)[:-1], axis=1)


def _side_by_side(found: Sequence[PosteriorDraws]) -> np.ndarray | None:
    flat = [one.flat for one in found if one.flat is not None]
    return np.concatenate(flat, axis=1) if len(flat) == len(found) else None


def _thinned(one: PosteriorDraws, n_draw: int) -> PosteriorDraws:
    n_chain, n_have = one.diverging.shape
    keep = np.linspace(0, n_have - 1, n_draw).round().astype(int)
    flat = one.flat
    return PosteriorDraws(
        draws={name: value[:, keep] for name, value in one.draws.items()},
        diverging=one.diverging[:, keep],
        n_leapfrog=one.n_leapfrog[:, keep],
        k_hat=one.k_hat,
        flat=None if flat is None else flat.reshape(n_chain, n_have, -1)[:, keep].reshape(n_chain * n_draw, -1),
    )


Sites = dict[str, Any]


@dataclass(frozen=True)
class ModelProgram:
    """Model compiled for its data, as every method needs it.

    Attributes:
        model: the class that says it.
        run: the NumPyro model as a function of the traced arrays.
        arrays: the data's arrays.
        start: unconstrained sites at which a method begins.
        potential: (arrays, unconstrained sites) -> negative log joint density.
        constrain: (arrays, unconstrained sites) -> all sites, deterministic ones too.
    """

    model: type
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

    def given(self, arrays: Arrays) -> ModelProgram:
        """Program on other arrays of the same shapes, without compiling again."""
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
        return jax.jit(lambda given, drawn: jax.lax.map(partial(self.constrain, given), drawn))

    def sites(self, flat: np.ndarray) -> Sites:
        """Unconstrained sites [draw, ...] of vectors [draw, dim], as `ravel` lays them out; in NumPy."""
        names = sorted(self.start)
        parts = columns(flat, [int(np.size(self.start[name])) for name in names])
        return {n: part.reshape(-1, *np.shape(self.start[n])) for n, part in zip(names, parts, strict=True)}

    def ravel(self) -> tuple[np.ndarray, Callable[[Any], Sites]]:
        """The start as one vector, and the function that makes sites of a vector."""
        flat, unravel = ravel_pytree(self.start)
        return np.asarray(flat), unravel


def program(model: ModelPart[Any], data: Any, key: jax.Array) -> ModelProgram:
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

    return ModelProgram(
        model=type(model),
        run=run,
        arrays=arrays,
        start=dict(jax.jit(begin)(key, arrays)),  # jitted: op by op, every op is compiled by itself
        potential=lambda given, sites: potential_energy(run, (given,), {}, sites),
        constrain=lambda given, sites: constrain_fn(run, (given,), {}, sites, return_deterministic=True),
    )


def constrained(made: ModelProgram, sites: Sites) -> dict[str, np.ndarray]:
    """All sites of unconstrained draws [draw, ...]."""
    return {name: np.asarray(value) for name, value in made.convert(made.arrays, sites).items()}
