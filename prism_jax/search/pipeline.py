"""Noise-free end times of a pipeline for many plans at once: the max-plus scan over levels with plans in the place of draws.

All plans of a call share the schedule, its table of levels and its op signatures; their seconds per signature and edge differ.
Tables are padded to a few common sizes, so that a search over any space compiles a few programs.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float, Int
from numpy.typing import NDArray

from .._typing import Floats, Ints
from ..graph.cell import cell
from ..graph.levels import level_table
from ..graph.pad import padded_depth, padded_shape
from ..graph.signatures import Signatures, signature_seconds, signatures
from ..graph.step_graph import ring_depth, ring_rows
from .plans.table import Layout

Reals = NDArray[np.floating]
WIDTH = 256  # plans per call: the state of the scan stays in the second-level cache
MAX_TABLES = 4096


class Pipeline(NamedTuple):
    """A schedule ready to be run for any plan of its layout; indices are padded.

    Attributes:
        signature: [level, lane] of the op there; the number of signatures where the lane idles.
        dep_row: [level, lane, dep] row of the ring of end times where a predecessor stands; the last row for none.
        dep_edge: [level, lane, dep] edge that is crossed; the number of chunks for none.
        n_used: levels that are not padding.
        depth: levels the ring holds.
        ops: what the signatures stand for.
    """

    signature: Ints
    dep_row: Ints
    dep_edge: Ints
    n_used: int
    depth: int
    ops: Signatures


def pipeline(layout: Layout, n_micro_batch: int) -> Pipeline:
    """Tables of one layout with a number of micro-batches."""
    return _pipeline(layout._replace(schedule=layout.pipeline_schedule), n_micro_batch)


@lru_cache(maxsize=MAX_TABLES)
def _pipeline(layout: Layout, n_micro_batch: int) -> Pipeline:
    """The same; kept under the schedule itself, since a name may stand for another one later."""
    order = layout.pipeline_schedule.lay_out(layout.pp, n_micro_batch, layout.virtual_stages)
    table = level_table(order)
    ops = signatures(order, table)
    n_level, n_lane, n_dep = table.dep_level.shape
    levels, _ = padded_shape(n_level, n_lane)
    depth = padded_depth(ring_depth(table.dep_level))
    has = table.dep_level >= 0
    rows = ((0, levels - n_level), (0, 0))
    deps = (*rows, (0, 2 - n_dep))
    return Pipeline(
        np.pad(np.where(ops.of_op >= 0, ops.of_op, len(ops.kind)), rows, constant_values=len(ops.kind)).astype(
            np.int32
        ),
        np.pad(ring_rows(table.dep_level, table.dep_lane, depth), deps, constant_values=depth * n_lane),
        np.pad(np.where(has, table.dep_edge, layout.n_chunk), deps, constant_values=layout.n_chunk).astype(np.int32),
        n_level,
        depth,
        ops,
    )


def end_times(
    pipe: Pipeline, compute_s: Floats, comm_s: Floats, hidden_s: Floats, edge_s: Floats, blocking: Floats
) -> Floats:
    """When every stage has finished its last op [plan, lane], seconds after the start of the step.

    Args:
        pipe: tables of the plans' layout and number of micro-batches.
        compute_s, comm_s, hidden_s: [plan, kind, chunk, 1] seconds, summed over kernel classes and network axes.
        edge_s: [plan, chunk] from every chunk to the next.
        blocking: [plan] 1 where a send occupies the sender, 0 where it is a lag.
    """
    compute, comm = signature_seconds(pipe.ops, compute_s, comm_s, hidden_s)
    seconds = (compute + comm)[..., 0] + sent_s(pipe, edge_s) * blocking[:, None]
    return run(pipe, seconds.T, (edge_s * (1.0 - blocking)[:, None]).T).T


def op_counts(pipe: Pipeline) -> NDArray[np.intp]:
    """[signature] how often it runs in a step."""
    of_op = pipe.ops.of_op
    return np.bincount(of_op[of_op >= 0], minlength=len(pipe.ops.lane))


def sent_s(pipe: Pipeline, edge_s: Floats) -> Floats:
    """[plan, signature] seconds of what an op sends to other stages."""
    edge = np.append(edge_s, np.zeros((len(edge_s), 1)), axis=1)  # edge -1: none
    return edge[:, pipe.ops.edge].sum(axis=-1)


def run(pipe: Pipeline, seconds: Reals, lag_s: Reals, *, width: int = WIDTH) -> Floats:
    """End times [lane, column] of seconds [signature, column] and lags [edge, column], columns being plans or draws.

    Args:
        width: columns per call; few pad to an eighth of it.

    Notes:
        One lane waits for nobody, so that its ops add up.
    """
    if pipe.signature.shape[1] == 1:
        return (op_counts(pipe) @ np.asarray(seconds, dtype=np.float64))[None]
    starts = range(0, seconds.shape[1], width)
    ends = [_run(pipe, width, seconds[:, i : i + width], lag_s[:, i : i + width]) for i in starts]
    return np.concatenate([np.asarray(part, dtype=np.float64)[:, :n] for part, n in ends], axis=1)


def _run(pipe: Pipeline, width: int, seconds: Reals, lag: Reals) -> tuple[Array, int]:
    """End times [lane, column] of up to `width` columns, and how many of them there are."""
    n = seconds.shape[1]
    width = width if n > width // 8 else width // 8
    arrays = [_padded(part, width) for part in (seconds, lag)]
    return _ends(pipe.signature, pipe.dep_row, pipe.dep_edge, np.int32(pipe.n_used), *arrays, depth=pipe.depth), n


def _padded(part: Reals, width: int) -> NDArray[np.float32]:
    """The same in float32 with rows up to a power of two, one of zeros at least, and columns up to `width`."""
    padded = np.zeros((1 << len(part).bit_length(), width), np.float32)
    padded[: len(part), : part.shape[1]] = part
    return padded


@partial(jax.jit, static_argnames="depth")
def _ends(
    signature: Int[Array, "level lane"],
    dep_row: Int[Array, "level lane dep"],
    dep_edge: Int[Array, "level lane dep"],
    n_used: Int[Array, ""],
    seconds: Float[Array, "signature plan"],
    lag: Float[Array, "edge plan"],
    *,
    depth: int,
) -> Float[Array, "lane plan"]:
    n_lane, width = signature.shape[1], seconds.shape[1]

    def level(t: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        free, ring = state
        arrivals = [ring[dep_row[t, :, d]] + lag[dep_edge[t, :, d]] for d in range(dep_row.shape[-1])]
        _, end = cell(free, arrivals, seconds[signature[t]], jnp.maximum)
        return end, lax.dynamic_update_slice(ring, end, (t % depth * n_lane, 0))

    zeros = jnp.zeros((n_lane, width), seconds.dtype)
    ring = jnp.zeros((depth * n_lane + 1, width), seconds.dtype)
    return lax.fori_loop(0, n_used, level, (zeros, ring))[0]
