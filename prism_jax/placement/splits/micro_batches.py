"""Micro-batches per replica, their sum fixed: relaxed on the exact times of every replica with every number, rounded, polished.

Replicas meet at the end of the step only, so the times of each with every possible number of micro-batches tell all there is to
know: moves are looked up, not simulated.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int32

from ..._typing import Floats
from ...objective import PlanObjective
from ...partition.chunks import Splits
from ..evaluator import Assignments, Stored, Tables, finished
from ..optimisers.descend import descend
from ..step import replica_time
from ..tables import group_factors
from .splits import SplitSpace

N_STEP, RATE = 60, 0.15  # micro-batches per step of Adam, at most
N_DONOR, N_RECEIVER = 4, 12  # slowest and fastest replicas between which a micro-batch is moved
MAX_MOVES = 400


def split_micro_batches(
    space: SplitSpace, splits: Splits, tables: Tables, kept: Stored, assignment: Assignments, objective: PlanObjective
) -> Splits:
    """The best numbers of micro-batches that were found for an assignment and a layer split."""
    if len(space.micro_batches) == 1:
        return splits
    order = np.argsort(space.micro_batches)
    counts = np.array(space.micro_batches)[order]
    times_s = _every(tables, kept, jnp.asarray(assignment, jnp.int32))[jnp.asarray(order)]
    first = jnp.asarray(np.array(splits.micro_batches) - counts[0], float)
    relaxed = descend(lambda x, _: _gradient(x, times_s, kept, objective), first, N_STEP, RATE)
    host_s = np.asarray(times_s, np.float64)
    starts = [np.array(splits.micro_batches) - counts[0], rounded(np.asarray(relaxed), len(counts))]
    polished = [_polished(start, host_s, kept, objective) for start in starts]
    best = min(polished, key=lambda found: found[1])[0]
    return Splits(splits.layers, tuple(int(m) for m in counts[best]))


@eqx.filter_jit
def _every(tables: Tables, kept: Stored, assignment: Int32[Array, " seat"]) -> Float[Array, "variant replica sample"]:
    """Times of every replica with every number of micro-batches."""
    n_variant, n_replica = tables.step.kind.shape[0], tables.slots.slot.shape[1]

    def of_replica(replica: Array) -> Array:
        group = group_factors(tables.step, tables.nodes, tables.slots, assignment, replica)
        block = replica % kept.n_block
        return lax.map(
            lambda v: replica_time(tables.step, group, kept.replicas, v, block), jnp.arange(n_variant, dtype=jnp.int32)
        )

    return jnp.swapaxes(lax.map(of_replica, jnp.arange(n_replica, dtype=jnp.int32)), 0, 1)


@eqx.filter_jit
def _gradient(
    count: Float[Array, " replica"],
    times_s: Float[Array, "variant replica sample"],
    kept: Stored,
    objective: PlanObjective,
) -> Float[Array, " replica"]:
    """Gradient of the smoothed objective with the sum held, at fractional counts (interpolated)."""

    def log_value(count: Array) -> Array:
        place = jnp.clip(count, 0.0, times_s.shape[0] - 1.0)
        low = jnp.clip(lax.stop_gradient(place).astype(jnp.int32), 0, times_s.shape[0] - 2)
        share = (place - low.astype(place.dtype))[:, None]
        replica = jnp.arange(times_s.shape[1], dtype=jnp.int32)
        columns_s = times_s[low, replica] * (1.0 - share) + times_s[low + 1, replica] * share
        return jnp.log(objective.smoothed(finished(columns_s, kept.shared)))

    gradient = jax.grad(log_value)(count)
    gradient = gradient - gradient.mean()
    return gradient / jnp.maximum(jnp.abs(gradient).max(), 1e-20)


def rounded(relaxed: Floats, n_count: int) -> np.ndarray:
    """Whole counts from 0 to n_count - 1 nearest to `relaxed`, with the same sum (of the rounded total)."""
    total = round(float(relaxed.sum()))
    found = np.clip(np.floor(relaxed), 0, n_count - 1).astype(int)
    while found.sum() != total:
        step = 1 if found.sum() < total else -1
        open_ones = (found + step >= 0) & (found + step < n_count)
        rest = np.where(open_ones, step * (relaxed - found), -np.inf)
        found[int(np.argmax(rest))] += step
    return found


def _polished(start: np.ndarray, times_s: Floats, kept: Stored, objective: PlanObjective) -> tuple[np.ndarray, float]:
    """Local moves of one micro-batch from a slow replica to a fast one, while they help."""
    count, replicas = start.copy(), np.arange(len(start))
    best = _value(times_s[count, replicas].max(axis=0)[None], kept, objective)[0]
    for _ in range(MAX_MOVES):
        columns_s = times_s[count, replicas]
        by_time = np.argsort(columns_s.mean(axis=-1))
        donors = [r for r in by_time[::-1][:N_DONOR] if count[r] > 0]
        receivers = [r for r in by_time[:N_RECEIVER] if count[r] < len(times_s) - 1]
        moves = [(a, b) for a in donors for b in receivers if a != b]
        if not moves:
            break
        cores = []
        for a, b in moves:
            moved = columns_s.copy()
            moved[a], moved[b] = times_s[count[a] - 1, a], times_s[count[b] + 1, b]
            cores.append(moved.max(axis=0))
        found = _value(np.stack(cores), kept, objective)
        index = int(np.argmin(found))
        if found[index] >= best:
            break
        best = found[index]
        count[moves[index][0]] -= 1
        count[moves[index][1]] += 1
    return count, float(best)


def _value(core_s: Floats, kept: Stored, objective: PlanObjective) -> Floats:
    """Objective [move] of slowest replicas [move, sample]."""
    add_s, times = np.asarray(kept.shared.add_s), np.asarray(kept.shared.times)
    return objective.of(((core_s[:, :, None] + add_s) * times).reshape(len(core_s), -1))
