"""Drawn steps held against recorded ones: what differs by chance is left alone, what is really off is put right."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.recorded.moments import match_moments
from prism_jax.recorded.recorded_job import MomentMatch, RecordedJob, fit_job
from prism_jax.recorded.unseen_steps import predict_job
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, planted, timed

JOB, NOISE = PipelineJob(2, 2, 4), Law(micro_batch=0.2, own=0.02)


def fitted(n_step: int, seed: int = 1) -> RecordedJob:
    return fit_job(timed(JOB, planted(JOB, n_step, seed, NOISE).run_s))


def test_a_job_that_the_model_describes_is_left_alone() -> None:
    """Two factors of ten jobs: a factor is off by more than two standard errors once in twenty times at most."""
    found = [match_moments(fitted(40, seed)).agreement for seed in range(10)]
    touched = sum((agreement.mean != 1.0) + (agreement.spread != 1.0) for agreement in found)
    assert touched <= 5  # binomial(20, 0.05) exceeds it with probability 3e-4


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_steps_that_are_off_are_moved(factor: float) -> None:
    """Compute that is really longer or shorter than what was learned, as where processes take turns."""
    job = fitted(60)
    assert job.effects is not None
    wrong = replace(job, effects=replace(job.effects, base=job.effects.base - np.log(factor)))
    mean = match_moments(wrong).agreement.mean
    assert mean == pytest.approx(factor, rel=0.03)
    drawn = predict_job(replace(wrong, agreement=MomentMatch(mean=mean)), key=jax.random.key(3))
    assert drawn.step_s.mean() == pytest.approx(predict_job(job, key=jax.random.key(3)).step_s.mean(), rel=0.03)


def test_agreement_keeps_the_mean_where_it_stretches() -> None:
    step_s = np.array([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_allclose(MomentMatch().applied(step_s), step_s)
    stretched = MomentMatch(mean=2.0, spread=0.5).applied(step_s)
    assert stretched.mean() == pytest.approx(6.0)
    assert stretched.std() == pytest.approx(0.5 * step_s.std())


def test_a_few_steps_tell_nothing() -> None:
    assert match_moments(fitted(4)).agreement == MomentMatch()
