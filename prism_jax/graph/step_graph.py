"""StepGraph: the one representation of a step that the jitted code runs, whether it comes from a spec or from a trace.

A row is one op on one *lane* (a pipeline stage of the spec front end, a rank or stream of a trace) at one *level*. Lanes run
their ops in level order; an op also waits for up to `dep` predecessors on other lanes, each at an earlier level, plus a lag (the
transfer between them). Members of a lane (tensor-parallel ranks and whatever else synchronises inside every op) are not lanes:
an op lasts as long as its slowest member.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats, Ints

OpT = TypeVar("OpT")


@dataclass(frozen=True)
class StepGraph(Generic[OpT]):
    """Struct of arrays; `level` first, `lane` second. Rows are ops of one type: `schedule.base.Op`, or those of a trace.

    Attributes:
        compute_s: [level, lane, compute_class] noise-free compute seconds; zero where the lane idles.
        comm_s: [level, lane, comm_axis] noise-free exposed communication seconds inside the op.
        dep_level: [level, lane, dep] level of a predecessor, -1 for none.
        dep_lane: [level, lane, dep] lane of that predecessor.
        lag_s: [level, lane, dep] point-to-point seconds between the predecessor's end and this op.
        op: [level, lane] index into `ops`, -1 where the lane idles.
        ops: what the rows run, lane by lane in running order; `str(op)` is its name in a timeline.
        end_compute_s: [lane] work after the last op of a lane (optimizer).
        end_comm_s: [lane] exposed communication across replicas at the end of the step.
        send_s: [level, lane] noise-free point-to-point seconds that a blocking send keeps the lane busy at the end of the op
            (part of the op; its followers need no lag then). Zeros if not given.
        meets: [level, lane] whether the op starts in all replicas together, when the last is ready. Nowhere if not given.
    """

    compute_s: Floats
    comm_s: Floats
    dep_level: Ints
    dep_lane: Ints
    lag_s: Floats
    op: Ints
    ops: tuple[OpT, ...]
    end_compute_s: Floats
    end_comm_s: Floats
    send_s: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    meets: NDArray[np.bool_] = field(default_factory=lambda: np.zeros((0, 0), dtype=bool))

    def __post_init__(self) -> None:
        if self.send_s.size == 0:
            object.__setattr__(self, "send_s", np.zeros(self.op.shape))
        if self.meets.size == 0:
            object.__setattr__(self, "meets", np.zeros(self.op.shape, dtype=bool))

    @property
    def n_level(self) -> int:
        """Levels, idle ones included."""
        return int(self.compute_s.shape[0])

    @property
    def n_lane(self) -> int:
        """Lanes, idle ones included."""
        return int(self.compute_s.shape[1])

    @property
    def ring_depth(self) -> int:
        """How many levels back the furthest predecessor lies, plus one: end times older than that are never read."""
        return ring_depth(self.dep_level)


def ring_depth(dep_level: Ints) -> int:
    """How many levels back the furthest of the predecessors [level, lane, dep] lies, plus one."""
    level = np.arange(len(dep_level))[:, None, None]
    return int(np.where(dep_level >= 0, level - dep_level, 0).max(initial=0)) + 1


def ring_rows(dep_level: Ints, dep_lane: Ints, depth: int) -> Ints:
    """[level, lane, dep] row of a ring buffer of `depth` levels where a predecessor's end stands; the row after them for none."""
    n_lane = dep_level.shape[1]
    return np.where(dep_level >= 0, (dep_level % depth) * n_lane + dep_lane, depth * n_lane).astype(np.int32)
