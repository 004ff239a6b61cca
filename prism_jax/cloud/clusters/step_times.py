"""The best parallel plan of a job on so many instances of a shape, noise-free, all numbers of instances in one evaluation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from ...errors import PlanError, PrismError
from ...job import Job
from ...plan.plan import ParallelPlan
from ...search.evaluate import Evaluator, ScreeningResult
from ...search.plans.plan_cache import Rows
from ...search.plans.rules import FEASIBLE
from ...search.plans.space import PlanSpace, default_space
from ...study.fleets.fleet import job_on
from ...system.hardware import Device
from .instance_cluster import UNKNOWN_NETWORK, Shape, UnusableError, cluster_of, joins_stages

MICRO_BATCHES = (1, 2, 4, 8, 16)
NO_DTYPE = "its GPU has neither {dtype} nor fp32"
NO_PLAN = "no plan fits: memory, or the batch cannot be shared"
OTHER_KIND = "the software of the job does not run on its kind of accelerator"
HALVES = {"bf16": "fp16", "fp16": "bf16"}


@dataclass(frozen=True)
class BestPlan:
    """Of one shape and number of instances.

    Attributes:
        job: on that cluster, with the plan.
        step_s: noise-free seconds of a step.
    """

    job: Job
    step_s: float

    @property
    def plan(self) -> ParallelPlan:
        """The plan."""
        return self.job.plan


class PlanTimes:
    """Best plans of one job by shape; each is asked once, a single instance whatever its network.

    Example:
        >>> PlanTimes(job).of(shape, (1, 2, 4))[4].step_s  # doctest: +SKIP
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._alone: dict[Shape, dict[int, BestPlan] | UnusableError] = {}
        self._several: dict[tuple[Shape, tuple[int, ...]], dict[int, BestPlan]] = {}

    def of(self, shape: Shape, counts: Sequence[int]) -> dict[int, BestPlan]:
        """Number of instances -> the fastest plan there; as `best_plans`.

        Raises:
            UnusableError: no number will do; says why.
        """
        if is_tpu(shape.device) != is_tpu(self._job.cluster.device.name):
            raise UnusableError(OTHER_KIND)
        found: dict[int, BestPlan] = {}
        why = NO_PLAN
        several = [n for n in counts if n > 1]
        try:
            if 1 in counts:
                found |= self._one(shape._replace(network_bytes_per_s=None))
        except UnusableError as error:
            why = error.reason
        if several and shape.network_bytes_per_s is not None:
            found |= self._more(shape, tuple(several))
        if not found:
            raise UnusableError(UNKNOWN_NETWORK if 1 not in counts and shape.network_bytes_per_s is None else why)
        return found

    def _more(self, shape: Shape, counts: tuple[int, ...]) -> dict[int, BestPlan]:
        if (shape, counts) not in self._several:
            self._several[shape, counts] = _of_counts(self._job, shape, counts)
        return self._several[shape, counts]

    def _one(self, shape: Shape) -> dict[int, BestPlan]:
        if shape not in self._alone:
            try:
                self._alone[shape] = best_plans(self._job, shape, (1,))
            except UnusableError as error:
                self._alone[shape] = error
        kept = self._alone[shape]
        if isinstance(kept, UnusableError):
            raise UnusableError(kept.reason)
        return kept


def is_tpu(device: str) -> bool:
    """Whether a device is a TPU, which frameworks for GPUs do not run on, and the other way round."""
    return device.startswith("tpu")


def best_plans(job: Job, shape: Shape, counts: Sequence[int]) -> dict[int, BestPlan]:
    """Number of instances -> the fastest plan there; numbers on which no plan fits are left out.

    Notes: the batch stays. Tensor parallelism stays inside an instance, and pipelines do unless the network is fast.

    Raises:
        UnusableError: no number will do; says why.
    """
    found = _of_counts(job, shape, counts)
    if not found:
        raise UnusableError(NO_PLAN)
    return found


def _of_counts(job: Job, shape: Shape, counts: Sequence[int]) -> dict[int, BestPlan]:
    moved = _moved(job, shape, max(counts))
    evaluator = Evaluator(moved, _space(moved, shape, counts), moved.software.memory_margin)
    try:
        screen = evaluator.bounds()
    except PlanError:
        return {}
    found = {}
    for count in counts:
        rows = np.flatnonzero((screen.n_devices == count * shape.gpus) & (screen.reason == FEASIBLE))
        if rows.size:
            number = _fastest(evaluator, screen, rows)
            own = replace(_moved(job, shape, count), plan=evaluator.plan(number))
            found[count] = BestPlan(own, float(screen.step_s[number]))
    return found


def _fastest(evaluator: Evaluator, screen: ScreeningResult, rows: Rows) -> int:
    """Bounds first: only plans that can still win are run."""
    order = rows[np.argsort(screen.bound_s[rows], kind="stable")]
    evaluator.simulate_plans(screen, np.sort(order[:8]))
    best_s = np.nanmin(screen.step_s[order[:8]])
    rest = order[8:][screen.bound_s[order[8:]] < best_s]
    if rest.size:
        evaluator.simulate_plans(screen, np.sort(rest))
    return int(rows[np.nanargmin(screen.step_s[rows])])


def _moved(job: Job, shape: Shape, count: int) -> Job:
    """The job there, with its own batch, in 16 bits of the kind that the device has, else in fp32."""
    cluster = cluster_of(shape, count)
    plan = replace(job.plan, dtype=_dtype(job.plan.dtype, cluster.device))
    moved = job_on(job, cluster)
    return replace(moved, plan=replace(plan, global_batch=job.plan.global_batch))


def _dtype(wanted: str, device: Device) -> str:
    for dtype in (wanted, HALVES.get(wanted, wanted), "fp32"):
        try:
            device.peak(dtype)
        except PrismError:
            continue
        return dtype
    raise UnusableError(NO_DTYPE.format(dtype=wanted))


def _space(job: Job, shape: Shape, counts: Sequence[int]) -> PlanSpace:
    """Part of the default space: what decides whether a model fits and how its replicas share it."""
    own, space = job.plan, default_space(job)
    inside = [tp for tp in (1, 2, 4, 8, 16) if shape.gpus % tp == 0]
    stages = {1, own.pp} if joins_stages(shape) else {1}
    virtual = {own.virtual_stages, 1}
    micro = sorted({m for m in (*MICRO_BATCHES, own.micro_batch) if job.plan.global_batch % m == 0})
    return replace(
        space,
        n_devices=tuple(sorted(n * shape.gpus for n in counts)),
        tp=tuple(tp for tp in inside if tp in space.tp or tp == 1),
        pp=tuple(sorted(stages)),
        cp=(own.cp,),
        ep=tuple(sorted({1, own.ep})),
        micro_batch=tuple(micro),
        virtual_stages=tuple(sorted(virtual)),
        schedule=(own.schedule,),
    )
