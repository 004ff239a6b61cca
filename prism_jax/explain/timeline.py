"""Op-by-op timelines of the slowest replica of a typical and of a slow step."""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array

from ..graph.propagate import Trail
from ..result import StepTimeDistribution
from ..simulate.columns import Chunk, ColumnInputs, one_chunk, trail_of_chunk
from ..simulate.inputs import column_inputs, regime_factors
from ..simulate.predict import column_design
from ..simulate.program import Program
from .types import Timeline

N_COLUMN = 128


def timelines(program: Program, distribution: StepTimeDistribution, key: Array) -> list[Timeline]:
    """The median and the p99 step: the simulated replica columns whose end comes nearest to them."""
    design = column_design(program, N_COLUMN, 1)
    inputs = column_inputs(program, regime_factors(program, np.zeros(1)))
    peak = jnp.asarray(design.peak_score[0], float) if program.has_persistent else None
    chunk = Chunk(jnp.zeros((), jnp.int32), peak)
    times, trail = _run(inputs, key, chunk)
    ends = np.asarray(times[0], dtype=np.float64)
    wanted = {"median step": distribution.quantile(0.5), "p99 step": distribution.quantile(0.99)}
    return [_timeline(program, title, trail, int(np.abs(ends - q).argmin()), ends) for title, q in wanted.items()]


@eqx.filter_jit
def _run(inputs: ColumnInputs, key: Array, chunk: Chunk) -> tuple[Array, Trail]:
    return one_chunk(inputs, key, chunk, N_COLUMN), trail_of_chunk(inputs, key, chunk, N_COLUMN)


def _timeline(program: Program, title: str, trail: Trail, column: int, ends: np.ndarray) -> Timeline:
    return Timeline(
        title=title,
        start_s=np.asarray(trail.start_s[..., column], dtype=np.float64),
        end_s=np.asarray(trail.end_s[..., column], dtype=np.float64),
        compute_s=np.asarray(trail.compute_s[..., column], dtype=np.float64),
        label=program.graph.op,
        labels=tuple([str(op) for op in program.graph.ops]),
        end_of_lane_s=np.asarray(trail.end_of_lane_s[..., column], dtype=np.float64),
        step_s=float(ends[column]),
    )
