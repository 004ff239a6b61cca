"""ScoreChain: a monotone piecewise-linear function of a normal score, evaluated without lookups.

    value(z) = offset + slope z + sum_k bend_k max(z - knot_k, 0)

One mechanism for every family of factors: a linear family has no knots, a heavy tail bends upwards at its knots. A chain of
`max` vectorises where a table lookup does not.
"""

from __future__ import annotations

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jaxtyping import Float

from ..variability.families import Family
from ..variability.score_map import NormalScoreMap

N_CALL_KNOTS = 9  # a call's residual is drawn for every op: few knots, dense where the family bends
# Longer chains, drawn once per column, loop: a long unrolled one takes longer to compile than to run.
MAX_UNROLLED_KNOTS = 12
N_TERMS = (0, MAX_UNROLLED_KNOTS, 48, 96)  # knots of a chain are one of these: another spread needs no other program
_QUADRATURE_Z = np.linspace(-8.0, 8.0, 4001)


class ScoreChain(eqx.Module):
    """Device form of a `NormalScoreMap`.

    Attributes:
        offset: value at score 0 without bends.
        slope: left of all knots.
        knots: [knot] increasing scores; none for a linear function.
        bends: [knot] what is added to the slope at each.
    """

    offset: Float[Array, ""]
    slope: Float[Array, ""]
    knots: Float[Array, " knot"]
    bends: Float[Array, " knot"]

    def __call__(self, z: Float[Array, "*cell"]) -> Float[Array, "*cell"]:
        """Value at normal score `z`, any shape, in z's dtype."""
        offset, slope, knots, bends = (x.astype(z.dtype) for x in (self.offset, self.slope, self.knots, self.bends))

        def add_bend(k: int | Array, value: Array) -> Array:
            return value + bends[k] * jnp.maximum(z - knots[k], 0.0)

        value = offset + slope * z
        if len(knots) > MAX_UNROLLED_KNOTS:
            return lax.fori_loop(0, len(knots), add_bend, value)
        for k in range(len(knots)):
            value = add_bend(k, value)
        return value

    def inverse(self, value: Float[Array, "*cell"]) -> Float[Array, "*cell"]:
        """Normal score of `value`, piece by piece from the left; the chain must increase."""
        slope = self.slope.astype(value.dtype)
        at = self.offset.astype(value.dtype)  # the current piece is at + slope z
        score = (value - at) / slope
        for k in range(self.knots.shape[0]):
            knot, bend = self.knots[k].astype(value.dtype), self.bends[k].astype(value.dtype)
            at, slope = at - bend * knot, slope + bend
            score = jnp.where(value > at + slope * knot, (value - at) / slope, score)
        return score


def chain_of(
    score_map: NormalScoreMap, *, shift: float = 0.0, scale: float = 1.0, n_terms: int | None = None
) -> ScoreChain:
    """Device form of `(score_map - shift) * scale`, padded to `n_terms` knots; None for the next of `N_TERMS`."""
    n_inner = len(score_map.knots_z) - 2
    terms = score_map.relu_terms(next((n for n in N_TERMS if n >= n_inner), n_inner) if n_terms is None else n_terms)
    values = (float(terms.intercept) - shift) * scale, float(terms.slope) * scale, terms.knots, terms.dslopes * scale
    return ScoreChain(*(jnp.asarray(v, float) for v in values))


def family_chain(family: Family, n_terms: int | None = None) -> ScoreChain:
    """Factor of `family` (mean one) as a function of a normal score."""
    return chain_of(NormalScoreMap.from_family(family), n_terms=n_terms)


def residual_map(family: Family) -> NormalScoreMap:
    """Map of a call's factor with few knots; exactly linear for a normal one that is never near zero."""
    linear = family.is_normal and family.cv <= 0.15
    return NormalScoreMap.from_family(family, 2 if linear else N_CALL_KNOTS)


def map_sd(score_map: NormalScoreMap) -> float:
    """Standard deviation of the map under N(0, 1), by the trapezoidal rule."""
    weight = np.exp(-0.5 * _QUADRATURE_Z**2)
    weight /= weight.sum()
    return float(np.sqrt(weight @ (score_map(_QUADRATURE_Z) - score_map.mean) ** 2))


def standardised(score_map: NormalScoreMap) -> ScoreChain:
    """The map with mean zero and standard deviation one, linear or with as many knots as a call's residual has at most."""
    n_inner = len(score_map.knots_z) - 2
    n_terms = max(n_inner, N_CALL_KNOTS - 2) if n_inner else 0
    return chain_of(score_map, shift=1.0, scale=1.0 / map_sd(score_map), n_terms=n_terms)
