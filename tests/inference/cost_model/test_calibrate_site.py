"""What a few runs say of a site: known corrections are found, bad runs do not matter, and nothing is learnt from nothing."""

from dataclasses import asdict, replace
from pathlib import Path

import jax
import numpy as np
import pytest

from inference.cost_model.site_density import calibrate_site, of_site, posterior
from inference.cost_model.site_fit import (
    bands,
    calibrate_runs,
    errors,
    helps,
    learning_curve,
    left_out_errors,
    predicted_s,
)
from inference.cost_model.site_runs import SITE_DEVIATION, only, site_prior, site_runs, some_of, two_softwares
from inference.cost_model.store import load, save
from prism_jax.calibration.calibration import DEGREES, KNOBS, Calibration, Term, linked
from prism_jax.calibration.key import STEP, CalibrationKey, Level
from prism_jax.core.errors import DataError
from prism_jax.cost.efficiency import CostCorrection
from prism_jax.cost.step import step_cost
from prism_jax.framework.software import Software
from prism_jax.job.job import Job
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.program import lower
from prism_jax.system.catalog import cluster
from prism_jax.validation.job_table import MeasuredRun
from tests.inference.cost_model.sites import FRAMEWORK, GENERATION, JOBS, job, measured, population, runs_of, simulated

KEY = jax.random.key(0)
FIVE = np.arange(5)


def base() -> CostCorrection:
    return population().correction(CalibrationKey(GENERATION, FRAMEWORK))


def test_every_knob_may_deviate_at_a_site():
    assert set(SITE_DEVIATION) == set(KNOBS)
    assert all(sd > 0.0 for sd in SITE_DEVIATION.values())


@pytest.mark.parametrize("factor", [0.6, 1.0, 1.7])
def test_five_runs_find_a_slow_network(factor: float):
    runs = simulated(runs_of(), replace(base(), network=base().network * factor))
    fitted = calibrate_site(population(0.005), some_of(runs, FIVE), key=KEY)
    drawn = fitted.corrections(CalibrationKey(GENERATION, FRAMEWORK)).network / base().network
    low, high = np.quantile(drawn, [0.05, 0.95])
    assert low < factor < high
    assert (
        abs(np.log(drawn).mean() - np.log(factor)) <= 0.6 * abs(np.log(factor)) + 0.01
    )  # the rest is the prior's pull
    rest = some_of(runs, np.arange(5, len(JOBS)))
    assert np.abs(errors(fitted, rest)).mean() <= 0.65 * np.abs(errors(population(), rest)).mean() + 0.002


def test_one_bad_run_of_five_hardly_matters():
    truth = replace(base(), network=base().network * 1.5)
    good = simulated(runs_of(), truth)
    noise = np.zeros(len(JOBS))
    noise[2] = np.log(2.0)
    bad = simulated(runs_of(), truth, noise)
    rest = some_of(good, np.arange(5, len(JOBS)))
    without, with_bad, before = (
        predicted_s(x, rest)
        for x in (
            calibrate_site(population(), some_of(good, np.array([0, 1, 3, 4])), key=KEY),
            calibrate_site(population(), some_of(bad, FIVE), key=KEY),
            population(),
        )
    )
    assert np.abs(np.log(with_bad / without)).max() < 0.04  # of the 69% that it is off
    assert np.abs(errors(calibrate_site(population(), some_of(bad, FIVE), key=KEY), rest)).mean() < (
        np.abs(before / np.exp(rest.log_measured) - 1.0).mean()
    )


def test_without_runs_the_calibration_is_as_it_was():
    known = population()
    assert calibrate_site(known, only(runs_of(), np.zeros(0, dtype=int)), key=KEY) is known


def test_runs_that_agree_leave_the_prediction_and_narrow_its_band():
    known = population()
    runs = simulated(runs_of(), base())
    fitted = calibrate_site(known, runs, key=KEY)
    np.testing.assert_allclose(predicted_s(fitted, runs), predicted_s(known, runs), rtol=2e-3)
    before, after = bands(known, runs), bands(fitted, runs)
    assert (after[1] - after[0] < before[1] - before[0]).all()


