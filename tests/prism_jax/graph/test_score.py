"""Score chains equal the maps they stand for, and can be turned round."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.graph.draws import ScoreChain, chain_of, family_chain, map_sd, residual_map, standardised
from prism_jax.variability.families import CONSTANT, Family, Gamma, LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture, Pool
from prism_jax.variability.score_map import NormalScoreMap

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


@pytest.mark.parametrize("n_terms", [30, 120])
def test_padding_a_chain_does_not_change_it(n_terms: int) -> None:
    score_map = NormalScoreMap.from_family(LogNormal(0.1))
    chain, padded = chain_of(score_map), chain_of(score_map, n_terms=n_terms)
    assert len(padded.knots) == n_terms
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
        value(family_chain(LogNormal(cv), 60), jnp.zeros(4))
    assert n_trace == 1
