"""What carries over from measured runs: closed forms of one and two runs, and what a prediction makes of it."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from inference.cost_model.site_density import calibrate_site
from inference.cost_model.site_fit import predicted_s
from inference.cost_model.site_runs import some_of
from prism_jax.calibration.calibration import KNOBS
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import (
    DEGREES,
    REACH,
    SHARED,
    ResidualGP,
    sensitivities,
    surrogate_seconds,
    weight_of,
)
from prism_jax.cost.efficiency import OF_SECONDS, CostCorrection
from prism_jax.simulate.inputs import deterministic
from prism_jax.simulate.program import lower
from tests.inference.cost_model.sites import FRAMEWORK, GENERATION, JOBS, population, runs_of, simulated

KEY = jax.random.key(0)
FEW = np.array([0, 3, 4, 8])
CORRECTION = population().correction(CalibrationKey(GENERATION, FRAMEWORK))


def one_run(trust: float = 1.0) -> ResidualGP:
    return ResidualGP(np.zeros((1, len(KNOBS))), np.array([0.2]), np.array([trust]))


def at(distance: float) -> np.ndarray:
    """[1, knob]"""
    return np.eye(1, len(KNOBS)) * distance


@pytest.mark.parametrize("distance", [0.0, 0.5 * REACH, 2.0 * REACH])
def test_of_one_run_a_share_carries_over_that_falls_with_the_distance(distance: float) -> None:
    alike = np.exp(-0.5 * (distance / REACH) ** 2)
    assert one_run().log_residual(at(distance)) == pytest.approx([0.2 * SHARED * alike])


def test_two_runs_of_one_configuration_say_more_than_one() -> None:
    twice = ResidualGP(np.zeros((2, len(KNOBS))), np.array([0.1, 0.3]), np.ones(2))
    assert twice.log_residual(at(0.0)) == pytest.approx([2.0 * SHARED / (1.0 + SHARED) * 0.2])


def test_a_run_far_off_is_not_believed() -> None:
    expected = [1.0, 1.0, (DEGREES + 1.0) / (DEGREES + 400.0)]
    assert weight_of(np.array([0.0, 0.05, 1.0]), np.full(3, 0.05)) == pytest.approx(expected)
    assert one_run(trust=0.01).log_residual(at(0.0)) == pytest.approx([0.2 * SHARED * 0.01])


def test_parts_are_the_shares_of_the_knobs() -> None:
    """Seconds are linear in the knobs of seconds together: their shares add up to one, and each is a finite difference."""
    runs = runs_of()
    parts = sensitivities(runs, CORRECTION)
    assert parts[:, [KNOBS.index(name) for name in OF_SECONDS]].sum(axis=1) == pytest.approx(
        np.ones(len(JOBS)), abs=3e-3
    )
    up, down = (
        surrogate_seconds(runs, replace(CORRECTION, gemm=factor * CORRECTION.gemm)) for factor in (1.001, 1.0 / 1.001)
    )
    assert parts[:, KNOBS.index("gemm")] == pytest.approx(np.log(up / down) / np.log(1.001**2), abs=2e-3)


def test_a_factor_of_all_seconds_is_one_of_the_step() -> None:
    runs = runs_of()
    assert surrogate_seconds(runs, CORRECTION.scaled(1.3)) == pytest.approx(1.3 * surrogate_seconds(runs, CORRECTION))
    assert CostCorrection().scaled(1.0) == CostCorrection()


def test_a_job_that_was_measured_is_predicted_near_where_it_was() -> None:
    known = population(misfit=0.05, sd=0.01, site_sd=0.01)  # what is off is the configuration
    one = some_of(simulated(runs_of(), CORRECTION, 0.07), np.array([3]))
    fitted = calibrate_site(known, one, key=KEY)
    off, knobs = (
        float(np.log(predicted_s(each, one))[0] - one.log_measured[0])
        for each in (fitted, replace(fitted, nearby=None))
    )
    assert knobs < -0.01
    assert off == pytest.approx((1.0 - SHARED) * knobs, rel=1e-6)


def test_the_simulated_step_has_it_too() -> None:
    runs = simulated(runs_of(), CORRECTION, np.linspace(-0.03, 0.03, len(JOBS)))
    fitted = calibrate_site(population(), some_of(runs, FEW), key=KEY)
    for index in (0, 8):
        told = [replace(JOBS[index], calibration=each) for each in (fitted, replace(fitted, nearby=None))]
        ratio = deterministic(lower(told[0])) / deterministic(lower(told[1]))
        one = some_of(runs, np.array([index]))
        assert ratio == pytest.approx(
            float(predicted_s(fitted, one)[0] / predicted_s(replace(fitted, nearby=None), one)[0]), rel=1e-4
        )