def test_runs_without_weight_say_nothing():
    runs = simulated(runs_of(), replace(base(), gemm=1.1 * base().gemm), np.linspace(-0.05, 0.05, len(JOBS)))
    chosen = np.array([1, 4, 6])
    few = calibrate_site(population(), some_of(runs, chosen), key=KEY)
    padded = calibrate_site(population(), only(runs, chosen), key=KEY)
    np.testing.assert_allclose(predicted_s(few, runs), predicted_s(padded, runs), rtol=1e-6)
    assert padded.record is not None
    assert padded.record["n_run"] == 3


def test_the_result_speaks_of_this_site_alone():
    fitted = calibrate_site(population(), simulated(runs_of(), base()), key=KEY)
    assert fitted.n_draw == population().n_draw
    assert {(term.level, term.sd) for term in fitted.terms} == {("all", 0.0)}
    np.testing.assert_array_equal(
        fitted.corrections(CalibrationKey("hopper", "jax"), seed=1).gemm,
        fitted.corrections(CalibrationKey(GENERATION, FRAMEWORK), seed=2).gemm,
    )
    assert fitted.site is not None


def test_the_factor_of_a_site_is_in_whatever_is_predicted():
    known = population(0.005)
    runs = some_of(simulated(runs_of(), base(), 0.2), FIVE)  # all 22% slower
    found = posterior(site_prior(known, runs_of()), runs, known.n_draw, KEY)
    fitted = replace(of_site(known, found, runs), nearby=None)  # the knobs alone
    assert np.exp(found.site.mean()) > 1.02
    knobs = found.knobs.mean(axis=0)
    plain = CostCorrection(**{knob: float(linked(knob, knobs[i])) for i, knob in enumerate(KNOBS)})
    for at in (0, 8):  # sharded in full, and tensor parallel
        of = JOBS[at]
        given = replace(of, calibration=fitted)
        whole = deterministic(lower(given))
        eff = replace(given.efficiency, correction=plain)
        cost = step_cost(of.model, of.cluster, of.plan, eff)
        scaled = step_cost(of.model, of.cluster, of.plan, given.efficiency)
        factor = np.exp(found.site.mean())
        np.testing.assert_allclose(scaled.compute_s, factor * cost.compute_s, rtol=1e-9)
        np.testing.assert_allclose(scaled.comm_s, factor * cost.comm_s, rtol=1e-9)
        np.testing.assert_allclose(scaled.end_comm_s, factor * cost.end_comm_s, rtol=1e-9)
        np.testing.assert_allclose(scaled.end_compute_s, factor * cost.end_compute_s, rtol=1e-9)
        assert whole > 0.0


def test_bands_hold_what_they_promise():
    """90 of 100 simulated sites on average; 78 or fewer are as rare as one in 5,000."""
    known = population()
    prior = site_prior(known, runs_of())
    rng = np.random.default_rng(3)
    all_runs = runs_of()
    inside = 0
    for site in range(100):
        knobs = prior.mean + prior.factor @ rng.normal(size=len(KNOBS))
        correction = CostCorrection(**{knob: float(linked(knob, knobs[i])) for i, knob in enumerate(KNOBS)})
        noise = prior.site_sd * rng.normal() + prior.misfit * rng.standard_t(DEGREES, size=len(JOBS))
        runs = simulated(all_runs, correction, noise)
        fitted = calibrate_site(known, only(runs, FIVE), key=jax.random.key(site))
        low, high = bands(fitted, runs, site)
        ratio = np.exp(runs.log_measured) / predicted_s(fitted, runs)
        inside += bool(low[7] <= ratio[7] <= high[7])
    assert 79 <= inside <= 99


def test_the_error_falls_with_the_number_of_runs():
    correction = replace(base(), gemm=1.15 * base().gemm, network=1.6 * base().network)
    runs = simulated(runs_of(), correction, 0.005 * np.random.default_rng(0).normal(size=len(JOBS)))
    few = some_of(runs, np.array([0, 3, 4, 5, 8]))
    curve = learning_curve(population(), few, key=KEY)
    assert [(point.n_run, point.n_choice) for point in curve] == [(0, 1), (1, 5), (2, 10), (3, 10), (4, 5)]
    assert curve[-1].median_ape < 0.5 * curve[0].median_ape
    left = left_out_errors(population(), few, key=KEY)
    assert np.median(np.abs(left)) == pytest.approx(curve[-1].median_ape)


