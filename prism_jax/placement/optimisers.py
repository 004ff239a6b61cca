"""Optimises assignments: those that need no search, simulated annealing over swaps, and relaxation by gradients (Adam, Optax).

An assignment holds the node of every slot, then the nodes that are left out; where there are few, every one of them is tried.

Annealing swaps two nodes on kept noise, as one compiled loop. A swap changes the replicas of two slots only; the times of all
others are carried along. Half of the proposals take a node out of the replica that is slowest at the moment: elsewhere a swap
cannot help.

Relaxed assignments are doubly stochastic matrices (Gumbel-Sinkhorn, Mena et al., ICLR 2018), moved by pathwise gradients of the
smoothed objective and rounded by linear assignment. A seat then holds a mixture of nodes: the mean and spread of its slowest
GPU's factor are the mixtures of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import factorial
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import Array, lax
from jaxtyping import Float, Int32, Key
from scipy.optimize import linear_sum_assignment

from ..core.arrays import Floats
from ..result.objective import PlanObjective
from .evaluator import Assignments, PlacementProblem, Stored, Tables, column, columns, finished
from .tables import NodeTables, PortTables, end_links


def descend(gradient: Callable[[Array, int], Array], start: Array, n_step: int, rate: float | optax.Schedule) -> Array:
    """Result of `n_step` steps of Adam from `start`.

    Args:
        gradient: of the parameters and the number of the step.
        start: parameters.
        n_step: steps.
        rate: learning rate, or that of every step.
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


MOST_NODES = 12  # of which all arrangements could be few enough
MAX_EXHAUSTIVE = 25_000  # assignments: 8 nodes on 2 replicas


def as_given(problem: PlacementProblem) -> Assignments:
    """Node i in slot i; the last ones are left out [seat]."""
    return np.arange(problem.fleet.n_node, dtype=np.int32)


def random_assignments(problem: PlacementProblem, n: int, rng: np.random.Generator) -> Assignments:
    """[n, seat]."""
    return rng.permuted(np.tile(as_given(problem), (n, 1)), axis=1)


def sorted_assignments(problem: PlacementProblem, lane_weight: Floats) -> Assignments:
    """Slowest nodes left out, the next ones in the lightest lanes: across replicas, and one replica after the other [2, seat].

    Args:
        lane_weight: [lane] what a slow node costs there.
    """
    slots, n_slot = problem.slots, problem.slots.n_slot
    slowest_first = np.argsort(-problem.slowness, kind="stable").astype(np.int32)
    out, used = slowest_first[: problem.n_spare], slowest_first[problem.n_spare :]
    weight, replica = np.asarray(lane_weight)[slots.lanes], slots.replicas[:, 0]
    found = []
    for order in (np.lexsort((replica, weight)), np.lexsort((weight, replica))):
        seats = np.empty(n_slot, dtype=np.int32)
        seats[order] = used
        found.append(np.concatenate([seats, out]))
    return np.stack(found)


def busy_seconds(problem: PlacementProblem) -> Floats:
    """[lane] compute of a step's ops, seconds: the weight of a stage."""
    return problem.program.graph.compute_s.sum(axis=(0, 2))


def n_distinct(problem: PlacementProblem) -> int:
    """Assignments that differ: the order of spares and of replicas does not matter."""
    n, k = problem.fleet.n_node, problem.n_spare
    alike = factorial(problem.slots.n_replica) if _replicas_apart(problem) else 1
    return factorial(n) // factorial(k) // alike


def all_assignments(problem: PlacementProblem, most: int = MAX_EXHAUSTIVE) -> Assignments | None:
    """Every assignment that differs from the others [assignment, seat]; None if there are more than `most`."""
    if problem.fleet.n_node > MOST_NODES or n_distinct(problem) > most:
        return None
    n_slot, apart = problem.slots.n_slot, _replicas_apart(problem)
    replica = problem.slots.replicas[:, 0]
    first = [int(np.flatnonzero(replica == r)[0]) for r in range(problem.slots.n_replica)] if apart else []
    found = []
    for seats in _arrangements(problem.fleet.n_node, n_slot, first):
        out = sorted(set(range(problem.fleet.n_node)) - set(seats))
        found.append([*seats, *out])
    return np.array(found, dtype=np.int32)


def _arrangements(n_node: int, n_slot: int, increasing: list[int]) -> Iterator[list[int]]:
    """Nodes of the slots, one order of the replicas only: their first slots' nodes increase."""
    seats = [-1] * n_slot
    before = dict(zip(increasing[1:], increasing, strict=False))

    def fill(slot: int, free: frozenset[int]) -> Iterator[list[int]]:
        if slot == n_slot:
            yield list(seats)
            return
        for node in sorted(free):
            earlier = before.get(slot)
            if earlier is not None and seats[earlier] > node:
                continue
            seats[slot] = node
            yield from fill(slot + 1, free - {node})

    yield from fill(0, frozenset(range(n_node)))


def _replicas_apart(problem: PlacementProblem) -> bool:
    """Whether every slot belongs to one replica, so that replicas can change places."""
    return problem.slots.replicas.shape[1] == 1


N_STEP = 3000
HOT, COLD = (
    3e-4,
    1e-5,
)  # temperatures over the step time: losses of 0.03% are gambled with at first, of 0.001% in the end


