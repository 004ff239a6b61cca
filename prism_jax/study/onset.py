"""Onset: the number of GPUs at which the communication of sharded parameters stops hiding behind compute.

Weights of a layer are gathered, and its gradients scattered, beside the compute of a neighbour that takes W; they take

    T(n) = c + a n                  on a ring: a is the latency of a hop, c what the bytes take
    T(n) = c + a log2 n             on a tree (PAT)

Communication shows from n* = (rho W - c) / a on (a tree: 2 to that power), rho being the share of the compute that it can run
beside; c and a are read off the network's own law at two sizes. `law` is n* under that law itself, which takes the faster of the
algorithms, and `of_step` the n at which a share of the whole step shows. Nothing is simulated.

Source: Fernandez et al., Hardware scaling trends and diminishing returns in large-scale distributed training (arXiv 2411.13055),
for what is asked; the closed form is ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf, log2
from typing import Annotated

import numpy as np

from ..cost.block_cost import SLOTS, BlockCostModel
from ..errors import PrismError
from ..job import Job
from ..kernels import PASSES
from ..report.codec import OR_NULL
from .figures import Figures
from .sizes import Mode, job_of_size

KNEE = 0.05  # share of the step that is exposed
LARGEST = 1 << 20
_BACKWARD = ("B", "W")


@dataclass(frozen=True)
class PassOnset:
    """Where the communication of one pass stops hiding.

    Attributes:
        name: "forward" or "backward".
        window_s: compute of a layer that it may run beside.
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
    """Per pass; empty where no parameters are sharded.

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


def knee(sizes: Sequence[int], figures: Sequence[Figures | None], share: float = KNEE) -> int | None:
    """First of `sizes`, in their order, at which exposed data-parallel communication is more than a share of the mean step."""
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
    own = BlockCostModel(job.model, job.cluster, job.plan, job.efficiency)
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
