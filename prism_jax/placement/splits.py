"""Splits layers over model chunks and micro-batches over replicas, uneven where nodes are.

A split problem is a problem like any other. Replicas with m micro-batches run the schedule of m micro-batches; another layer
split changes seconds only, so that a split costs one pass of the cost model on the host.

Micro-batches per replica, their sum fixed, are relaxed on exact times, rounded and polished. Replicas meet at the end of the step
only, so the times of each with every possible number of micro-batches tell all there is to know: moves are looked up, not
simulated.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int32
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import PlanError
from ..cost.partition import Splits, layers_of_chunks
from ..cost.step import step_cost
from ..graph.build import build_graph
from ..job.job import Job
from ..job.rules import problems
from ..result.objective import PlanObjective
from ..schedule.registry import make_schedule
from ..workload.base.workload import n_body
from .evaluator import Assignments, PlacementProblem, Stored, Tables, assemble, finished
from .optimisers import descend
from .tables import KindSeconds, group_factors, kind_seconds, replica_time, step_program, with_seconds

ROUND_VARIANTS = 8
REACH, MOST_REACH = 0.15, 8  # micro-batches more or less than even, as a share and in number


def even_splits(job: Job, n_replica: int) -> Splits:
    """The job's own."""
    layers = tuple(len(chunk) for chunk in layers_of_chunks(n_body(job.model), job.plan))
    return Splits(layers, (job.plan.n_micro_batch,) * n_replica)


def with_layers(job: Job, layers: tuple[int, ...]) -> Job:
    """The job with another layer split."""
    return replace(job, plan=replace(job.plan, layer_split=layers))


def with_micro_batches(job: Job, n: int) -> Job:
    """The job as replicas with `n` micro-batches see it."""
    return replace(job, plan=replace(job.plan, global_batch=n * job.plan.dp * job.plan.micro_batch))


def possible_micro_batches(job: Job, n_replica: int) -> tuple[int, ...]:
    """Micro-batches a replica may have, the even number first; only that one if there is a single replica."""
    even = job.plan.n_micro_batch
    reach = 0 if n_replica == 1 else min(MOST_REACH, max(1, round(REACH * even)))
    near = [m for m in range(max(1, even - reach), even + reach + 1) if m != even]
    return (even, *(m for m in near if _possible(with_micro_batches(job, m))))


def _possible(job: Job) -> bool:
    return not any(problems(job.plan, job.model, job.cluster)) and _fits(job)


def layers_fit(job: Job, layers: tuple[int, ...], most_micro_batches: int) -> bool:
    """Whether a layer split is possible and its memory fits, or needs no more than the job's own."""
    return _fits(with_micro_batches(with_layers(job, layers), most_micro_batches), job)


def _fits(job: Job, own: Job | None = None) -> bool:
    try:
        needed = job.memory
    except PlanError:
        return False
    if needed.fits:
        return True
    usual = job.memory if own is None else own.memory
    return needed.total_bytes <= usual.total_bytes * (1.0 + 1e-9)


@dataclass(frozen=True, eq=False)
class SplitSpace:
    """A job with every number of micro-batches a replica may have.

    Attributes:
        problem: with the job's own splits; variant v of its step has `micro_batches[v]` micro-batches.
        micro_batches: per variant, the even number first.
        even: the job's own splits.
        movable: whether layers can move at all.
    """

    problem: PlacementProblem
    micro_batches: tuple[int, ...]
    even: Splits
    movable: bool

    def variants(self, splits: Splits) -> NDArray[np.int32]:
        """[replica] variant of every replica's step."""
        return np.array([self.micro_batches.index(m) for m in splits.micro_batches], dtype=np.int32)

    def tables(self, splits: Splits) -> Tables:
        """Tables of a split; mixes of kernel classes stay those of the even one."""
        step = self.problem.tables.step
        if splits.layers != self.even.layers:
            step = with_seconds(step, self.seconds(with_layers(self.problem.job, splits.layers)))
        new = eqx.tree_at(lambda t: t.step, self.problem.tables, step)
        return eqx.tree_at(lambda t: t.variant, new, jnp.asarray(self.variants(splits)))

    def seconds(self, job: Job) -> KindSeconds:
        """Seconds of every kind for a job that differs in its layers."""
        plan = job.plan
        schedule = make_schedule(plan.schedule, plan.pp, plan.n_micro_batch, plan.virtual_stages)
        graph = build_graph(schedule, step_cost(job.model, job.cluster, plan, job.efficiency))
        return kind_seconds(self.problem.kinds, [graph] * len(self.micro_batches))


def exact_problem(problem: PlacementProblem, splits: Splits) -> PlacementProblem:
    """A problem with other splits, lowered anew: replicas as they are, each with the schedule of its own micro-batches."""
    job = problem.job
    if splits.layers != even_splits(job, 1).layers:
        job = with_layers(job, splits.layers)
    used = tuple(dict.fromkeys((job.plan.n_micro_batch, *splits.micro_batches)))
    programs = [step_program(with_micro_batches(job, m)) for m in used]
    programs += [programs[0]] * (-len(programs) % ROUND_VARIANTS)  # one shape for most splits
    variant = np.array([used.index(m) for m in splits.micro_batches], dtype=np.int32)
    return assemble(job, problem.fleet, problem.slots, programs, variant)


def split_space(problem: PlacementProblem) -> SplitSpace:
    """Space of all splits of a problem."""
    job, n_replica = problem.job, problem.slots.n_replica
    even = even_splits(job, n_replica)
    counts = possible_micro_batches(job, n_replica)
    programs = [step_program(with_micro_batches(job, m)) for m in counts]
    whole = assemble(job, problem.fleet, problem.slots, programs, np.zeros(n_replica, dtype=np.int32))
    return SplitSpace(whole, counts, even, movable=len(even.layers) > 1)


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
