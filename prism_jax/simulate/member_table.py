"""MemberTable of a group: quantiles of the slowest of many members, given every member's persistent factor.

    F(x) = prod_i Phi_r((x / S_i - 1) / sd)        y(x) = -log(-log F(x))

with S_i the member's factor (weighted over kernel classes as the lane uses them) and Phi_r the residual's distribution. The
table needs x at given y, and F is known at given x. In the residual's normal score z, with x = S_max (1 + sd r(z)), y(z) is
smooth for any residual, however heavy its tail: a coarse table of it tells which x belong to the wanted y, and F there is exact
again.
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
    weight = graph.compute_s.sum(axis=2)
    mean_sd = (graph.call_sd * weight).sum(axis=0) / jnp.where(total > 0, total, 1.0)
    if residual is None:
        flat = jnp.zeros((2, *peak.shape), peak.dtype)
        return MemberTable(peak, flat.at[1].set(1.0), flat, peak)
    sd = jnp.maximum(mean_sd, 1e-9)[None, :, None]
    score = jnp.asarray(COARSE_SCORES, peak.dtype)[:, None, None]
    rough = _gumbel(peak[None] * (1.0 + sd * residual(score)), factor, sd, residual)
    slopes = jnp.diff(score, axis=0) / _gap(rough)
    wanted = jnp.asarray(WANTED_Y, peak.dtype)
    fine = jax.vmap(lambda y: piecewise(y, score[0], rough[:-1], slopes))(wanted)
    x = peak[None] * (1.0 + sd * residual(fine))  # [knot, lane, column]
    y = _gumbel(x, factor, sd, residual)
    return MemberTable(x[0], y[:-1], jnp.diff(x, axis=0) / _gap(y), peak)


def _gumbel(
    x: Float[Array, "knot lane column"],
    factor: Float[Array, "member lane column"],
    sd: Float[Array, "1 lane 1"],
    residual: ScoreChain,
) -> Float[Array, "knot lane column"]:
    """-log(-log P(slowest <= x)) from the members' persistent factors."""
    log_cdf = lax.fori_loop(
        0,
        factor.shape[0],
        lambda i, total: total + log_ndtr(residual.inverse((x / factor[i][None] - 1.0) / sd)),
        jnp.zeros_like(x),
    )
    return -jnp.log(jnp.maximum(-log_cdf, 1e-30))


def _gap(y: Float[Array, "knot lane column"]) -> Float[Array, "knot-1 lane column"]:
    return jnp.maximum(jnp.diff(y, axis=0), 1e-6)
