"""Compares the sizes of a job: their figures, where more GPUs stop paying, and where communication shows.

Strong scaling keeps the batch, weak scaling the batch per replica.

marginal return of size n      d ln(tokens/s) / d ln n, from the size before
per-GPU change                 tokens/s/GPU over that of the smallest size, minus 1
stop size                      first size whose marginal return is below a threshold

The onset is the number of GPUs at which the communication of sharded parameters stops hiding behind compute. Weights of a layer
are gathered, and its gradients scattered, during the compute of a neighbour that takes W; they take

    T(n) = c + a n                  on a ring: a is the latency of a hop, c what the bytes take
    T(n) = c + a log2 n             on a tree (PAT)

Communication shows from n* = (rho W - c) / a on (a tree: 2 to that power), rho being the share of the compute during which it can
run; c and a are read off the network's own law at two sizes. `law` is n* under that law itself, which takes the faster of the
algorithms, and `of_step` the n at which a share of the whole step shows. Nothing is simulated.

Source: Fernandez et al., Hardware scaling trends and diminishing returns in large-scale distributed training (arXiv 2411.13055),
for what is asked; the closed form is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, log, log2, nan
from typing import Annotated, Literal

import numpy as np

from ..core.content import ByContent
from ..core.errors import PlanError, PrismError
from ..core.kernels import PASSES
from ..core.report import OR_NULL
from ..cost.block_cost import SLOTS, BlockCostModel
from ..job.job import Job
from .figures import JobFigures

Mode = Literal["weak", "strong"]
MODES: tuple[Mode, ...] = ("weak", "strong")


def job_of_size(job: Job, n_devices: int, mode: Mode) -> Job:
    """`job` with as many replicas as `n_devices` hold; tensor, context and pipeline degrees stay.

    Raises:
        PlanError: the degrees do not divide the devices, or the batch does not divide among the replicas.
        SpecError: the network cannot have that size.
    """
    plan = job.plan
    per_replica = plan.tp * plan.cp * plan.pp
    dp, rest = divmod(n_devices, per_replica)
    if rest or not dp:
        raise PlanError(f"{n_devices:,} GPUs are no multiple of tp*cp*pp = {per_replica}")
    batch = plan.global_batch * dp // plan.dp if mode == "weak" else plan.global_batch
    if mode == "weak" and plan.global_batch * dp % plan.dp:
        raise PlanError(f"{plan.global_batch} samples on {plan.dp} replicas are no whole number on {dp}")
    shard = dp if plan.dp_shard == plan.dp else plan.dp_shard  # groups that span all replicas go on doing so
    resized = replace(plan, dp=dp, global_batch=batch, dp_shard=shard)
    return replace(job, cluster=job.cluster.of_size(n_devices), plan=resized)


THRESHOLD = 0.8


@dataclass(frozen=True, eq=False)
class SizeRow(ByContent):
    """One number of GPUs.

    Attributes:
        settings: field -> value of the best plan along the axes that vary.
        figures: None where no plan is possible; `problem` says why.
        per_gpu_change: of tokens/s/GPU from the smallest possible size.
        marginal_return: NaN at the smallest possible size.
        energy_change: of tokens per joule from the smallest possible size; NaN where power is not known.
    """

    n_devices: int
    settings: Mapping[str, str]
    figures: JobFigures | None
    problem: str
    per_gpu_change: float = nan
    marginal_return: float = nan
    energy_change: float = nan


def size_rows(
    sizes: Sequence[int], best: Sequence[tuple[Mapping[str, str], JobFigures | None, str]]
) -> tuple[SizeRow, ...]:
    """Rows of sizes in ascending order, each with its settings, figures and problem."""
    rows: list[SizeRow] = []
    first = before = None
    for n, (settings, own, problem) in zip(sizes, best, strict=True):
        if own is None:
            rows.append(SizeRow(n, settings, None, problem))
            continue
        first = first or own
        rows.append(
            SizeRow(
                n,
                settings,
                own,
                problem,
                own.tokens_per_s_per_gpu / first.tokens_per_s_per_gpu - 1.0,
                nan if before is None else _slope(before, own),
                first.joules_per_token / own.joules_per_token - 1.0,
            )
        )
        before = own
    return tuple(rows)


def stop_size(rows: Sequence[SizeRow], threshold: float = THRESHOLD) -> int | None:
    """Returns the first size whose marginal return is below `threshold`; None if there is none."""
    return next((row.n_devices for row in rows if row.marginal_return < threshold), None)


def smallest_meeting(rows: Sequence[SizeRow]) -> SizeRow | None:
    """Smallest size that meets the target more likely than not and fits into memory; None if none does."""
    return next((row for row in rows if row.figures and row.figures.target_prob >= 0.5 and row.figures.fits), None)


def _slope(before: JobFigures, own: JobFigures) -> float:
    return log(own.tokens_per_s / before.tokens_per_s) / log(own.n_devices / before.n_devices)


KNEE = 0.05  # share of the step that is exposed
LARGEST = 1 << 20
_BACKWARD = ("B", "W")


@dataclass(frozen=True)
class PassOnset:
    """Onset at which the communication of one pass stops hiding.

    Attributes:
        name: "forward" or "backward".
        window_s: compute of a layer during which it may run.
        comm_s: what it takes on the job's own number of GPUs.
        ring, tree: n* in closed form; infinite where latency does not grow.
        law: n* under the network's own law.
    """

    name: str
    window_s: float
    comm_s: float
    ring: Annotated[float, OR_NULL]
    tree: Annotated[float, OR_NULL]
    law: Annotated[float, OR_NULL]


def onsets(job: Job, mode: Mode = "weak") -> tuple[PassOnset, ...]:
    """Onsets per pass; empty where no parameters are sharded.

    Args:
        mode: how the batch of a GPU goes with their number (`job_of_size`).
    """
    if job.plan.shard_group == 1:
        return ()
    return tuple(_onset(job, name, mode) for name in ("forward", "backward"))


def of_step(job: Job, mode: Mode = "weak", share: float = KNEE) -> float:
    """n at which gathering, scattering and the exchange at the end show with `share` of a step without variability."""

    def exposed(n: int) -> float:
        return exposed_share(job_of_size(job, n, mode))

    return crossing(exposed, share, _smallest(job))


def exposed_share(job: Job) -> float:
    """Exposed data-parallel communication over the busy time of a step of an average GPU, without variability."""
    from ..cost.step import step_cost  # here, so that the closed form stands on blocks alone

    cost, plan = step_cost(job.model, job.cluster, job.plan, job.efficiency), job.plan
    per_gpu = plan.n_micro_batch / plan.pp
    comm_s = np.asarray(cost.comm_s).sum(axis=(0, 1)) * per_gpu
    end_s = float(np.mean(cost.end_comm_s))
    busy_s = float(np.sum(cost.compute_s)) * per_gpu + float(np.mean(cost.end_compute_s)) + float(comm_s.sum()) + end_s
    return (float(comm_s[-1]) + end_s) / busy_s


def knee(sizes: Sequence[int], figures: Sequence[JobFigures | None], share: float = KNEE) -> int | None:
    """First of `sizes`, in order, at which exposed data-parallel communication is more than a share of the mean step."""
    for n, own in zip(sizes, figures, strict=True):
        if own is not None and own.exposed_dp_s > share * own.mean_s:
            return n
    return None


def crossing(value_of: Callable[[int], float], bound: float, smallest: int) -> float:
    """n at which a growing value passes a bound: looked at in doublings, interpolated in log n; infinite if it does not."""
    before, n = 0.0, smallest
    while n <= LARGEST:
        try:
            now = value_of(n)
        except PrismError:  # a batch that cannot be divided, a network that cannot grow
            return inf
        if now > bound:
            return float(n) if n == smallest else n * 2.0 ** ((bound - before) / (now - before) - 1.0)
        before, n = now, 2 * n
    return inf


def _onset(job: Job, name: str, mode: Mode) -> PassOnset:
    phases = ("F",) if name == "forward" else _BACKWARD
    kind = max(job.model.layout, key=lambda run: run.count).kind
    own = BlockCostModel(job.model, job.cluster, job.plan.computed, job.efficiency)
    compute_s = own.alone(kind).compute_s
    window_s = own.eff.correction.overlap_window * float(sum(compute_s[PASSES.index(phase)].sum() for phase in phases))

    def comm_s(n: int) -> float:
        sized = job_of_size(job, n, mode)
        made = BlockCostModel(sized.model, sized.cluster, sized.plan, job.efficiency).gathering(kind)
        slots = [k for k, (phase, axis, _) in enumerate(SLOTS) if axis == "dp" and phase in phases]
        return float(made.comm_s[slots].sum())

    small = 4 * max(job.cluster.node_size, _smallest(job))
    near, far = comm_s(small), comm_s(2 * small)
    hop_s, step_s = (far - near) / small, far - near
    left_s = window_s - near
    ring = small + left_s / hop_s if hop_s > 0.0 else inf
    tree = 2.0 ** min(log2(small) + left_s / step_s, 60.0) if step_s > 0.0 else inf
    law = crossing(comm_s, window_s, 2 * _smallest(job))
    return PassOnset(name, window_s, comm_s(job.plan.n_devices), max(ring, 1.0), max(tree, 1.0), law)


def _smallest(job: Job) -> int:
    """GPUs of one replica."""
    return job.plan.tp * job.plan.cp * job.plan.pp
