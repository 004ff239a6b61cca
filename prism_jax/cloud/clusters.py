"""Makes clusters of instances (the fabric inside, the network between), their best parallel plans, and mixes of two kinds.

Plans are noise-free, for all numbers of instances of a shape in one evaluation. Kinds of instances meet in the gradient exchange
alone: each runs replicas of its own, the batch is split by rate.

    b_i ~ rate_i, whole micro-batches on every replica;  T = max_i T_i(b_i) + 2 (k - 1)/k G / min_i (n_i B_i) + 2 (k - 1) l

T_i(b_i) is the best plan of kind i on its part of the batch, its own gradient exchange included. Then the G bytes of gradients go
around the k kinds, sharded over the instances of each. What a step costs lies between what it costs on the kinds alone,
(p1 + p2)/(r1 + r2) >= min(p1/r1, p2/r2): a mix is never the cheapest where the better kind is to be had in any number; it pays
where numbers are limited.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from ..core.errors import PlanError, PrismError, SpecError
from ..job.fleet import job_on
from ..job.job import Job
from ..plan.plan import ParallelPlan
from ..search.evaluate import Evaluator, ScreeningResult
from ..search.plan_costs import FEASIBLE
from ..search.plan_table import Rows
from ..search.space import PlanSpace, default_space
from ..system import catalog
from ..system.hardware import Cluster, Device
from ..system.network import Tier
from .offers import Offer

FAST_BYTES_PER_S = 100e9 / 8.0  # from here on networks of vendors bypass the kernel: EFA, GPUDirect-TCPX, InfiniBand
FAST_LATENCY_S = 20e-6  # EFA: aws-ofi-nccl tuner, NET_LATENCY
SLOW_LATENCY_S = 50e-6  # TCP between machines of a zone: half of a round trip of about 100 us
UNKNOWN_DEVICE = "no preset device has its GPU"
UNKNOWN_DESIGN = "no design of a machine with its GPU is known"
UNKNOWN_NETWORK = "its network is not stated, so that no two of them can be joined"


class InstanceShape(NamedTuple):
    """Properties of an instance that the time of a step depends on: offers of one shape differ only in place and price."""

    device: str
    gpus: int
    network_bytes_per_s: float | None


@dataclass(frozen=True)
class UnusableError(Exception):
    """Why offers of a shape cannot run a job; a reason to be counted, not an error."""

    reason: str


def shape_of(offer: Offer) -> InstanceShape:
    """The shape of an offer."""
    return InstanceShape(offer.device, offer.gpus, offer.network_bytes_per_s)


def cluster_of(shape: InstanceShape, n_instances: int) -> Cluster:
    """Makes the cluster of `n_instances` of a shape.

    Notes: the fabric inside is that of the device's reference design, cut to the GPUs of the instance.

    Raises:
        UnusableError: the device, its machine or its network is not known.
    """
    if not shape.device:
        raise UnusableError(UNKNOWN_DEVICE)
    n_devices = n_instances * shape.gpus
    try:
        design = catalog.default_cluster(shape.device, n_devices)
    except SpecError:
        raise UnusableError(UNKNOWN_DESIGN) from None
    if design.network is not None:
        raise UnusableError(UNKNOWN_DESIGN)
    if n_instances > 1 and shape.network_bytes_per_s is None:
        raise UnusableError(UNKNOWN_NETWORK)
    tiers = (*_inside(design, shape.gpus), *_between(shape, n_devices if n_instances > 1 else 0))
    tiers = tiers or (replace(design.tiers[0], n_devices=1),)
    name = f"{n_instances} x {shape.gpus} x {shape.device}"
    return Cluster(
        name, design.device, tiers, n_devices, shape.gpus, "catalogue of instances; fabric: " + design.source
    )


def joins_stages(shape: InstanceShape) -> bool:
    """Whether pipeline stages may lie on different instances: the network bypasses the kernel."""
    return (shape.network_bytes_per_s or 0.0) >= FAST_BYTES_PER_S


def _inside(design: Cluster, gpus: int) -> tuple[Tier, ...]:
    """GPUs of one instance; a machine larger than the design has its innermost tier all the same."""
    return (replace(design.tiers[0], n_devices=gpus),) if gpus > 1 else ()


def _between(shape: InstanceShape, n_devices: int) -> tuple[Tier, ...]:
    if not n_devices or shape.network_bytes_per_s is None:
        return ()
    latency_s = FAST_LATENCY_S if joins_stages(shape) else SLOW_LATENCY_S
    each = shape.network_bytes_per_s / shape.gpus
    return (Tier("network", n_devices, each, latency_s, source="catalogue: nominal rate of an instance"),)


MICRO_BATCHES = (1, 2, 4, 8, 16)
NO_DTYPE = "its GPU has neither {dtype} nor fp32"
NO_PLAN = "no plan fits: memory, or the batch cannot be shared"
OTHER_KIND = "the software of the job does not run on its kind of accelerator"
HALVES = {"bf16": "fp16", "fp16": "bf16"}


@dataclass(frozen=True)
class BestPlan:
    """Best plan on one shape and number of instances.

    Attributes:
        job: on that cluster, with the plan.
        step_s: noise-free seconds of a step.
    """

    job: Job
    step_s: float

    @property
    def plan(self) -> ParallelPlan:
        """The plan of the job."""
        return self.job.plan


class PlanTimes:
    """Best plans of one job by shape; each is searched once, for a single instance independently of its network.

    Example:
        >>> PlanTimes(job).of(shape, (1, 2, 4))[4].step_s  # doctest: +SKIP
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._alone: dict[InstanceShape, dict[int, BestPlan] | UnusableError] = {}
        self._several: dict[tuple[InstanceShape, tuple[int, ...]], dict[int, BestPlan]] = {}

    def of(self, shape: InstanceShape, counts: Sequence[int]) -> dict[int, BestPlan]:
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

    def _more(self, shape: InstanceShape, counts: tuple[int, ...]) -> dict[int, BestPlan]:
        if (shape, counts) not in self._several:
            self._several[shape, counts] = _of_counts(self._job, shape, counts)
        return self._several[shape, counts]

    def _one(self, shape: InstanceShape) -> dict[int, BestPlan]:
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


