"""Parts of an explanation, and the words that a person reads for its keys; plain data, no JAX."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.kernels import KERNEL_CLASSES
from ..result.spread import AllocationSpread
from ..schedule.order import Op

GIVEN = "given_slowdowns"  # source of the p95: the GPUs whose slowdowns are known
GIVEN_LINKS = "given_links"  # the same of links


@dataclass(frozen=True)
class Shares:
    """Parts of a step with the Monte Carlo standard error of each.

    Attributes:
        value: by name, largest first.
        error: by the same names.
    """

    value: Mapping[str, float]
    error: Mapping[str, float]


@dataclass(frozen=True)
class SlowNode:
    """A node with known GPUs, and its cost.

    Attributes:
        node: number, from 0.
        name: of the host; empty where hosts are numbers.
        gpu: its slowest known GPU, counted inside the node.
        slowdown: of that GPU, its kernel classes weighed by their seconds in this job.
        stages, replicas: for which its known GPUs work.
        cost_s: by which p95 falls if other GPUs, drawn like the rest of the fleet, take the place of its known ones.
        cost_error_s: Monte Carlo standard error of it.
        with_slower_s: by which p95 falls if that happens to this node and to all slower ones.
        with_slower_error_s: Monte Carlo standard error of it.
        link_slowdown: of its slowest known link or NIC; 1 where none is known.
    """

    node: int
    name: str
    gpu: int
    slowdown: float
    stages: tuple[int, ...]
    replicas: tuple[int, ...]
    cost_s: float
    cost_error_s: float
    with_slower_s: float
    with_slower_error_s: float
    link_slowdown: float = 1.0


@dataclass(frozen=True)
class GivenSlowdowns:
    """Effect of known slowdowns of GPUs on a job.

    Attributes:
        n_gpus, n_nodes: number of known GPUs, and of the nodes that hold them.
        n_drawn: GPUs of the job that are not known.
        step_s: of these GPUs, with all others at 1 and nothing else varying.
        nodes: the slowest, slowest first.
    """

    n_gpus: int
    n_nodes: int
    n_drawn: int
    step_s: float
    nodes: tuple[SlowNode, ...]


@dataclass(frozen=True)
class SobolIndices:
    """Shares of a variance by the independent sources that make it, sources with the largest total first.

    Attributes:
        first, first_error: share that a source explains alone, and its Monte Carlo standard error.
        total, total_error: share that it has a part in, alone or together with others.
        remainder, remainder_error: 1 - sum of `first`: what sources only cause together.
        sd: standard deviation of what varies.
    """

    first: Mapping[str, float]
    first_error: Mapping[str, float]
    total: Mapping[str, float]
    total_error: Mapping[str, float]
    remainder: float
    remainder_error: float
    sd: float


@dataclass(frozen=True)
class ShapleyFalls:
    """Seconds by which variability raises a quantile, shared out fairly among its owners, largest first.

    Attributes:
        value_s, error_s: owner -> mean rise when it is added to the others in a random order, and its Monte Carlo standard error.
        alone_s: owner -> rise where it alone varies.
        last_s: owner -> rise where it is added to all others; what removing it brings.
        total_s, total_error_s: rise where all vary, the sum of `value_s`.
        rest: sources that the owner "others" holds.
    """

    value_s: Mapping[str, float]
    error_s: Mapping[str, float]
    alone_s: Mapping[str, float]
    last_s: Mapping[str, float]
    total_s: float
    total_error_s: float
    rest: tuple[str, ...] = ()


@dataclass(frozen=True)
class Attribution:
    """Shares of the sources of variability in the spread and in the tail of a step.

    Attributes:
        step_time: of the variance of the step time.
        slow_step: of the variance of whether a step takes longer than p95.
        p95: of the seconds by which p95 lies above the step without variability.
    """

    step_time: SobolIndices
    slow_step: SobolIndices
    p95: ShapleyFalls


@dataclass(frozen=True)
class Explanation:
    """Why a step takes as long as it takes.

    Attributes:
        breakdown_s: where the mean step goes, for an average GPU; sums to the mean step time. Keys: compute, exposed
            tp, cp, ep, dp and pp communication, bubble, waiting for stragglers, stalls.
        criticality: op class -> share of the critical path (d step / d seconds x seconds / step); sums to one.
        p95_owner_s: kernel class or shared factor -> seconds by which p95 falls when its variability is removed; with known
            slowdowns also by which it falls with other GPUs, drawn, in the place of these.
        allocation: spread of the step time within one allocation of GPUs and between allocations.
        criticality_error, p95_owner_error_s: Monte Carlo standard errors of both.
        given: cost of known slowdowns; None where no GPU is known.
        work_gain: other work of micro-batches ("data.packing masked") -> relative gain in tokens of documents per second at the
            median; empty where micro-batches are alike or GPUs are known.
    """

    breakdown_s: Mapping[str, float]
    criticality: Mapping[str, float]
    p95_owner_s: Mapping[str, float]
    allocation: AllocationSpread
    criticality_error: Mapping[str, float] = field(default_factory=dict)
    p95_owner_error_s: Mapping[str, float] = field(default_factory=dict)
    given: GivenSlowdowns | None = None
    work_gain: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class LaneGpu:
    """The GPU that is most often the slowest of a lane.

    Attributes:
        name: of a measured one, "gpu-node-09 GPU 5"; empty where its slowdown is drawn.
        slowdown: persistent factor, kernel classes weighed by their seconds on the lane.
    """

    name: str
    slowdown: float


@dataclass(frozen=True)
class TimelineDetails:
    """Facts on the ops of a timeline, for viewers that show them at a click.

    Attributes:
        ops: by index of `Timeline.label`.
        classes: names of kernel classes.
        class_s: [level, lane, class] noise-free seconds.
        mean_s: [level, lane] mean over simulated columns.
        slowdown: [level, lane] persistent factor of the GPU that is the slowest of the op.
        members: [lane] number of the member that is most often the slowest.
        gpus: that GPU of every lane.
        chunk_bytes: [2, chunk] activations that the forward pass of one micro-batch leaves in memory: until its weight gradient,
            and until the gradient of its input.
        other_bytes: [lane] of memory besides, at its peak: states, buffers, workspaces.
    """

    ops: tuple[Op, ...]
    classes: tuple[str, ...]
    class_s: Floats
    mean_s: Floats
    slowdown: Floats
    members: NDArray[np.integer]
    gpus: tuple[LaneGpu, ...]
    chunk_bytes: Floats
    other_bytes: Floats


@dataclass(frozen=True)
class Timeline:
    """Timeline of a step's slowest replica, op by op; arrays are [level, lane], idle cells have label -1.

    Attributes:
        title: which step this is ("median step", "p99 step").
        start_s, end_s: of every op.
        compute_s: the part that the slowest member computes; the rest of the op is communication.
        label: index into `labels`.
        labels: names of ops, e.g. "F3 c1".
        end_of_lane_s: [lane] end after optimizer and final communication.
        step_s: of the whole step.
        details: facts on the ops; None where nothing else is known.
    """

    title: str
    start_s: Floats
    end_s: Floats
    compute_s: Floats
    label: NDArray[np.int32]
    labels: tuple[str, ...]
    end_of_lane_s: Floats
    step_s: float
    details: TimelineDetails | None = None


@dataclass(frozen=True)
class Stragglers:
    """Causes of slow recorded steps.

    Attributes:
        recorded_s: [step] replayed as recorded, without host gaps.
        ideal_s: [step] replayed ideally.
        by_op_type, by_stage, by_dp: slowdown that this part alone causes.
        by_worker: [replica, stage] slowdown of every worker.
        worst: (replica, stage) of the workers that M_W replaces.
        m_w, m_s: share of the lost time owed to the worst workers, to the last stage; nan if nothing is lost.
    """

    recorded_s: Floats
    ideal_s: Floats
    by_op_type: Mapping[str, float]
    by_stage: Mapping[int, float]
    by_dp: Mapping[int, float]
    by_worker: Floats
    worst: tuple[tuple[int, int], ...]
    m_w: float
    m_s: float

    @property
    def slowdown(self) -> float:
        """S: mean recorded over mean ideal step."""
        return float(self.recorded_s.mean() / self.ideal_s.mean())


_WORDS = {
    "tp_comm": "tp communication",
    "cp_comm": "cp communication",
    "ep_comm": "ep communication",
    "dp_comm": "dp communication",
    "pp_comm": "pp communication",
    "bubble": "pipeline bubble",
    "waiting_for_stragglers": "waiting for stragglers",
    GIVEN: "GPUs as given",
    GIVEN_LINKS: "links as given",
    "all_reduce": "all-reduce",
    "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter",
    "all_to_all": "all-to-all",
    "p2p": "send/receive",
    "useful": "useful steps",
    "failure": "failures, until noticed and nodes are back",
    "rework": "rework of lost steps",
    "restart": "restart, load, warm-up",
    "gemm+attention+memory": "GPUs (all compute)",
    "gpu": "GPUs (all compute)",
    "node": "nodes (all compute)",
    "compute_calls": "compute, call to call",
    "comm_calls": "communication, call to call",
    "network_regime": "network, step to step",
}
_PART_WORDS = {"gpu": "GPU to GPU", "node": "node to node", "regime": "step to step", "call": "call to call"}


def words(key: str) -> str:
    """Name of a part of the step, an op class or a source of variance; classes joined by "+" are named one by one.

    Example:
        >>> words("gemm+memory")
        'GEMM + memory-bound'
        >>> words("all_gather.regime")
        'all-gather, step to step'
    """
    if key in _WORDS:
        return _WORDS[key]
    return " + ".join(_word(part) for part in key.split("+"))


def _word(key: str) -> str:
    name, _, part = key.partition(".")
    if part in _PART_WORDS:
        return f"{_word(name)}, {_PART_WORDS[part]}"
    if key in KERNEL_CLASSES and (stated := KERNEL_CLASSES.named(key).words):
        return stated
    return _WORDS.get(key, key.replace("_", " "))


def percent(prob: float) -> str:
    """A probability; never 0 or 1, which draws cannot show."""
    return "<1%" if prob < 0.005 else ">99%" if prob > 0.995 else f"{100 * prob:.0f}%"
