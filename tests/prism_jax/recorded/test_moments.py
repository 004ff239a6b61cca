"""Drawn steps held against recorded ones: what differs by chance is left alone, what is really off is put right."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.effects import fit_effects
from prism_jax.recorded.prediction import MomentMatch
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.unseen_steps import match_moments, predict_job
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


@pytest.mark.parametrize("factor", [0.25, 4.0])
def test_steps_that_are_nothing_like_the_recorded_ones_are_refused(factor: float) -> None:
    job = fitted(20)
    assert job.effects is not None
    wrong = replace(job, effects=replace(job.effects, base=job.effects.base + np.log(factor)))
    with pytest.raises(DataError, match=r"times the recorded ones on average.*does not describe.*log of steps"):
        match_moments(wrong)


def test_compute_that_often_takes_no_time_is_drawn_as_long_as_it_was() -> None:
    """As between overlapping collectives: of every second worker's step all forward compute is in the next op."""
    trace = timed(JOB, planted(JOB, 30, 1, NOISE).run_s)
    plain = replace(trace, ops=tuple(op._replace(micro_batch=-1, chunk=-1) for op in trace.ops))
    compute = [i for i, op in enumerate(plain.ops) if op.op_type == "forward-compute" and op.stage == 0]
    job = fit_job(plain)
    run_s = job.run_s.copy()
    none = np.random.default_rng(0).random(run_s.shape[1:]) < 0.5
    run_s[compute[1]] += np.where(none, run_s[compute[0]], 0.0)
    run_s[compute[0]] = np.where(none, 0.0, run_s[compute[0]])
    drawn = predict_job(replace(job, run_s=run_s, effects=fit_effects(plain, run_s)), key=jax.random.key(1))
    assert drawn.step_s.mean() == pytest.approx(trace.step_s.mean(), rel=0.1)


def test_agreement_keeps_the_mean_where_it_stretches() -> None:
    step_s = np.array([[1.0, 2.0], [3.0, 6.0]])
    np.testing.assert_allclose(MomentMatch().applied(step_s), step_s)
    stretched = MomentMatch(mean=2.0, spread=0.5).applied(step_s)
    assert stretched.mean() == pytest.approx(6.0)
    assert stretched.std() == pytest.approx(0.5 * step_s.std())


def test_a_few_steps_tell_nothing() -> None:
    assert match_moments(fitted(4)).agreement == MomentMatch()
