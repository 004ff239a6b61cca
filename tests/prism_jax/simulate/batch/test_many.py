"""Sweeps: many jobs at once give what each gives alone, and another spread compiles nothing."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product

import jax
import numpy as np
import pytest
from jax import monitoring

from prism_jax.core.errors import ConfigError
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.prediction.predict import predict_many
from prism_jax.simulate.predict import predict

KEY = jax.random.key(0)
COMPILED = "/jax/core/compile/backend_compile_duration"
SCALES = (0.5, 0.8, 1.0, 1.5, 2.0)


@contextmanager
def compilations() -> Iterator[list[str]]:
    """Names of what is compiled, or read from the cache, inside."""
    found: list[str] = []
    is_on = True

    def note(event: str, duration_secs: float, **_: str | int) -> None:
        if is_on and event == COMPILED:
            found.append(event)

    monitoring.register_event_duration_secs_listener(note)
    yield found
    is_on = False


@pytest.fixture(scope="module")
def job() -> Job:
    plan = ["plan.tp=2", "plan.pp=2", "plan.dp=4", "plan.global_batch=16", "plan.micro_batch=1"]
    return load_job("gpt3_175b_1024", [*plan, "plan.virtual_stages=1", "plan.schedule=1f1b", "cluster.n_devices=16"])


def varied(job: Job, scale: float) -> Job:
    return replace(job, variability=job.variability.scaled(scale))


def test_many_jobs_give_what_each_gives_alone(job):
    plans = [job.plan, replace(job.plan, tp=1, dp=8), replace(job.plan, pp=1, tp=4)]
    jobs = [varied(replace(job, plan=plan), scale) for plan, scale in product(plans, (0.5, 1.5))]
    told = []
    found = predict_many(jobs, key=KEY, n_samples=64, progress=lambda done, what="", /: told.append(done))
    for one, own in zip(jobs, found, strict=True):
        alone = predict(one, key=KEY, n_samples=64, pad=True)
        assert np.array_equal(alone.samples_s, own.samples_s)
    assert told == pytest.approx(np.arange(1, len(jobs) + 1) / len(jobs))


def test_another_spread_compiles_nothing(job):
    predict_many([job], key=KEY, n_samples=64)
    with compilations() as compiled:
        found = predict_many([varied(job, scale) for scale in SCALES], key=KEY, n_samples=64)
        assert compiled == []
    spread = [one.std_s for one in found]
    assert spread == sorted(spread)
    with compilations() as compiled:
        predict(replace(job, plan=replace(job.plan, tp=1, dp=8)), key=KEY, n_samples=32)
        assert compiled  # the count would see it


def test_a_job_that_cannot_be_is_refused(job):
    with pytest.raises(ConfigError, match="no such file"):
        predict_many([job, "no_such_job.yaml"], key=KEY)
    assert predict_many([], key=KEY) == []
