"""A job and a fleet as arrays: everything about a step that does not depend on which node sits where, and everything that does.

An op is told by its lane and its *kind* there (forward of a chunk, backward of a chunk, ...): its seconds under an assignment are
those of its kind times the slowdown of the group's slowest GPU, so an assignment is a handful of numbers per lane and replica.
"""

from __future__ import annotations

import re

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int32
from numpy.typing import NDArray

from ..._typing import Floats
from ...cost.step_cost import COMPUTE_CLASSES
from ...graph.step_graph import StepGraph
from ...job import Job
from ...simulate.program import Program, by_class, lower
from .fleet import Fleet
from .slots import Slots
from .slowest import Residual, peak_table, rows_of, slower_of, slowest_tables

MEMORY = COMPUTE_CLASSES.index("memory")
MICRO_BATCH = re.compile(r"(?<=[FBW])\d+")  # in labels such as "F3 c1 + BW0 c6"


class StepTables(eqx.Module):
    """The step of a job, as the engine runs it.

    Attributes:
        kind: [level, lane] kind of the op; 0 where the lane idles.
        busy_s: [lane, kind] compute seconds of its GPUs at slowdown one.
        row: [lane, kind] its mix of kernel classes, an index into `NodeTables`.
        comm_s: [level, lane, used] exposed communication.
        comm_sd: [level, lane] its residual standard deviation over its mean.
        p2p_sd: [] the same for transfers.
        dep: [level, lane, dep] row of the ring buffer, as in `GraphArrays`.
        lag_s: [level, lane, dep] seconds of transfers.
        end_s: [lane] compute after the last op.
        end_comm_s: [lane] communication after it.
        depth, axes: of the ring buffer; network axis of every used axis of comm_s.
    """

    kind: Int32[Array, "level lane"]
    busy_s: Float[Array, "lane kind"]
    row: Int32[Array, "lane kind"]
    comm_s: Float[Array, "level lane used"]
    comm_sd: Float[Array, "level lane"]
    p2p_sd: Float[Array, ""]
    dep: Int32[Array, "level lane dep"]
    lag_s: Float[Array, "level lane dep"]
    end_s: Float[Array, " lane"]
    end_comm_s: Float[Array, " lane"]
    depth: int = eqx.field(static=True)
    axes: tuple[int, ...] = eqx.field(static=True)


class NodeTables(eqx.Module):
    """What a node does to a step; the last node is a dummy that slows nothing down.

    Attributes:
        loc, scale: [row, node, part] mean and spread of the slowest GPU's factor.
        peak: [node, part] slowest persistent factor in memory-bound work.
    """

    loc: Float[Array, "row node part"]
    scale: Float[Array, "row node part"]
    peak: Float[Array, "node part"]


class SlotTables(eqx.Module):
    """Where the slots are: the arrays of `Slots`.

    Attributes:
        slot, part: [lane, replica, share].
        replicas: [slot, touched].
    """

    slot: Int32[Array, "lane replica share"]
    part: Int32[Array, "lane replica share"]
    replicas: Int32[Array, "slot touched"]


class GroupFactors(eqx.Module):
    """What an assignment makes of one replica.

    Attributes:
        loc, scale: [lane, kind] mean and spread of the slowest GPU's factor.
        peak: [lane] slowest factor in memory-bound work.
    """

    loc: Float[Array, "lane kind"]
    scale: Float[Array, "lane kind"]
    peak: Float[Array, " lane"]


def step_program(job: Job) -> Program:
    """The job with every compute class as a factor of its own."""
    return by_class(lower(job))


