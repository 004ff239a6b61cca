"""Steps of many jobs together: those of `predict`, whatever jobs stand beside a job and in which order."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.predict import predict
from prism_jax.system.catalog import cluster
from prism_jax.validation.costed import CostedJob, costed, step_times
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model

PLANS = {
    "one stage, one device per op": ParallelPlan(1, 64, 2048, dp=16),
    "sharded parameters": ParallelPlan(1, 64, 2048, dp=32, sharding="fsdp"),
    "pipeline": ParallelPlan(1, 32, 2048, tp=4, pp=4, dp=2, zero_stage=1),
    "interleaved": ParallelPlan(1, 32, 2048, tp=2, pp=4, dp=2, schedule="interleaved", virtual_stages=2),
}


def job(name: str) -> Job:
    return Job(
        model("llama-2-7b"), cluster("dgx-h100", PLANS[name].n_devices), PLANS[name], preset("h100-default"), name
    )


@pytest.fixture(scope="module")
def jobs() -> list[CostedJob]:
    return [costed(job(name)) for name in PLANS]


@pytest.mark.parametrize("name", PLANS)
def test_typical_step_is_the_median_of_predict(name: str, jobs: list[CostedJob]) -> None:
    """0.3 % of the step: five times what 256 columns of both err by."""
    place = list(PLANS).index(name)
    found = predict(job(name), key=jax.random.key(1), n_samples=1024, pad=True)
    steps = step_times(jobs)
    assert steps.typical_s[place] == pytest.approx(found.quantile(0.5), rel=3e-3)
    assert steps.noise_free_s[place] == pytest.approx(found.deterministic_s, rel=1e-5)


def test_a_step_does_not_depend_on_the_jobs_beside_it(jobs: list[CostedJob]) -> None:
    together = step_times([*jobs, *jobs], 3)
    alone = [step_times([one], 3) for one in jobs]
    for own, all_of_them in zip(zip(*alone, strict=True), together, strict=True):
        np.testing.assert_allclose(np.concatenate(own * 2), all_of_them, rtol=1e-6)


def test_another_seed_gives_another_median_and_the_same_noise_free_step(jobs: list[CostedJob]) -> None:
    one, other = step_times(jobs, 1), step_times(jobs, 2)
    assert (one.typical_s != other.typical_s).all()
    assert np.array_equal(one.noise_free_s, other.noise_free_s)


def test_without_variability_the_median_is_the_noise_free_step() -> None:
    quiet = [costed(replace(job(name), variability=preset("none"))) for name in PLANS]
    steps = step_times(quiet)
    np.testing.assert_allclose(steps.typical_s, steps.noise_free_s, rtol=1e-6)


def test_nothing_to_do_is_nothing() -> None:
    assert step_times([]).typical_s.shape == (0,)
