"""Where the mean step goes, for an average GPU: parts that sum to the mean step time.

Busy time is averaged over pipeline stages. What remains of the noise-free step is bubble; what transfers between
stages add to it is exposed pp communication. What randomness adds is waiting for stragglers, except for stalls of the
whole step.
"""

from __future__ import annotations

from collections.abc import Mapping

import equinox as eqx
import jax.numpy as jnp

from ..kernels import COMM_AXES
from ..result import StepTimeDistribution
from ..simulate.explicit import unit_step
from ..simulate.program import Program


def breakdown(program: Program, distribution: StepTimeDistribution) -> Mapping[str, float]:
    """Seconds by cause; keys in the order a reader wants them."""
    graph = program.graph
    parts = {"compute": float(graph.compute_s.sum() / graph.n_lane + graph.end_compute_s.mean())}
    for axis, value in zip(COMM_AXES, graph.comm_s.sum(axis=(0, 1)) / graph.n_lane, strict=True):
        parts[f"{axis}_comm"] = float(value)
    parts["dp_comm"] += float(graph.end_comm_s.mean())
    fixed = distribution.deterministic_s
    no_lag = eqx.tree_at(lambda a: a.lag_s, program.arrays, jnp.zeros_like(program.arrays.lag_s))
    parts["pp_comm"] = float(graph.send_s.sum() / graph.n_lane) + max(0.0, fixed - float(unit_step(no_lag)))
    parts["bubble"] = max(0.0, fixed - sum(parts.values()))
    parts["stalls"] = distribution.mean_s * (1.0 - 1.0 / (1.0 + _stall_fraction(program)))
    parts["waiting_for_stragglers"] = distribution.mean_s - parts["stalls"] - fixed
    return parts


def _stall_fraction(program: Program) -> float:
    n_devices = program.job.plan.n_devices
    return sum(stall.prob(n_devices) * stall.mean_fraction for stall in program.job.variability.stalls)
