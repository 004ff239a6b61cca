"""Turns a job and a fleet into arrays, and times one replica's step under an assignment on noise that was drawn before.

An op is told by its lane and its *kind* there (forward of a chunk, backward of a chunk, ...): its seconds under an assignment are
those of its kind times the slowdown of the group's slowest GPU, so an assignment is a handful of numbers per lane and replica.

The time is the max-plus scan of the engine:

    start = max(end[t-1, l], max_d(end[dep_d] + lag_d))       end = start + busy (loc + scale e) + communication

Pure and jittable; differentiable in loc, scale and the seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Bool, Float, Int32
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.kernels import COMPUTE_CLASSES, NETWORK_AXES
from ..graph.build import WorkTerms
from ..graph.propagate import HAND_OVER, CommFactors
from ..graph.step_graph import StepGraph, cell, ring_rows
from ..job.job import Job
from ..schedule.order import Op
from ..simulate.links import END, routes
from ..simulate.program import Program, by_class, lower
from ..simulate.work import Work
from .draws import ReplicaNoise, Residual, peak_table, rows_of, slower_of, slowest_tables
from .fleet import MeasuredFleet, Slots

ROUND_LEVELS = 16
MEMORY = COMPUTE_CLASSES.index("memory")
Signature = tuple[tuple[str, int], ...]  # (F | B | W, chunk) of every part of an op


class StepTables(eqx.Module):
    """The step of a job, as the engine runs it; one variant per number of micro-batches.

    Attributes:
        kind: [variant, level, lane] kind of the op; 0 where the lane idles.
        dep: [variant, level, lane, dep] row of the ring buffer, as in `GraphArrays`.
        lag_s: [variant, level, lane, dep] seconds of transfers.
        busy_s: [lane, kind] compute seconds of its GPUs at slowdown one.
        row: [lane, kind] its mix of kernel classes, an index into `NodeTables`.
        comm_s: [lane, kind, axis] exposed communication, blocking sends last.
        comm_sd: [lane, kind] its residual standard deviation over its mean.
        p2p_sd: [] the same for transfers.
        end_s: [lane] compute after the last op.
        end_comm_s: [lane] communication after it.
        depth, axes: of the ring buffer; network axes that have communication inside ops.
        work: [variant, level, lane, term] what of an op goes with the work of its micro-batches; None where they hold the same.
    """

    kind: Int32[Array, "variant level lane"]
    dep: Int32[Array, "variant level lane dep"]
    lag_s: Float[Array, "variant level lane dep"]
    busy_s: Float[Array, "lane kind"]
    row: Int32[Array, "lane kind"]
    comm_s: Float[Array, "lane kind axis"]
    comm_sd: Float[Array, "lane kind"]
    p2p_sd: Float[Array, ""]
    end_s: Float[Array, " lane"]
    end_comm_s: Float[Array, " lane"]
    depth: int = eqx.field(static=True)
    axes: tuple[int, ...] = eqx.field(static=True)
    work: WorkTerms | None


class PortTables(eqx.Module):
    """Links of nodes, and which communication uses which; the last node is a dummy.

    Attributes:
        link, nic: [node, part] slowest factor of links within the node, and of ports to others.
        edge_leaves: [lane] whether the hand-over from the lane before leaves the node.
        leaves: per network axis, whether its groups leave the node.
    """

    link: Float[Array, "node part"]
    nic: Float[Array, "node part"]
    edge_leaves: Bool[Array, " lane"]
    leaves: tuple[bool, ...] = eqx.field(static=True)


class NodeTables(eqx.Module):
    """Factors of nodes on a step; the last node is a dummy that slows nothing down.

    Attributes:
        loc, scale: [row, node, part] mean and spread of the slowest GPU's factor.
        peak: [node, part] slowest persistent factor in memory-bound work.
        ports: of links; None where none was measured.
    """

    loc: Float[Array, "row node part"]
    scale: Float[Array, "row node part"]
    peak: Float[Array, "node part"]
    ports: PortTables | None = None


class SlotTables(eqx.Module):
    """Places of the slots: the arrays of `Slots`.

    Attributes:
        slot, part: [lane, replica, share].
        replicas: [slot, touched].
    """

    slot: Int32[Array, "lane replica share"]
    part: Int32[Array, "lane replica share"]
    replicas: Int32[Array, "slot touched"]


class GroupFactors(eqx.Module):
    """Factors of one replica under an assignment.

    Attributes:
        loc, scale: [lane, kind] mean and spread of the slowest GPU's factor.
        peak: [lane] slowest factor in memory-bound work.
        links: factors of links, in one column; None where none was measured.
    """

    loc: Float[Array, "lane kind"]
    scale: Float[Array, "lane kind"]
    peak: Float[Array, " lane"]
    links: CommFactors | None = None


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of ops that are alike.

    Attributes:
        signatures: per lane, what its kinds run; kind k of a lane is signatures[lane][k - 1].
        kind: per variant, [level, lane].
        at: per variant, [lane, kind] a level where one stands, -1 for none.
    """

    signatures: tuple[tuple[Signature, ...], ...]
    kind: tuple[NDArray[np.int32], ...]
    at: tuple[NDArray[np.int32], ...]


