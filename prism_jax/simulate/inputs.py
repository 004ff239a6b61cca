"""What the samplers need of a program, in their own terms."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np

from .._typing import Floats
from ..variability.score_map import NormalScoreMap
from .columns import ColumnInputs
from .explicit import unit_step
from .program import Program
from .replica_maximum import Shared


def regime_factors(program: Program, scores: Floats) -> Floats:
    """[score, axis] regime factors of every network axis."""
    return np.stack([NormalScoreMap.from_family(f)(scores) for f in program.regime], axis=-1)


def column_inputs(program: Program, regime: Floats, *, explicit: bool = False) -> ColumnInputs:
    """Traced inputs of the column sampler."""
    return ColumnInputs(
        graph=program.arrays,
        gpu=program.gpu,
        node=program.node,
        link=program.link,
        regime=jnp.asarray(regime, float),
        compute=program.compute_residual,
        comm=program.comm_residual,
        n_member=program.n_member,
        n_node=program.n_node,
        node_size=program.job.cluster.node_size,
        explicit=explicit,
        varying_links=program.varying_links,
    )


def shared_of(program: Program, scores: Floats) -> Shared:
    """What the replicas of a step share."""
    tree = program.job.variability
    exposed = exposed_by_axis(program)
    lane = int(np.argmax(program.graph.end_comm_s))
    end_s = program.graph.end_comm_s[lane] * regime_factors(program, scores)[:, -1]
    return Shared(
        scores=scores,
        regime=tuple(zip(program.regime, exposed, strict=True)),
        step=tree.step,
        stalls=tree.stalls,
        n_devices=program.job.plan.n_devices,
        end_s=end_s,
        end_call=program.end_call,
        step_ar1=tree.step_ar1,
    )


def exposed_by_axis(program: Program) -> list[float]:
    """Exposed seconds of a lane on average per network axis, for weighting the regime."""
    graph = program.graph
    inside = graph.comm_s.sum(axis=(0, 1)) / graph.n_lane
    lag = np.where(graph.dep_level >= 0, graph.lag_s, 0.0).sum() / graph.n_lane
    return [*inside.tolist(), float(lag + graph.send_s.sum() / graph.n_lane), float(graph.end_comm_s.mean())]


def deterministic(program: Program) -> float:
    """Step time with every factor one, seconds."""
    return float(unit_step(program.arrays))
