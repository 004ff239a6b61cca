"""Evaluator: the distribution of the step time under any assignment, on common random numbers.

Two ways, the same numbers. `stored` draws the noise of every replica once and keeps it, for methods that try thousands of
assignments, one swap after the other: a swap concerns the replicas of two slots, all other replicas' times stay. `score` makes
the noise of one replica at a time, shows it every assignment and forgets it: any number of replicas and samples, for the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int32, Key
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.kernels import NETWORK_AXES
from ..job.job import Job
from ..simulate.program import Program
from .draws import Draws, NoiseModel, ReplicaNoise, SharedNoise, noise_model, replica_noise, shared_noise
from .fleet import MeasuredFleet, Slots, slots_of
from .tables import (
    Kinds,
    NodeTables,
    SlotTables,
    StepTables,
    group_factors,
    most_work,
    replica_time,
    slot_tables,
    step_program,
    tables_of,
)

MAX_STORED = 24_000_000  # normal scores kept per kind of noise: 96 MB
MAX_CHUNK = 512  # samples drawn at a time in `score`
ONE_CALL, SCORED_TOGETHER = 32, 8  # assignments
VECTOR_COLUMNS = 64  # of fewer columns the scan spends its time between them
Assignments = NDArray[np.int32]


class Tables(eqx.Module):
    """Arrays of a problem, all but the draws."""

    step: StepTables
    nodes: NodeTables
    slots: SlotTables
    noise: NoiseModel
    variant: Int32[Array, " replica"]  # of the step that every replica runs


class Stored(eqx.Module):
    """Noise that is kept.

    Attributes:
        replicas: noise of every replica, stacked; replica r uses block r modulo their number.
        shared: what replicas share.
    """

    replicas: ReplicaNoise
    shared: SharedNoise

    @property
    def n_block(self) -> int:
        """Replicas with noise of their own."""
        return self.replicas.network.shape[0]


@dataclass(frozen=True, eq=False)
class PlacementProblem:
    """A job, its slots and a fleet.

    Attributes:
        job, fleet, slots: as given.
        program: the lowered job.
        tables: on the device.
        kinds: of its ops.
    """

    job: Job
    fleet: MeasuredFleet
    slots: Slots
    program: Program
    tables: Tables
    kinds: Kinds

    @property
    def slowness(self) -> Floats:
        """[node] factor of a node's slowest GPU over the job's mix of kernel classes, with what its links add to it."""
        graph, ports = self.program.graph, self.tables.nodes.ports
        seconds = graph.compute_s.sum(axis=(0, 1))
        slowness = self.fleet.slowness(seconds / seconds.sum())
        if self.fleet.links is None or ports is None:
            return slowness
        p2p_s = graph.send_s.sum() + np.where(graph.dep_level >= 0, graph.lag_s, 0.0).sum()
        comm_s = np.array([*graph.comm_s.sum(axis=(0, 1)), p2p_s, graph.end_comm_s.sum()])
        leaves = np.array(ports.leaves) | (np.array(NETWORK_AXES) == "pp") & bool(ports.edge_leaves.any())
        link, nic = self.fleet.links.max(axis=-1) - 1.0
        return slowness + (comm_s[~leaves].sum() * link + comm_s[leaves].sum() * nic) / seconds.sum()

    @property
    def n_spare(self) -> int:
        """Nodes that are left out."""
        return self.fleet.n_node - self.slots.n_slot


def problem_of(job: Job, fleet: MeasuredFleet) -> PlacementProblem:
    """Lowers a job onto a fleet; the fleet must have at least as many nodes as the job has slots."""
    slots, program = slots_of(job), step_program(job)
    return assemble(job, fleet, slots, [program], np.zeros(slots.n_replica, dtype=np.int32))


def assemble(
    job: Job, fleet: MeasuredFleet, slots: Slots, programs: Sequence[Program], variant: NDArray[np.int32]
) -> PlacementProblem:
    """A problem whose replicas run different variants of a step, `variant` [replica] of `programs`; the first is nominal."""
    step, nodes, kinds = tables_of(programs, fleet, slots)
    n_level, work = step.kind.shape[1], most_work(programs)
    noise = noise_model(programs[0], n_level, work, links_drawn=fleet.links is None)
    tables = Tables(step, nodes, slot_tables(slots), noise, jnp.asarray(variant))
    return PlacementProblem(job, fleet, slots, programs[0], tables, kinds)


def stored(problem: PlacementProblem, draws: Draws) -> Stored:
    """Draws to keep; of large jobs replicas share noise in turn, so that memory stays bounded.

    Notes: micro-batches hold the mean of their work; with it drawn, the few steps that are kept say less about assignments.
    """
    per_replica = problem.tables.noise.n_level * problem.program.n_lane * draws.n_sample
    n_block = max(1, min(problem.slots.n_replica, MAX_STORED // per_replica))
    shared = shared_noise(problem.program, draws)
    index = jnp.arange(n_block, dtype=jnp.int32)
    noise = replace(problem.tables.noise, work=None)
    return Stored(_blocks(noise, draws.key, index, shared.regime), shared)


@eqx.filter_jit
def _blocks(
    model: NoiseModel, key: Key[Array, ""], index: Int32[Array, " block"], regime: Float[Array, "axis sample"]
) -> ReplicaNoise:
    made = lax.map(lambda replica: replica_noise(model, key, replica, regime), index)
    return jax.tree.map(lambda x: x[:, 0], made)


def column(
    tables: Tables, kept: Stored, assignment: Int32[Array, " seat"], replica: Int32[Array, ""]
) -> Float[Array, " sample"]:
    """Times of one replica on kept noise, seconds."""
    group = group_factors(tables.step, tables.nodes, tables.slots, assignment, replica)
    return replica_time(tables.step, group, kept.replicas, tables.variant[replica], replica % kept.n_block)


def columns(
    tables: Tables, kept: Stored, assignment: Int32[Array, " seat"], replicas: Int32[Array, " replica"] | None = None
) -> Float[Array, "replica sample"]:
    """Times of some replicas, of all by default, seconds; with few samples several replicas at once fill the vector units."""
    if replicas is None:
        replicas = jnp.arange(tables.slots.slot.shape[1], dtype=jnp.int32)
    at_once = min(replicas.shape[0], VECTOR_COLUMNS // kept.shared.regime.shape[-1])
    one = partial(column, tables, kept, assignment)
    return lax.map(one, replicas, batch_size=at_once if at_once > 1 else None)


def finished(columns_s: Float[Array, "replica sample"], shared: SharedNoise) -> Float[Array, " step"]:
    """Steps from the times of their replicas, seconds [sample * factor]."""
    return ((columns_s.max(axis=0)[:, None] + shared.add_s) * shared.times).ravel()


def step_times(tables: Tables, kept: Stored, assignments: Assignments) -> Floats:
    """Steps of every assignment [assignment, seat] on kept noise, seconds [assignment, step]."""
    n = len(assignments)
    size = 1 if n == 1 else ONE_CALL
    blocks = [padded(assignments[first : first + size], size) for first in range(0, n, size)]
    return np.concatenate([np.asarray(_step_times(tables, kept, block), np.float64) for block in blocks])[:n]


@eqx.filter_jit
def _step_times(
    tables: Tables, kept: Stored, assignments: Int32[Array, "assignment seat"]
) -> Float[Array, "assignment step"]:
    return lax.map(lambda a: finished(columns(tables, kept, a), kept.shared), assignments)


def padded(assignments: Assignments, multiple: int) -> Int32[Array, "assignment seat"]:
    """Moves assignments to the device, the last repeated up to a multiple, so that few shapes are compiled."""
    more = -len(assignments) % multiple
    return jnp.asarray(np.concatenate([assignments, np.repeat(assignments[-1:], more, axis=0)]), jnp.int32)


def score(problem: PlacementProblem, assignments: Assignments, draws: Draws, chunk: int = MAX_CHUNK) -> Floats:
    """Steps of every assignment, seconds [assignment, step]; noise is made as it is used.

    Steps come in the order of the draws, the same for every assignment: differences are paired. Every `chunk` of samples is a
    Latin hypercube of its own.
    """
    parts = []
    n_chunk = -(-draws.n_sample // chunk)
    size = -(-draws.n_sample // n_chunk)
    for index in range(n_chunk):
        own = Draws(jax.random.fold_in(draws.key, index), size + size % 2)
        shared = shared_noise(problem.program, own)
        seats = padded(assignments, 1 if len(assignments) == 1 else SCORED_TOGETHER)
        core_s = _core(problem.tables, own.key, shared.regime, seats)[: len(assignments)]
        finish = (np.asarray(core_s, np.float64)[:, :, None] + np.asarray(shared.add_s)) * np.asarray(shared.times)
        parts.append(finish.reshape(len(assignments), -1))
    return np.concatenate(parts, axis=1)


@eqx.filter_jit
def _core(
    tables: Tables, key: Key[Array, ""], regime: Float[Array, "axis sample"], assignments: Int32[Array, "a seat"]
) -> Float[Array, "a sample"]:
    """Slowest replica of every sample, replica by replica."""

    def add(slowest: Array, replica: Array) -> tuple[Array, None]:
        noise = replica_noise(tables.noise, key, replica, regime)

        def one(a: Array) -> Array:
            group = group_factors(tables.step, tables.nodes, tables.slots, a, replica)
            return replica_time(tables.step, group, noise, tables.variant[replica])

        return jnp.maximum(slowest, lax.map(one, assignments)), None

    n_replica = tables.slots.slot.shape[1]
    start = jnp.zeros((assignments.shape[0], regime.shape[-1]), regime.dtype)
    return lax.scan(add, start, jnp.arange(n_replica, dtype=jnp.int32))[0]