class KindSeconds(NamedTuple):
    """Seconds of every kind: compute [lane, kind, class], communication [lane, kind, axis], and after the last op [lane]."""

    compute_s: Floats
    comm_s: Floats
    end_s: Floats
    end_comm_s: Floats


def step_program(job: Job) -> Program:
    """The job with every compute class as a factor of its own."""
    return by_class(lower(job))


def kinds_of(graphs: Sequence[StepGraph]) -> Kinds:
    """Kinds of the ops of some graphs of one job, numbered alike in all of them.

    Ops of a lane are of one kind if they are alike but for the micro-batch.
    """
    signatures = [[_signature(op) for op in graph.ops] for graph in graphs]
    known = [
        tuple(sorted({own[op] for graph, own in zip(graphs, signatures, strict=True) for op in _ops(graph, lane)}))
        for lane in range(graphs[0].n_lane)
    ]
    width = 1 + max(map(len, known))
    kinds, levels = [], []
    for graph, own in zip(graphs, signatures, strict=True):
        kind = np.zeros(graph.op.shape, dtype=np.int32)
        at = np.full((graph.n_lane, width), -1, dtype=np.int32)
        for lane, of_lane in enumerate(known):
            number = {signature: k for k, signature in enumerate(of_lane, start=1)}
            busy = np.flatnonzero(graph.op[:, lane] >= 0)
            kind[busy, lane] = [number[own[op]] for op in _ops(graph, lane)]
            at[lane, kind[busy[::-1], lane]] = busy[::-1]
        kinds.append(kind)
        levels.append(at)
    return Kinds(tuple(known), tuple(kinds), tuple(levels))


def _signature(op: Op) -> Signature:
    return tuple([(part.kind, part.chunk) for part in op.parts])


def _ops(graph: StepGraph, lane: int) -> list[int]:
    """Numbers of the ops of a lane, in running order."""
    column = graph.op[:, lane]
    return column[column >= 0].tolist()


def kind_values(kinds: Kinds, values: Sequence[Floats]) -> Floats:
    """[lane, kind, ...] of values [level, lane, ...] per variant, from the first variant that has the kind; zero for kind 0."""
    lane = np.arange(len(kinds.signatures))[:, None]
    found = np.zeros((*kinds.at[0].shape, *values[0].shape[2:]))
    for at, value in reversed([*zip(kinds.at, values, strict=True)]):
        there = at >= 0
        found[there] = value[at, lane][there]
    return found


def kind_seconds(kinds: Kinds, graphs: Sequence[StepGraph]) -> KindSeconds:
    """Seconds of every kind, from the graphs they were found in or others of the same shape."""
    comm_s = [np.concatenate([graph.comm_s, graph.send_s[..., None]], axis=-1) for graph in graphs]
    return KindSeconds(
        kind_values(kinds, [graph.compute_s for graph in graphs]),
        kind_values(kinds, comm_s),
        graphs[0].end_compute_s,
        graphs[0].end_comm_s,
    )


