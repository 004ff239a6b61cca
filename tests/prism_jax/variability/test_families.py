"""Families of slowdown factors, alone and laid over each other."""

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import integrate, optimize, special, stats

from prism_jax.core.errors import SpecError
from prism_jax.variability.families import CONSTANT, Constant, Family, Gamma, LogNormal, Normal, StudentT
from prism_jax.variability.family_registry import Mixture, Pool, family_from_dict, family_to_dict
from prism_jax.variability.tree import ClassVariability, Stall, Variability, overlay

FAMILIES = [
    CONSTANT,
    Normal(0.02),
    Normal(0.2),
    LogNormal(0.01),
    LogNormal(0.5),
    Gamma(0.001),
    Gamma(0.02),
    Gamma(0.7),
    StudentT(0.01, 3.0),
    StudentT(0.1, 5.0),
    Mixture(0.01, 0.02, 1.1, 0.05),
    Mixture(0.02, 0.3, 1.5, 0.2),
    Pool((0.98, 1.0, 1.01, 1.2)),
]


def expectation(family: Family, power: float) -> float:
    """E[X^power] by adaptive quadrature over z, cut where the density is below 1e-16."""
    z, w = np.polynomial.legendre.leggauss(100)
    edges = np.linspace(-8.5, 8.5, 201)
    middle, half = 0.5 * (edges[1:] + edges[:-1]), 0.5 * np.diff(edges)
    points = middle[:, None] + half[:, None] * z
    values = family.ppf_normal(points) ** power * np.exp(-0.5 * points**2) / math.sqrt(2.0 * math.pi)
    return float(np.sum(values @ w * half))


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_mean_is_one_by_quadrature(family: Family) -> None:
    tolerance = 1e-6 if isinstance(family, (Pool, Mixture)) else 1e-9  # corners and jumps limit the quadrature
    assert expectation(family, 1.0) == pytest.approx(1.0, abs=tolerance)


@pytest.mark.parametrize("family", [f for f in FAMILIES if not isinstance(f, StudentT)], ids=repr)
def test_cv_is_the_standard_deviation_by_quadrature(family: Family) -> None:
    assert math.sqrt(max(expectation(family, 2.0) - 1.0, 0.0)) == pytest.approx(family.cv, rel=1e-5, abs=2e-7)


def test_student_cv_matches_numerical_integration() -> None:
    family = StudentT(0.05, 4.5)

    def moment(power: int) -> float:
        def density(t: float) -> float:
            return float(stats.t.pdf(t, 4.5))

        upper = integrate.quad(lambda t: (1.0 + 0.05 * t) ** power * density(t), 0.0, np.inf)[0]
        lower = integrate.quad(lambda t: (1.0 + 0.05 * t) ** -power * density(t), 0.0, np.inf)[0]
        return upper + lower

    assert family.cv == pytest.approx(math.sqrt(moment(2) / moment(1) ** 2 - 1.0), rel=1e-7)
    assert math.isinf(StudentT(0.05, 2.0).cv)


@given(
    cv=st.floats(0.001, 0.5),
    prob=st.floats(1e-4, 0.9),
    factor=st.floats(1.0, 3.0),
    df=st.floats(1.2, 50.0),
    z=st.lists(st.floats(-8.0, 8.0), min_size=2, max_size=30),
)
@settings(deadline=None, derandomize=True, max_examples=40)
def test_quantiles_are_positive_and_monotone(cv: float, prob: float, factor: float, df: float, z: list[float]) -> None:
    scores = np.sort(np.asarray(z))
    pool = Pool((1.0, factor, 1.0 + cv))
    for family in (Normal(cv), LogNormal(cv), Gamma(cv), StudentT(cv, df), Mixture(cv, prob, factor, 2.0 * cv), pool):
        values = family.ppf_normal(scores)
        assert np.all(values > 0.0)
        assert np.all(np.diff(values) >= -1e-12 * values[1:])


@pytest.mark.parametrize("cv", [0.005, 0.1, 0.7])
def test_gamma_tails_match_an_independent_implementation(cv: float) -> None:
    z = np.linspace(0.5, 8.0, 16)
    reference = stats.gamma(a=1.0 / cv**2, scale=cv**2)
    np.testing.assert_allclose(Gamma(cv).ppf_normal(z), reference.isf(stats.norm.sf(z)), rtol=1e-9)
    np.testing.assert_allclose(Gamma(cv).ppf_normal(-z), reference.ppf(stats.norm.sf(z)), rtol=1e-9)


