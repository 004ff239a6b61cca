"""Members of a lane: the ranks that synchronise inside every op, which lasts as long as its slowest member.

`ExplicitMembers` draws every member's residual: exact, the default for small groups. `MemberTable` draws the maximum directly,
from its distribution given the members' persistent factors.

Of a large group the slowest member is drawn from a table of its quantiles, given every member's persistent factor:

    F(e) = prod_i Phi_r(((S_max - S_i) / S_i + e S_max / S_i) / sd)        y(e) = -log(-log F(e))

with S_i the member's factor (weighted over kernel classes as the lane uses them), Phi_r the residual's distribution, and the
maximum written as S_max (1 + e): a residual far smaller than the resolution of S_max keeps its digits. The table needs e at given
y, and F is known at given e. In the residual's normal score z, with e = sd r(z), y(z) is smooth for any residual, however heavy
its tail: a coarse table of it tells which e belong to the wanted y, and F there is exact again.

`duration` gives the ops of one level on all lanes; `at` the same numbers of ops wherever they are, for what follows a path.
"""

from __future__ import annotations

import functools
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.scipy import special as device_special
from scipy import special

from ..core.arrays import Complex64, Float, is_numpy, namespace
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
        """Number of draws: one per member."""
        return self.chip.shape[1]

    def duration(
        self, compute_s: Float[Either, "lane part"], noise: OpNoise | None = None
    ) -> Float[Either, "lane column"]:
        """Seconds of the slowest member of every lane, [lane, column]."""
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
        residual = None if noise is None else noise.chain(noise.drawn).astype(compute_s.dtype)
        call_sd = None if noise is None else noise.call_sd[None]
        slowest = self.each(self.chip[:, :, *place], compute_s[:, None], call_sd, residual).argmax(axis=0)[None]
        chip = self.chip[:, slowest, *place]  # what the others take has no derivative
        own = None if residual is None else jnp.take_along_axis(residual, slowest, axis=0)
        return self.each(chip, compute_s[:, None], call_sd, own)[0]

    @staticmethod
    def each(chip: Either, compute_s: Either, call_sd: Either | None = None, residual: Either | None = None) -> Either:
        """Seconds of members with factors [factor, ...] of noise-free seconds [part, ...] and residuals [...]."""
        value = compute_s[-1] + sum(compute_s[f] * chip[f] for f in range(chip.shape[0]))
        return value if residual is None or call_sd is None else value * (1.0 + call_sd * residual)

    @staticmethod
    def _slowest(chip: Either, compute_s: Either, call_sd: Either | None, residual: Either | None) -> Either:
        """Unrolled over the members of a small group: a reduction over their axis would not vectorise.

        Seconds are [part, *op], factors [factor, member, *op].
        """

        def seconds(chip: Either, residual: Either | None) -> Either:
            return jnp.broadcast_to(ExplicitMembers.each(chip, compute_s, call_sd, residual), chip.shape[1:])

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
        """Seconds of the slowest member, by its tabulated distribution, [lane, column]."""
        total_s = compute_s.sum(axis=-1)[:, None]
        if noise is None:
            return self.slowest(total_s)
        pairs, half = exponential_pairs(noise.words[:1])[0], self.peak.shape[-1] // 2
        first, second = ((..., slice(None, half)), (..., slice(half, None)))
        each = [self.slowest(total_s, lax.real(pairs), first), self.slowest(total_s, lax.imag(pairs), second)]
        return jnp.concatenate(each, axis=-1)

    def draws(self, words: Complex64[Either, "*level word lane pair"]) -> Float[Either, "*level 1 lane 2*pair"]:
        """Draws standard exponentials."""
        return both(exponential_pairs(words[..., :1, :, :]))

    def at(self, place: Place, compute_s: Either, noise: PlaceNoise | None = None) -> Float[Either, "*op"]:
        """Seconds of the slowest member of ops at `place`, whose noise-free seconds are [part, *op]."""
        return self.slowest(compute_s.sum(axis=0), None if noise is None else noise.drawn[0], place)

    def slowest(self, total_s: Either, exponential: Either | None = None, place: Any = ...) -> Either:
        """Seconds of the slowest member of ops at `place` of noise-free seconds `total_s`, by standard exponentials."""
        place = place if isinstance(place, tuple) else (place,)
        if exponential is None:
            return total_s * self.peak[place]
        y = -namespace(exponential).log(exponential).astype(self.start.dtype)
        return (
            total_s
            * self.peak[place]
            * (1.0 + piecewise(y, self.start[place], *(x[:, *place] for x in (self.knots, self.slopes))))
        )


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


COARSE_SCORES = (-4.0, -1.8, 0.4, 2.6, 4.8, 7.0)
# Wanted knots: F from 6e-4 to 1 - 1.5e-8, dense where most maxima lie.
WANTED_Y = (-2.0, -1.2, -0.5, 0.1, 0.7, 1.4, 2.2, 3.2, 4.5, 6.0, 8.0, 10.5, 14.0, 18.0)