def tables_of(program: Program, fleet: Fleet, slots: Slots) -> tuple[StepTables, NodeTables]:
    """Arrays of a job lowered by `step_program`, on a fleet."""
    graph, arrays = program.graph, program.arrays
    kind, at = kinds_of(graph)
    shape = at.shape
    level, lane = at.ravel(), np.repeat(np.arange(shape[0]), shape[1])
    used = level >= 0
    seconds = np.where(used[:, None], graph.compute_s[level, lane], 0.0)
    sd = np.where(used, np.asarray(arrays.call_sd, dtype=np.float64)[level, lane], 0.0)
    share, row_sd, row = rows_of(seconds, sd)
    loc, scale = slowest_tables(fleet, slots.parts, share, row_sd, Residual.of(program.compute_residual))
    step = StepTables(
        kind=jnp.asarray(kind),
        busy_s=jnp.asarray(seconds.sum(axis=-1).reshape(shape), float),
        row=jnp.asarray(row.reshape(shape)),
        comm_s=arrays.comm_s,
        comm_sd=arrays.comm_sd,
        p2p_sd=arrays.p2p_sd,
        dep=arrays.dep,
        lag_s=arrays.lag_s,
        end_s=jnp.asarray(graph.end_compute_s, float),
        end_comm_s=arrays.end_comm_s,
        depth=arrays.depth,
        axes=arrays.axes,
    )
    return step, _node_tables(loc, scale, peak_table(fleet, slots.parts, MEMORY))


def _node_tables(loc: Floats, scale: Floats, peak: Floats) -> NodeTables:
    """With the dummy node that fills groups of fewer shares."""
    loc, scale = (np.pad(x, ((0, 0), (0, 1), (0, 0))) for x in (loc, scale))
    peak = np.pad(peak, ((0, 1), (0, 0)))
    return NodeTables(jnp.asarray(loc, float), jnp.asarray(scale, float), jnp.asarray(peak, float))


def slot_tables(slots: Slots) -> SlotTables:
    """`slots` on the device."""
    return SlotTables(jnp.asarray(slots.slot), jnp.asarray(slots.part), jnp.asarray(slots.replicas))


def kinds_of(graph: StepGraph) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Kind of every op [level, lane], 0 for none, and a level where each stands [lane, kind], -1 for none.

    Ops of a lane are of one kind if they are alike but for the micro-batch, by their labels: kinds then depend on the schedule
    only, not on its seconds.
    """
    names = [MICRO_BATCH.sub("", text) for text in graph.labels]
    kind = np.zeros(graph.label.shape, dtype=np.int32)
    at: list[list[int]] = []
    for lane in range(graph.n_lane):
        known: dict[str, int] = {}
        levels = [-1]
        for level in np.flatnonzero(graph.label[:, lane] >= 0).tolist():
            name = names[graph.label[level, lane]]
            if name not in known:
                known[name] = len(levels)
                levels.append(level)
            kind[level, lane] = known[name]
        at.append(levels)
    width = max(map(len, at))
    padded = np.array([levels + [-1] * (width - len(levels)) for levels in at], dtype=np.int32)
    return kind, padded


def group_factors(
    step: StepTables, nodes: NodeTables, slots: SlotTables, assignment: Int32[Array, " slot"], replica: Int32[Array, ""]
) -> GroupFactors:
    """What an assignment (node of every slot, then spares) makes of one replica."""
    dummy = nodes.peak.shape[0] - 1
    seats = jnp.append(assignment[: slots.replicas.shape[0]], jnp.asarray(dummy, assignment.dtype))
    slot = lax.dynamic_index_in_dim(slots.slot, replica, axis=1, keepdims=False)  # [lane, share]
    part = lax.dynamic_index_in_dim(slots.part, replica, axis=1, keepdims=False)
    node = seats[slot]
    loc, scale = (_pick(table, step.row, node, part) for table in (nodes.loc, nodes.scale))

    def slower(found: tuple[Array, Array], other: tuple[Array, Array]) -> tuple[tuple[Array, Array], None]:
        return slower_of((found[0], other[0]), (found[1], other[1])), None

    (mean, spread), _ = lax.scan(slower, (loc[0], scale[0]), (loc[1:], scale[1:]))
    return GroupFactors(mean, spread, nodes.peak[node, part].max(axis=-1))


def _pick(
    table: Float[Array, "row node part"],
    row: Int32[Array, "lane kind"],
    node: Int32[Array, "lane share"],
    part: Int32[Array, "lane share"],
) -> Float[Array, "share lane kind"]:
    share = jnp.swapaxes(node, 0, 1)[:, :, None], jnp.swapaxes(part, 0, 1)[:, :, None]
    rows = jnp.broadcast_to(row[None], (share[0].shape[0], *row.shape))
    return table[rows, jnp.broadcast_to(share[0], rows.shape), jnp.broadcast_to(share[1], rows.shape)]
