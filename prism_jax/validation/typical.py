"""Noise-free and typical steps of many jobs, those that share a pipeline side by side; seconds.

`predict` draws every call of every op; here what varies from call to call enters by its mean (`search.replica_columns`), which
moves a median by less than 0.1 % on most jobs, and thousands of jobs take a minute.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import numpy as np

from .._core.content import content_hash
from .._typing import Floats
from ..cost.step_cost import StepCost
from ..graph.signatures import signature_seconds
from ..job import Job
from ..progress import Progress, silent
from ..search.pipeline import Pipeline, pipeline, run, sent_s
from ..search.plans.table import Layout
from ..search.replica_columns import (
    RUN_WIDTH,
    PlanSeconds,
    ReplicaSizes,
    collectives_of,
    replica_draws,
    replica_times,
    shared_by_replicas,
)
from ..simulate.replica_maximum import step_samples
from .costed import CostedJob

N_COLUMN = 256
N_STEP_SAMPLES = 1024
JOBS_PER_RUN = 16  # jobs times columns built at a time


class Steps(NamedTuple):
    """[job] seconds of the step without variability, and of the median step."""

    noise_free_s: Floats
    typical_s: Floats


def step_times(jobs: Sequence[CostedJob], seed: int = 0, progress: Progress = silent) -> Steps:
    """Steps of all jobs.

    Args:
        seed: same seed, same answer, whatever the other jobs are.
        progress: called with the share that is done.
    """
    found = Steps(np.zeros(len(jobs)), np.zeros(len(jobs)))
    groups: dict[_Sizes, list[int]] = defaultdict(list)
    for number, one in enumerate(jobs):
        groups[_sizes(one.job)].append(number)
    done = _Counter(len(jobs), progress)

    def run_group(item: tuple[_Sizes, list[int]]) -> None:
        sizes, members = item
        own = _steps(sizes, [jobs[i] for i in members], seed)
        for whole, part in zip(found, own, strict=True):
            whole[members] = part
        done(len(members))

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run_group, groups.items()))
    return found


class _Sizes(NamedTuple):
    """What jobs share that see the same draws in the same pipeline."""

    layout: Layout
    n_micro_batch: int
    replicas: ReplicaSizes
    tree: str  # its content


def _sizes(job: Job) -> _Sizes:
    plan = job.plan
    return _Sizes(
        Layout(plan.pp, plan.schedule, plan.virtual_stages),
        plan.n_micro_batch,
        ReplicaSizes(
            job.model.kernel_classes,
            collectives_of(plan),
            plan.pp,
            plan.n_member,
            plan.n_replica,
            job.cluster.node_size,
        ),
        content_hash(job.variability),
    )


def _steps(sizes: _Sizes, jobs: Sequence[CostedJob], seed: int) -> Steps:
    """Steps of jobs of the same sizes."""
    pipe, tree = pipeline(sizes.layout, sizes.n_micro_batch), jobs[0].job.variability
    plans = _plan_seconds(pipe, [one.cost for one in jobs])
    shared = shared_by_replicas(pipe, plans, tree, [one.job.plan for one in jobs])
    draws = replica_draws(tree, sizes.replicas, N_COLUMN, seed)
    typical = []
    for first in range(0, len(jobs), JOBS_PER_RUN):
        some = slice(first, first + JOBS_PER_RUN)
        times = replica_times(pipe, PlanSeconds(*(part[some] for part in plans)), draws)
        for own, alike in zip(times, shared[some], strict=True):
            rng = np.random.default_rng(seed)
            typical.append(
                np.median(step_samples(own, draws.weight, sizes.replicas.n_replica, alike, N_STEP_SAMPLES, rng))
            )
    return Steps(_noise_free(pipe, plans), np.array(typical))


def _plan_seconds(pipe: Pipeline, costs: Sequence[StepCost]) -> PlanSeconds:
    compute, comm, hidden, edge, end_compute, end_exposed = (
        np.stack([getattr(cost, name) for cost in costs])
        for name in ("compute_s", "comm_s", "hidden_comm_s", "p2p_s", "end_compute_s", "end_comm_s")
    )
    blocking = np.array([float(cost.p2p_blocking) for cost in costs])
    return PlanSeconds(*signature_seconds(pipe.ops, compute, comm, hidden), edge, blocking, end_compute, end_exposed)


def _noise_free(pipe: Pipeline, plans: PlanSeconds) -> Floats:
    """[plan] seconds with every factor one."""
    blocking = plans.blocking[:, None]
    seconds = plans.compute_s.sum(axis=-1) + plans.comm_s.sum(axis=-1) + sent_s(pipe, plans.edge_s) * blocking
    ends = run(pipe, seconds.T, (plans.edge_s * (1.0 - blocking)).T, width=RUN_WIDTH).T
    return (ends + plans.end_compute_s + plans.end_exposed_s).max(axis=-1)


class _Counter:
    """Tells how many of `n` jobs are done."""

    def __init__(self, n: int, progress: Progress) -> None:
        self.n, self.done, self.progress = n, 0, progress

    def __call__(self, more: int) -> None:
        self.done += more
        self.progress(self.done / self.n)