def test_student_upper_tail_is_a_student_t() -> None:
    z = np.linspace(0.1, 8.0, 20)
    family = StudentT(0.02, 3.0)
    norm = family.ppf_normal(0.0)
    np.testing.assert_allclose(family.ppf_normal(z) / norm, 1.0 + 0.02 * stats.t(3.0).isf(stats.norm.sf(z)), rtol=1e-9)
    np.testing.assert_allclose(family.ppf_normal(z) * family.ppf_normal(-z), norm**2, rtol=1e-12)


@pytest.mark.parametrize("z", [-8.0, -3.0, -0.1, 1.5, 2.2, 5.0, 8.0])
@pytest.mark.parametrize(
    "family", [Mixture(0.01, 0.02, 1.1, 0.05), Mixture(0.0005, 0.02, 3.0, 0.01)], ids=["near", "far"]
)
def test_mixture_quantile_solves_its_log_tail_equation(family: Mixture, z: float) -> None:
    """Far: a plateau between the components, where Newton's steps leave the bracket."""
    bulk = 1.0 / (1.0 + 0.02 * (family.slow_factor - 1.0))
    s = [math.sqrt(math.log1p(family.bulk_cv**2)), math.sqrt(math.log1p(family.slow_cv**2))]
    mu = [math.log(bulk) - s[0] ** 2 / 2, math.log(bulk * family.slow_factor) - s[1] ** 2 / 2]
    side = 1.0 if z < 0 else -1.0

    def log_tail(y: float) -> float:
        parts = [special.log_ndtr(side * (y - m) / d) for m, d in zip(mu, s, strict=True)]
        return float(special.logsumexp(parts, b=[0.98, 0.02]) - special.log_ndtr(side * z))

    root = optimize.brentq(log_tail, -2.0, 2.0, xtol=1e-15)
    assert float(np.log(family.ppf_normal(z))) == pytest.approx(root, abs=1e-12)


def test_pool_quantiles_are_the_sorted_measurements_over_their_mean() -> None:
    measured = (3.0, 1.0, 2.0, 2.0)
    family = Pool(measured)
    at = special.ndtri((np.arange(4) + 0.5) / 4)
    np.testing.assert_allclose(family.ppf_normal(at), np.array([1.0, 2.0, 2.0, 3.0]) / 2.0)
    assert float(family.ppf_normal(8.0)) == 1.5
    assert family == Pool((1.5, 0.5, 1.0, 1.0))


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_scaling_by_zero_is_constant_and_by_one_changes_nothing(family: Family) -> None:
    assert isinstance(family.scaled(0.0), Constant)
    z = np.linspace(-4.0, 4.0, 9)
    np.testing.assert_allclose(family.scaled(1.0).ppf_normal(z), family.ppf_normal(z), rtol=1e-14)
    assert hash(family.scaled(1.0)) == hash(family)


@pytest.mark.parametrize(
    "family", [Normal(0.01), LogNormal(0.01), Gamma(0.01), Mixture(0.01, 0.02, 1.05, 0.02)], ids=repr
)
def test_scaling_doubles_a_small_spread(family: Family) -> None:
    assert family.scaled(2.0).cv == pytest.approx(2.0 * family.cv, rel=1e-2)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_dict_round_trip(family: Family) -> None:
    assert family_from_dict(family_to_dict(family)) == family


def test_a_number_is_the_cv_of_a_log_normal() -> None:
    assert family_from_dict(0.03) == LogNormal(0.03)
    assert family_from_dict(0) == CONSTANT


