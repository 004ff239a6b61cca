"""Diagnostics: verdicts on chains, and checks of fitted rows."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats
from threadpoolctl import threadpool_info

from inference.engine.diagnostics import Checks, one_blas_thread, verdict
from inference.engine.program import PosteriorDraws
from inference.fitting.result import Fit
from prism_jax.core.errors import FitError
from prism_jax.core.report import to_plain
from prism_jax.fits.report import CleaningReport, Verdict
from tests.inference.engine.toy import Toy, readings

N_CHAIN, N_DRAW = 4, 500


def chains(**sites: np.ndarray) -> PosteriorDraws:
    """Independent normal draws, and `sites` in their place."""
    rng = np.random.default_rng(0)
    draws = {"mean": rng.standard_normal((N_CHAIN, N_DRAW)), "precision": 1.0 + rng.random((N_CHAIN, N_DRAW))}
    shape = next(iter((draws | sites).values())).shape[:2]
    return PosteriorDraws(draws | sites, np.zeros(shape, dtype=bool), np.full(shape, 7))


def judged(sampled: PosteriorDraws, *reported: str) -> Verdict:
    return verdict(sampled, reported or ("mean", "precision"))


def noise(*shape: int, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((N_CHAIN, N_DRAW, *shape))


def random_walk() -> np.ndarray:
    """Autocorrelation .99: a few effective draws per chain, around the same mean."""
    walk, steps = np.zeros((N_CHAIN, N_DRAW)), noise()
    for i in range(1, N_DRAW):
        walk[:, i] = 0.99 * walk[:, i - 1] + steps[:, i]
    return walk


def test_independent_draws_are_good():
    """r-hat of four chains of 500 independent draws exceeds 1.01 about once in a thousand; fixed seed."""
    found = judged(chains())
    assert found.ok
    assert found.sentence.startswith("good: ")
    assert found.r_hat < 1.01
    assert found.min_ess > 1000.0
    assert np.isnan(found.k_hat)


def test_chains_that_disagree_fail_by_name():
    apart = noise()
    apart[0] += 1.0
    found = judged(chains(mean=apart))
    assert not found.ok
    assert found.worst == "mean"
    assert "r-hat of mean is" in found.sentence
    assert "the chains disagree" in found.sentence


def test_the_element_of_a_vector_that_disagrees_is_named():
    vector = noise(3)
    vector[1, :, 2] += 1.0
    found = judged(chains(mean=vector))
    assert found.worst == "mean[2]"
    assert "mean[2]" in found.sentence


def test_few_draws_fail():
    few = {"mean": noise()[:, :40], "precision": noise(seed=2)[:, :40]}
    found = judged(chains(**few))
    assert not found.ok
    assert "effective draws, fewer than 400" in found.sentence
    assert found.cause == "chains"


def test_draws_that_hardly_move_fail():
    found = judged(chains(precision=random_walk()))
    assert not found.ok
    assert found.min_ess < 400.0
    assert "precision has" in found.sentence


@pytest.mark.parametrize(("n", "ok"), [(0, True), (4, True), (5, False), (2000, False)])
def test_more_than_two_in_a_thousand_divergences_fail(n, ok):
    diverging = np.zeros(N_CHAIN * N_DRAW, dtype=bool)
    diverging[:n] = True
    found = judged(replace(chains(), diverging=diverging.reshape(N_CHAIN, N_DRAW)))
    assert found.ok is ok
    assert found.n_diverging == n
    assert ok or f"{n} of 2,000 transitions diverged" in found.sentence
    assert found.cause == ("" if ok else "divergences")


@pytest.mark.parametrize("site", ["mean", "precision"])
@pytest.mark.parametrize("how_many", ["one", "all"])
def test_draws_that_are_not_a_number_fail(site, how_many):
    bad = noise()
    bad[(0, 3) if how_many == "one" else slice(None)] = np.nan
    found = judged(chains(**{site: bad}))
    assert not found.ok
    assert found.worst == site
    assert f"r-hat of {site}" in found.sentence


def test_several_faults_are_all_named():
    apart = noise()
    apart[0] += 3.0
    found = judged(replace(chains(mean=apart), diverging=np.ones((N_CHAIN, N_DRAW), dtype=bool)))
    for part in ("chains disagree", "effective draws", "diverged"):
        assert part in found.sentence


def test_sites_that_are_not_reported_do_not_count():
    apart = noise()
    apart[0] += 3.0
    assert judged(chains(nuisance=apart)).ok


def test_reported_sites_that_a_fit_lacks_do_not_count():
    assert judged(chains(), "mean", "slope").ok


@pytest.mark.parametrize(
    ("k", "ok"), [(-np.inf, True), (0.2, True), (0.69, True), (0.7, False), (3.0, False), (np.inf, False)]
)
def test_an_approximation_is_judged_by_its_pareto_shape(k, ok):
    """One chain of resampled draws, whose r-hat says nothing."""
    found = judged(replace(chains(mean=np.ones((1, 50)), precision=np.ones((1, 50))), k_hat=k))
    assert found.ok is ok
    assert found.k_hat == k
    assert ("good: the normal approximation is close" in found.sentence) is ok
    assert found.cause == ("" if ok else "approximation")


def test_what_does_not_apply_is_none_in_json():
    plain = to_plain(judged(chains()))
    assert plain["k_hat"] is None
    assert plain["ok"] is True
    assert to_plain(judged(replace(chains(), k_hat=0.1)))["r_hat"] is None


def fitted(ok: bool) -> Fit:
    data = Toy().prepare(readings(10))
    draws = {name: np.full((1, 30), 2.0) for name in ("mean", "precision")} | {
        "spread": np.linspace(0.1, 0.4, 30)[None]
    }
    none = np.zeros((1, 30), dtype=int)
    found = Verdict(ok, "failed: the chains disagree. Draw more", 1.5, 10.0, "mean", 0, np.nan)
    return Fit(Toy(), data, PosteriorDraws(draws, none.astype(bool), none), "nuts", found, CleaningReport(10, 10), 0.1)


def test_a_good_fit_becomes_variability_at_the_posterior_mean():
    assert fitted(ok=True).to_variability().step.cv == pytest.approx(0.25, rel=0.05)


def test_a_failed_fit_is_used_only_when_forced():
    fit = fitted(ok=False)
    with pytest.raises(FitError, match=r"the chains disagree.*force=True"):
        fit.to_variability()
    with pytest.raises(FitError, match=r"the chains disagree.*force=True"):
        fit.variability_draws(3, key=jax.random.key(0))
    with pytest.raises(FitError) as refused:
        fit.to_variability()
    assert "--force" not in str(refused.value), "words of Python alone"
    assert fit.to_variability(force=True) == fitted(ok=True).to_variability()
    assert len(fit.variability_draws(3, key=jax.random.key(0), force=True)) == 3


def test_trees_of_posterior_draws_are_distinct_draws():
    fit = fitted(ok=True)
    cvs = [tree.step.cv for tree in fit.variability_draws(30, key=jax.random.key(0))]
    assert len(set(cvs)) == 30
    assert len(fit.variability_draws(500, key=jax.random.key(0))) == 30, "no more than there are"


# --- Checks ----------------------------------------------------------------------------------------------------------
# Replicated data: uniform where the model is right, and telling where it is wrong; scores against closed forms.


N_OBS, CHECKS_N_DRAW = 2000, 999


def checks(*, wide: float = 1.0, shift: float = 0.0, seed: int = 0) -> Checks:
    """Measured N(0, 1), replicated N(shift, wide^2)."""
    rng = np.random.default_rng(seed)
    return Checks(rng.standard_normal(N_OBS), shift + wide * rng.standard_normal((CHECKS_N_DRAW, N_OBS)), "seconds")


def normal_crps(x: np.ndarray, sd: float) -> np.ndarray:
    """Of a forecast N(0, sd^2); Gneiting and Raftery, JASA 102 (2007), section 4.2."""
    z = x / sd
    return sd * (z * (2.0 * stats.norm.cdf(z) - 1.0) + 2.0 * stats.norm.pdf(z) - 1.0 / np.sqrt(np.pi))


def test_pit_of_a_calibrated_model_is_uniform():
    """False-alarm rate 1e-4; PIT values lie on a grid of 1/999, which moves the distance by less than .001."""
    found = checks()
    assert ((found.pit >= 0.0) & (found.pit <= 1.0)).all()
    assert stats.kstest(found.pit, "uniform").pvalue > 1e-4
    assert found.as_dict()["pit_ks_p_value"] > 1e-4  # type: ignore[operator]


@pytest.mark.parametrize("wrong", [{"wide": 0.5}, {"wide": 2.0}, {"shift": 0.5}])
def test_pit_of_a_wrong_model_is_not_uniform(wrong):
    assert stats.kstest(checks(**wrong).pit, "uniform").pvalue < 1e-12


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("wide", [0.5, 1.0, 2.0])
def test_coverage_is_that_of_the_normal_law(level, wide):
    """Five standard errors of 2,000 observations (6e-7), and .003 for quantiles of 999 draws."""
    edge = wide * stats.norm.ppf(0.5 + level / 2.0)
    expected = 1.0 - 2.0 * stats.norm.sf(edge)
    error = 5.0 * float(np.sqrt(expected * (1.0 - expected) / N_OBS)) + 0.003
    assert checks(wide=wide).coverage(level) == pytest.approx(expected, abs=error)


def test_crps_is_that_of_the_normal_law():
    """Evenly spaced quantiles as draws: no Monte Carlo error, and 1/n of bias."""
    n = 4001
    draws = 2.0 * stats.norm.ppf((np.arange(n) + 0.5) / n)
    measured = np.linspace(-6.0, 6.0, 25)
    found = Checks(measured, np.broadcast_to(draws[:, None], (n, len(measured))), "s").crps()
    assert found == pytest.approx(normal_crps(measured, 2.0).mean(), rel=1e-3)


def test_crps_does_not_depend_on_the_order_of_draws():
    found = checks()
    mixed = np.random.default_rng(1).permutation(found.predicted, axis=0)
    assert Checks(found.measured, mixed, "s").crps() == pytest.approx(found.crps(), rel=1e-12)


def test_the_right_spread_has_the_best_crps():
    """In expectation .564 at the truth, .589 and .611 at half and at twice the spread."""
    right = checks().crps()
    assert right < checks(wide=0.5).crps()
    assert right < checks(wide=2.0).crps()


def test_crps_of_a_point_is_its_absolute_error():
    measured = np.array([1.0, 2.0, 4.0])
    found = Checks(measured, np.full((5, 3), 2.0), "s")
    assert found.crps() == pytest.approx(1.0)
    assert found.as_dict()["crps_of_median"] == pytest.approx(1.0)


def test_ties_count_half():
    assert Checks(np.array([1.0]), np.array([[0.0], [1.0], [1.0], [2.0]]), "s").pit == pytest.approx([0.5])


def test_figures_are_plain_values():
    found = checks().as_dict()
    assert found["what"] == "seconds"
    assert found["n"] == N_OBS
    assert {"coverage_50", "coverage_90"} <= set(found)
    assert all(isinstance(value, (str, int, float)) for value in found.values())
    assert found["crps"] < found["crps_of_median"]  # type: ignore[operator]


def test_blas_has_one_thread_inside_and_as_many_as_before_afterwards() -> None:
    def threads() -> list[int]:
        return [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]

    @one_blas_thread
    def outer() -> tuple[list[int], list[int]]:
        return one_blas_thread(threads)(), threads()  # calls nest: fits are made inside of fits

    before = threads()
    inner, around = outer()
    assert set(inner) | set(around) == {1}
    assert threads() == before
