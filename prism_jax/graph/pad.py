"""Graphs padded to a few common shapes, so that a sweep over many jobs compiles a few times instead of once per job.

Idle lanes and levels do nothing and cost (nearly) nothing: the engine stops after the levels that are used, and a
draw depends on its place only, so padding never changes a number.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from .step_graph import OpT, StepGraph

MIN_LEVELS, MIN_LANES, MIN_DEPTH = 64, 1, 4


def padded_shape(n_level: int, n_lane: int) -> tuple[int, int]:
    """Next common number of levels (powers of four) and of lanes (powers of two)."""
    levels = MIN_LEVELS
    while levels < n_level:
        levels *= 4
    return levels, max(MIN_LANES, 1 << (n_lane - 1).bit_length())


def padded_depth(depth: int) -> int:
    """Next common depth of the ring buffer, a power of two."""
    return max(MIN_DEPTH, 1 << (depth - 1).bit_length())


def pad_graph(graph: StepGraph[OpT]) -> StepGraph[OpT]:
    """The same graph with idle lanes and levels at the end, and room for two dependencies."""
    levels, lanes = padded_shape(graph.n_level, graph.n_lane)
    by_row = ((0, levels - graph.n_level), (0, lanes - graph.n_lane))
    more_dep = (0, 2 - graph.dep_level.shape[-1])
    by_lane = (by_row[1],)
    return replace(
        graph,
        compute_s=np.pad(graph.compute_s, (*by_row, (0, 0))),
        comm_s=np.pad(graph.comm_s, (*by_row, (0, 0))),
        dep_level=np.pad(graph.dep_level, (*by_row, more_dep), constant_values=-1),
        dep_lane=np.pad(graph.dep_lane, (*by_row, more_dep)),
        lag_s=np.pad(graph.lag_s, (*by_row, more_dep)),
        op=np.pad(graph.op, by_row, constant_values=-1),
        end_compute_s=np.pad(graph.end_compute_s, by_lane),
        end_comm_s=np.pad(graph.end_comm_s, by_lane),
        send_s=np.pad(graph.send_s, by_row),
        meets=np.pad(graph.meets, by_row),
    )
