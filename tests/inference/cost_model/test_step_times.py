"""The calibration recovers corrections that steps were made with, and is not moved by rows that are wrong."""

import jax
import numpy as np
import pytest

from inference.cost_model.calibrate import Calibrator, few_of_each, rows_of
from inference.cost_model.step_times import NEW_SITE, StepTimesData, step_times_data
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import stack, surrogate_of, surrogate_seconds
from prism_jax.cost.efficiency import NEUTRAL, CostCorrection, efficiency
from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.workload import catalog as models

TRUTH = CostCorrection(
    gemm=1.06, memory=1.1, network=1.1, network_call_s=1e-4, host=1.2, overlap_window=0.6, step_s=5e-3
)
N_SITE = 4
KEY = CalibrationKey(
    "hopper", "megatron-core", software=Software(date="2025-01")
)  # from which on newer releases are faster


def steps(spread: float = 0.02, wrong: int = 0) -> StepTimesData:
    """Measured steps of four sites under one correction; each site is off by a factor of its own, `wrong` rows by eight."""
    rng = np.random.default_rng(1)
    outlines, sites = [], []
    for site in range(N_SITE):
        for name, tp, pp, micro in (
            ("llama-2-7b", 1, 1, 1), ("llama-2-7b", 2, 1, 2), ("llama-2-7b", 8, 2, 1), ("llama-3-8b", 1, 4, 1),
            ("gpt-3-175b", 8, 8, 1), ("gpt-3-175b", 8, 4, 2), ("llama-3-70b", 8, 2, 1), ("llama-3-70b", 4, 4, 4),
            ("llama-2-13b", 2, 2, 8), ("llama-2-13b", 4, 1, 1),
        ):  # fmt: skip
            for dp in (2, 8):
                plan = ParallelPlan(
                    micro, micro * dp * 16, 2048, tp=tp, pp=pp, dp=dp, zero_stage=1, recompute="selective"
                )
                cluster = catalog.cluster("dgx-h100", plan.n_devices)
                outlines.append(surrogate_of(models.model(name), cluster, plan, efficiency("hopper")))
                sites.append(f"site {site}")
    stacked = stack(outlines)
    factor = np.repeat(rng.normal(0.0, 0.05, N_SITE), len(sites) // N_SITE)
    measured = surrogate_seconds(stacked, TRUTH) * np.exp(factor + spread * rng.normal(size=len(sites)))
    measured[rng.choice(len(sites), wrong, replace=False)] *= 8.0
    n = len(sites)
    return step_times_data(stacked, measured, np.zeros(n), [False] * n, [KEY] * n, sites)


@pytest.fixture(scope="module")
def data() -> StepTimesData:
    return steps()


def test_corrections_are_recovered(data: StepTimesData) -> None:
    """What the rows decide lies within the posterior's own interval: four standard deviations, and close in any case."""
    found = Calibrator(data).fit(data, key=jax.random.key(0))
    draws = found.corrections(KEY)
    for knob in ("gemm", "memory", "network"):
        logs = np.log(getattr(draws, knob))
        assert abs(logs.mean() - np.log(getattr(TRUTH, knob))) < 4.0 * logs.std()
    predicted = surrogate_seconds(data, found.correction(KEY))
    assert np.median(np.abs(np.log(predicted) - data.log_measured)) < 0.06  # sites differ by 5%
    plain = surrogate_seconds(data, NEUTRAL)
    assert np.median(np.abs(np.log(plain) - data.log_measured)) > 0.08


@pytest.mark.slow
def test_a_few_wrong_rows_change_little(data: StepTimesData) -> None:
    clean, dirty = (Calibrator(d).fit(d, key=jax.random.key(0)) for d in (data, steps(wrong=6)))
    one, two = (surrogate_seconds(data, c.correction(KEY)) for c in (clean, dirty))
    assert np.abs(np.log(one / two)).max() < 0.05


@pytest.mark.slow
def test_same_key_same_calibration(data: StepTimesData) -> None:
    one, two = (Calibrator(data).fit(data, key=jax.random.key(5)).as_dict() for _ in range(2))
    assert one == two


def test_rows_and_sites_can_be_left_out(data: StepTimesData) -> None:
    kept = rows_of(data, np.flatnonzero(data.site != 2))
    assert kept.names["site"] == ("site 0", "site 1", "site 3")
    assert len(kept.log_measured) == 60
    assert sorted(set(kept.site.tolist())) == [0, 1, 2]


def test_large_sites_count_as_no_more_than_they_may(data: StepTimesData) -> None:
    twice = step_times_data(
        data, np.exp(data.log_measured), data.straggler, [False] * 80, [CalibrationKey("hopper")] * 80, ["one"] * 80
    )
    assert twice.weight.sum() == pytest.approx(60.0)
    assert rows_of(twice, few_of_each(twice.site, 10)).weight.sum() == pytest.approx(10.0)
    assert twice.names["style"] == ()


def few_per_site(site_sd: float = 0.12, own: float = 0.03, n_site: int = 40, n_of_each: int = 1) -> StepTimesData:
    """Rows like those of benchmarks: many submitters with a row or two of each."""
    rng = np.random.default_rng(3)
    cluster = catalog.cluster("dgx-h100", 64)
    plans = [ParallelPlan(micro, micro * 128, 2048, tp=8, dp=8, zero_stage=1) for micro in (1, 2, 4, 8)]
    four = [surrogate_of(models.model("llama-2-13b"), cluster, plan, efficiency("hopper")) for plan in plans]
    at = rng.integers(len(four), size=n_site * n_of_each)
    stacked = stack([four[index] for index in at])
    site = np.repeat(np.arange(n_site), n_of_each)
    off = site_sd * rng.normal(size=n_site)[site] + own * rng.normal(size=len(site))
    measured = surrogate_seconds(stacked, NEUTRAL) * np.exp(off)
    settings = [KEY] * len(site)
    return step_times_data(
        stacked, measured, np.zeros(len(site)), [False] * len(site), settings, [f"{s}" for s in site]
    )


@pytest.mark.parametrize("n_of_each", [1, 4])
def test_the_spread_of_sites_is_found_where_each_has_few_rows(n_of_each: int) -> None:
    """With one row of each, the joint mode of sites and their spread is at a spread of 0."""
    data = few_per_site(n_of_each=n_of_each)
    found = Calibrator(data).fit(data, key=jax.random.key(0))
    assert found.site_sd.mean() / NEW_SITE == pytest.approx(0.12, rel=0.35)
    assert found.misfit.mean() == pytest.approx(0.03, rel=0.6)
    assert found.misfit_sd.mean() > 0.1  # it has a posterior, not a mode at 0
