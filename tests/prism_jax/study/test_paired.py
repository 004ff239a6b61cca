"""Paired probabilities: closed forms, and what jobs have in common cancels."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import ndtr

from prism_jax.calibration.calibration import uncalibrated
from prism_jax.calibration.key import LevelFactor
from prism_jax.core.errors import DataError
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.study.table import paired_factors, paired_values, prob_least, prob_less, ratio_bands
from prism_jax.system import catalog
from prism_jax.variability.tree import Variability
from tests.support.jobs import MODEL, STATED

PLAN = ParallelPlan(micro_batch=1, global_batch=16, seq_len=512, dp=8, software=STATED)
JOB = Job(MODEL, catalog.cluster("dgx-h100", 8), PLAN, Variability("none"))


def test_normal_errors_have_the_probability_of_their_difference():
    """100,000 draws: 4 standard errors of a share are 0.006."""
    rng = np.random.default_rng(0)
    shared, own = rng.normal(size=(100_000, 1)), rng.normal(size=(100_000, 3))
    factors = np.exp(0.5 * shared + 0.05 * own)
    measured = paired_values([1.0, 1.05, 1.1], [0.03, 0.0, 0.0], factors)
    won = prob_less(measured)
    assert won[0, 1] == pytest.approx(ndtr(np.log(1.05) / np.hypot(0.05 * np.sqrt(2.0), 0.03)), abs=0.006)
    assert won[1, 2] == pytest.approx(ndtr(np.log(1.1 / 1.05) / (0.05 * np.sqrt(2.0))), abs=0.006)
    assert won + won.T == pytest.approx(np.ones((3, 3)))
    assert prob_least(measured).sum() == pytest.approx(1.0)
    low, high = ratio_bands(measured, 1)[2]
    assert np.log([low, high]) == pytest.approx(
        np.log(1.1 / 1.05) + 0.05 * np.sqrt(2.0) * np.array([-1.645, 1.645]), abs=0.003
    )
    assert ratio_bands(measured, 1)[1] == pytest.approx([1.0, 1.0])


def test_equal_jobs_are_even_and_their_ratio_is_one():
    twins = paired_factors([JOB, JOB, replace(JOB, name="another name")], n_repeat=2)
    assert twins[:, 0] == pytest.approx(twins[:, 1], rel=1e-6)
    assert twins[:, 0] == pytest.approx(twins[:, 2], rel=1e-6)
    assert prob_less(np.ones((5, 2)))[0, 1] == 0.5


def test_pairs_of_unlike_devices_are_surer_than_two_bands():
    other = replace(JOB, cluster=catalog.cluster("dgx-a100", 8))
    logs = np.log(paired_factors([JOB, other], n_repeat=8))
    assert (logs[:, 0] - logs[:, 1]).std() < 0.8 * np.hypot(*logs.std(axis=0))


def test_the_level_of_a_log_is_all_that_is_open():
    level = LevelFactor(1.2, 0.05)
    logs = np.log(paired_factors([JOB, replace(JOB, level=level)]))
    assert logs[:, 1].std() == pytest.approx(0.05, rel=0.05)
    assert abs(np.corrcoef(logs.T)[0, 1]) < 0.07


def test_jobs_of_unlike_calibrations_are_refused():
    with pytest.raises(DataError, match="different calibrations"):
        paired_factors([JOB, replace(JOB, calibration=uncalibrated())])
