"""Probabilities of slow steps and jobs on a small setting."""

from itertools import pairwise

import numpy as np
import pytest
import yaml

from experiments.slowdown_tables.run import HERE
from experiments.slowdown_tables.tables import closed_form_errors, job_prob, slowdown_row
from prism_jax import load_job
from prism_jax.horizon.steps import StepSum

CONFIG = yaml.safe_load((HERE / "config.yaml").read_text())


def test_where_one_gpu_decides_the_closed_form_is_found() -> None:
    settings = {**CONFIG["closed_form"], "slowdowns": [0.06, 0.08], "n_samples": 16384}
    for exact, predicted in closed_form_errors(settings, 1, [1024]).values():
        assert predicted == pytest.approx(exact, abs=1e-3)


def test_more_gpus_and_more_spread_make_slow_steps_likelier() -> None:
    config = {**CONFIG, "n_samples": 256, "slowdowns": [0.02, 0.05]}
    job = load_job("llama3_405b_16384")
    rows = [slowdown_row("405b", job, n, k, config) for n, k in ((1024, 1.0), (16384, 1.0), (16384, 2.0))]
    for smaller, larger in pairwise(rows):
        assert all(smaller.step_prob[d] < larger.step_prob[d] for d in config["slowdowns"])
        assert all(smaller.job_prob[d] <= larger.job_prob[d] for d in config["slowdowns"])
    assert all(row.step_prob[0.05] < row.step_prob[0.02] for row in rows)


def test_a_long_job_is_slow_as_often_as_its_fleet() -> None:
    """Fleets of mean 1.02 and spread .01, steps of spread .1 that average out: half of the jobs are above their mean."""
    total = StepSum(mean_s=1.02, noise_free_s=1.0, fleet_s=0.01, free_s=0.1)
    assert job_prob(total, 1.02, 10**6) == pytest.approx(0.5, abs=0.005)
    assert job_prob(total, 1.03, 10**6) == pytest.approx(0.1587, abs=0.003)
    assert job_prob(StepSum.fixed(1.0), 1.01, 10) == 0.0
    drawn = total.draws_s(100, 200_000, np.random.default_rng(0))
    assert job_prob(total, 1.03, 100) == pytest.approx((drawn > 103.0).mean(), abs=0.005)