@dataclass(frozen=True)
class Annealed:
    """Best state of a chain.

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
    """Times of all replicas after the nodes of seats i and j have changed places; a slow link at the end of the step is all's."""
    n_slot, touched = tables.slots.replicas.shape
    if 2 * touched >= columns_s.shape[0]:
        return columns(tables, kept, assignment)
    other = jnp.where(j < n_slot, jnp.minimum(j, n_slot - 1), i)
    replicas = jnp.concatenate([tables.slots.replicas[i], tables.slots.replicas[other]])

    def touched_alone() -> Float[Array, "replica sample"]:
        return columns_s.at[replicas].set(lax.map(lambda r: column(tables, kept, assignment, r), replicas))

    if tables.nodes.ports is None:
        return touched_alone()
    before = assignment.at[i].set(assignment[j]).at[j].set(assignment[i])
    now, then = (end_links(tables.nodes.ports, tables.slots, own) for own in (assignment, before))
    return lax.cond((now == then).all(), touched_alone, lambda: columns(tables, kept, assignment))


N_ITERATION = 30  # of Sinkhorn's normalisation
LEARNING_RATE = 0.3
WARM, COOL = 1.0, 0.1  # temperature of the matrix, from first to last step
GUMBEL = 0.1  # noise on the scores, so that ties break
START_SCORE = 4.0  # of the assignment it starts from: 30% of the mass among 128 nodes
N_SAMPLE = 32  # simulated steps a gradient is taken on


def relaxed(
    problem: PlacementProblem,
    kept: Stored,
    start: Assignments,
    objective: PlanObjective,
    *,
    key: Key[Array, ""],
    n_step: int,
) -> Assignments:
    """The rounded assignment after `n_step` gradient steps from `start` [seat]."""
    n = problem.fleet.n_node
    few = few_samples(kept)
    logits = jnp.asarray(START_SCORE * (np.asarray(start)[:, None] == np.arange(n)), float)
    heat = jnp.asarray(np.geomspace(WARM, COOL, max(n_step, 1)), float)

    def gradient(scores: Array, step: int) -> Array:
        return _gradient(problem.tables, few, scores, objective, heat[step], jax.random.fold_in(key, step))

    logits = descend(gradient, logits, n_step, LEARNING_RATE)
    _, node = linear_sum_assignment(-np.asarray(logits, np.float64))
    return np.asarray(node, dtype=np.int32)


def sinkhorn(scores: Float[Array, "seat node"], n: int = N_ITERATION) -> Float[Array, "seat node"]:
    """Doubly stochastic matrix of scores, rows and columns normalised in turn on log scale."""

    def once(_: Array, log_p: Array) -> Array:
        log_p = log_p - jax.nn.logsumexp(log_p, axis=1, keepdims=True)
        return log_p - jax.nn.logsumexp(log_p, axis=0, keepdims=True)

    return jnp.exp(lax.fori_loop(0, n, once, scores))


def few_samples(kept: Stored) -> Stored:
    """The first samples of every array, whose sample axis is the last but for the shared factors."""
    cut = jax.tree.map(lambda x: x[..., :N_SAMPLE], (kept.replicas, kept.shared.regime))
    return Stored(cut[0], type(kept.shared)(cut[1], kept.shared.add_s[:N_SAMPLE], kept.shared.times[:N_SAMPLE]))


@eqx.filter_jit
def _gradient(
    tables: Tables,
    kept: Stored,
    logits: Float[Array, "seat node"],
    objective: PlanObjective,
    temperature: Float[Array, ""],
    key: Key[Array, ""],
) -> Float[Array, "seat node"]:
    """Gradient of the log of the smoothed objective."""
    noise = GUMBEL * jax.random.gumbel(key, logits.shape, logits.dtype)

    def log_value(logits: Array) -> Array:
        mixed = eqx.tree_at(lambda t: t.nodes, tables, _mixed(tables.nodes, sinkhorn((logits + noise) / temperature)))
        seats = jnp.arange(logits.shape[0], dtype=jnp.int32)
        return jnp.log(objective.smoothed(finished(columns(mixed, kept, seats), kept.shared)))

    gradient = jax.grad(log_value)(logits)
    return gradient / jnp.maximum(jnp.abs(gradient).max(), 1e-20)


def _mixed(nodes: NodeTables, share: Float[Array, "seat node"]) -> NodeTables:
    """One imagined node per seat; the dummy stays itself."""
    n = share.shape[0]
    whole = jnp.zeros((n + 1, n + 1), share.dtype).at[:n, :n].set(share).at[n, n].set(1.0)
    return NodeTables(
        jnp.einsum("sn,rnp->rsp", whole, nodes.loc),
        jnp.einsum("sn,rnp->rsp", whole, nodes.scale),
        jnp.einsum("sn,np->sp", whole, nodes.peak),
        None if nodes.ports is None else _mixed_ports(nodes.ports, whole),
    )


def _mixed_ports(ports: PortTables, whole: Float[Array, "seat node"]) -> PortTables:
    """Mixes links as `_mixed` does nodes."""
    link, nic = (jnp.einsum("sn,np->sp", whole, own) for own in (ports.link, ports.nic))
    return PortTables(link, nic, ports.edge_leaves, ports.leaves)
