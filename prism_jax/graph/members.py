"""Members of a lane: the ranks that synchronise inside every op, which lasts as long as its slowest member.

`ExplicitMembers` draws every member's residual: exact, the default for small groups. `MemberTable` draws the maximum directly,
from its distribution given the members' persistent factors.

`duration` gives the ops of one level on all lanes; `at` the same numbers of ops wherever they are, for what follows a path.
"""

from __future__ import annotations

import functools
from typing import NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
from jax import Array, lax

from ..core.arrays import Complex64, Float, namespace
from .draws import Either, ScoreChain, both, exponential_pairs, normal_pairs, traced_record

MAX_UNROLLED = 32


class OpNoise(NamedTuple):
    """Residual of one op.

    Attributes:
        call_sd: [lane] standard deviation over mean.
        words: [word, lane, pair] packed random words, at least as many rows as the members need.
        chain: standardised residual of a normal score.
    """

    call_sd: Float[Either, " lane"]
    words: Complex64[Either, "word lane pair"]
    chain: ScoreChain


Place: TypeAlias = tuple[Array, Array]
"""Lane and column of ops."""


class PlaceNoise(NamedTuple):
    """Residual of ops at places.

    Attributes:
        call_sd: [*place] standard deviation over mean.
        drawn: [draw, *place] of the members' `draws`.
        chain: standardised residual of a normal score.
    """

    call_sd: Either
    drawn: Either
    chain: ScoreChain


@traced_record
class ExplicitMembers:
    """Every member's residual drawn.

    Attributes:
        chip: [factor, member, lane, column] persistent factors.
    """

    chip: Float[Either, "factor member lane column"]

    @property
    def n_draw(self) -> int:
        """One row per member."""
        return self.chip.shape[1]

    def duration(
        self, compute_s: Float[Either, "lane part"], noise: OpNoise | None = None
    ) -> Float[Either, "lane column"]:
        """[lane, column] seconds of the slowest member of every lane."""
        if noise is None:
            return self._slowest(self.chip, compute_s.T[..., None], None, None)
        compute_s, (call_sd, words, chain) = compute_s.T[..., None], noise
        call_sd = call_sd[:, None]
        pairs = normal_pairs(words)[: self.n_draw]  # all rows: one array, made once
        half = self.chip.shape[-1] // 2
        halves = [
            self._slowest(self.chip[..., :half], compute_s, call_sd, chain(lax.real(pairs)).astype(compute_s.dtype)),
            self._slowest(self.chip[..., half:], compute_s, call_sd, chain(lax.imag(pairs)).astype(compute_s.dtype)),
        ]
        return jnp.concatenate(halves, axis=-1)

    def draws(self, words: Complex64[Either, "*level word lane pair"]) -> Float[Either, "*level member lane 2*pair"]:
        """Normal scores of all members."""
        return both(normal_pairs(words[..., : self.n_draw, :, :]))

    def at(self, place: Place, compute_s: Either, noise: PlaceNoise | None = None) -> Float[Either, "*op"]:
        """Seconds of the slowest member of ops at `place`, whose noise-free seconds are [part, *op]."""
        chip, residual = self.chip[:, :, *place], None
        if noise is not None:
            residual = 1.0 + noise.call_sd[None] * noise.chain(noise.drawn).astype(compute_s.dtype)
        value = self._total(chip, compute_s[:, None])
        value = value if residual is None else value * residual
        slowest = value.argmax(axis=0)  # what the others take has no derivative
        total_s = self._total(self.chip[:, slowest, *place], compute_s)
        return total_s if residual is None else total_s * jnp.take_along_axis(residual, slowest[None], axis=0)[0]

    @staticmethod
    def _total(chip: Either, compute_s: Either) -> Either:
        """Seconds of members with factors [factor, ...]."""
        return compute_s[-1] + sum(compute_s[f] * chip[f] for f in range(chip.shape[0]))

    @staticmethod
    def _slowest(chip: Either, compute_s: Either, call_sd: Either | None, residual: Either | None) -> Either:
        """Unrolled over the members of a small group: a reduction over their axis would not vectorise.

        Seconds are [part, *op], factors [factor, member, *op].
        """

        def seconds(chip: Either, residual: Either | None) -> Either:
            value = ExplicitMembers._total(chip, compute_s)
            if residual is None or call_sd is None:
                return jnp.broadcast_to(value, chip.shape[1:])
            return value * (1.0 + call_sd * residual)

        n_member = chip.shape[1]
        if n_member > MAX_UNROLLED:
            return jax.vmap(seconds, in_axes=(1, 0))(chip, residual).max(axis=0)
        each = [seconds(chip[:, m], None if residual is None else residual[m]) for m in range(n_member)]
        return functools.reduce(jnp.maximum, each)


@traced_record
class MemberTable:
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

    peak: Float[Either, "lane column"]
    start: Float[Either, "lane column"]
    knots: Float[Either, "knot lane column"]
    slopes: Float[Either, "knot lane column"]

    @property
    def n_draw(self) -> int:
        """One row for all members."""
        return 1

    def duration(
        self, compute_s: Float[Either, "lane part"], noise: OpNoise | None = None
    ) -> Float[Either, "lane column"]:
        """[lane, column] seconds of the slowest member, by its tabulated distribution."""
        total_s = compute_s.sum(axis=-1)[:, None]
        if noise is None:
            return total_s * self.peak
        pairs = exponential_pairs(noise.words[:1])[0]
        half = self.peak.shape[-1] // 2
        excess = [self._at(lax.real(pairs), slice(None, half)), self._at(lax.imag(pairs), slice(half, None))]
        return total_s * self.peak * (1.0 + jnp.concatenate(excess, axis=-1))

    def draws(self, words: Complex64[Either, "*level word lane pair"]) -> Float[Either, "*level 1 lane 2*pair"]:
        """Standard exponentials."""
        return both(exponential_pairs(words[..., :1, :, :]))

    def at(self, place: Place, compute_s: Either, noise: PlaceNoise | None = None) -> Float[Either, "*op"]:
        """Seconds of the slowest member of ops at `place`, whose noise-free seconds are [part, *op]."""
        total_s = compute_s.sum(axis=0) * self.peak[place]
        if noise is None:
            return total_s
        part = self.start[place], self.knots[:, *place], self.slopes[:, *place]
        return total_s * (1.0 + piecewise(-jnp.log(noise.drawn[0]).astype(self.start.dtype), *part))

    def _at(self, exponential: Array, columns: slice) -> Array:
        part = (self.start[..., columns], self.knots[..., columns], self.slopes[..., columns])
        return piecewise(-jnp.log(exponential).astype(self.start.dtype), *part)


Members: TypeAlias = ExplicitMembers | MemberTable


def piecewise(
    x: Float[Either, "*#cell"],
    start: Float[Either, "*#cell"],
    knots: Float[Either, "knot *#cell"],
    slopes: Float[Either, "knot *#cell"],
) -> Float[Either, "*#cell"]:
    """Piecewise-linear function: `start` at the first knot, a slope after each, the first and last continued."""
    xp = namespace(x, start)
    value = start + xp.minimum(x - knots[0], 0.0) * slopes[0]
    for k in range(knots.shape[0]):
        step = xp.maximum(x - knots[k], 0.0)
        if k + 1 < knots.shape[0]:
            step = xp.minimum(step, knots[k + 1] - knots[k])
        value = value + step * slopes[k]
    return value