def test_a_single_run_is_a_calibration_too():
    runs = some_of(simulated(runs_of(), base(), 0.1), np.array([0]))
    assert abs(errors(calibrate_site(population(), runs, key=KEY), runs)[0]) < 0.05
    assert [point.n_run for point in learning_curve(population(), runs, key=KEY)] == [0]
    np.testing.assert_array_equal(left_out_errors(population(), runs, key=KEY), errors(population(), runs))


def test_two_generations_are_refused_by_name():
    other = replace(job(), cluster=cluster("dgx-h100", 16))
    with pytest.raises(DataError, match="two device generations: ampere .* and hopper"):
        site_runs([*measured([1.0], [job()]), MeasuredRun("b", other, 1.0)], population(), left_out=np.zeros(2))


def test_two_frameworks_are_refused_by_name_unless_one_is_named():
    both = [*measured([1.0], [job()]), MeasuredRun("b", replace(job(), framework="jax"), 1.0)]
    with pytest.raises(DataError, match=r"two frameworks: fsdp .* and jax \(b\)"):
        site_runs(both, population(), left_out=np.zeros(2))
    assert site_runs(both, population(), "jax", np.zeros(2)).setting.framework == "jax"
    with pytest.raises(DataError, match="'jaxx' is unknown, did you mean jax"):
        site_runs(both, population(), "jaxx", np.zeros(2))


def test_a_framework_that_some_jobs_state_is_that_of_all():
    silent: Job = replace(job(), framework="")
    assert (
        site_runs(measured([1.0, 1.0], [silent, job()]), population(), left_out=np.zeros(2)).setting.framework
        == FRAMEWORK
    )
    assert site_runs(measured([1.0], [silent]), population(), left_out=np.zeros(1)).setting.framework == ""


def test_what_the_outline_leaves_out_comes_from_a_simulation():
    known = population()
    seen = []
    runs = site_runs(measured([1.0], [job(8)]), known, progress=lambda done, what="", /: seen.append(done))
    assert 0.0 < runs.left_out[0] < 0.1  # stragglers
    assert seen == [1.0]


def test_no_runs_are_refused():
    with pytest.raises(DataError, match="no runs"):
        site_runs([], population())


SLOW, FAST = (Software(attention=name) for name in ("eager", "flash2"))


def of_software(job: Job, software: Software) -> Job:
    return replace(job, plan=replace(job.plan, software=software))


def of_two_kernels() -> Calibration:
    """Eager attention takes twice what its kernels say, FlashAttention-2 what they say."""
    known = population()
    values = np.tile([np.log(2.0), 0.0], (known.n_draw, 1)) + 0.01 * np.linspace(-1.0, 1.0, known.n_draw)[:, None]
    names = tuple(f"{GENERATION} {one.attention}" for one in (SLOW, FAST))
    return replace(known, terms=(*known.terms, Term("attention", Level.ATTENTION, 0.1, names, values)))


def test_every_run_is_predicted_with_its_own_software():
    known = of_two_kernels()
    jobs = [of_software(job(16), one) for one in (SLOW, FAST, SLOW, FAST)]
    runs = site_runs(measured(np.ones(4), jobs), known, left_out=np.zeros(4))
    assert runs.setting.software == Software(**{**asdict(jobs[0].plan.software), "attention": None})
    true = np.log(predicted_s(known, runs))
    assert true[0] - true[1] > 0.1
    fitted = calibrate_site(known, replace(runs, log_measured=true), key=KEY)  # nothing is off, so nothing moves
    np.testing.assert_allclose(np.log(predicted_s(fitted, runs)), true, atol=2e-3)


def test_jobs_of_other_software_stay_as_far_apart_as_they_were(tmp_path: Path):
    known = of_two_kernels()
    runs = runs_of([of_software(one, FAST) for one in JOBS])
    seen = replace(runs, log_measured=np.log(predicted_s(known, runs)) + 0.1)
    save(calibrate_site(known, seen, key=KEY), tmp_path / "site.npz")
    fitted = load(tmp_path / "site.npz")
    slow, fast = (
        fitted.correction(CalibrationKey.of(job().cluster.device, FRAMEWORK, software, job().model))
        for software in (SLOW, FAST)
    )
    assert slow.attention / fast.attention == pytest.approx(2.0, rel=1e-3)
    unsaid = fitted.correction(CalibrationKey(GENERATION, FRAMEWORK))  # as the site's runs were
    assert unsaid.attention == pytest.approx(fast.attention, rel=1e-3)


