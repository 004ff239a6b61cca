"""MemberTable of a group: quantiles of the slowest of many members, given every member's persistent factor.

    F(x) = prod_i Phi_r((x / S_i - 1) / sd)        y(x) = -log(-log F(x))

with S_i the member's factor (weighted over kernel classes as the lane uses them) and Phi_r the residual's distribution. F is evaluated on
an even grid of x around the largest S_i; y(x) is nearly straight, so the inverse is taken piecewise-linear between those points.
"""

from __future__ import annotations

import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import log_ndtr

from ..graph.members import MemberTable
from ..graph.propagate import GraphArrays
from ..graph.score import ScoreChain

N_KNOT = 16
REACH_BELOW_SD, REACH_ABOVE_SD = 4.0, 6.5  # of the residual, around the slowest member


def member_table(graph: GraphArrays, chip: Array, residual: ScoreChain | None) -> MemberTable:
    """Table from chip [factor, member, lane, column]."""
    total = graph.compute_s.sum(axis=(0, 2))
    share = graph.compute_s.sum(axis=0) / jnp.where(total > 0, total, 1.0)[:, None]  # [lane, factor + 1]
    factor = share[:, -1, None] + jnp.einsum("lf,fmlc->mlc", share[:, :-1], chip)
    peak = factor.max(axis=0)
    weight = graph.compute_s.sum(axis=2)
    mean_sd = (graph.call_sd * weight).sum(axis=0) / jnp.where(total > 0, total, 1.0)
    if residual is None:
        flat = jnp.zeros((2, *peak.shape), peak.dtype)
        return MemberTable(peak, flat.at[1].set(1.0), flat, peak)
    sd = jnp.maximum(mean_sd, 1e-9)[:, None]
    reach = jnp.linspace(-REACH_BELOW_SD, REACH_ABOVE_SD, N_KNOT, dtype=peak.dtype)
    x = peak * (1.0 + sd * reach[:, None, None])  # [knot, lane, column]
    log_cdf = lax.fori_loop(
        0,
        factor.shape[0],
        lambda i, total: total + _log_cdf((x / factor[i] - 1.0) / sd, residual),
        jnp.zeros_like(x),
    )
    y = -jnp.log(jnp.maximum(-log_cdf, 1e-30))
    gap = jnp.maximum(jnp.diff(y, axis=0), 1e-6)
    slopes = jnp.diff(x, axis=0) / gap
    return MemberTable(x[0], y[:-1], slopes, peak)


def _log_cdf(value: Array, residual: ScoreChain) -> Array:
    """log P(residual <= value)."""
    return log_ndtr(residual.inverse(value))
