"""Costs measured rows once, for predictions and intervals: where the noise-free step goes, in four parts. Seconds.

The parts, which add up, are compute, communication that shows, host and bubble. Work is averaged over the stages of the
pipeline. `host`: compute that waits for the host to start it, and time in which nothing runs. `bubble`: the rest; stages that
wait for each other, and what lies on the way between them.

Intervals hold 90% of what would be measured, given all that the calibration of the cost model leaves open. Typical steps are
made for jobs that share a pipeline side by side. `predict` draws every call of every op; here what varies from call to call
enters by its mean (`simulate.predict.replica_columns`), which moves a median by less than 0.1% on most jobs, and thousands of
jobs take a minute.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple
from zlib import crc32

import numpy as np

from ..calibration.band import evidence_of_rows, repeated_factors
from ..calibration.calibration import Calibration
from ..calibration.key import CalibrationKey
from ..calibration.open_fields import OpenField, doubtful
from ..calibration.surrogate import StepSurrogate, outline_of, stack
from ..core.arrays import Floats
from ..core.content import content_hash
from ..core.processes import Progress, silent
from ..cost.efficiency import CostCorrection
from ..cost.step import StepCost, step_cost_of
from ..graph.build import signature_seconds
from ..job.job import Job
from ..plan.plan import ParallelPlan
from ..search.pipeline import Pipeline, PlanRun, end_times, pipeline, with_tables
from ..search.plan_table import PipelineLayout
from ..search.replica_columns import (
    PlanSeconds,
    ReplicaSizes,
    collectives_of,
    replica_draws,
    replica_times,
    shared_by_replicas,
)
from ..simulate.replica_maximum import step_samples
from ..variability.config import default_for, preset
from ..variability.tree import Variability
from .score import MeasuredRow

PARTS = ("compute", "communication", "host", "bubble")


def without_host(correction: CostCorrection) -> CostCorrection:
    """`correction` as if the host cost nothing."""
    return replace(correction, host=0.0, micro_batch_s=0.0, step_s=0.0, network_step_s=0.0)


def parts_of(plan: ParallelPlan, cost: StepCost, prompt_cost: StepCost, step_s: float) -> dict[str, float]:
    """Seconds of each of `PARTS`.

    Args:
        cost: of the step of `plan`.
        prompt_cost: the same if the host cost nothing.
        step_s: its noise-free step.
    """
    compute_s = _compute_s(plan, prompt_cost)
    host_s = _compute_s(plan, cost) - compute_s
    shown = cost.comm_s.sum() + (2.0 * cost.p2p_s.sum() if cost.p2p_blocking else 0.0)
    comm_s = _per_stage(plan, float(shown)) + float(cost.end_comm_s.mean())
    rest_s = max(0.0, step_s - compute_s - host_s - comm_s)
    return dict(zip(PARTS, (compute_s, comm_s, host_s, rest_s), strict=True))


def ends_of(cost: StepCost) -> tuple[float, float]:
    """Seconds after the last backward pass, mean over stages: of exchanges that nothing hides, and of the optimizer."""
    return float(cost.end_comm_s.mean()), float(cost.end_compute_s.mean())


def _compute_s(plan: ParallelPlan, cost: StepCost) -> float:
    return _per_stage(plan, float(cost.compute_s.sum())) + float(cost.end_compute_s.mean())


def _per_stage(plan: ParallelPlan, chunks_s: float) -> float:
    """Average over stages of what all chunks take, once per micro-batch."""
    return plan.n_micro_batch * chunks_s / plan.pp


# Of the logarithm of a step, per rule that has filled blanks: a usual batch, degrees that fit, a shape.
ASSUMED_SD = 0.1


@dataclass(frozen=True)
class CostedJob:
    """A job whose plan can run.

    Attributes:
        cost: of its step.
        prompt_cost: of its step if the host cost nothing.
        outline: of its step, without a correction.
        doubts: fields that a row left blank and that were filled by a rule.
    """

    job: Job
    cost: StepCost
    prompt_cost: StepCost
    outline: StepSurrogate
    doubts: tuple[OpenField, ...] = ()

    @property
    def setting(self) -> CalibrationKey:
        """Key on which its calibration depends."""
        job = self.job
        return CalibrationKey.of(job.cluster.device, job.framework, job.plan.software, job.model)


def job_of_row(row: MeasuredRow, calibration: Calibration | None = None, *, deterministic: bool = False) -> Job:
    """The job of a supported row; `deterministic`: without variability."""
    model, cluster, plan = row.job
    tree = Variability() if deterministic else preset(default_for(cluster.device))
    return Job(model, cluster, plan, tree, row.id, row.framework, calibration, open_plan=row.open_plan)


def costed(job: Job, assumed: Sequence[object] = ()) -> CostedJob:
    """Costs of `job`; `assumed` is what its row was taken for where it says nothing.

    Raises:
        PlanError: the plan is impossible for the model or the cluster.
        SpecError: no constants for the device, or it lacks the plan's dtype.
    """
    job.check()
    blocks = job.blocks()
    prompt = blocks.under(without_host(blocks.eff.correction))
    # Four sizes may be one guess.
    by_rule = {text.partition(" assumed: ")[2] or text: text for text in map(str, assumed)}
    doubts = tuple(doubtful(one, ASSUMED_SD) for one in by_rule.values())
    return CostedJob(job, step_cost_of(blocks), step_cost_of(prompt), outline_of(blocks), doubts)


N_REPEAT = 8  # draws of a calibration, with other deviations: bounds err by 3% of the width of the interval
OUTSIDE = (0.05, 0.95)  # probabilities of the bounds
ROWS_AT_ONCE = 32
LINE = re.compile(r" line [0-9]{1,12}\Z")


def evidence_of(jobs: Sequence[CostedJob]) -> list[tuple[dict[str, float] | None, float]]:
    """[job] what makes it less sure than others, and the factor by which what its calibration leaves open is wider."""
    found: list[tuple[dict[str, float] | None, float]] = [(None, 1.0)] * len(jobs)
    for some in _alike(jobs):
        first, rows = jobs[some[0]], stack([jobs[i].outline for i in some])
        has_experts = [jobs[i].job.model.has_experts for i in some]
        own = evidence_of_rows(rows, first.setting, has_experts, first.job.effective_calibration)
        for number, one in zip(some, own, strict=True):
            found[number] = one
    return found


def intervals(jobs: Sequence[CostedJob], seed: int = 0, progress: Progress = silent) -> Floats:
    """[job, 2] bounds over the prediction; jobs have deviations of their own by what they are, whatever their place."""
    found, done = np.zeros((len(jobs), 2)), 0
    for some in _alike(jobs):
        found[some] = _bounds([jobs[i] for i in some], seed)
        done += len(some)
        progress(done / len(jobs))
    return found


def _alike(jobs: Sequence[CostedJob]) -> Iterator[list[int]]:
    """Numbers of jobs of one setting and one calibration, not too many at a time."""
    groups: dict[object, list[int]] = defaultdict(list)
    for number, one in enumerate(jobs):
        groups[id(one.job.effective_calibration), one.setting].append(number)
    for members in groups.values():
        yield from (members[first : first + ROWS_AT_ONCE] for first in range(0, len(members), ROWS_AT_ONCE))


def _bounds(jobs: Sequence[CostedJob], seed: int) -> Floats:
    """[job, 2] of jobs with one setting and one calibration."""
    factors = repeated_factors(
        stack([one.outline for one in jobs]),
        jobs[0].setting,
        [one.job.model.has_experts for one in jobs],
        jobs[0].job.effective_calibration,
        [crc32(_own_name(one.job).encode()) + N_REPEAT * seed for one in jobs],
        N_REPEAT,
        seed,
        [one.job.open_fields + one.doubts for one in jobs],
    )
    return np.quantile(factors, OUTSIDE, axis=0).T


def _own_name(job: Job) -> str:
    """The name of a job; of one that is called after its line in a table, what it consists of instead."""
    name, n_line = LINE.subn("", job.name)
    return f"{name} {content_hash(job.model, job.cluster, job.plan)}" if n_line else name


N_COLUMN = 256
N_STEP_SAMPLES = 1024
JOBS_PER_RUN = 16  # jobs times columns built at a time


class TypicalSteps(NamedTuple):
    """[job] seconds of the step without variability, and of the median step."""

    noise_free_s: Floats
    typical_s: Floats


def step_times(
    jobs: Sequence[CostedJob], seed: int = 0, progress: Progress = silent, *, deterministic: bool = False
) -> TypicalSteps:
    """Steps of all jobs.

    Args:
        seed: same seed, same answer, whatever the other jobs are.
        progress: called with the share that is done.
        deterministic: the jobs have no variability, and the typical step is the one without.
    """
    members: dict[_Sizes, list[int]] = defaultdict(list)
    trees = {id(one.job.variability): one.job.variability for one in jobs}
    content = {number: content_hash(tree) for number, tree in trees.items()}
    for number, one in enumerate(jobs):
        members[_sizes(one.job, content[id(one.job.variability)])].append(number)
    groups = [_Group(sizes, own, [jobs[i] for i in own]) for sizes, own in members.items()]
    found = TypicalSteps(np.zeros(len(jobs)), np.zeros(len(jobs)))
    for group, own in zip(groups, _noise_free(groups), strict=True):
        found.noise_free_s[group.members] = own
    if deterministic:
        return found._replace(typical_s=found.noise_free_s)
    done = 0

    def run_group(group: _Group) -> None:
        nonlocal done
        found.typical_s[group.members] = _typical(group, seed)
        done += len(group.members)
        progress(done / len(jobs))

    with_tables(group.pipe for group in groups)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(run_group, groups))
    return found


class _Sizes(NamedTuple):
    """Sizes shared by jobs that see the same draws in the same pipeline."""

    layout: PipelineLayout
    n_micro_batch: int
    replicas: ReplicaSizes
    tree: str  # its content


def _sizes(job: Job, tree: str) -> _Sizes:
    plan = job.plan
    return _Sizes(
        PipelineLayout(plan.pp, plan.schedule, plan.virtual_stages),
        plan.n_micro_batch,
        ReplicaSizes(
            job.model.kernel_classes,
            collectives_of(plan),
            plan.pp,
            plan.n_member,
            plan.n_replica,
            job.cluster.node_size,
        ),
        tree,
    )


class _Group:
    """Jobs of the same sizes, and which of all jobs they are."""

    def __init__(self, sizes: _Sizes, members: list[int], jobs: Sequence[CostedJob]) -> None:
        self.sizes, self.members, self.jobs = sizes, members, jobs
        self.pipe = pipeline(sizes.layout, sizes.n_micro_batch)
        self.plans = _plan_seconds(self.pipe, [one.cost for one in jobs])


def _typical(group: _Group, seed: int) -> Floats:
    """[job] median steps."""
    pipe, plans, tree = group.pipe, group.plans, group.jobs[0].job.variability
    shared = shared_by_replicas(pipe, plans, tree, [one.job.plan for one in group.jobs])
    draws = replica_draws(tree, group.sizes.replicas, N_COLUMN, seed)
    typical = []
    for first in range(0, len(group.jobs), JOBS_PER_RUN):
        some = slice(first, first + JOBS_PER_RUN)
        (times,) = replica_times([(pipe, PlanSeconds(*(part[some] for part in plans)), draws, None)])
        for own, alike in zip(times, shared[some], strict=True):
            rng, n_replica = np.random.default_rng(seed), group.sizes.replicas.n_replica
            typical.append(np.median(step_samples(own, draws.weight, n_replica, alike, N_STEP_SAMPLES, rng)))
    return np.array(typical)


def _plan_seconds(pipe: Pipeline, costs: Sequence[StepCost]) -> PlanSeconds:
    compute, comm, hidden, edge, end_compute, end_exposed = (
        np.stack([getattr(cost, name) for cost in costs])
        for name in ("compute_s", "comm_s", "hidden_comm_s", "p2p_s", "end_compute_s", "end_comm_s")
    )
    blocking = np.array([float(cost.p2p_blocking) for cost in costs])
    return PlanSeconds(*signature_seconds(pipe.ops, compute, comm, hidden), edge, blocking, end_compute, end_exposed)


def _noise_free(groups: Sequence[_Group]) -> list[Floats]:
    """[job] seconds with every factor one, group by group."""
    runs = []
    for group in groups:
        seconds = group.plans.compute_s.sum(axis=-1) + group.plans.comm_s.sum(axis=-1)
        runs.append(PlanRun.of(group.pipe, seconds, group.plans.edge_s, group.plans.blocking))
    ends = zip(end_times(runs), groups, strict=True)
    return [(own + one.plans.end_compute_s + one.plans.end_exposed_s).max(axis=-1) for own, one in ends]