def test_runs_that_do_not_help_each_other_leave_what_was_known(tmp_path: Path):
    before = np.array([0.02, -0.02, 0.03, -0.03])
    assert helps(before, 0.5 * before)
    assert helps(before, before + np.array([0.01, -0.01, 0.01, -0.01]) * before)  # worse by chance, as far as they tell
    assert not helps(before, 5.0 * before)
    assert helps(before[:2], 5.0 * before[:2])  # two cannot tell
    known = population(0.01)
    jobs = [job(16), job(32, 2), job(64), job(128)]
    for off, stands in ((np.array([0.3, -0.3, 0.3, -0.3]), True), (np.full(4, 0.3), False)):
        seconds = predicted_s(known, runs_of(jobs)) * np.exp(off)
        fit = calibrate_runs(measured(seconds, jobs), key=KEY, calibration=known)
        report = fit.report()
        assert report.shipped_stands is (stands or None)
        assert (fit.calibration.site is None) is stands  # what is saved, and predicts
        assert ("it stands" in str(report)) is stands
        fit.save(tmp_path / "site.npz")
        assert (
            load(tmp_path / "site.npz").width is not None
        ) is stands  # the evidence of others decides the interval again
        assert fit.calibration.record is not None
        assert fit.calibration.record["framework"] == FRAMEWORK


def test_two_runs_alike_in_all_parts_and_far_apart_are_two_softwares():
    known = population(0.02)
    jobs = [job(16), job(16, 1, 1, 8), job(16)]
    runs = runs_of(jobs)
    alike = replace(runs, log_measured=np.log(predicted_s(known, runs)) + np.array([0.0, 0.4, 0.05]))
    assert two_softwares(known, alike) is None  # 0.4 apart, but made of other parts
    apart = replace(alike, log_measured=alike.log_measured + np.array([0.0, 0.0, 0.2]))
    found = two_softwares(known, apart)
    assert found is not None
    assert sorted(found[:2]) == [0, 2]
    assert abs(np.log(found[2])) == pytest.approx(0.25, abs=1e-6)


def test_versions_and_methods_are_refused_by_name():
    runs = measured([1.0, 1.0, 1.0], [job(16), job(32), job(64)])
    both = [replace(run, version=version) for run, version in zip(runs, ("25.02", "", "25.04"), strict=True)]
    with pytest.raises(DataError, match=r"two versions or methods: 25.02 .* and 25.04 .*: --only '25.02'"):
        site_runs(both, population(), left_out=np.zeros(3))
    assert site_runs(both[:2], population(), left_out=np.zeros(2)).n_run == 2


def test_jobs_of_another_date_differ_by_the_years_between():
    known = population()
    slopes = np.tile([-0.1, -0.3], (known.n_draw, 1)) + 0.02 * np.linspace(-1.0, 1.0, known.n_draw)[:, None]
    known = replace(known, terms=(*known.terms, Term(STEP, Level.DATE, 0.03, ("dense", "experts"), slopes)))
    old, new = Software(date="2025-06"), Software(date="2026-06")
    runs = runs_of([of_software(one, old) for one in JOBS])
    fitted = calibrate_site(known, replace(runs, log_measured=np.log(predicted_s(known, runs))), key=KEY)
    settings = [CalibrationKey(GENERATION, FRAMEWORK, software=one) for one in (old, new)]
    for made in (known, fitted):
        first, then = (made.correction(one) for one in settings)
        assert then.gemm / first.gemm == pytest.approx(np.exp(-0.1), rel=1e-3)
    assert fitted.correction(settings[0]).gemm == pytest.approx(known.correction(settings[0]).gemm, rel=1e-2)
    before, after = (np.log(made.corrections(settings[0]).gemm).std() for made in (known, fitted))
    assert after < before  # the uncertainty of the slope is not there for the date of the runs
    undated = CalibrationKey(GENERATION, FRAMEWORK)
    assert np.log(fitted.corrections(undated, 1).gemm).std() == np.log(fitted.corrections(undated, 2).gemm).std()