SMALLEST_SD = 1e-9  # where nothing varies from call to call


def member_table(
    compute_s: Float[Either, "level lane part"],
    call_sd: Float[Either, "level lane"],
    chip: Float[Either, "factor member lane column"],
    residual: ScoreChain | None,
) -> MemberTable:
    """Table of every lane's group.

    Args:
        compute_s, call_sd: seconds and residual standard deviations of ops; a lane's are averaged, weighted by seconds.
        chip: persistent factors of all members.
        residual: standardised residual of a normal score; None for none, so that the slowest factor decides.
    """
    xp = namespace(compute_s, chip)
    total = compute_s.sum(axis=(0, 2))
    share = compute_s.sum(axis=0) / xp.where(total > 0, total, 1.0)[:, None]  # [lane, part]
    factor = share[None, :, -1, None] + xp.einsum("lf,fmlc->mlc", share[:, :-1], chip)
    peak = factor.max(axis=0)
    if residual is None:
        flat = xp.zeros((2, *peak.shape), peak.dtype)
        return MemberTable(peak, flat[0], xp.stack([flat[0], flat[0] + 1.0]), flat)
    weight = compute_s.sum(axis=2)
    mean_sd = (call_sd * weight).sum(axis=0) / xp.where(total > 0, total, 1.0)
    sd = xp.maximum(mean_sd, SMALLEST_SD)[None, :, None]
    score = xp.asarray(COARSE_SCORES, peak.dtype)[:, None, None]
    rough = _gumbel(sd * residual(score), factor, sd, residual)
    slopes = xp.diff(score, axis=0) / _gap(rough)
    wanted = xp.asarray(WANTED_Y, peak.dtype)[:, None, None]
    fine = piecewise(wanted, score[:1], rough[:-1, None], slopes[:, None])
    excess = sd * residual(fine)  # [knot, lane, column]
    y = _gumbel(excess, factor, sd, residual)
    return MemberTable(peak, excess[0], y[:-1], xp.diff(excess, axis=0) / _gap(y))


AT_ONCE = 1 << 15  # numbers that stay in the first caches


def _gumbel(
    excess: Float[Either, "knot lane #column"],
    factor: Float[Either, "member lane column"],
    sd: Float[Either, "1 lane 1"],
    residual: ScoreChain,
) -> Float[Either, "knot lane column"]:
    """-log(-log P(slowest <= peak (1 + excess))) from the members' persistent factors."""
    xp = namespace(excess, factor)
    peak = factor.max(axis=0)

    def log_cdf(some: Float[Either, "some lane column"]) -> Float[Either, "knot lane column"]:
        over = ((peak[None] - some)[:, None] + (excess * peak[None])[None]) / some[:, None]
        return _log_ndtr(residual.inverse(over / sd[None])).sum(axis=0)

    if is_numpy(xp):
        n = max(1, AT_ONCE // (len(excess) * peak.size))
        total = sum(log_cdf(factor[i : i + n]) for i in range(0, len(factor), n))
    else:
        nothing = jnp.zeros((len(excess), *peak.shape), peak.dtype)
        total = lax.fori_loop(0, len(factor), lambda i, total: total + log_cdf(factor[i][None]), nothing)
    return -xp.log(xp.maximum(-total, 1e-30))


# Of a table of log Phi: within 1e-6 of it, or of its distance from 0.
LOWEST_SCORE, HIGHEST_SCORE, PER_SCORE = -40.0, 12.0, 400


@lru_cache(maxsize=1)
def _table_of_logs() -> tuple[np.ndarray, np.ndarray]:
    """log Phi at the scores of the table, and by how much it rises to the next."""
    score = np.linspace(LOWEST_SCORE, HIGHEST_SCORE, int(HIGHEST_SCORE - LOWEST_SCORE) * PER_SCORE + 1)
    value = special.log_ndtr(score)
    return value[:-1].astype(np.float32), np.diff(value).astype(np.float32)


def _log_ndtr(score: Float[Either, "*cell"]) -> Float[Either, "*cell"]:
    """log Phi; on the host from a table, ten times as fast as the function."""
    if not is_numpy(namespace(score)):
        return device_special.log_ndtr(score)
    value, rise = _table_of_logs()
    at = np.clip((score - LOWEST_SCORE) * PER_SCORE, 0.0, len(value) - 1.0)
    low = at.astype(np.int32)
    return value[low] + (at - low).astype(at.dtype) * rise[low]


def _gap(y: Float[Either, "knot lane column"]) -> Float[Either, "knot-1 lane column"]:
    xp = namespace(y)
    return xp.maximum(xp.diff(y, axis=0), 1e-6)
