"""Replay: step times of a traced job under given durations. Pure, jitted, batched over replicas and samples, differentiable."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32

from ..graph.members import GivenDurations
from ..graph.propagate import GraphArrays, Network, propagate
from ..graph.step_graph import ring_rows
from ..kernels import NETWORK_AXES
from .graph import TraceGraph, trace_graph
from .trace.dependencies import Dependencies
from .trace.trace import Trace


class ReplayProgram(eqx.Module):
    """A trace's graph on the device, without durations.

    Attributes:
        graph: as `propagate` wants it; durations of width zero.
        run_cell: [op] place of an op's work among the cells (level * n_lane + lane).
        gap_cell: [op] place of the gap before it.
    """

    graph: GraphArrays
    run_cell: Int32[Array, " op"]
    gap_cell: Int32[Array, " op"]


def replay_program(trace: Trace, needs: Dependencies, n_replica: int | None = None) -> ReplayProgram:
    """The program of `trace` for `n_replica` replicas (as many as recorded by default)."""
    found = trace_graph(trace, needs)
    return ReplayProgram(
        graph=_arrays(found, trace.n_replica if n_replica is None else n_replica),
        run_cell=jnp.asarray(found.run_cell, jnp.int32),
        gap_cell=jnp.asarray(found.gap_cell, jnp.int32),
    )


def _arrays(found: TraceGraph, n_replica: int) -> GraphArrays:
    graph = found.graph
    shape = (graph.n_level, graph.n_lane)
    return GraphArrays(
        compute_s=jnp.zeros((*shape, 0)),
        call_sd=jnp.zeros(shape),
        comm_s=jnp.zeros((*shape, 0)),
        comm_sd=jnp.zeros(shape),
        p2p_sd=jnp.zeros(()),
        dep=jnp.asarray(ring_rows(graph.dep_level, graph.dep_lane, graph.ring_depth), jnp.int32),
        lag_s=jnp.zeros(graph.lag_s.shape),
        end_compute_s=jnp.zeros((graph.n_lane, 0)),
        end_comm_s=jnp.zeros(graph.n_lane),
        n_used=None,
        depth=graph.ring_depth,
        axes=(),
        meets=jnp.asarray(graph.meets) if graph.meets.any() else None,
        n_replica=n_replica,
    )


def step_seconds(
    program: ReplayProgram,
    run_s: Float[Array, "op replica sample"],
    gap_s: Float[Array, "op replica sample"],
) -> Float[Array, " sample"]:
    """Step time of every sample: the end of the last op of all replicas. To be called inside jitted code."""
    graph = with_durations(program, run_s, gap_s)
    ends = propagate(graph, GivenDurations(), _no_network(graph), None)
    return ends[0].reshape(program.graph.n_replica, -1).max(axis=0)


def with_durations(
    program: ReplayProgram, run_s: Float[Array, "op replica sample"], gap_s: Float[Array, "op replica sample"]
) -> GraphArrays:
    """The graph with every duration in its cell; columns are replicas, within them samples."""
    n_level, n_lane, _ = program.graph.compute_s.shape
    n_column = run_s.shape[1] * run_s.shape[2]
    table = jnp.zeros((n_level * n_lane, n_column), run_s.dtype)
    table = table.at[program.gap_cell].add(gap_s.reshape(len(gap_s), n_column))
    table = table.at[program.run_cell].add(run_s.reshape(len(run_s), n_column))
    return eqx.tree_at(
        lambda g: (g.compute_s, g.end_compute_s),
        program.graph,
        (table.reshape(n_level, n_lane, n_column), jnp.zeros((n_lane, n_column), run_s.dtype)),
    )


def _no_network(graph: GraphArrays) -> Network:
    n_lane, n_column = graph.end_compute_s.shape
    n_axis, dtype = len(NETWORK_AXES), graph.compute_s.dtype
    return Network(jnp.ones((n_axis, n_lane, n_column), dtype), jnp.ones((1, n_axis), dtype))


@eqx.filter_jit
def _replay(program: ReplayProgram, run_s: Array, gap_s: Array) -> Array:
    return step_seconds(program, run_s, gap_s)


def replay(
    program: ReplayProgram,
    run_s: Float[np.ndarray, "op replica sample"],
    gap_s: Float[np.ndarray, "op replica sample"] | None = None,
) -> Float[np.ndarray, " sample"]:
    """Step times under the given durations, seconds.

    Args:
        program: of the trace.
        run_s: [op, replica, sample] work of every op; transfers without waiting.
        gap_s: [op, replica, sample] host gaps before ops; none if not given.
    """
    gaps = np.zeros_like(run_s) if gap_s is None else gap_s
    return np.asarray(_replay(program, jnp.asarray(run_s, float), jnp.asarray(gaps, float)), dtype=np.float64)
