"""MemberTable of a group: quantiles of the slowest of many members, given every member's persistent factor.

    F(e) = prod_i Phi_r(((S_max - S_i) / S_i + e S_max / S_i) / sd)        y(e) = -log(-log F(e))

with S_i the member's factor (weighted over kernel classes as the lane uses them), Phi_r the residual's distribution, and the
maximum written as S_max (1 + e): a residual far smaller than the resolution of S_max keeps its digits. The table needs e at given
y, and F is known at given e. In the residual's normal score z, with e = sd r(z), y(z) is smooth for any residual, however heavy
its tail: a coarse table of it tells which e belong to the wanted y, and F there is exact again.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.scipy.special import log_ndtr
from jaxtyping import Float

from ..graph.members import MemberTable, piecewise
from ..graph.propagate import GraphArrays
from ..graph.score import ScoreChain

COARSE_SCORES = (-4.0, -1.8, 0.4, 2.6, 4.8, 7.0)
# Wanted knots: F from 6e-4 to 1 - 1.5e-8, dense where most maxima lie.
WANTED_Y = (-2.0, -1.2, -0.5, 0.1, 0.7, 1.4, 2.2, 3.2, 4.5, 6.0, 8.0, 10.5, 14.0, 18.0)

SMALLEST_SD = 1e-9  # where nothing varies from call to call


def member_table(
    graph: GraphArrays, chip: Float[Array, "factor member lane column"], residual: ScoreChain | None
) -> MemberTable:
    """Table of every lane's group.

    Args:
        graph: seconds and residual standard deviations; those of a lane's ops are averaged, weighted by their seconds.
        chip: persistent factors of all members.
        residual: standardised residual of a normal score; None for none, so that the slowest factor decides.
    """
    total = graph.compute_s.sum(axis=(0, 2))
    share = graph.compute_s.sum(axis=0) / jnp.where(total > 0, total, 1.0)[:, None]  # [lane, part]
    factor = share[None, :, -1, None] + jnp.einsum("lf,fmlc->mlc", share[:, :-1], chip)
    peak = factor.max(axis=0)
    if residual is None:
        flat = jnp.zeros((2, *peak.shape), peak.dtype)
        return MemberTable(peak, flat[0], flat.at[1].set(1.0), flat)
    weight = graph.compute_s.sum(axis=2)
    mean_sd = (graph.call_sd * weight).sum(axis=0) / jnp.where(total > 0, total, 1.0)
    sd = jnp.maximum(mean_sd, SMALLEST_SD)[None, :, None]
    score = jnp.asarray(COARSE_SCORES, peak.dtype)[:, None, None]
    rough = _gumbel(sd * residual(score), factor, sd, residual)
    slopes = jnp.diff(score, axis=0) / _gap(rough)
    wanted = jnp.asarray(WANTED_Y, peak.dtype)
    fine = jax.vmap(lambda y: piecewise(y, score[0], rough[:-1], slopes))(wanted)
    excess = sd * residual(fine)  # [knot, lane, column]
    y = _gumbel(excess, factor, sd, residual)
    return MemberTable(peak, excess[0], y[:-1], jnp.diff(excess, axis=0) / _gap(y))


def _gumbel(
    excess: Float[Array, "knot lane #column"],
    factor: Float[Array, "member lane column"],
    sd: Float[Array, "1 lane 1"],
    residual: ScoreChain,
) -> Float[Array, "knot lane column"]:
    """-log(-log P(slowest <= peak (1 + excess))) from the members' persistent factors."""
    peak = factor.max(axis=0)

    def add(i: int | Array, total: Array) -> Array:
        over = ((peak - factor[i])[None] + excess * peak[None]) / factor[i][None]
        return total + log_ndtr(residual.inverse(over / sd))

    log_cdf = lax.fori_loop(0, factor.shape[0], add, jnp.zeros((*excess.shape[:-1], peak.shape[-1]), peak.dtype))
    return -jnp.log(jnp.maximum(-log_cdf, 1e-30))


def _gap(y: Float[Array, "knot lane column"]) -> Float[Array, "knot-1 lane column"]:
    return jnp.maximum(jnp.diff(y, axis=0), 1e-6)