def tables_of(programs: Sequence[Program], fleet: MeasuredFleet, slots: Slots) -> tuple[StepTables, NodeTables, Kinds]:
    """Arrays of a job lowered by `step_program`, once per number of micro-batches, on a fleet."""
    graphs = [program.graph for program in programs]
    kinds = kinds_of(graphs)
    seconds = kind_seconds(kinds, graphs)
    sds = [np.asarray(program.arrays.call_sd, dtype=np.float64) for program in programs]
    share, row_sd, row = rows_of(_mixes(seconds.compute_s, fleet), kind_values(kinds, sds).ravel())
    loc, scale = slowest_tables(fleet, slots.parts, share, row_sd, Residual.of(programs[0].compute_residual))
    comm_sd = kind_values(kinds, [np.asarray(program.arrays.comm_sd, dtype=np.float64) for program in programs])
    depth = max(graph.ring_depth for graph in graphs)
    step = StepTables(
        kind=jnp.asarray(_stacked(kinds.kind, 0)),
        dep=jnp.asarray(
            _stacked([ring_rows(graph.dep_level, graph.dep_lane, depth) for graph in graphs], depth * graphs[0].n_lane)
        ),
        lag_s=jnp.asarray(_stacked([graph.lag_s for graph in graphs], 0.0), float),
        busy_s=jnp.asarray(seconds.compute_s.sum(axis=-1), float),
        row=jnp.asarray(row.reshape(kinds.at[0].shape)),
        comm_s=jnp.asarray(seconds.comm_s, float),
        comm_sd=jnp.asarray(comm_sd, float),
        p2p_sd=programs[0].arrays.p2p_sd,
        end_s=jnp.asarray(seconds.end_s, float),
        end_comm_s=jnp.asarray(seconds.end_comm_s, float),
        depth=depth,
        axes=tuple(np.flatnonzero(seconds.comm_s.any(axis=(0, 1))).tolist()),
        work=_work_terms(programs),
    )
    nodes = _node_tables(
        loc, scale, peak_table(fleet, slots.parts, MEMORY), _ports(programs[0].job, fleet, slots.parts)
    )
    return step, nodes, kinds


def most_work(programs: Sequence[Program]) -> Work | None:
    """Returns the work of the variant with most micro-batches, whose factors serve the others."""
    return max(programs, key=lambda program: program.job.plan.n_micro_batch).work


def _work_terms(programs: Sequence[Program]) -> WorkTerms | None:
    """Returns the terms of all variants, their rows those of `most_work`; None where micro-batches hold the same."""
    most = max(program.job.plan.n_micro_batch for program in programs)
    rows, shares = [], []
    for program in programs:
        work, m = program.work, program.job.plan.n_micro_batch
        if work is None:
            return None
        part, micro_batch = np.divmod(work.terms.row, m)  # parts: lengths of all chunks, then routing chunk by chunk
        rows.append(part * most + micro_batch)
        shares.append(np.asarray(work.terms.share))
    n_term = max(row.shape[-1] for row in rows)
    more = [((0, 0), (0, 0), (0, n_term - row.shape[-1])) for row in rows]
    of_rows, of_shares = (
        _stacked([np.pad(*own) for own in zip(part, more, strict=True)], 0) for part in (rows, shares)
    )
    on_device: Any = jnp.asarray(of_rows, jnp.int32)
    return WorkTerms(on_device, jnp.asarray(of_shares, float))


def _ports(job: Job, fleet: MeasuredFleet, parts: Sequence[tuple[int, ...]]) -> PortTables | None:
    """Tables of the links of a fleet whose links were measured."""
    if fleet.links is None:
        return None
    found = routes(job)
    by_part = [np.stack([own[:, list(gpus)].max(axis=-1) for gpus in parts], axis=-1) for own in fleet.links]
    link, nic = (jnp.asarray(np.pad(own, ((0, 1), (0, 0))), float) for own in by_part)
    leaves = tuple(bool(found.leaves[axis].any()) if axis in found.leaves else False for axis in NETWORK_AXES)
    return PortTables(link, nic, jnp.asarray(found.edge_leaves.any(axis=(0, 2))), leaves)


def with_seconds(step: StepTables, seconds: KindSeconds) -> StepTables:
    """Step with other seconds; mixes of kernel classes and residuals stay."""
    busy_s = seconds.compute_s.sum(axis=-1)
    new = (busy_s, seconds.comm_s, seconds.end_s, seconds.end_comm_s)
    return eqx.tree_at(
        lambda s: (s.busy_s, s.comm_s, s.end_s, s.end_comm_s), step, tuple(jnp.asarray(x, float) for x in new)
    )


