"""Replays a recorded job under given durations: step times, how well its dependencies explain its steps, and its criticality.

The graph has one lane per stream of every stage and one row per recorded op, for one replica. A transfer is two rows: the moment
its worker is ready, and the transfer itself, which waits for the ready rows of all members of its group (and for all replicas
where the group spans them). Host gaps and durations are not in the graph: they are given when it runs, per replica and sample.

A replay is pure, jitted, batched over replicas and samples, differentiable; three replays of the recorded durations check the
dependencies. Criticality is by autodiff: the seconds of the mean step that each op type and each worker account for. The step is
a maximum of sums, homogeneous of degree one in its durations, so the seconds of all ops times their derivatives sum to the step
(Euler). The derivative is one on the critical path of a step and zero off it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jaxtyping import Float, Int32

from ..core.arrays import Floats, Ints
from ..core.kernels import NETWORK_AXES
from ..graph.propagate import CommFactors, GivenDurations, GraphArrays, propagate
from ..graph.step_graph import StepGraph, ring_rows
from ..trace.dependencies import Dependencies, durations, observed_waits
from ..trace.pipeline import dependencies
from ..trace.trace import Trace, TraceOp
from .recorded_job import RecordedJob
from .report import CriticalShares, MedianError, ReplayErrors


class Ready(NamedTuple):
    """The moment a worker is ready for a transfer."""

    op: TraceOp

    def __str__(self) -> str:
        return f"ready for {self.op}"


@dataclass(frozen=True)
class TraceGraph:
    """A StepGraph and where in it the ops of the trace are.

    Attributes:
        graph: levels and lanes; all durations zero.
        run_cell: [op] level * n_lane + lane of the op's work.
        gap_cell: [op] the same of the gap before it: its ready row, or `run_cell` for plain work.
    """

    graph: StepGraph[TraceOp | Ready]
    run_cell: Ints
    gap_cell: Ints


def trace_graph(trace: Trace, needs: Dependencies) -> TraceGraph:
    """The graph of one replica of `trace`; `needs` are its dependencies."""
    rows = _Rows(len(needs.lanes))
    n_op = len(needs.after)
    run, ready = [-1] * n_op, [-1] * n_op
    members = needs.members()
    missing = [len(found) for found in members]
    for op in needs.order.tolist():
        after = [run[u] for u in needs.after[op]]
        lane, group = int(needs.lane[op]), int(needs.group[op])
        if group < 0:
            run[op] = ready[op] = rows.add(lane, after, trace.ops[op])
            continue
        ready[op] = rows.add(lane, after, Ready(trace.ops[op]))
        missing[group] -= 1
        if missing[group] == 0:
            arrived = [ready[peer] for peer in members[group]]
            for peer in members[group]:
                meets = bool(needs.meets_replicas[peer])
                run[peer] = rows.add(int(needs.lane[peer]), arrived, trace.ops[peer], meets)
    graph = rows.graph()
    place = np.array(rows.level, dtype=np.int32) * graph.n_lane + np.array(rows.lane, dtype=np.int32)
    return TraceGraph(graph, place[run], place[ready])


class _Rows:
    """Rows in an order in which they can run; each as early as its lane and its predecessors allow."""

    def __init__(self, n_lane: int) -> None:
        self.lane: list[int] = []
        self.level: list[int] = []
        self.after: list[list[int]] = []
        self.ops: list[TraceOp | Ready] = []
        self.meets: list[bool] = []
        self.n_lane = n_lane
        self.last: dict[int, int] = {}  # lane -> its latest row

    def add(self, lane: int, after: list[int], op: TraceOp | Ready, meets: bool = False) -> int:
        latest: dict[int, int] = {}  # of several predecessors on one lane the last says it all
        for row in after:
            if self.lane[row] != lane:
                other = latest.setdefault(self.lane[row], row)
                if self.level[row] > self.level[other]:
                    latest[self.lane[row]] = row
        before = [*latest.values(), *([self.last[lane]] if lane in self.last else [])]
        self.lane.append(lane)
        self.level.append(1 + max((self.level[row] for row in before), default=-1))
        self.after.append(list(latest.values()))
        self.ops.append(op)
        self.meets.append(meets)
        self.last[lane] = len(self.lane) - 1
        return self.last[lane]

    def graph(self) -> StepGraph[TraceOp | Ready]:
        n_level = 1 + max(self.level)
        n_dep = max(1, max(len(found) for found in self.after))
        shape = (n_level, self.n_lane)
        op = np.full(shape, -1, dtype=np.int32)
        meets = np.zeros(shape, dtype=bool)
        dep_level = np.full((*shape, n_dep), -1, dtype=np.int32)
        dep_lane = np.zeros_like(dep_level)
        for row, (level, lane) in enumerate(zip(self.level, self.lane, strict=True)):
            op[level, lane] = row
            meets[level, lane] = self.meets[row]
            for slot, other in enumerate(self.after[row]):
                dep_level[level, lane, slot] = self.level[other]
                dep_lane[level, lane, slot] = self.lane[other]
        return StepGraph(
            compute_s=np.zeros((*shape, 1)),
            comm_s=np.zeros((*shape, 0)),
            dep_level=dep_level,
            dep_lane=dep_lane,
            lag_s=np.zeros(dep_level.shape),
            op=op,
            ops=tuple(self.ops),
            end_compute_s=np.zeros(self.n_lane),
            end_comm_s=np.zeros(self.n_lane),
            meets=meets,
        )


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


def _no_network(graph: GraphArrays) -> CommFactors:
    n_lane, n_column = graph.end_compute_s.shape
    n_axis, dtype = len(NETWORK_AXES), graph.compute_s.dtype
    return CommFactors(jnp.ones((n_axis, n_lane, n_column), dtype), jnp.ones((1, n_axis), dtype))


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


def replay_recorded(trace: Trace) -> ReplayErrors:
    """Relative errors of replayed steps against recorded ones.

    By the rules of the schedule alone, without host gaps (as published simulators replay); with the waits that are read off the
    recording; with host gaps too, which is an identity unless clocks disagree.
    """
    needs = dependencies(trace)
    waits = observed_waits(trace, needs).needs
    run_s, gap_s = durations(trace, waits)
    by_rule = replay(replay_program(trace, needs, trace.n_replica), durations(trace, needs).run_s)
    program = replay_program(trace, waits, trace.n_replica)
    by_rule_error = np.abs(by_rule / trace.step_s - 1.0)
    return ReplayErrors(
        median_abs_error=float(np.median(by_rule_error)),
        p90_abs_error=float(np.quantile(by_rule_error, 0.9)),
        with_observed_waits=_median_error(replay(program, run_s), trace),
        with_host_gaps=_median_error(replay(program, run_s, gap_s), trace),
    )


def _median_error(replayed_s: Floats, trace: Trace) -> MedianError:
    return MedianError(float(np.median(np.abs(replayed_s / trace.step_s - 1.0))))


HOST = "host gaps"


def trace_criticality(job: RecordedJob) -> CriticalShares:
    """Shares of the critical seconds of the recorded steps of `job`, by op type and by worker."""
    trace = job.trace
    program = replay_program(trace, job.waits.needs, trace.n_replica)
    found = _critical_seconds(program, jnp.asarray(job.run_s, float), jnp.asarray(job.gap_s, float))
    run, gap = (np.asarray(x, dtype=np.float64) for x in found)  # [op, replica]
    op_type = np.array([op.op_type for op in trace.ops])
    shares = {str(name): float(run[op_type == name].sum()) for name in np.unique(op_type)} | {HOST: float(gap.sum())}
    stage = np.array([op.stage for op in trace.ops])
    by_worker = np.stack([(run + gap)[stage == s].sum(axis=0) for s in range(trace.n_stage)], axis=1)
    total = float(by_worker.sum())
    named = sorted(((name, value / total) for name, value in shares.items() if value > 0), key=lambda x: -x[1])
    return CriticalShares(dict(named), trace.by_rank(by_worker / total))


@eqx.filter_jit
def _critical_seconds(program: ReplayProgram, run_s: Array, gap_s: Array) -> tuple[Array, Array]:
    """Mean critical seconds of the work of every op and of the gap before it, both [op, replica]."""

    def mean_step(run_s: Array, gap_s: Array) -> Array:
        return step_seconds(program, run_s, gap_s).mean()

    d_run, d_gap = jax.grad(mean_step, argnums=(0, 1))(run_s, gap_s)
    return (d_run * run_s).sum(axis=-1), (d_gap * gap_s).sum(axis=-1)
