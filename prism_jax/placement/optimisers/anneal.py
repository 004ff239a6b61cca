"""Simulated annealing over swaps of two nodes, on kept noise, as one compiled loop.

A swap changes the replicas of two slots only; the times of all others are carried along. Half of the proposals take a
node out of the replica that is slowest at the moment: elsewhere a swap cannot help.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int32, Key

from ...objective import PlanObjective
from ..evaluator import Assignments, Stored, Tables, column, columns, finished

N_STEP = 3000
HOT, COLD = (
    3e-4,
    1e-5,
)  # temperatures over the step time: losses of 0.03 % are gambled with at first, of 0.001 % in the end


@dataclass(frozen=True)
class Annealed:
    """Where a chain has been best.

    Attributes:
        assignment: [seat].
        value_s: the objective there, in its unit, on the draws it was found with: optimistic.
    """

    assignment: Assignments
    value_s: float


class _Chain(NamedTuple):
    assignment: Int32[Array, " seat"]
    columns_s: Float[Array, "replica sample"]
    value_s: Float[Array, ""]
    best: Int32[Array, " seat"]
    best_s: Float[Array, ""]


def anneal(
    tables: Tables,
    kept: Stored,
    start: Assignments,
    *,
    key: Key[Array, ""],
    objective: PlanObjective,
    n_step: int = N_STEP,
    hot: float = HOT,
) -> Annealed:
    """The best assignment of one chain from `start`; `hot = 0` accepts improvements only."""
    heat = np.geomspace(hot, COLD, n_step) if hot > 0 else np.zeros(n_step)
    best, best_s = _run(tables, kept, jnp.asarray(start, jnp.int32), key, objective, jnp.asarray(heat, float))
    return Annealed(np.asarray(best), float(best_s))


@eqx.filter_jit
def _run(
    tables: Tables,
    kept: Stored,
    start: Int32[Array, " seat"],
    key: Key[Array, ""],
    objective: PlanObjective,
    heat: Float[Array, " proposal"],
) -> tuple[Int32[Array, " seat"], Float[Array, ""]]:
    columns_s = columns(tables, kept, start)
    value_s = objective.of(finished(columns_s, kept.shared))
    temperature_s = heat * value_s

    def propose(chain: _Chain, x: tuple[Array, Array]) -> tuple[_Chain, None]:
        key, own_heat_s = x
        one, other, accept = jax.random.split(key, 3)
        i = _slow_seat(tables, chain.columns_s, one)
        j = jax.random.randint(other, (), 0, chain.assignment.shape[0], jnp.int32)
        swapped = chain.assignment.at[i].set(chain.assignment[j]).at[j].set(chain.assignment[i])
        moved_s = _renewed(tables, kept, swapped, chain.columns_s, i, j)
        moved_value_s = objective.of(finished(moved_s, kept.shared))
        gamble_s = -own_heat_s * jnp.log(jnp.maximum(jax.random.uniform(accept, dtype=heat.dtype), 1e-30))
        taken = moved_value_s <= chain.value_s + gamble_s
        better = moved_value_s < chain.best_s
        return _Chain(
            jnp.where(taken, swapped, chain.assignment),
            jnp.where(taken, moved_s, chain.columns_s),
            jnp.where(taken, moved_value_s, chain.value_s),
            jnp.where(better, swapped, chain.best),
            jnp.where(better, moved_value_s, chain.best_s),
        ), None

    first = _Chain(start, columns_s, value_s, start, value_s)
    last, _ = lax.scan(propose, first, (jax.random.split(key, heat.shape[0]), temperature_s))
    return last.best, last.best_s


def _slow_seat(tables: Tables, columns_s: Float[Array, "replica sample"], key: Key[Array, ""]) -> Int32[Array, ""]:
    """A slot: any, or one of the replica that is slowest on average."""
    which, anywhere, in_lane, in_share = jax.random.split(key, 4)
    n_lane, _, n_share = tables.slots.slot.shape
    n_slot = tables.slots.replicas.shape[0]
    slowest = jnp.argmax(columns_s.mean(axis=-1))
    lane = jax.random.randint(in_lane, (), 0, n_lane, jnp.int32)
    share = jax.random.randint(in_share, (), 0, n_share, jnp.int32)
    there = jnp.minimum(tables.slots.slot[lane, slowest, share], n_slot - 1)
    return jnp.where(jax.random.bernoulli(which, 0.5), there, jax.random.randint(anywhere, (), 0, n_slot, jnp.int32))


def _renewed(
    tables: Tables,
    kept: Stored,
    assignment: Int32[Array, " seat"],
    columns_s: Float[Array, "replica sample"],
    i: Int32[Array, ""],
    j: Int32[Array, ""],
) -> Float[Array, "replica sample"]:
    """Times of all replicas after the nodes of seats i and j have changed places."""
    n_slot, touched = tables.slots.replicas.shape
    if 2 * touched >= columns_s.shape[0]:
        return columns(tables, kept, assignment)
    other = jnp.where(j < n_slot, jnp.minimum(j, n_slot - 1), i)
    replicas = jnp.concatenate([tables.slots.replicas[i], tables.slots.replicas[other]])
    new_s = lax.map(lambda replica: column(tables, kept, assignment, replica), replicas)
    return columns_s.at[replicas].set(new_s)
