"""Worlds of a task under a policy: when it is done, and how long its nodes were paid by spot and on demand."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..._typing import Floats
from ...errors import SpecError
from ...graph.random import key_words
from ..paths import Paths
from ..policies.base import Policy
from .task import Task
from .world import Figures, Pieces, Turn

MOST_TURNS = 200_000  # events of a world
FEWEST_PIECES = 64  # of paths that are more than one piece
MOST_EVENTS = 5_000  # failures of a world on average; more is no job


@dataclass(frozen=True)
class Ran:
    """What became of the worlds; [world].

    Attributes:
        time_s: wall time; infinite where the job is never done.
        spot_s: time of all nodes on spot, weighted by the price of each piece.
        on_demand_s: time of all nodes on demand.
        n_lost: interruptions.
    """

    time_s: Floats
    spot_s: Floats
    on_demand_s: Floats
    n_lost: Floats

    def cost_usd(self, on_demand_usd_per_h: float, spot_usd_per_h: float) -> Floats:
        """Money [world] at prices of all nodes together; a price that is not paid may be NaN."""
        spot = np.where(self.spot_s > 0.0, self.spot_s * spot_usd_per_h, 0.0)
        on_demand = np.where(self.on_demand_s > 0.0, self.on_demand_s * on_demand_usd_per_h, 0.0)
        return (spot + on_demand) / 3600.0


def simulate(
    task: Task,
    paths: Paths,
    policy: Policy,
    factors: Floats,
    deadline_s: float = np.inf,
    *,
    key: Array,
) -> Ran:
    """Runs every world to its end.

    Args:
        paths: of the spot nodes; a world of them is a world of the answer.
        factors: [world] on the time of every step: what is not known of it.
        deadline_s: that the policy has in mind; infinite: none.
        key: typed PRNG key; the same key gives the same failures whatever the policy.

    Raises:
        SpecError: the job is interrupted so often that it makes no progress.
    """
    if task.failures_s * task.expected_s() > MOST_EVENTS:
        raise SpecError(
            f"the job hardly makes progress: a failure every {1.0 / task.failures_s:,.4g} s. Check the reliability, or shorten "
            "the interval between checkpoints."
        )
    real = jnp.result_type(float)
    first_s = task.restart_s if task.first_s is None else task.first_s
    numbers = (task.n_interval, task.blocking_s, task.restart_s, first_s, task.failures_s)
    names = ("n_interval", "blocking_s", "restart_s", "first_s", "failures_s", "deadline_s")
    shared = {name: jnp.asarray(value, real) for name, value in zip(names, (*numbers, deadline_s), strict=True)}
    figures = Figures(**shared, interval_s=jnp.asarray(task.interval_s * factors, real))
    found = _program(policy)(figures, _pieces(paths), key_words(key))
    return Ran(*(np.asarray(leaf, float) for leaf in found))


def _pieces(paths: Paths) -> Pieces:
    """Padded to a power of four, by pieces of no length in the last state, so that few shapes are compiled."""
    kept = _PADDED.get(id(paths))
    if kept is not None and kept[0] is paths:
        return kept[1]
    length_s = np.diff(paths.until_s, axis=0, prepend=0.0)
    n = 1
    while n < len(length_s):
        n = max(4 * n, FEWEST_PIECES)
    rows = ((0, n - len(length_s)), (0, 0))
    real = jnp.result_type(float)
    made = Pieces(
        jnp.asarray(np.pad(length_s, rows), real),
        jnp.asarray(np.pad(paths.n_up >= paths.n_nodes, rows, mode="edge")),
        jnp.asarray(np.pad(paths.price, rows, mode="edge"), real),
    )
    while len(_PADDED) >= 8:
        _PADDED.pop(next(iter(_PADDED)))
    _PADDED[id(paths)] = (paths, made)
    return made


_PADDED: dict[int, tuple[Paths, Pieces]] = {}  # the last few: all policies see the same paths


@lru_cache(maxsize=64)
def _program(policy: Policy) -> Any:
    """One compiled loop per policy and shape."""

    def run(figures: Figures, pieces: Pieces, key: Array) -> tuple[Array, ...]:
        index = jnp.arange(figures.interval_s.shape[0], dtype=jnp.uint32)
        turn = Turn(policy, figures, pieces, key, index)

        def goes_on(carry: tuple[Any, Array]) -> Array:
            return carry[0].active.any() & (carry[1] < MOST_TURNS)

        def step(carry: tuple[Any, Array]) -> tuple[Any, Array]:
            return turn.next_event(*carry), carry[1] + jnp.uint32(1)

        state, _ = lax.while_loop(goes_on, step, (turn.start(), jnp.uint32(1)))
        time_s = jnp.where(state.active, jnp.inf, state.clock_s)
        return time_s, state.spot_s, state.on_demand_s, state.n_lost

    return jax.jit(run)
