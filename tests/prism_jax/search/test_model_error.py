"""The model's error between plans: each plan's own is that of its prediction, what they share cancels."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.calibration.band import case_of, joint_factors, model_factors
from prism_jax.calibration.calibration import shipped, uncalibrated
from prism_jax.search.exhaustive import search
from prism_jax.search.racing import model_errors, prob_best


@pytest.fixture(scope="module")
def plans(job):
    base = replace(job.plan, sharding="none", dp=16, tp=1)
    return [base, replace(base, recompute="full"), replace(base, tp=4, dp=4), base]


def factors(job, plans, n):
    cases = [case_of(job.model, job.cluster, plan, shipped(), job.framework) for plan in plans]
    return joint_factors(cases, shipped(), n_repeat=n)


def test_each_plan_is_as_uncertain_as_its_prediction(job, plans):
    """Quartiles of 16 x 96 draws each: standard error 4 % of the spread or less."""
    joint = np.log(factors(job, plans, 16))
    for row, plan in enumerate(plans):
        alone = np.log(np.concatenate([
            model_factors(job.model, job.cluster, plan, shipped(), job.framework, seed) for seed in range(16)
        ]))  # fmt: skip
        spread = np.subtract(*np.quantile(alone, [0.75, 0.25]))
        assert np.quantile(joint[:, row], [0.25, 0.5, 0.75]) == pytest.approx(
            np.quantile(alone, [0.25, 0.5, 0.75]), abs=0.2 * spread
        )


def test_what_plans_share_cancels(job, plans):
    joint = np.log(factors(job, plans, 4))
    assert joint[:, 0] == pytest.approx(joint[:, 3], abs=1e-6)
    assert (np.abs(joint[:, 0] - joint[:, 1]) > 1e-6).mean() > 0.9
    for other in (1, 2):
        apart = np.hypot(joint[:, 0].std(), joint[:, other].std())  # if nothing were shared
        assert (joint[:, 0] - joint[:, other]).std() < 0.8 * apart


def test_without_calibration_nothing_is_in_doubt(job, plans):
    sure = replace(job, calibration=uncalibrated())
    assert model_errors(sure, plans, 0) == pytest.approx(1.0)


def test_the_probability_to_be_best_counts_both_errors():
    """Two plans, normal logarithms of both errors: the closed form of their difference (4,000 draws: 3 standard errors 0.024)."""
    rng = np.random.default_rng(0)
    known = np.array([np.full(8, 1.0), np.full(8, 1.05)])
    assert prob_best(known, np.ones((1, 2)), 0).tolist() == [1.0, 0.0]
    doubt = np.exp(0.05 * rng.normal(size=(200_000, 2)))
    assert prob_best(known, doubt, 0)[0] == pytest.approx(0.7549, abs=0.03)  # Phi(log 1.05 / (0.05 sqrt 2))


def test_the_gain_counts_what_the_model_does_not_know(job, space):
    few = replace(space, pp=(1, 2), schedule=("1f1b",))
    promise = search(job, few, top=2).promise
    assert promise is not None
    (low, high), (least, most) = promise.gain_interval, promise.model_interval
    assert least < low < promise.gain < high < most
