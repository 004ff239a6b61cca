"""Time of one replica's step under an assignment: the max-plus scan of the engine, on noise that was drawn before.

    start = max(end[t-1, l], max_d(end[dep_d] + lag_d))       end = start + busy (loc + scale e) + communication

Pure and jittable; differentiable in loc, scale and the seconds.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Float, Int32

from ..graph.cell import cell
from .draws import ReplicaNoise
from .tables import GroupFactors, StepTables


def replica_time(
    step: StepTables,
    group: GroupFactors,
    noise: ReplicaNoise,
    variant: Int32[Array, ""] | int = 0,
    block: Int32[Array, ""] | int = 0,
) -> Float[Array, " sample"]:
    """Seconds until the slowest lane of one replica has ended, for every sample.

    Args:
        step: what the replica does.
        group: how slow its GPUs are.
        noise: of several replicas.
        variant: how many micro-batches it does.
        block: which noise; looked up level by level, so that nothing is copied.
    """
    _, n_level, n_lane = step.kind.shape
    n_sample = noise.network.shape[-1]
    network = noise.network[block]
    mean_s, spread_s = step.busy_s * group.loc, step.busy_s * group.scale
    lane = jnp.arange(n_lane, dtype=jnp.int32)

    def body(carry: tuple[Array, Array], level: Array) -> tuple[tuple[Array, Array], None]:
        free, ring = carry
        kind, dep, lag_s = step.kind[variant, level], step.dep[variant, level], step.lag_s[variant, level]
        residual, comm_residual = (None if e is None else e[block, level] for e in (noise.compute, noise.comm))
        op_s = mean_s[lane, kind][:, None]
        if residual is not None:
            op_s = op_s + spread_s[lane, kind][:, None] * residual
        varied = None if comm_residual is None else 1.0 + step.comm_sd[lane, kind][:, None] * comm_residual
        comm_s = step.comm_s[lane, kind]
        for axis in step.axes:
            part_s = comm_s[:, axis, None] * network[axis]
            op_s = op_s + (part_s if varied is None else part_s * varied)
        transfer = network[-2]
        if comm_residual is not None:
            transfer = transfer * (1.0 + step.p2p_sd * comm_residual)
        arrivals = (ring[dep[:, d]] + lag_s[:, d, None] * transfer for d in range(dep.shape[1]))
        _, end = cell(free, arrivals, op_s, jnp.maximum)
        row = (level % step.depth) * n_lane
        return (end, lax.dynamic_update_slice_in_dim(ring, end, row, 0)), None

    dtype = step.busy_s.dtype
    start = jnp.zeros((n_lane, n_sample), dtype), jnp.zeros((step.depth * n_lane + 1, n_sample), dtype)
    (free, _), _ = lax.scan(body, start, jnp.arange(n_level, dtype=jnp.int32))
    end = free + (step.end_s * group.peak)[:, None] + step.end_comm_s[:, None] * network[-1]
    return end.max(axis=0)
