"""Random numbers made inside the scan over levels (counter-based, never stored), and factors as functions of a normal score.

`jax.random` writes all normals of a step to memory and reads them back; here a level's draws are made where they are
used. One Threefry-2x32-20 call (Salmon et al., SC 2011) gives two 32-bit words, one polynomial Box-Muller turns them into
two normals. Both travel as *one* complex array: XLA would otherwise compute every word twice, once per output.

The counter of a draw is (its place, its level), where the place is (member, lane, pair of columns) and does not
depend on how many members, lanes and levels there are: padding never changes a number. Columns k and
k + n_column / 2 share a pair, so a chunk's width is part of its identity.

All of this takes arrays of NumPy too, with the same draws: what is drawn once per column, or for the few columns of an
explanation, is made on the host, where nothing is compiled.

A `ScoreChain` is `value(z) = offset + slope z + sum_k bend_k max(z - knot_k, 0)`, one mechanism for every family of factors:
a linear family has no knots, a heavy tail bends upwards at its knots. A chain of `max` vectorises where a table lookup does
not.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from ..core.arrays import ArrayLike, Complex64, Float, Float32, Floats, Integer, Key, UInt32, is_numpy, namespace
from ..core.errors import DataError
from ..tables.document import short
from ..variability.families import Family
from ..variability.score_map import NormalScoreMap

MAX_COLUMNS = 1 << 11  # column pairs of one chunk fit in 10 bits of the counter
MAX_LANES = 1 << 11
MAX_MEMBERS = 1 << 11  # in the first word of the counter; more go to the high bits of the second, above the level
MAX_LEVELS = 1 << 20
_TWO_M32 = float(np.float32(2.0**-32))
_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))


def on_accelerator() -> bool:
    """Whether JAX runs compiled code elsewhere than on a processor."""
    return jax.default_backend() != "cpu"


def _half_turn_coefficients() -> tuple[list[float], list[float]]:
    """Polynomials in y = t*t for sin(pi t)/t and cos(pi t) on |t| <= 1/2; error below 1e-7 at these degrees."""
    t = 0.5 * np.cos(np.pi * (np.arange(2001) + 0.5) / 2001)
    powers = np.vander(t * t, 6, increasing=True)
    sine = np.linalg.lstsq(powers[:, :5], np.sinc(t) * np.pi, rcond=None)[0]
    cosine = np.linalg.lstsq(powers, np.cos(np.pi * t), rcond=None)[0]
    return sine.tolist(), cosine.tolist()


def _logarithm_coefficients() -> list[float]:
    """Polynomial in s for log(1 + s) / s on 0 <= s <= 1; log(1 + s) then errs by less than 1e-7."""
    s = 0.5 + 0.5 * np.cos(np.pi * (np.arange(4001) + 0.5) / 4001)
    powers = np.vander(s, 9, increasing=True)[:, 1:]
    return np.linalg.lstsq(powers, np.log1p(s), rcond=None)[0].tolist()


_SINE, _COSINE = _half_turn_coefficients()
_LOG = _logarithm_coefficients()
if TYPE_CHECKING:
    Either: TypeAlias = Any  # each function gives what it is given
else:
    Either = Array | np.ndarray
Words: TypeAlias = UInt32[Either, "2"]  # a key
T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def traced_record(cls: type[T]) -> type[T]:
    """Makes a frozen dataclass of a class; JAX traces its fields, but those whose metadata say that they are static.

    Notes: put together again without `__init__`, whatever JAX puts in the place of arrays. Importing equinox takes longer.
    """
    made: Any = dataclass(frozen=True, eq=False)(cls)
    fixed = tuple(one.name for one in fields(made) if one.metadata.get("static"))
    traced = tuple(one.name for one in fields(made) if one.name not in fixed)

    def again(values: tuple[Any, ...], parts: Iterable[Any]) -> Any:
        record = object.__new__(made)
        record.__dict__.update(zip((*fixed, *traced), (*values, *parts), strict=True))
        return record

    def apart(record: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
        return tuple(vars(record)[name] for name in traced), tuple(vars(record)[name] for name in fixed)

    jax.tree_util.register_pytree_node(made, apart, again)
    return made


def threefry2x32(
    k0: UInt32[Either, ""], k1: UInt32[Either, ""], x0: UInt32[Either, "*cell"], x1: UInt32[Either, "*cell"]
) -> tuple[UInt32[Either, "*cell"], UInt32[Either, "*cell"]]:
    """Two 32-bit words from a 64-bit key and a 64-bit counter, 20 rounds; equals `jax.random`'s own block function."""
    keys = (k0, k1, k0 ^ k1 ^ np.uint32(0x1BD11BDA))
    x0, x1 = x0 + keys[0], x1 + keys[1]
    for i in range(20):
        r = _ROTATIONS[(i // 4) % 2][i % 4]
        x0 = x0 + x1
        x1 = ((x1 << np.uint32(r)) | (x1 >> np.uint32(32 - r))) ^ x0
        if i % 4 == 3:
            j = i // 4 + 1
            x0 = x0 + keys[j % 3]
            x1 = x1 + keys[(j + 1) % 3] + np.uint32(j)
    return x0, x1


def word_pairs(
    key_data: UInt32[Either, "2"], level: Integer[Either, "*level"], n_member: int, n_lane: int, n_pair: int
) -> Complex64[Either, "*levels member lane pair"]:
    """Random words for one level, or for levels [level, 1, 1, 1], two per element, packed as complex64."""
    shape, xp = (n_member, n_lane, n_pair), namespace(key_data)
    place = _iota(xp, shape, 0) * np.uint32(MAX_LANES)
    place = (place + _iota(xp, shape, 1)) * np.uint32(MAX_COLUMNS // 2)
    place = place + _iota(xp, shape, 2)
    shape = np.broadcast_shapes(level.shape, shape)
    time = xp.broadcast_to(level.astype(np.uint32), shape)
    if n_member > MAX_MEMBERS:
        time = time + _iota(xp, place.shape, 0) // np.uint32(MAX_MEMBERS) * np.uint32(MAX_LEVELS)
    b0, b1 = threefry2x32(key_data[0, ...], key_data[1, ...], xp.broadcast_to(place, shape), time)
    return _packed(b0.view(np.float32), b1.view(np.float32))


def normal_pairs(words: Complex64[Either, "*cell"]) -> Complex64[Either, "*cell"]:
    """Standard normals from packed words: real and imaginary part are independent, complex64, same shape."""
    radius = namespace(words).sqrt(2.0 * _exponential(words.real.view(np.uint32)))
    t = words.imag.view(np.int32).astype(np.float32) * np.float32(_TWO_M32)  # half turns / 2
    y = t * t
    sine = t * _horner(y, _SINE)
    cosine = _horner(y, _COSINE)
    return _packed(radius * (1.0 - 2.0 * sine * sine), radius * (2.0 * sine * cosine))


def exponential_pairs(words: Complex64[Either, "*cell"]) -> Complex64[Either, "*cell"]:
    """Standard exponentials from packed words: real and imaginary part are independent, complex64, same shape."""
    return _packed(*(_resolved_exponential(part.view(np.uint32)) for part in (words.real, words.imag)))


def normals(
    key_data: UInt32[Either, "2"], n_member: int, n_lane: int, n_column: int
) -> Float32[Either, "member lane column"]:
    """Standard normals; a draw depends on its member, lane and column pair, not on how many there are."""
    return both(normal_pairs(word_pairs(key_data, np.zeros((), np.uint32), n_member, n_lane, n_column // 2)))


def uniforms(
    key_data: UInt32[Either, "2"], n_member: int, n_lane: int, n_column: int
) -> Float32[Either, "member lane column"]:
    """Uniforms in (0, 1], with the same property."""
    words = word_pairs(key_data, np.zeros((), np.uint32), n_member, n_lane, n_column // 2)
    return namespace(words).exp(-both(exponential_pairs(words)))


def both(pairs: Complex64[Either, "*cell pair"]) -> Float32[Either, "*cell 2*pair"]:
    """The draws of packed pairs, along the last axis: first all real parts, then all imaginary ones."""
    return namespace(pairs).concatenate([pairs.real, pairs.imag], axis=-1)


def _iota(xp: Any, shape: tuple[int, ...], axis: int) -> Either:
    if is_numpy(xp):
        return np.indices(shape, np.uint32, sparse=True)[axis]
    return lax.broadcasted_iota(jnp.uint32, shape, axis)


def _packed(first: Either, second: Either) -> Either:
    """Two numbers in one; a processor computes them before they are used, an accelerator in the registers that use them."""
    if not isinstance(first, np.ndarray):
        packed = lax.complex(first, second)
        return packed if on_accelerator() else lax.optimization_barrier(packed)
    return np.stack([first, second], axis=-1).view(np.complex64)[..., 0]


def _exponential(bits: Either) -> Either:
    """-log(u) with u = (bits + 1/2) / 2^32: never infinite, the upper tail resolved to 2^-33; zero once in 3e7 draws.

    Exponent and mantissa are taken apart by their bits and the mantissa's logarithm by a polynomial: XLA's own logarithm
    spends half of its time on arguments that cannot occur here.
    """
    x = (bits.astype(np.float32) + np.float32(0.5)).view(np.int32)
    doublings = (np.int32(159) - (x >> 23)).astype(np.float32)  # bits + 1/2 = (1 + s) 2^(32 - doublings)
    s = ((x & 0x7FFFFF) | 0x3F800000).view(np.float32) - 1.0
    return namespace(bits).maximum(doublings * np.float32(np.log(2.0)) - s * _horner(s, _LOG), 0.0)


def _resolved_exponential(bits: Either) -> Either:
    """-log(1 - v) with v = (bits + 1/2) / 2^32, never 0 or infinite.

    Small values, which are the upper tail of a maximum, by their series.
    """
    v = (bits.astype(np.float32) + np.float32(0.5)) * np.float32(_TWO_M32)
    series = v * (1.0 + v * (0.5 + v * np.float32(1.0 / 3.0)))
    return namespace(bits).where(bits < np.uint32(1 << 24), series, _exponential(~bits))


def _horner(y: Either, coefficients: list[float]) -> Either:
    value = namespace(y).full_like(y, coefficients[-1])
    for c in coefficients[-2::-1]:
        value = value * y + np.float32(c)
    return value


def typed_key(key: Key[Array, ""] | Words | int) -> Key[Array, ""]:
    """The typed key of a key in any spelling: itself, a seed, or the two words of `jax.random.PRNGKey`.

    Raises:
        DataError: it is none of them.
    """
    if isinstance(key, (int, np.integer)) and not isinstance(key, bool):
        if not 0 <= key < 2**31:
            raise DataError(f"key = {key}, but a seed lies between 0 and {2**31 - 1}")
        return _typed(np.array([0, key], np.uint32))
    if isinstance(key, (jax.Array, np.ndarray)):
        if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) and key.shape == () and isinstance(key, jax.Array):
            return key
        if key.dtype == jnp.uint32 and key.shape == (2,):
            return _typed(key)
    raise DataError(f"key = {short(key)}, but it must be one typed key, jax.random.key(0), or an integer seed")


def key_words(key: Key[Array, ""] | Words) -> Words:
    """The two 32-bit words of a typed JAX key, or of a key that is given by them."""
    return jax.random.key_data(key) if jnp.issubdtype(key.dtype, jax.dtypes.prng_key) else key


def fold_in(words: Words, number: int | Integer[Either, ""]) -> Words:
    """The words of a key into which a number is folded, as `jax.random.fold_in` does; on the host unless one is traced."""
    xp = namespace(words, number)
    second = (np.asarray(number) if isinstance(number, int) else number).astype(np.uint32)[None]
    return xp.concatenate(threefry2x32(words[0, ...], words[1, ...], xp.zeros_like(second), second))


def host_key(key: Key[Array, ""] | Words, *data: int) -> UInt32[np.ndarray, "2"]:
    """Words of a key into which numbers are folded one after another; nothing is compiled."""
    return np.asarray(functools.reduce(fold_in, data, np.asarray(key_words(key))))


def folded(key: Key[Array, ""] | Words, *data: int) -> Key[Array, ""]:
    """Returns a key into which numbers are folded one after another, as a typed key."""
    return _typed(host_key(key, *data))


def _typed(words: Any) -> Key[Array, ""]:
    return jax.random.wrap_key_data(words, impl="threefry2x32")


def seed_of(key: Key[Array, ""] | Words) -> int:
    """A whole number below 2^30: `jax.random.randint(key, (), 0, 1 << 30)`."""
    words = host_key(key, 1)  # the second half of the key, as that splits it
    both_words = threefry2x32(words[0, ...], words[1, ...], *np.zeros((2, 1), np.uint32))
    return int(np.bitwise_xor(*both_words)[0]) & ((1 << 30) - 1)


N_CALL_KNOTS = 9  # a call's residual is drawn for every op: few knots, dense where the family bends
# Longer chains, drawn once per column, loop: a long unrolled one takes longer to compile than to run.
MAX_UNROLLED_KNOTS = 12
N_TERMS = (0, MAX_UNROLLED_KNOTS, 48, 96)  # knots of a chain are one of these: another spread needs no other program
FARTHEST = 1e7  # normal score beyond all knots
_QUADRATURE_Z = np.linspace(-8.0, 8.0, 4001)


@traced_record
class ScoreChain:
    """Device form of a `NormalScoreMap`.

    Attributes:
        offset: value at score 0 without bends.
        slope: left of all knots.
        knots: [knot] increasing scores; none for a linear function.
        bends: [knot] what is added to the slope at each.
    """

    offset: Float[Either, ""]
    slope: Float[Either, ""]
    knots: Float[Either, " knot"]
    bends: Float[Either, " knot"]

    def __call__(self, z: Float[Either, "*cell"]) -> Float[Either, "*cell"]:
        """Value at normal score `z`, any shape, in z's dtype."""
        xp = namespace(z, self)
        if is_numpy(xp):
            return np.interp(z, *self._points()).astype(z.dtype)
        offset, slope, knots, bends = (xp.asarray(x, z.dtype) for x in vars(self).values())

        def add_bend(k: int | Array, value: Array) -> Array:
            return value + bends[k] * jnp.maximum(z - knots[k], 0.0)

        value = offset + slope * z
        if len(knots) > MAX_UNROLLED_KNOTS:
            return lax.fori_loop(0, len(knots), add_bend, value)
        for k in range(len(knots)):
            value = add_bend(k, value)
        return value

    def _points(self) -> tuple[Floats, Floats]:
        """Scores between which the function is linear, far ones at both ends, and its values there."""
        offset, slope, knots, bends = (np.asarray(x, np.float64) for x in vars(self).values())
        score = np.concatenate([[-FARTHEST], knots, [FARTHEST]])
        return score, offset + slope * score + np.maximum(score[:, None] - knots, 0.0) @ bends

    def lengthened(self, n_knot: int) -> ScoreChain:
        """Return the function with `n_knot` knots, as many or more; those that are added bend nothing, at the last one."""
        more = (0, n_knot - len(self.knots))
        knots = np.pad(self.knots, more, constant_values=self.knots[-1] if len(self.knots) else 0.0)
        return ScoreChain(self.offset, self.slope, knots, np.pad(self.bends, more))

    def inverse(self, value: Float[Either, "*cell"]) -> Float[Either, "*cell"]:
        """Normal score of `value`, piece by piece from the left; the chain must increase."""
        xp = namespace(value, self)
        at, slope, knots, bends = (xp.asarray(x, value.dtype) for x in vars(self).values())  # the piece is at + slope z
        score = (value - at) / slope
        for k in range(knots.shape[0]):
            at, slope = at - bends[k] * knots[k], slope + bends[k]
            score = xp.where(value > at + slope * knots[k], (value - at) / slope, score)
        return score


def on_host(values: ArrayLike) -> Float[np.ndarray, "*cell"]:
    """Numbers in the precision of JAX's own, in an array that no program need make."""
    return np.asarray(values, jax.dtypes.canonicalize_dtype(float))


def chain_of(score_map: NormalScoreMap) -> ScoreChain:
    """Device form of a map, with the next of `N_TERMS` knots."""
    chain = ScoreChain(*map(on_host, score_map.relu_terms()))
    n_knot = len(chain.knots)
    return chain.lengthened(next((n for n in N_TERMS if n >= n_knot), n_knot))


def family_chain(family: Family) -> ScoreChain:
    """Factor of `family` (mean one) as a function of a normal score."""
    return chain_of(NormalScoreMap.from_family(family))


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
    (offset, slope, knots, bends), scale = score_map.relu_terms(), 1.0 / map_sd(score_map)
    chain = ScoreChain(*map(on_host, ((offset - 1.0) * scale, slope * scale, knots, bends * scale)))
    return chain.lengthened(max(len(knots), N_CALL_KNOTS - 2) if len(knots) else 0)
