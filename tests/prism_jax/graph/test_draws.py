"""Draws of slowdowns: numbers by counter, and scores of GPUs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

from prism_jax.graph.draws import (
    N_TERMS,
    ScoreChain,
    both,
    exponential_pairs,
    family_chain,
    folded,
    key_words,
    map_sd,
    normal_pairs,
    normals,
    residual_map,
    standardised,
    threefry2x32,
    typed_key,
    uniforms,
    word_pairs,
)
from prism_jax.variability.families import CONSTANT, Family, Gamma, LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture, Pool
from prism_jax.variability.score_map import NormalScoreMap

# Threefry-2x32, 20 rounds: counter, key, result. Random123's kat_vectors (Salmon et al., SC 2011).
KNOWN_ANSWERS = [
    ((0x00000000, 0x00000000), (0x00000000, 0x00000000), (0x6B200159, 0x99BA4EFE)),
    ((0xFFFFFFFF, 0xFFFFFFFF), (0xFFFFFFFF, 0xFFFFFFFF), (0x1CB996FC, 0xBB002BE7)),
    ((0x243F6A88, 0x85A308D3), (0x13198A2E, 0x03707344), (0xC4923A9C, 0x483DF7A0)),
]
EXTREME = np.array(
    [0, 1, 2, 0x7F, 0x7F800000, 0x7F800001, 0x7FC00000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFF800001, 0xFFFFFF7F,
    0xFFFFFF80, 0xFFFFFFFF],
    np.uint32,
)  # fmt: skip


def key(seed: int) -> jax.Array:
    return key_words(jax.random.key(seed))


@pytest.fixture(scope="module")
def million() -> np.ndarray:
    """Normals [16 levels, member, lane, column], a million in all."""
    words = jax.jit(jax.vmap(lambda level: both(normal_pairs(word_pairs(key(5), level, 4, 16, 512)))))
    return np.asarray(words(jnp.arange(16)), np.float64)


@pytest.mark.parametrize(("counter", "key_pair", "answer"), KNOWN_ANSWERS)
def test_block_function_gives_the_published_answers(
    counter: tuple[int, int], key_pair: tuple[int, int], answer: tuple[int, int]
) -> None:
    words = threefry2x32(*(jnp.asarray(w, jnp.uint32) for w in (*key_pair, *counter)))
    assert tuple(int(w) for w in words) == answer


def test_normals_have_the_moments_of_a_standard_normal(million: np.ndarray) -> None:
    """Each within 5 standard errors; a correct generator fails once in 400,000 runs, and the seed is fixed."""
    z, n = million.ravel(), million.size
    assert abs(z.mean()) < 5 * n**-0.5
    assert abs(z.var() - 1.0) < 5 * (2 / n) ** 0.5
    assert abs(stats.skew(z)) < 5 * (6 / n) ** 0.5
    assert abs(stats.kurtosis(z)) < 5 * (24 / n) ** 0.5


@pytest.mark.parametrize("threshold", [2.0, 3.0, 4.0])
def test_tails_hold_as_many_draws_as_they_should(million: np.ndarray, threshold: float) -> None:
    """Either side; Poisson 1e-5 limits."""
    expected = million.size * stats.norm.sf(threshold)
    low, high = stats.poisson.ppf([1e-5, 1 - 1e-5], expected)
    assert low <= (million > threshold).sum() <= high
    assert low <= (million < -threshold).sum() <= high


@pytest.mark.slow
def test_far_tails_hold_as_many_draws_as_they_should() -> None:
    """100 million draws: about 29 beyond +5 and 29 beyond -5."""
    draw = jax.jit(lambda level: both(normal_pairs(word_pairs(key(9), level, 64, 64, 1024))))
    z = [np.asarray(draw(jnp.asarray(level, jnp.uint32))) for level in range(12)]
    n = sum(part.size for part in z)
    low, high = stats.poisson.ppf([1e-5, 1 - 1e-5], n * stats.norm.sf(5.0))
    assert low <= sum((part > 5.0).sum() for part in z) <= high
    assert low <= sum((part < -5.0).sum() for part in z) <= high


def test_normals_and_exponentials_follow_their_distribution(million: np.ndarray) -> None:
    """Kolmogorov-Smirnov; false alarm 1e-4 each."""
    exponential = np.asarray(both(exponential_pairs(word_pairs(key(6), jnp.zeros((), jnp.uint32), 4, 16, 512))))
    uniform = np.asarray(uniforms(key(7), 4, 16, 1024))
    assert stats.kstest(million.ravel()[:200_000], "norm").pvalue > 1e-4
    assert stats.kstest(exponential.ravel(), "expon").pvalue > 1e-4
    assert stats.kstest(uniform.ravel(), "uniform").pvalue > 1e-4


def test_draws_of_a_pair_of_lanes_members_and_levels_are_independent(million: np.ndarray) -> None:
    """Correlations of values and of squares within 5 standard errors."""
    half = million.shape[-1] // 2
    pairs = {
        "real and imaginary part": (million[..., :half], million[..., half:]),
        "neighbouring columns": (million[..., :-1], million[..., 1:]),
        "neighbouring lanes": (million[:, :, :-1], million[:, :, 1:]),
        "neighbouring members": (million[:, :-1], million[:, 1:]),
        "neighbouring levels": (million[:-1], million[1:]),
    }
    for name, (a, b) in pairs.items():
        for power in (1, 2):
            r = np.corrcoef(a.ravel() ** power, b.ravel() ** power)[0, 1]
            assert abs(r) < 5 / a.size**0.5, name


def test_no_two_places_share_a_draw(million: np.ndarray) -> None:
    """In float32 a million normals collide now and then; whole rows do not."""
    rows = million.reshape(-1, 8)
    assert len(np.unique(rows, axis=0)) == len(rows)


@pytest.mark.parametrize("n_member", [3, 5000])
def test_the_host_makes_the_same_draws(n_member: int) -> None:
    levels, words = np.arange(2), np.asarray(key(4))
    on_host = word_pairs(words, levels[:, None, None, None], n_member, 2, 8)
    compiled = jax.jit(jax.vmap(lambda level: word_pairs(key(4), level, n_member, 2, 8)))(jnp.asarray(levels))
    np.testing.assert_array_equal(np.asarray(on_host).view(np.uint64), np.asarray(compiled).view(np.uint64))
    for draw in (normal_pairs, exponential_pairs):
        np.testing.assert_allclose(both(draw(on_host)), both(jax.jit(draw)(compiled)), rtol=1e-5, atol=5e-5)


def test_keys_of_the_host_are_those_of_jax() -> None:
    expected = jax.random.fold_in(jax.random.fold_in(jax.random.key(9), 5), 2**32 - 1)
    assert folded(typed_key(9), 5, 2**32 - 1) == expected


def test_members_beyond_the_width_of_the_counter_get_draws_of_their_own() -> None:
    """Parameter sharding over thousands of ranks makes one member group of them."""
    z = np.asarray(normals(key(2), 5000, 2, 4)).reshape(5000, -1)
    assert len(np.unique(z, axis=0)) == 5000


def test_draws_do_not_change_when_the_shape_grows() -> None:
    level = jnp.asarray(3, jnp.uint32)
    small = np.asarray(word_pairs(key(1), level, 2, 3, 8)).view(np.uint64)
    large = np.asarray(word_pairs(key(1), level, 5000, 7, 64)).view(np.uint64)
    np.testing.assert_array_equal(small, large[:2, :3, :8])


def test_another_key_or_level_gives_other_draws() -> None:
    level = jnp.asarray(3, jnp.uint32)
    words = [
        np.asarray(word_pairs(k, at, 1, 4, 64)).ravel()
        for k, at in ((key(1), level), (key(2), level), (key(1), level + 1))
    ]
    assert not np.intersect1d(words[0], words[1]).size
    assert not np.intersect1d(words[0], words[2]).size


def packed(first: np.ndarray, second: np.ndarray) -> jax.Array:
    """Words as the scan carries them."""
    parts = [jax.lax.bitcast_convert_type(jnp.asarray(w), jnp.float32) for w in (first, second)]
    return jax.lax.complex(*parts)


def test_extreme_words_give_finite_draws() -> None:
    """Bit patterns of NaN, infinity and denormals pass through; exponentials are neither 0 nor infinite."""
    words = packed(*(w.ravel() for w in np.meshgrid(EXTREME, EXTREME)))
    z = np.asarray(both(jax.jit(normal_pairs)(words)))
    e = np.asarray(both(jax.jit(exponential_pairs)(words)))
    assert np.isfinite(z).all()
    assert np.abs(z).max() < 6.8  # sqrt(2 log 2^33)
    assert np.isfinite(np.log(e)).all()


def test_exponentials_equal_the_logarithm_of_their_word() -> None:
    """Small ones too: the maximum of many lives where they are tiny."""
    bits = np.unique(
        np.concatenate([EXTREME, 2 ** np.arange(32, dtype=np.uint64), 2**24 + np.arange(-3, 4)]).astype(np.uint32)
    )
    e = np.real(np.asarray(exponential_pairs(packed(bits, bits))))
    np.testing.assert_allclose(e, -np.log1p(-(bits + 0.5) / 2.0**32), rtol=3e-5)


# --- Score chains equal the maps they stand for, and can be turned round ---------------------------------------------


FAMILIES = [
    Normal(0.05),
    Normal(0.4),
    LogNormal(0.1),
    Gamma(0.3),
    StudentT(0.05, 3.0),
    Mixture(0.02, 0.03, 1.3, 0.05),
    Pool((0.9, 0.95, 0.95, 0.95, 1.0, 1.3)),
]
Z = np.linspace(-7.0, 7.0, 1401)


def name(family: Family) -> str:
    return type(family).__name__


@pytest.mark.parametrize("family", [*FAMILIES, CONSTANT], ids=name)
def test_chain_equals_its_map(x64: None, family: Family) -> None:
    expected = NormalScoreMap.from_family(family)(Z)
    np.testing.assert_allclose(np.asarray(family_chain(family)(jnp.asarray(Z))), expected, rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_chain_in_single_precision_is_as_good_as_that(family: Family) -> None:
    value = np.asarray(family_chain(family)(jnp.asarray(Z, jnp.float32)))
    assert value.dtype == np.float32
    np.testing.assert_allclose(value, NormalScoreMap.from_family(family)(Z), rtol=2e-5, atol=1e-6)
    on_host = family_chain(family)(Z.astype(np.float32))
    assert isinstance(on_host, np.ndarray)
    np.testing.assert_allclose(on_host, value, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("n_knot", [60, 120])
def test_padding_a_chain_does_not_change_it(n_knot: int) -> None:
    chain = family_chain(LogNormal(0.1))
    padded = chain.lengthened(n_knot)
    assert len(chain.knots) in N_TERMS
    assert len(padded.knots) == n_knot
    np.testing.assert_array_equal(np.asarray(chain(jnp.asarray(Z))), np.asarray(padded(jnp.asarray(Z))))


@pytest.mark.parametrize("family", [f for f in FAMILIES if not isinstance(f, Pool)], ids=name)
def test_inverse_gives_the_score_back(x64: None, family: Family) -> None:
    z = Z[np.abs(Z) < 6.0]
    if isinstance(family, Normal):
        z = z[1.0 + family.cv * z > 0.1]  # the floor of a wide Normal has no inverse
    for chain in (family_chain(family), standardised(residual_map(family))):
        value = chain(jnp.asarray(z))
        np.testing.assert_allclose(np.asarray(chain.inverse(value)), z, atol=1e-6)


@pytest.mark.parametrize("family", [Normal(0.4), Pool((0.9, 0.95, 0.95, 0.95, 1.0, 1.3))], ids=name)
def test_inverse_is_monotone_and_a_number_where_a_map_is_flat(family: Family) -> None:
    chain = standardised(residual_map(family))
    value = jnp.sort(jnp.concatenate([chain(jnp.asarray(Z)), jnp.linspace(-8.0, 8.0, 400), chain.offset[None]]))
    score = np.asarray(chain.inverse(value))
    assert not np.isnan(score).any()
    assert (np.diff(score[np.isfinite(score)]) >= -1e-4).all()


@pytest.mark.parametrize("family", FAMILIES, ids=name)
def test_standardised_chain_has_mean_zero_and_unit_variance(x64: None, family: Family) -> None:
    """By quadrature of the piecewise-linear map, fine enough for its kinks."""
    z = np.linspace(-9.0, 9.0, 400_001)
    weight = np.exp(-0.5 * z * z)
    weight /= weight.sum()
    value = np.asarray(standardised(residual_map(family))(jnp.asarray(z)))
    assert weight @ value == pytest.approx(0.0, abs=1e-6)
    assert np.sqrt(weight @ value**2) == pytest.approx(1.0, abs=1e-4)


@pytest.mark.parametrize("family", [Normal(0.05), LogNormal(0.1), Gamma(0.3)], ids=name)
def test_few_knots_keep_the_spread_of_a_call(family: Family) -> None:
    assert map_sd(residual_map(family)) == pytest.approx(family.cv, rel=0.02)


def test_other_numbers_do_not_compile_again() -> None:
    n_trace = 0

    @jax.jit
    def value(chain: ScoreChain, z: jax.Array) -> jax.Array:
        nonlocal n_trace
        n_trace += 1
        return chain(z)

    for cv in (0.1, 0.2, 0.3):
        value(family_chain(LogNormal(cv)), jnp.zeros(4))
    assert n_trace == 1
