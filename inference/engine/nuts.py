"""No-U-turn sampling in blocks: chains side by side, a file after every block, and the same draws after a restart.

NumPyro's kernel keeps everything, adaptation included, in its state; so a run is a loop of jitted blocks over that state, and
what is on disk after a block is all that is needed to go on. The kernel sees coordinates in which the posterior is round:
unconstrained sites as one vector, whitened by the curvature at the mode. (NumPyro's regularisation of the mass matrix, 1e-5
after 500 steps, is larger than the variance of a well-measured log time; unwhitened, the step size falls tenfold.)
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpyro.infer.hmc import hmc

from prism_jax.progress import Progress, silent

from ..checkpoint import Checkpoint
from ..settings import Settings
from .laplace import Mode, mode, start_widths
from .program import Program, constrained
from .sampled import Sampled

JITTER = (
    2.0  # sd of the start of each chain, in widths of the posterior there, cut off at as many: apart, but within reach
)
DENSE_UP_TO = (
    64  # dimensions with a dense mass matrix and a start at the mode; beyond, where modes mislead, a diagonal one
)
Enough = Callable[[Sampled], bool]


def sample(
    made: Program,
    settings: Settings,
    key: jax.Array,
    *,
    progress: Progress = silent,
    partial: Path | None = None,
    enough: Enough | None = None,
) -> Sampled:
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
    checkpoint = Checkpoint(partial, made.arrays, settings, key) if partial is not None else None
    kept: list[Any] = []
    done, planned, more = 0, settings.n_block, settings.n_draw // settings.block
    most = planned + settings.n_extension * more
    if checkpoint is not None and (found := checkpoint.load(states)) is not None:
        states, kept, done = found
        planned += more * max(0, -(-(done - planned) // more))  # judged where a run that nobody stopped is judged
    with ThreadPoolExecutor(settings.n_chain) as pool:
        while True:
            if done >= planned:
                sampled = _collect(made, near, kept)
                if done >= most or enough is None or enough(sampled):
                    return sampled
                planned += more
            results = list(pool.map(lambda state: block(state, made.arrays), states))
            states = [state for state, _ in results]
            done += 1
            if done * settings.block > settings.n_warmup:
                kept.append(jax.tree.map(lambda *parts: np.stack(parts), *(out for _, out in results)))
            if checkpoint is not None:
                checkpoint.save(states, kept, done)
            progress(done / planned)


def _kernel(made: Program, near: Mode, settings: Settings) -> tuple[Callable[..., Any], Callable[..., Any]]:
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


def _collect(made: Program, near: Mode, kept: list[Any]) -> Sampled:
    white, diverging, n_leapfrog = jax.tree.map(lambda *parts: np.concatenate(parts, axis=1), *kept)
    n_chain, n_draw, n_dim = white.shape
    _, unravel = made.ravel()
    z = near.at + white.reshape(-1, n_dim) @ near.scale.T
    flat = constrained(made, jax.vmap(unravel)(jnp.asarray(z)))
    draws = {name: value.reshape(n_chain, n_draw, *value.shape[1:]) for name, value in flat.items()}
    return Sampled(draws=draws, diverging=diverging, n_leapfrog=n_leapfrog, flat=z)
