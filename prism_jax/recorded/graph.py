"""StepGraph of a trace: one lane per stream of every stage, one row per recorded op, for one replica.

A transfer is two rows: the moment its worker is ready, and the transfer itself, which waits for the ready rows of all members of
its group (and for all replicas where the group spans them). Host gaps and durations are not in the graph: they are given when
it runs, per replica and sample.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from .._typing import Ints
from ..graph.step_graph import StepGraph
from .trace.dependencies import Dependencies
from .trace.trace import Trace, TraceOp


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
