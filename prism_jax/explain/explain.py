"""explain: the whole answer to "why", from one program and its distribution. Seconds, and shares of the critical path.

- Breakdown of the mean step for an average GPU. Busy time is averaged over pipeline stages. What remains of the noise-free
  step is bubble; what transfers between stages add to it is exposed pp communication. What randomness adds is waiting for
  stragglers, except for stalls of the whole step. For power, compute is split by kernel class by the noise-free cost of all
  chunks, and what it loses to simultaneous communication (multiprocessors, memory bandwidth) stands alone: then fewer products
  are made, and less is drawn.
- Criticality (`critical_path.py`), sources of the p95 (`owners.py`), and what known GPUs cost (`given.py`).
- Op-by-op timelines of the slowest replica of a typical and of a slow step.
- On request, the shares of sources in the variance (`sobol.py`) and of owners in the p95 (`shapley.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from jax import Array
from numpy.typing import NDArray

from ..core.arrays import Flags, Floats
from ..core.errors import DataError
from ..core.kernels import COMM_AXES, COMPUTE_CLASSES, KERNEL_CLASSES
from ..cost.memory import chunk_activations
from ..cost.step import step_cost
from ..graph.draws import folded, typed_key
from ..graph.step_graph import StepGraph, noise_free_s
from ..job.job import Job
from ..plan.plan import device_layout
from ..result.distribution import StepTimeDistribution, check_prob
from ..simulate.allocation import allocation_spread
from ..simulate.columns import Chunk
from ..simulate.inputs import KnownGpus
from ..simulate.known_replicas import contenders
from ..simulate.predict import DEFAULT_COLUMNS, replica_times
from ..simulate.program import Program, by_class, lower
from .critical_path import HostColumns, criticality, first_columns, slowest_weights
from .given import given_slowdowns, slowest_nodes
from .owners import p95_owners, work_gains
from .shapley import shapley_falls
from .sobol import step_sobol
from .types import Attribution, Explanation, LaneGpu, Timeline, TimelineDetails


def breakdown(
    program: Program, distribution: StepTimeDistribution, gpus: KnownGpus | None = None
) -> Mapping[str, float]:
    """Seconds by cause; keys in the order a reader wants them.

    Args:
        program: lowered job.
        distribution: its prediction.
        gpus: with known slowdowns: compute of the average GPU takes longer by their mean, and the bubble with it.
    """
    graph = program.graph if gpus is None else _slowed(program.graph, gpus)
    parts = {"compute": float(graph.compute_s.sum() / graph.n_lane + graph.end_compute_s.mean())}
    for axis, value in zip(COMM_AXES, graph.comm_s.sum(axis=(0, 1)) / graph.n_lane, strict=True):
        parts[f"{axis}_comm"] = float(value)
    parts["dp_comm"] += float(graph.end_comm_s.mean())
    fixed, without_lag = (noise_free_s(graph, program.dtype, lag) for lag in (1.0, 0.0))
    parts["pp_comm"] = float(graph.send_s.sum() / graph.n_lane) + max(0.0, fixed - without_lag)
    parts["bubble"] = max(0.0, fixed - sum(parts.values()))
    stalls, n_devices = program.job.variability.stalls, program.job.plan.n_devices
    stalled = sum(stall.prob(n_devices) * stall.mean_fraction for stall in stalls)
    parts["stalls"] = distribution.mean_s * (1.0 - 1.0 / (1.0 + stalled))
    parts["waiting_for_stragglers"] = distribution.mean_s - parts["stalls"] - fixed
    return parts


def _slowed(graph: StepGraph, gpus: KnownGpus) -> StepGraph:
    """The graph with every GPU as slow as all are on average; GPUs that are not known have a mean of one."""
    mean = gpus.filled.mean(axis=1)
    memory = mean[COMPUTE_CLASSES.index("memory")]
    return replace(graph, compute_s=graph.compute_s * mean, end_compute_s=graph.end_compute_s * memory)


N_TIMELINE_COLUMN = 128
TINY_S = 1e-30


def timelines(
    program: Program,
    distribution: StepTimeDistribution,
    key: Array,
    gpus: KnownGpus | None = None,
    hosts: Sequence[str] = (),
) -> list[Timeline]:
    """The median and the p99 step: the simulated replica columns whose end comes nearest to them.

    Args:
        program: lowered job.
        distribution: its prediction.
        key: typed PRNG key.
        gpus: known slowdowns: the replica is the one of those that hold them that is most often the slowest, where any is.
        hosts: names of the nodes that have one.
    """
    _, chunk = first_columns(program, N_TIMELINE_COLUMN, 1)
    replica = None if gpus is None else _slowest_known(program, gpus, key)
    known = replica is not None
    columns = HostColumns.of(
        by_class(program), key, replica.chunk if known else chunk, N_TIMELINE_COLUMN, explicit=known
    )
    (ends, _), mean_s = columns.seconds(), columns.mean_op_s()
    lines = []
    for title, q in {"median step": distribution.quantile(0.5), "p99 step": distribution.quantile(0.99)}.items():
        column = int(np.abs(ends - q).argmin())
        line = _timeline(program, title, columns, column, float(ends[column]), mean_s)
        lines.append(line if gpus is None or replica is None else _named(line, program, gpus, replica, hosts))
    return lines


class _KnownReplica(NamedTuple):
    number: int
    chunk: Chunk


def _named(line: Timeline, program: Program, gpus: KnownGpus, replica: _KnownReplica, hosts: Sequence[str]) -> Timeline:
    """Names the measured GPUs among the slowest of the lanes of a known replica."""
    job, details = program.job, line.details
    assert details is not None
    devices = device_layout(job.plan)[details.members, np.arange(len(details.gpus)), replica.number]
    size = job.cluster.node_size
    is_known: Flags = np.asarray(np.isfinite(gpus.factor).any(axis=0))

    def name(device: int) -> str:
        node = device // size
        return f"{hosts[node] if node < len(hosts) else f'node {node}'} GPU {device % size}" if is_known[device] else ""

    named = tuple(replace(own, name=name(int(device))) for own, device in zip(details.gpus, devices, strict=True))
    return replace(line, details=replace(details, gpus=named))


def _slowest_known(program: Program, gpus: KnownGpus, key: Array) -> _KnownReplica | None:
    """The known replica that is most often the slowest; None where replicas without known GPUs are so more often."""
    own = by_class(program)
    times = replica_times(own, key, DEFAULT_COLUMNS, contenders(own, gpus, key))
    assert times.known is not None
    middle = len(times.columns.scores) // 2
    known = [(own_s[middle], np.ones(own_s.shape[-1]), 1) for own_s in times.known_s]
    alike = (times.time_s[:, middle].ravel(), times.columns.weight.ravel(), times.n_alike)
    chances = [float(own.sum()) for own in slowest_weights([*([alike] if times.n_alike else []), *known])]
    of_known = chances[-len(known) :]
    if not known or (times.n_alike and chances[0] > max(of_known)):
        return None
    number = int(times.known.replicas[int(np.argmax(of_known))])
    chosen = replace(times.known.only(np.array([number])), n_column=N_TIMELINE_COLUMN)
    return _KnownReplica(number, chosen.chunks(program)[0].at(0))


def _timeline(
    program: Program, title: str, columns: HostColumns, column: int, step_s: float, mean_s: Floats
) -> Timeline:
    second, pair = divmod(column, columns.n_pair)
    own = columns.only(np.array([pair]))
    run = own.run()
    parts = (run.ops.start_s, run.ops.end_s, run.compute_s, run.end_of_lane_s)
    start_s, end_s, compute_s, end_of_lane_s = (part[..., second].astype(float) for part in parts)
    graph = program.graph
    labels = tuple([str(op) for op in graph.ops])
    details = _details(program, own.chip[..., second].astype(float), run.slow[..., second], mean_s)
    return Timeline(title, start_s, end_s, compute_s, graph.op, labels, end_of_lane_s, step_s, details)


def _details(program: Program, chip: Floats, slow: NDArray[np.integer], mean_s: Floats) -> TimelineDetails:
    """Facts on the ops of one column.

    Args:
        chip: [class, member, lane] persistent factors.
        slow: [level, lane] slowest member.
    """
    job, graph = program.job, program.graph
    lane, class_s = np.arange(graph.n_lane), graph.compute_s
    of_lane = class_s.sum(axis=0).T[:, None]  # [class, 1, lane]
    by_member = (chip * of_lane).sum(axis=0) / np.maximum(of_lane.sum(axis=0), TINY_S)  # [member, lane]
    counts = [np.bincount(slow[graph.op[:, own] >= 0, own], minlength=chip.shape[1]) for own in lane]
    members = np.array([int(count.argmax()) for count in counts])
    stages = job.memory.stages
    return TimelineDetails(
        ops=graph.ops,
        classes=tuple(job.model.kernel_classes),
        class_s=class_s,
        mean_s=mean_s,
        slowdown=by_member[slow, lane],
        members=members,
        gpus=tuple(LaneGpu("", float(by_member[member, own])) for own, member in enumerate(members)),
        chunk_bytes=chunk_activations(job.model, job.plan, job.software.memory),
        other_bytes=np.array([own.total_bytes - own.activations_bytes for own in stages]),
    )


def power_phases(job: Job, breakdown_s: Mapping[str, float]) -> dict[str, float]:
    """Seconds by phase; they sum to those of `breakdown_s`.

    Args:
        job: the predicted one.
        breakdown_s: of `breakdown`, with `compute`.
    """
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    by_class = cost.compute_s.sum(axis=(0, 1))
    whole = float(by_class.sum())
    slowed = min(job.efficiency.overlap_slowdown * float(cost.hidden_comm_s.sum()), 0.9 * whole) / whole
    compute_s = breakdown_s["compute"]
    out = {"gemm": 0.0, "attention": 0.0, "memory": 0.0}
    for name, seconds in zip(cost.classes, by_class, strict=True):
        out[KERNEL_CLASSES.named(name).knob] += compute_s * (1.0 - slowed) * float(seconds) / whole
    rest = {name: seconds for name, seconds in breakdown_s.items() if name != "compute"}
    return out | {"slowed": compute_s * slowed} | rest


SPREAD_COLUMNS = 128  # of a known replica, each for several steps


def explain(job: Job, distribution: StepTimeDistribution, *, key: Array, known: KnownGpus | None = None) -> Explanation:
    """Breakdown, criticality, sources of the p95's variability, and the spreads between and within allocations.

    Args:
        job: the job that was predicted.
        distribution: its prediction.
        key: typed PRNG key; independent of the one used for the distribution or not, as you like.
        known: persistent slowdowns of GPUs that were measured, as in the prediction: what they cost is explained too.
    """
    program, own, nodes = lower(job), None, []
    if known is not None:
        program, nodes = by_class(program), slowest_nodes(program, known)
        own = contenders(program, known, key, listed=[device for node in nodes for device in node.devices])
    of_columns = folded(key, 1)
    times = replica_times(program, of_columns, DEFAULT_COLUMNS, own)
    owners = p95_owners(times, of_columns)
    critical = criticality(program, folded(key, 2), times)
    spread = allocation_spread(program, distribution, of_columns, own and own.fewer(SPREAD_COLUMNS), times)
    return Explanation(
        breakdown_s=breakdown(program, distribution, known),
        criticality=critical.value,
        criticality_error=critical.error,
        p95_owner_s=owners.value,
        p95_owner_error_s=owners.error,
        allocation=spread,
        work_gain={} if known is not None else work_gains(program, of_columns),
        given=None if known is None else given_slowdowns(known, nodes, times, of_columns),
    )


def attribute(job: Job, *, key: Array | int, p: float = 0.95) -> Attribution:
    """Shares the spread and the tail of the step time out among the sources of variability, with what they only do together.

    Args:
        job: model, cluster, plan and variability.
        key: typed PRNG key or an integer seed.
        p: probability of the quantile, beyond which a step is slow.

    Raises:
        DataError: `p` is not between 0 and 1, or replicas share out the documents of a step.
        PlanError: the plan is impossible for the model or the cluster.

    Example:
        >>> found = attribute(load_job("gpt3_175b_1024"), key=0)  # doctest: +SKIP
        >>> found.step_time.first["gpu"], found.p95.value_s["gemm.gpu"]  # doctest: +SKIP
    """
    if not 0.0 < check_prob(p) < 1.0:
        raise DataError(f"p = {p}, but a quantile needs a probability between 0 and 1")
    program, own = lower(job), typed_key(key)
    step_time, slow_step = step_sobol(program, folded(own, 3), p)
    return Attribution(step_time, slow_step, shapley_falls(program, folded(own, 4), p))
