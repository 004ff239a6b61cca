"""A fit over what was assumed: what varies in it replaces, the rest stays."""

import pytest

from prism_jax.variability.families import CONSTANT, LogNormal, Normal
from prism_jax.variability.tree import ClassVariability, Stall, Variability, overlay

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