@pytest.mark.parametrize(
    ("section", "text"),
    [
        ({"kind": "mixtur"}, r"v\.gpu\.kind: unknown 'mixtur', did you mean mixture\?"),
        ({"kind": "gamma", "cvv": 0.1}, r"v\.gpu\.cvv: unknown field of gamma, did you mean cv\?"),
        ({"kind": "gamma"}, r"v\.gpu\.cv: missing; gamma needs cv"),
        ({"cv": 0.1}, r"v\.gpu\.kind: missing"),
        ({"kind": "normal", "cv": 0.9}, r"v\.gpu: Normal: cv = 0\.9, but it must be >= 0 and <= 0\.5\. Use log_normal"),
        ({"kind": "normal", "cv": "wide"}, r"v\.gpu\.cv: 'wide' is not a number"),
        ({"kind": "student_t", "scale_cv": 0.1, "df": 1.0}, "does not exist for df <= 1"),
        ({"kind": "pool", "factors": [1.0]}, "at least 2 are needed"),
        ({"kind": "pool", "factors": [1.0, -1.0]}, "must be finite and > 0"),
        (
            {"kind": "mixture", "bulk_cv": 0.1, "slow_prob": 0.1, "slow_factor": 0.5, "slow_cv": 0.1},
            "slow_factor = 0.5",
        ),
        ("gamma", "is not a family"),
    ],
)
def test_mistakes_name_path_value_and_remedy(untyped: None, section: object, text: str) -> None:
    with pytest.raises(SpecError, match=text):
        family_from_dict(section, ("v", "gpu"))  # pyright: ignore[reportArgumentType]


def test_negative_scale_is_refused() -> None:
    with pytest.raises(SpecError, match=">= 0"):
        LogNormal(0.1).scaled(-1.0)


# --- A fit over what was assumed: what varies in it replaces, the rest stays -----------------------------------------


BASE = Variability(
    "base",
    {
        "gemm": ClassVariability(gpu=LogNormal(0.01), node=LogNormal(0.02), call=Normal(0.03)),
        "p2p": ClassVariability(node=LogNormal(0.04), regime=LogNormal(0.05)),
    },
    step=LogNormal(0.06),
    step_ar1=0.5,
    stalls=(Stall(step_prob=0.01, mean_fraction=0.3),),
    source="assumed",
)


def fitted(**parts) -> Variability:
    return Variability("fit", source="measured", **parts)


def test_parts_that_vary_replace_and_the_others_stay():
    found = overlay(BASE, fitted(classes={"gemm": ClassVariability(gpu=LogNormal(0.5))}))
    assert found.of("gemm") == ClassVariability(gpu=LogNormal(0.5), node=LogNormal(0.02), call=Normal(0.03))
    assert found.of("p2p") == BASE.of("p2p")
    assert (found.step, found.step_ar1, found.stalls) == (BASE.step, BASE.step_ar1, BASE.stalls)


def test_classes_that_the_base_lacks_are_added():
    own = ClassVariability(call=Normal(0.1))
    found = overlay(BASE, fitted(classes={"attention": own}))
    assert found.of("attention") == own
    assert set(found.classes) == {"gemm", "p2p", "attention"}


def test_the_step_comes_with_its_autocorrelation():
    found = overlay(BASE, fitted(step=LogNormal(0.2)))
    assert (found.step, found.step_ar1) == (LogNormal(0.2), 0.0)


def test_an_autocorrelation_of_nothing_does_not_replace():
    assert overlay(BASE, fitted(step=CONSTANT, step_ar1=0.9)).step_ar1 == 0.5


def test_stalls_replace_as_a_whole():
    stalls = (Stall(gpu_prob=1e-6, mean_fraction=2.0), Stall(step_prob=0.5))
    assert overlay(BASE, fitted(stalls=stalls)).stalls == stalls


@pytest.mark.parametrize("base", [BASE, Variability()])
def test_a_fit_that_says_nothing_changes_nothing(base):
    found = overlay(base, fitted(classes={"gemm": ClassVariability()}))
    assert found.spread() == base.spread()
    assert found.stalls == base.stalls


def test_over_nothing_a_fit_is_itself():
    found = overlay(Variability(), BASE)
    assert found.spread() == BASE.spread()
    assert (found.step_ar1, found.stalls) == (BASE.step_ar1, BASE.stalls)


def test_the_later_of_two_fits_wins():
    one, two = (fitted(classes={"gemm": ClassVariability(gpu=LogNormal(cv))}) for cv in (0.1, 0.2))
    assert overlay(overlay(BASE, one), two).of("gemm").gpu == LogNormal(0.2)


def test_names_and_sources_of_both_are_kept():
    found = overlay(BASE, fitted())
    assert found.name == "base with fit"
    assert found.source == "assumed; measured"
    assert overlay(Variability(), fitted()).source == "measured"


def test_the_trees_that_came_in_are_not_changed():
    before = dict(BASE.classes)
    overlay(BASE, fitted(classes={"attention": ClassVariability(call=Normal(0.1))}))
    assert BASE.classes == before
