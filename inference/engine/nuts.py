"""No-U-turn sampling in blocks: chains side by side, a file after every block, and the same draws after a restart.

NumPyro's kernel keeps everything, adaptation included, in its state; so a run is a loop of jitted blocks over that state, and
what is on disk after a block is all that is needed to go on: an archive of arrays, tied to its data, settings and seed. The
kernel sees coordinates in which the posterior is round: unconstrained sites as one vector, whitened by the curvature at the
mode. (NumPyro's regularisation of the mass matrix, 1e-5 after 500 steps, is larger than the variance of a well-measured log
time; unwhitened, the step size falls tenfold.)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import hmc

from prism_jax.core.errors import DataError
from prism_jax.core.kept_work import Expected, Schema, WorkFile, identity
from prism_jax.core.processes import Progress, silent

from .laplace import Mode, mode, start_widths
from .program import ModelProgram, PosteriorDraws, Settings, constrained

KEPT = jax.tree.structure((0, 0, 0))  # of a block: position, diverging, leapfrog steps


class ChainCheckpoint:
    """Saves and loads the states of all chains and the draws so far."""

    def __init__(self, path: Path | None, made: ModelProgram, settings: Settings, key: jax.Array) -> None:
        seed = np.asarray(jax.random.key_data(key))
        arrays = {name: np.asarray(value) for name, value in made.arrays.items()}
        own = "" if path is None else identity(made.model, arrays, settings, seed)
        self._file, self._settings = WorkFile(path, "unfinished fit", own), settings

    def save(self, states: Sequence[Any], kept: Sequence[Any], n_block: int) -> None:
        """Writes the file whole, or leaves the last one."""
        parts = {f"state/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(list(states)))}
        parts |= {f"kept/{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(list(kept)))}
        self._file.save(parts, n_block=n_block)

    def load(self, like: Sequence[Any]) -> tuple[list[Any], list[Any], int] | None:
        """States, kept draws and number of blocks done; None where there is no file.

        Args:
            like: states of the same structure, as a new run has them.

        Raises:
            DataError: the file is damaged, or belongs to other data, settings or another seed.
        """
        leaves, shape = jax.tree.flatten(list(like))
        n_block = 0

        def schema(about: Mapping[str, Any]) -> Schema:
            nonlocal n_block
            n_block = int(about["n_block"])
            if not 0 <= n_block <= most_blocks(self._settings):
                raise DataError("more blocks than a fit has.")
            return self._schema(leaves, self._n_kept(n_block), like[0].z.shape)

        if (found := self._file.read(schema)) is None:
            return None
        width = KEPT.num_leaves
        states = jax.tree.unflatten(shape, [found[f"state/{i}"] for i in range(len(leaves))])
        if not all(np.isfinite(state.z).all() for state in states):
            raise self._file.refused("a chain is nowhere")
        blocks = [[found[f"kept/{width * i + j}"] for j in range(width)] for i in range(self._n_kept(n_block))]
        return states, [jax.tree.unflatten(KEPT, block) for block in blocks], n_block

    def _n_kept(self, n_block: int) -> int:
        """Blocks behind the warm-up."""
        return max(0, n_block - self._settings.n_warmup // self._settings.block)

    def _schema(self, leaves: Sequence[Any], n_kept: int, position: tuple[int, ...]) -> Schema:
        """Type and shape that the arrays of this run must have."""
        drawn = (self._settings.n_chain, self._settings.block)
        found = {f"state/{i}": _like(leaf) for i, leaf in enumerate(leaves)}
        draws = (Expected("f", (*drawn, *position)), Expected("b", drawn), Expected("iu", drawn, 0))
        return found | {f"kept/{i}": draws[i % len(draws)] for i in range(len(draws) * n_kept)}


def _like(leaf: Any) -> Expected:
    """Expects the type and shape of `leaf`; numbers of a chain may be any (energies of steps that diverged)."""
    return Expected(np.asarray(leaf).dtype.kind, np.shape(leaf), may_be_nan=True, may_be_infinite=True)


def most_blocks(settings: Settings) -> int:
    """Blocks of a fit that goes on as often as it may."""
    return settings.n_block + settings.n_extension * (settings.n_draw // settings.block)


# Standard deviation of the start of each chain, in widths of the posterior there, cut off at as many: apart, but within reach
JITTER = 2.0
# Dimensions with a dense mass matrix and a start at the mode; beyond, where modes mislead, a diagonal one
DENSE_UP_TO = 64
Enough = Callable[[PosteriorDraws], bool]


def sample(
    made: ModelProgram,
    settings: Settings,
    key: jax.Array,
    *,
    progress: Progress = silent,
    partial: Path | None = None,
    enough: Enough | None = None,
) -> PosteriorDraws:
    """Draws by NUTS.

    Args:
        partial: file in which an interrupted run is found and continued.
        enough: whether the draws will do; where they do not, the chains go on, `settings.n_extension` times at most

    Raises:
        DataError: `partial` belongs to another run.
    """
    near = mode(made) if made.n_dim <= DENSE_UP_TO else start_widths(made)
    first, block = _kernel(made, near, settings)
    states = [first(jax.random.fold_in(key, chain), made.arrays) for chain in range(settings.n_chain)]
    checkpoint = ChainCheckpoint(partial, made, settings, key)
    kept: list[Any] = []
    done, planned, more = 0, settings.n_block, settings.n_draw // settings.block
    if (found := checkpoint.load(states)) is not None:
        states, kept, done = found
        planned += more * max(0, -(-(done - planned) // more))  # judged where a run that nobody stopped is judged
    with ThreadPoolExecutor(settings.n_chain) as pool:
        while True:
            if done >= planned:
                sampled = _collect(made, near, kept)
                if done >= most_blocks(settings) or enough is None or enough(sampled):
                    return sampled
                planned += more
            results = list(pool.map(lambda state: block(state, made.arrays), states))
            states = [state for state, _ in results]
            done += 1
            if done * settings.block > settings.n_warmup:
                kept.append(jax.tree.map(lambda *parts: np.stack(parts), *(out for _, out in results)))
            checkpoint.save(states, kept, done)
            progress(done / planned)


def _kernel(made: ModelProgram, near: Mode, settings: Settings) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Jitted: (key, arrays) -> state of a new chain; (state, arrays) -> state after a block, and what is kept of it.

    The mode and its scale are arguments of what is compiled, so that a fit to other data of the same shape finds it in the cache.
    """
    _, unravel = made.ravel()
    at, scale = jnp.asarray(near.at), jnp.asarray(near.scale)

    def potential(given: Any) -> Callable[[Any], Any]:
        arrays, centre, factor = given
        return lambda white: made.potential(arrays, unravel(centre + factor @ white))

    begin, advance = hmc(potential_fn_gen=potential, algo="NUTS")

    def first(key: Any, given: Any) -> Any:
        jitter_key, own_key = jax.random.split(key)
        white = jnp.clip(JITTER * jax.random.normal(jitter_key, near.at.shape), -JITTER, JITTER)
        return begin(
            white,
            settings.n_warmup,
            dense_mass=made.n_dim <= DENSE_UP_TO,
            target_accept_prob=settings.target_accept,
            max_tree_depth=settings.max_tree_depth,
            model_args=(given,),
            rng_key=jax.random.key_data(own_key),
        )

    def step(given: Any, state: Any) -> tuple[Any, Any]:
        after = advance(state, (given,), {})
        return after, (after.z, after.diverging, after.num_steps)

    def block(state: Any, given: Any) -> Any:
        return jax.lax.scan(lambda carry, _: step(given, carry), state, None, length=settings.block)

    begun, jitted = jax.jit(first), jax.jit(block)

    def in_thread(state: Any, given: Any) -> Any:
        with jax.enable_x64(True):  # the setting belongs to a thread
            after, out = jitted(state, (given, at, scale))
            return after, jax.tree.map(np.asarray, out)

    return lambda chain_key, given: begun(chain_key, (given, at, scale)), in_thread


def _collect(made: ModelProgram, near: Mode, kept: list[Any]) -> PosteriorDraws:
    white, diverging, n_leapfrog = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept)
    n_chain, n_draw, n_dim = white.shape
    _, unravel = made.ravel()
    z = near.at + white.reshape(-1, n_dim) @ near.scale.T
    flat = constrained(made, jax.vmap(unravel)(jnp.asarray(z)))
    draws = {name: value.reshape(n_chain, n_draw, *value.shape[1:]) for name, value in flat.items()}
    return PosteriorDraws(draws=draws, diverging=diverging, n_leapfrog=n_leapfrog, flat=z)
