"""Normal-score maps: exact mean, error bounds, the relu form, sums of factors."""

import math

import numpy as np
import pytest
from scipy.special import ndtri

from prism_jax.core.errors import SpecError
from prism_jax.variability.config import preset, preset_names
from prism_jax.variability.families import CONSTANT, Family, Gamma, LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture, Pool
from prism_jax.variability.score_map import TOLERANCE, NormalScoreMap, combine
from prism_jax.variability.tree import PARTS

POOL = Pool(tuple(np.random.default_rng(0).lognormal(0.0, 0.02, 200).tolist()))
MIXTURE = Mixture(0.01, 0.02, 1.1, 0.05)
FAMILIES = [CONSTANT, Normal(0.02), LogNormal(0.01), LogNormal(0.3), Gamma(0.02), StudentT(0.01, 3.0), MIXTURE, POOL]


def shipped_families() -> set[Family]:
    trees = [preset(name) for name in preset_names()]
    parts = {getattr(factors, part) for tree in trees for factors in tree.classes.values() for part in PARTS}
    return parts | {tree.step for tree in trees}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_map_has_mean_one_exactly(family: Family) -> None:
    assert NormalScoreMap.from_family(family).mean == pytest.approx(1.0, abs=1e-14)


def test_mean_formula_matches_quadrature() -> None:
    crooked = NormalScoreMap((-2.0, -0.5, 0.3, 4.0), (0.2, 0.5, 2.0, 2.5))
    edges = np.concatenate([[-12.0], crooked.knots_z[1:-1], [12.0]])  # Gauss-Legendre between the corners
    x, w = np.polynomial.legendre.leggauss(200)
    middle, half = 0.5 * (edges[1:] + edges[:-1])[:, None], 0.5 * np.diff(edges)[:, None]
    z = middle + half * x
    total = np.sum(w * half * crooked(z) * np.exp(-0.5 * z * z)) / math.sqrt(2.0 * math.pi)
    assert crooked.mean == pytest.approx(total, abs=1e-13)


def test_linear_family_needs_one_segment() -> None:
    assert len(NormalScoreMap.from_family(Normal(0.05)).knots_z) == 2
    assert NormalScoreMap.from_family(CONSTANT).values == (1.0, 1.0)


def test_shipped_presets_are_mapped_within_tolerance() -> None:
    """All but five draws in 10,000, of mixtures that leap from one mode to the other, and those by no more than 2%."""
    z = np.linspace(-5.5, 5.5, 4001)
    weight = np.exp(-0.5 * z**2) / np.exp(-0.5 * z**2).sum()
    for family in shipped_families():
        exact = family.ppf_normal(z)
        error = np.abs(NormalScoreMap.from_family(family)(z) - exact) / np.maximum(
            max(family.cv, 1e-12), np.abs(exact - 1.0)
        )
        assert weight[error >= TOLERANCE].sum() < 5e-4, family
        assert error.max() < 0.02, family


@pytest.mark.parametrize("family", FAMILIES, ids=lambda f: type(f).__name__)
def test_relu_form_does_not_change_the_map(family: Family) -> None:
    score_map = NormalScoreMap.from_family(family)
    z = np.linspace(-9.0, 9.0, 1001)
    offset, slope, knots, bends = score_map.relu_terms()
    np.testing.assert_allclose(
        offset + slope * z + np.maximum(z[:, None] - knots, 0.0) @ bends, score_map(z), rtol=1e-12
    )


def test_relu_form_has_a_term_per_inner_knot() -> None:
    score_map = NormalScoreMap.from_family(FAMILIES[3])
    *_, knots, bends = score_map.relu_terms()
    assert knots.shape == bends.shape == (len(score_map.knots_z) - 2,)
    assert NormalScoreMap.from_family(CONSTANT).relu_terms()[-1].shape == (0,)


def test_map_extrapolates_linearly_and_inverts() -> None:
    score_map = NormalScoreMap.from_family(LogNormal(0.1))
    z = np.linspace(-8.0, 8.0, 101)
    np.testing.assert_allclose(score_map.inverse(score_map(z)), z, atol=1e-10)
    assert float(score_map(9.0) - score_map(8.0)) == pytest.approx(float(score_map(8.0) - score_map(7.0)), rel=1e-9)


def test_decreasing_map_is_refused() -> None:
    with pytest.raises(SpecError, match="must not decrease"):
        NormalScoreMap((0.0, 1.0), (1.0, 0.9))
    with pytest.raises(SpecError, match="at least 2"):
        NormalScoreMap.from_family(Normal(0.1), n_knots=1)


def test_sum_of_normals_is_the_closed_form() -> None:
    z = np.linspace(-5.0, 5.0, 101)
    exact = 1.0 + math.hypot(0.3 * 0.02, 0.7 * 0.01) * z
    np.testing.assert_allclose(combine((Normal(0.02), Normal(0.01)), (0.3, 0.7))(z), exact, atol=1e-12)


def test_convolution_of_near_normals_matches_the_closed_form() -> None:
    """LogNormal parts of tiny spread go through the FFT; their sum is normal up to terms of order cv^2."""
    z = np.linspace(-5.0, 5.0, 101)
    cv = math.hypot(0.5 * 1e-5, 0.5 * 2e-5)
    sums = combine((LogNormal(1e-5), LogNormal(2e-5)), (0.5, 0.5))
    np.testing.assert_allclose((sums(z) - 1.0) / cv, z, atol=5e-3)


def test_one_varying_part_is_scaled_by_its_weight() -> None:
    z = np.linspace(-6.0, 6.0, 51)
    alone = NormalScoreMap.from_family(MIXTURE)
    np.testing.assert_allclose(combine((MIXTURE, CONSTANT), (0.25, 0.75))(z), 0.75 + 0.25 * alone(z), rtol=1e-14)
    assert set(combine((CONSTANT, CONSTANT), (0.5, 0.5)).values) == {1.0}


@pytest.mark.parametrize(
    ("families", "weights"),
    [
        ((LogNormal(0.05), Gamma(0.02), Normal(0.03)), (0.2, 0.3, 0.5)),
        ((MIXTURE, LogNormal(0.01)), (0.6, 0.4)),
        ((StudentT(0.01, 3.0), LogNormal(0.01), POOL), (0.5, 0.3, 0.2)),
        ((LogNormal(0.2), LogNormal(0.001)), (0.01, 0.99)),
    ],
)
def test_combine_agrees_with_monte_carlo(families: tuple[Family, ...], weights: tuple[float, ...]) -> None:
    """Share of draws below each mapped quantile, 5 standard errors: false alarm rate 6e-7 each, 3e-5 for all 28 checks."""
    rng = np.random.default_rng(7)
    n = 200_000
    draws = sum(w * f.ppf_normal(rng.standard_normal(n)) for f, w in zip(families, weights, strict=True))
    sums = combine(families, weights)
    for p in (0.001, 0.05, 0.25, 0.5, 0.9, 0.99, 0.999):
        assert np.mean(draws <= sums(ndtri(p))) == pytest.approx(p, abs=5.0 * math.sqrt(p * (1.0 - p) / n))
    assert sums.mean == pytest.approx(1.0, abs=1e-13)


def test_combine_refuses_weights_that_do_not_sum_to_one() -> None:
    with pytest.raises(SpecError, match="sum to"):
        combine((Normal(0.1), Normal(0.1)), (0.5, 0.6))
    with pytest.raises(SpecError, match="one weight per family"):
        combine((Normal(0.1),), (0.5, 0.5))
