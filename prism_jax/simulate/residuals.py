"""Residuals of an op's kernel classes as one residual: its standard deviation exact per op, its shape that of the job's mix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from .._core.arrays import Values, namespace
from .._typing import Floats
from ..cost.step_cost import StepCost
from ..graph.score import N_CALL_KNOTS, ScoreChain, map_sd, residual_map, standardised
from ..graph.step_graph import StepGraph
from ..kernels import COMM_AXES
from ..variability.combine import combine
from ..variability.families import CONSTANT, Family
from ..variability.tree import Variability


@dataclass(frozen=True)
class CallResidual:
    """Standard deviation over mean, per op or one number, and the common shape."""

    sd: Floats
    chain: ScoreChain | None


def call_residuals(
    tree: Variability, cost: StepCost, graph: StepGraph
) -> tuple[CallResidual, CallResidual, CallResidual]:
    """Residual of compute [level, lane], of communication inside ops [level, lane], and of transfers between stages."""
    compute = _mixed_residual(compute_families(tree, cost), graph.compute_s)
    *axes, transfer = comm_families(tree, cost)
    lag = np.where(graph.dep_level >= 0, graph.lag_s, 0.0).sum(axis=-1)
    seconds = np.concatenate([graph.comm_s, np.stack([graph.send_s, lag], axis=-1)], axis=-1)
    comm = _mixed_residual([*axes, transfer, transfer], seconds, skip_last=True)
    p2p_sd = np.asarray(map_sd(residual_map(transfer)) if transfer.cv > 0 and lag.any() else 0.0)
    return compute, comm, CallResidual(p2p_sd, comm.chain)


def compute_families(tree: Variability, cost: StepCost) -> list[Family]:
    """Residual families of the compute classes."""
    return [tree.of(name).call for name in cost.classes]


def comm_families(tree: Variability, cost: StepCost) -> list[Family]:
    """Residual families of the axes that communicate inside ops, and of transfers between stages."""
    axes = [tree.of(cost.collective_of.get(axis, "all_reduce")).call for axis in COMM_AXES]
    return [*axes, tree.of(cost.collective_of["pp"]).call]


def op_sd(families: list[Family], seconds: Values) -> Values:
    """[level, lane] standard deviation over mean of `sum_c seconds_c X_c`; seconds [level, lane, class] may be traced."""
    xp = namespace(seconds)
    total = seconds.sum(axis=-1)
    variance = ((seconds * _sds(families)[None, None]) ** 2).sum(axis=-1)
    sd_s = xp.sqrt(xp.where(variance > 0.0, variance, 1.0))  # the root of zero has no derivative
    return xp.where(variance > 0.0, sd_s, 0.0) / xp.where(total > 0.0, total, 1.0)


def _sds(families: list[Family]) -> Floats:
    """[class] standard deviation over mean of one call."""
    return np.array([map_sd(residual_map(f)) if f.cv > 0 else 0.0 for f in families])


def _mixed_residual(families: list[Family], seconds: Floats, *, skip_last: bool = False) -> CallResidual:
    """Residual of `sum_c seconds_c X_c`; `skip_last` lets the last part shape the residual without adding to an op's sd."""
    own = slice(None, -1) if skip_last else slice(None)
    sds = _sds(families)
    sd = op_sd(families[own], seconds[..., own])
    share = seconds.sum(axis=(0, 1))
    varying = [(f, s) for f, s, w in zip(families, share, sds, strict=True) if s > 0 and w > 0]
    if not varying:
        return CallResidual(np.zeros_like(sd), None)
    if len(varying) == 1 or all(f.is_normal for f, _ in varying):
        shape = residual_map(varying[0][0])
    else:
        rest = 1.0 - sum(s for _, s in varying) / share.sum()
        weights = [s / share.sum() for _, s in varying]
        shape = combine([*(f for f, _ in varying), CONSTANT], [*weights, max(rest, 0.0)], N_CALL_KNOTS)
    return CallResidual(sd, standardised(shape))
