"""A job at the level of its own log: the factor, what refuses it, and that every second of the job is scaled."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.calibration.key import LevelFactor, MeasuredLevel, NoLevel
from prism_jax.fits.load_fits import LogLevel, _level_of
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.prediction.facts import model_band
from prism_jax.prediction.predicted_step import JobAtLevel, at_log_level
from prism_jax.result.distribution import StepTimeDistribution
from prism_jax.simulate.program import lower

PREDICTED_S = 8.0
LOG = MeasuredLevel(step_s=10.0, is_mean=False, log_sd=0.003, n_steps=500, n_runs=1)


@pytest.fixture(scope="module")
def job() -> Job:
    return load_job("llama2_7b_fsdp_64")


def predicted(_job: Job) -> StepTimeDistribution:
    """Median 8 s, mean 9 s."""
    samples_s = np.array([7.0, PREDICTED_S, 12.0])
    return StepTimeDistribution(samples_s, np.tile(samples_s, (2, 1)), 7.0, "brute_force", 3, 1.0)


@pytest.mark.parametrize(
    ("is_mean", "factor", "statistic"), [(False, 10.0 / 8.0, "median"), (True, 10.0 / 9.0, "mean")]
)
def test_the_factor_is_measured_over_predicted(job, is_mean, factor, statistic):
    found = at_log_level(job, LogLevel("steps.npz", replace(LOG, is_mean=is_mean)), predicted)
    assert found.job.level == LevelFactor(factor, 0.003)
    assert found.facts is not None
    assert (found.facts.factor, found.facts.statistic, found.facts.n_steps) == (factor, statistic, 500)
    assert found.facts.factor_sd == pytest.approx(factor * 0.003)
    assert not found.note


@pytest.mark.parametrize("step_s", [3.9, 16.1, 10e3])
def test_a_log_that_is_twice_as_far_off_is_refused_in_words(job, step_s):
    found = at_log_level(job, LogLevel("steps.npz", replace(LOG, step_s=step_s)), predicted)
    assert found.job is job
    assert found.facts is None
    assert "Is it a log of this job" in found.note


def test_every_second_is_scaled(job):
    scaled = replace(job, level=LevelFactor(1.25, 0.0))
    one, other = lower(job).cost, lower(scaled).cost
    for name in ("compute_s", "comm_s", "p2p_s", "end_compute_s", "end_comm_s"):
        np.testing.assert_allclose(getattr(other, name), 1.25 * getattr(one, name), rtol=1e-9, err_msg=name)


def test_the_band_is_what_the_log_leaves_open(job):
    band = model_band(replace(job, level=LevelFactor(1.25, 0.01)), 10.0, seed=0)
    assert (band.p5, band.p50, band.p95) == pytest.approx(
        (10 * np.exp(-0.016449), 10.0, 10 * np.exp(0.016449)), rel=1e-5
    )


def test_gpus_of_the_log_are_one_draw_of_the_fleet(job):
    found = at_log_level(job, LogLevel("steps.npz", LOG), predicted).with_fleet(0.004)
    assert found.facts is not None
    assert found.facts.factor_sd == pytest.approx(1.25 * 0.005)
    assert found.job.level is not None
    assert found.job.level.log_sd == pytest.approx(0.005)
    assert JobAtLevel(job, None).with_fleet(0.1).job is job


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (NoLevel("it holds 3 configurations"), "it holds 3 configurations"),
        (replace(LOG, n_gpus=8.0), "it is of 8 GPUs, and the job has 64"),
    ],
)
def test_why_a_level_is_not_used_is_said(job, found, says):
    said = _level_of(found, "steps.npz", job)
    assert isinstance(said, str)
    assert said.startswith("steps.npz: the level of the log is not used")
    assert says in said


def test_a_log_of_as_many_gpus_or_of_an_unknown_number_is_used(job):
    for n_gpus in (64.0, np.nan):
        assert isinstance(_level_of(replace(LOG, n_gpus=n_gpus), "steps.npz", job), LogLevel)
    assert _level_of(None, "fleet.npz", job) is None