def _mixes(compute_s: Floats, fleet: MeasuredFleet) -> Floats:
    """Compute seconds [kind, class]; all in the first class where GPUs are as slow in every class: fewer rows, same numbers."""
    flat = compute_s.reshape(-1, compute_s.shape[-1])
    if (fleet.factor == fleet.factor[:1]).all():
        return flat.sum(axis=-1, keepdims=True) * (np.arange(flat.shape[-1]) == 0)
    return flat


def _stacked(arrays: Sequence[NDArray], fill: float) -> NDArray:
    """[variant, level, ...], levels filled up at the end; of several variants to a round number: fewer compilations."""
    n_level = max(len(array) for array in arrays)
    if len(arrays) > 1:
        n_level = -(-n_level // ROUND_LEVELS) * ROUND_LEVELS
    padded = [
        np.pad(a, ((0, n_level - len(a)), *[(0, 0)] * (a.ndim - 1)), constant_values=fill)
        for a in (_with_deps(array, arrays, fill) for array in arrays)
    ]
    return np.stack(padded)


def _with_deps(array: NDArray, arrays: Sequence[NDArray], fill: float) -> NDArray:
    """Pads dependencies to as many per op as the graph has at most."""
    if array.ndim < 3:
        return array
    most = max(a.shape[2] for a in arrays)
    return np.pad(array, ((0, 0), (0, 0), (0, most - array.shape[2])), constant_values=fill)


def _node_tables(loc: Floats, scale: Floats, peak: Floats, ports: PortTables | None) -> NodeTables:
    """Tables of nodes, with the dummy node that fills groups of fewer shares."""
    loc, scale = (np.pad(x, ((0, 0), (0, 1), (0, 0))) for x in (loc, scale))
    peak = np.pad(peak, ((0, 1), (0, 0)))
    return NodeTables(jnp.asarray(loc, float), jnp.asarray(scale, float), jnp.asarray(peak, float), ports)


def slot_tables(slots: Slots) -> SlotTables:
    """`slots` on the device."""
    return SlotTables(jnp.asarray(slots.slot), jnp.asarray(slots.part), jnp.asarray(slots.replicas))


def group_factors(
    step: StepTables, nodes: NodeTables, slots: SlotTables, assignment: Int32[Array, " slot"], replica: Int32[Array, ""]
) -> GroupFactors:
    """Factors of one replica under an assignment (node of every slot, then spares)."""
    dummy = nodes.peak.shape[0] - 1
    seats = jnp.append(assignment[: slots.replicas.shape[0]], jnp.asarray(dummy, assignment.dtype))
    slot = lax.dynamic_index_in_dim(slots.slot, replica, axis=1, keepdims=False)  # [lane, share]
    part = lax.dynamic_index_in_dim(slots.part, replica, axis=1, keepdims=False)
    node = seats[slot]
    loc, scale = (_pick(table, step.row, node, part) for table in (nodes.loc, nodes.scale))

    def slower(found: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        return slower_of((found[0], other[0]), (found[1], other[1])), None

    (mean, spread), _ = lax.scan(slower, (loc[0], scale[0]), (loc[1:], scale[1:]))
    links = None if nodes.ports is None else _links(nodes.ports, slots, assignment, node, part)
    return GroupFactors(mean, spread, nodes.peak[node, part].max(axis=-1), links)


def _links(
    ports: PortTables,
    slots: SlotTables,
    assignment: Int32[Array, " slot"],
    node: Int32[Array, "lane share"],
    part: Int32[Array, "lane share"],
) -> CommFactors:
    """Factors of the communication of one replica: of each group the slowest of its nodes."""
    link, nic = (table[node, part].max(axis=-1) for table in (ports.link, ports.nic))
    rows = [nic if leaves else link for leaves in ports.leaves]
    rows[HAND_OVER], rows[END] = jnp.zeros_like(nic), end_links(ports, slots, assignment)
    own, before = (jnp.where(ports.edge_leaves, *pair) for pair in ((nic, link), (jnp.roll(nic, 1), jnp.roll(link, 1))))
    edge = jnp.maximum(own, before)
    return CommFactors(jnp.stack(rows)[..., None], jnp.ones((1, len(rows)), nic.dtype), edge[:, None])


def end_links(ports: PortTables, slots: SlotTables, assignment: Int32[Array, " slot"]) -> Float[Array, " lane"]:
    """Factor of the communication that ends the step: all replicas of a lane take part."""
    table = ports.nic if ports.leaves[END] else ports.link
    seats = jnp.append(assignment[: slots.replicas.shape[0]], jnp.asarray(table.shape[0] - 1, assignment.dtype))
    return table[seats[slots.slot], slots.part].max(axis=(1, 2))


def _pick(
    table: Float[Array, "row node part"],
    row: Int32[Array, "lane kind"],
    node: Int32[Array, "lane share"],
    part: Int32[Array, "lane share"],
) -> Float[Array, "share lane kind"]:
    share = jnp.swapaxes(node, 0, 1)[:, :, None], jnp.swapaxes(part, 0, 1)[:, :, None]
    rows = jnp.broadcast_to(row[None], (share[0].shape[0], *row.shape))
    return table[rows, jnp.broadcast_to(share[0], rows.shape), jnp.broadcast_to(share[1], rows.shape)]


def replica_time(
    step: StepTables,
    group: GroupFactors,
    noise: ReplicaNoise,
    variant: Int32[Array, ""] | int = 0,
    block: Int32[Array, ""] | int = 0,
) -> Float[Array, " sample"]:
    """Seconds until the slowest lane of one replica has ended, for every sample.

    Args:
        step: what the replica does.
        group: how slow its GPUs are.
        noise: of several replicas.
        variant: how many micro-batches it does.
        block: which noise; looked up level by level, so that nothing is copied.
    """
    _, n_level, n_lane = step.kind.shape
    n_sample = noise.network.shape[-1]
    network = noise.network[block]
    mean_s, spread_s = step.busy_s * group.loc, step.busy_s * group.scale
    lane = jnp.arange(n_lane, dtype=jnp.int32)

    def body(carry: tuple[Array, Array], level: Array) -> tuple[tuple[Array, Array], None]:
        free, ring = carry
        kind, dep, lag_s = step.kind[variant, level], step.dep[variant, level], step.lag_s[variant, level]
        residual, comm_residual = (None if e is None else e[block, level] for e in (noise.compute, noise.comm))
        op_s = mean_s[lane, kind][:, None]
        if residual is not None:
            op_s = op_s + spread_s[lane, kind][:, None] * residual
        if noise.work is not None and step.work is not None:
            row, share = (part[variant, level] for part in step.work)
            excess = noise.work[block]
            op_s = op_s * (1.0 + sum(share[:, k, None] * excess[row[:, k]] for k in range(row.shape[-1])))
        varied = None if comm_residual is None else 1.0 + step.comm_sd[lane, kind][:, None] * comm_residual
        comm_s = step.comm_s[lane, kind]
        for axis in step.axes:
            part_s = comm_s[:, axis, None] * network[axis]
            if group.links is not None:
                part_s = part_s * (group.links.sent() if axis == HAND_OVER else group.links.link[axis])
            op_s = op_s + (part_s if varied is None else part_s * varied)
        transfer = network[-2]
        if comm_residual is not None:
            transfer = transfer * (1.0 + step.p2p_sd * comm_residual)
        handed = (1.0 if group.links is None else group.links.handed(dep[:, d]) for d in range(dep.shape[1]))
        arrivals = (ring[dep[:, d]] + lag_s[:, d, None] * (transfer * own) for d, own in enumerate(handed))
        _, end = cell(free, arrivals, op_s, jnp.maximum)
        row = (level % step.depth) * n_lane
        return (end, lax.dynamic_update_slice_in_dim(ring, end, row, 0)), None

    dtype = step.busy_s.dtype
    start = jnp.zeros((n_lane, n_sample), dtype), jnp.zeros((step.depth * n_lane + 1, n_sample), dtype)
    (free, _), _ = lax.scan(body, start, jnp.arange(n_level, dtype=jnp.int32))
    exchange_s = step.end_comm_s[:, None] * network[-1]
    exchange_s = exchange_s if group.links is None else exchange_s * group.links.link[END]
    end = free + (step.end_s * group.peak)[:, None] + exchange_s
    return end.max(axis=0)