def best_plans(job: Job, shape: InstanceShape, counts: Sequence[int]) -> dict[int, BestPlan]:
    """Number of instances -> the fastest plan there; numbers on which no plan fits are left out.

    Notes: the batch stays. Tensor parallelism stays inside an instance, and pipelines do unless the network is fast.

    Raises:
        UnusableError: no number will do; says why.
    """
    found = _of_counts(job, shape, counts)
    if not found:
        raise UnusableError(NO_PLAN)
    return found


def _of_counts(job: Job, shape: InstanceShape, counts: Sequence[int]) -> dict[int, BestPlan]:
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


def _moved(job: Job, shape: InstanceShape, count: int) -> Job:
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


def _space(job: Job, shape: InstanceShape, counts: Sequence[int]) -> PlanSpace:
    """Part of the default space: fields that decide whether a model fits and how its replicas share it."""
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


GRADIENT_BYTES = 4.0  # fp32 between kinds: what all frameworks can do
MOST_TRIED = 64  # splits near the proportional one


@dataclass(frozen=True)
class InstancePart:
    """Instances of one kind, and samples of the global batch that they take."""

    offer: Offer
    count: int
    samples: int


@dataclass(frozen=True)
class Mix:
    """Parts with the seconds of a step of all, noise-free; `best` is that of the slowest part."""

    parts: tuple[InstancePart, ...]
    best: BestPlan
    step_s: float
    exchange_s: float


def mix(job: Job, rented: Sequence[tuple[Offer, int, BestPlan]]) -> Mix | None:
    """Several kinds together; None where the batch cannot be split among them, or a network is not stated.

    Args:
        rented: offer, number of instances, and the best plan of the whole batch there.
    """
    if any(offer.network_bytes_per_s is None for offer, _, _ in rented):
        return None
    samples = split(
        job.plan.global_batch,
        [job.plan.global_batch / best.step_s for _, _, best in rented],
        [best.plan.dp * best.plan.micro_batch for _, _, best in rented],
    )
    if samples is None:
        return None
    found = []
    for (offer, count, _), own in zip(rented, samples, strict=True):
        part = replace(job, plan=replace(job.plan, global_batch=own))
        plan = best_plans(part, shape_of(offer), (count,)).get(count)
        if plan is None:
            return None
        found.append(plan)
    exchange = exchange_s(
        job.model.n_params() * GRADIENT_BYTES, [(o.network_bytes_per_s or 0.0) * n for o, n, _ in rented]
    )
    slowest = max(found, key=lambda plan: plan.step_s)
    parts = tuple(InstancePart(o, n, own) for (o, n, _), own in zip(rented, samples, strict=True))
    return Mix(parts, slowest, slowest.step_s + exchange, exchange)


def exchange_s(n_bytes: float, links_bytes_per_s: Sequence[float]) -> float:
    """Seconds of a ring all-reduce of `n_bytes` between kinds, each with that much bandwidth in all."""
    k = len(links_bytes_per_s)
    return 2.0 * (k - 1) * (n_bytes / k / min(links_bytes_per_s) + SLOW_LATENCY_S) if k > 1 else 0.0


def split(batch: int, rates: Sequence[float], units: Sequence[int]) -> tuple[int, ...] | None:
    """Whole units that add up to the batch and finish together as nearly as can be; None if there is no such split.

    Args:
        rates: samples per second of every kind.
        units: samples of a micro-batch on every replica of a kind.

    Example:
        >>> split(128, (3.0, 1.0), (8, 4))
        (96, 32)
    """
    if len(rates) == 1:
        return (batch,) if batch % units[0] == 0 else None
    ideal = batch * rates[0] / sum(rates) / units[0]
    found: tuple[float, tuple[int, ...]] | None = None
    for k in sorted(range(1, batch // units[0] + 1), key=lambda k: abs(k - ideal))[:MOST_TRIED]:
        rest = split(batch - k * units[0], rates[1:], units[1:]) if k * units[0] < batch else None
        if rest is None:
            continue
        parts = (k * units[0], *rest)
        slowest_s = max(own / rate for own, rate in zip(parts, rates, strict=True))
        if found is None or slowest_s < found[0]:
            found = (slowest_s, parts)
    return None if found is None else found[1]
