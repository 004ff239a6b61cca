"""Timeline: start and end seconds of every op of a StepGraph, for one draw of durations or none.

The plain NumPy counterpart of the jitted engine, for pictures, traces and checks: no samples, no replicas, no JAX.
"""

from dataclasses import dataclass

import numpy as np

from prism_jax.core.arrays import Floats
from prism_jax.graph.step_graph import StepGraph, cell


@dataclass(frozen=True)
class Timeline:
    """When every op of a member group runs.

    Attributes:
        start_s: [level, lane] seconds from the start of the step; where the lane idles, the end of the op before.
        end_s: [level, lane] end of the op, a blocking send included.
        step_s: end of the last lane, its end-of-step compute and communication included.
    """

    start_s: Floats
    end_s: Floats
    step_s: float


def timeline(
    graph: StepGraph, op_s: Floats | None = None, lag_s: Floats | None = None, end_s: Floats | None = None
) -> Timeline:
    """Run `graph` once.

    Args:
        graph: levels, lanes and dependencies.
        op_s: [level, lane] seconds of every op, send included; noise-free seconds if not given.
        lag_s: [level, lane, dep] seconds between a predecessor's end and an op; noise-free if not given.
        end_s: [lane] seconds after the last op of a lane; noise-free if not given.
    """
    busy_s = graph.compute_s.sum(-1) + graph.comm_s.sum(-1) + graph.send_s if op_s is None else op_s
    wait_s = graph.lag_s if lag_s is None else lag_s
    after_s = graph.end_compute_s + graph.end_comm_s if end_s is None else end_s
    start, end = np.zeros(busy_s.shape), np.zeros(busy_s.shape)
    lane_s = np.zeros(graph.n_lane)
    for level in range(graph.n_level):
        runs = graph.op[level] >= 0
        dep = graph.dep_level[level]
        waits = (dep >= 0) & runs[:, None]
        arrived_s = np.where(waits, end[dep, graph.dep_lane[level]] + wait_s[level], 0.0)
        start[level], end[level] = cell(lane_s, arrived_s.T, np.where(runs, busy_s[level], 0.0), np.maximum)
        lane_s = end[level]
    return Timeline(start, end, float((lane_s + after_s).max()))
