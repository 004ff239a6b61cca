"""Criticality of a recorded job by autodiff: how many seconds of the mean step each op type and each worker account for.

The step is a maximum of sums, homogeneous of degree one in its durations, so the seconds of all ops times their derivatives
sum to the step (Euler). The derivative is one on the critical path of a step and zero off it.
"""

from __future__ import annotations

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from .recorded_job import RecordedJob
from .replay import ReplayProgram, replay_program, step_seconds
from .score import CriticalShares

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
