"""The slowest member of a group: every lane's ranks that synchronise inside every op.

Two ways, one interface. `ExplicitMembers` draws every member's residual: exact, the default for small groups, and brute force for
any. `MemberTable` draws the maximum directly for large groups, from its distribution given the members' persistent factors.
"""

from __future__ import annotations

import functools
from typing import Protocol, runtime_checkable

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array, lax
from jaxtyping import Complex64, Float

from .random import exponential_pairs, normal_pairs
from .score import ScoreChain

MAX_UNROLLED = 32


@runtime_checkable  # the type checker of the tests asks
class Members(Protocol):
    """What `propagate` asks of a group."""

    @property
    def n_draw(self) -> int:
        """Rows of random words an op needs."""
        ...

    def duration(
        self,
        compute_s: Float[Array, "lane part"],
        call_sd: Float[Array, " lane"] | None,
        words: Complex64[Array, "word lane pair"] | None,
        chain: ScoreChain | None,
    ) -> Float[Array, "lane column"]:
        """Seconds until the slowest member has finished an op [lane, column].

        Args:
            compute_s: [lane, part] noise-free seconds, the last part constant.
            call_sd: [lane] residual standard deviation over mean; None for no residual.
            words: [word, lane, pair] packed random words, at least `n_draw` rows.
            chain: standardised residual of a normal score.
        """
        ...


class ExplicitMembers(eqx.Module):
    """Every member's residual drawn.

    Attributes:
        chip: [factor, member, lane, column] persistent factors.
    """

    chip: Float[Array, "factor member lane column"]

    @property
    def n_draw(self) -> int:
        """One row per member."""
        return self.chip.shape[1]

    def duration(
        self,
        compute_s: Float[Array, "lane part"],
        call_sd: Float[Array, " lane"] | None,
        words: Complex64[Array, "word lane pair"] | None,
        chain: ScoreChain | None,
    ) -> Float[Array, "lane column"]:
        """[lane, column] seconds of the slowest member of every lane."""
        if words is None or chain is None or call_sd is None:
            return self._slowest(self.chip, compute_s, None, None)
        pairs = normal_pairs(words)[: self.n_draw]  # all rows: one array, made once
        half = self.chip.shape[-1] // 2
        halves = [
            self._slowest(self.chip[..., :half], compute_s, call_sd, chain(lax.real(pairs)).astype(compute_s.dtype)),
            self._slowest(self.chip[..., half:], compute_s, call_sd, chain(lax.imag(pairs)).astype(compute_s.dtype)),
        ]
        return jnp.concatenate(halves, axis=-1)

    @staticmethod
    def _slowest(chip: Array, compute_s: Array, call_sd: Array | None, residual: Array | None) -> Array:
        """Unrolled over the members of a small group: a reduction over their axis would not vectorise."""

        def seconds(chip: Array, residual: Array | None) -> Array:
            value = compute_s[:, -1, None] + sum(compute_s[:, f, None] * chip[f] for f in range(chip.shape[0]))
            if residual is None or call_sd is None:
                return jnp.broadcast_to(value, chip.shape[1:])
            return value * (1.0 + call_sd[:, None] * residual)

        n_member = chip.shape[1]
        if n_member > MAX_UNROLLED:
            return jax.vmap(seconds, in_axes=(1, 0))(chip, residual).max(axis=0)
        each = [seconds(chip[:, m], None if residual is None else residual[m]) for m in range(n_member)]
        return functools.reduce(jnp.maximum, each)


class GivenDurations(eqx.Module):
    """No members and no draws: the seconds of every op are given, column by column, in the place of its parts."""

    @property
    def n_draw(self) -> int:
        """Nothing is drawn."""
        return 0

    def duration(
        self,
        compute_s: Float[Array, "lane column"],
        call_sd: Float[Array, " lane"] | None,
        words: Complex64[Array, "word lane pair"] | None,
        chain: ScoreChain | None,
    ) -> Float[Array, "lane column"]:
        """[lane, column] seconds as given."""
        return compute_s


class MemberTable(eqx.Module):
    """The maximum over many members of persistent x residual, drawn directly.

    A piecewise-linear quantile function of the maximum on Gumbel scale y = -log(-log F): nearly a straight line for
    any maximum, so few knots suffice. One exponential draw E gives the maximum at y = -log E, as a factor of the op's
    noise-free seconds: peak (1 + excess).

    Attributes:
        peak: [lane, column] slowest persistent factor.
        start: [lane, column] excess at the first knot.
        knots: [knot, lane, column] increasing y.
        slopes: [knot, lane, column] slope of the excess after each knot; the last continues.
    """

    peak: Float[Array, "lane column"]
    start: Float[Array, "lane column"]
    knots: Float[Array, "knot lane column"]
    slopes: Float[Array, "knot lane column"]

    @property
    def n_draw(self) -> int:
        """One row for all members."""
        return 1

    def duration(
        self,
        compute_s: Float[Array, "lane part"],
        call_sd: Float[Array, " lane"] | None,
        words: Complex64[Array, "word lane pair"] | None,
        chain: ScoreChain | None,
    ) -> Float[Array, "lane column"]:
        """[lane, column] seconds of the slowest member, by its tabulated distribution."""
        total_s = compute_s.sum(axis=-1)[:, None]
        if words is None or chain is None or call_sd is None:
            return total_s * self.peak
        pairs = exponential_pairs(words[:1])[0]
        half = self.peak.shape[-1] // 2
        excess = [self._at(lax.real(pairs), slice(None, half)), self._at(lax.imag(pairs), slice(half, None))]
        return total_s * self.peak * (1.0 + jnp.concatenate(excess, axis=-1))

    def _at(self, exponential: Array, columns: slice) -> Array:
        return piecewise(
            -jnp.log(exponential).astype(self.start.dtype),
            self.start[..., columns],
            self.knots[..., columns],
            self.slopes[..., columns],
        )


def piecewise(
    x: Float[Array, "*#cell"],
    start: Float[Array, "*#cell"],
    knots: Float[Array, "knot *#cell"],
    slopes: Float[Array, "knot *#cell"],
) -> Float[Array, "*#cell"]:
    """Piecewise-linear function: `start` at the first knot, a slope after each, the first and last continued."""
    value = start + jnp.minimum(x - knots[0], 0.0) * slopes[0]
    for k in range(knots.shape[0]):
        step = jnp.maximum(x - knots[k], 0.0)
        if k + 1 < knots.shape[0]:
            step = jnp.minimum(step, knots[k + 1] - knots[k])
        value = value + step * slopes[k]
    return value
