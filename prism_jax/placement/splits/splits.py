"""Splits: layers per model chunk and micro-batches per replica, uneven where nodes are.

A split problem is a problem like any other. Replicas with m micro-batches run the schedule of m micro-batches; another layer
split changes seconds only, so that a split costs one pass of the cost model on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from ...cost.step import step_cost
from ...errors import PlanError
from ...graph.build import build_graph
from ...job import Job
from ...partition.chunks import Splits, layers_of_chunks
from ...rules.check import problems
from ...schedule import make_schedule
from ...workload.base import n_body
from ..evaluator import Problem, Tables, assemble
from ..tables import KindSeconds, kind_seconds, step_program, with_seconds

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

    problem: Problem
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


def exact_problem(problem: Problem, splits: Splits) -> Problem:
    """A problem with other splits, lowered anew: replicas as they are, each with the schedule of its own micro-batches."""
    job = problem.job
    if splits.layers != even_splits(job, 1).layers:
        job = with_layers(job, splits.layers)
    used = tuple(dict.fromkeys((job.plan.n_micro_batch, *splits.micro_batches)))
    programs = [step_program(with_micro_batches(job, m)) for m in used]
    programs += [programs[0]] * (-len(programs) % ROUND_VARIANTS)  # one shape for most splits
    variant = np.array([used.index(m) for m in splits.micro_batches], dtype=np.int32)
    return assemble(job, problem.fleet, problem.slots, programs, variant)


def split_space(problem: Problem) -> SplitSpace:
    """Everything that may be split in a problem."""
    job, n_replica = problem.job, problem.slots.n_replica
    even = even_splits(job, n_replica)
    counts = possible_micro_batches(job, n_replica)
    programs = [step_program(with_micro_batches(job, m)) for m in counts]
    whole = assemble(job, problem.fleet, problem.slots, programs, np.zeros(n_replica, dtype=np.int32))
    return SplitSpace(whole, counts, even, movable=len(even.layers) > 1)
