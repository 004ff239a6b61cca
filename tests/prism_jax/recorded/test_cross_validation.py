"""Splits of recordings, and scores of predictions of jobs whose law is known."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from prism_jax.core.errors import DataError
from prism_jax.recorded import cross_validation as held_out
from prism_jax.recorded.cross_validation import (
    StepSplit,
    fit_and_predict,
    independent_pools,
    score_split,
    slowest_recorded,
    splits,
)
from prism_jax.recorded.prediction import LEVEL, ks_distance, mean_of_splits
from prism_jax.recorded.recorded_job import IDENTITY, fit_job
from prism_jax.recorded.report import SplitScore
from prism_jax.trace.step_log import StepLog
from prism_jax.trace.trace import Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, measured, planted, timed

JOB = PipelineJob(pp=2, dp=4, n_micro_batch=4)
SHARED = Law(step=0.01, micro_batch=0.15, own=0.03)  # a long micro-batch is long in forward and backward on both stages
N_STEP, N_DRAW = 40, 2000


def recording(law: Law, seed: int, job: PipelineJob = JOB, n_step: int = N_STEP) -> Trace:
    return timed(job, planted(job, n_step, seed, law).run_s)


def log(n: int = 60, seed: int = 0) -> StepLog:
    seconds = np.random.default_rng(seed).lognormal(0.0, 0.1, n)
    return StepLog("a.log", "a", np.arange(n), seconds, np.ones(n, dtype=np.int32))


def halves(recorded: Trace | StepLog, seed: int = 0, **options) -> list[StepSplit]:
    wanted = {"n_split": 1, "train_fraction": 0.5, "fit_replicas": None, **options}
    return list(splits(recorded, seed=seed, **wanted))


# --- Splits ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("fraction", "n_train"), [(0.5, 20), (0.05, 2), (0.3, 12), (0.95, 38), (0.512, 20)])
def test_parts_of_a_split_are_disjoint_complete_and_of_the_size_asked_for(fraction: float, n_train: int) -> None:
    for split in halves(recording(Law(), 0), n_split=20, train_fraction=fraction):
        assert len(split.train) == n_train
        assert sorted([*split.train, *split.test]) == list(range(N_STEP))
        assert (np.diff(split.train) > 0).all()
        assert (np.diff(split.test) > 0).all()
        assert split.replicas is None


def test_splits_are_repeatable_and_differ() -> None:
    def told(found: list[StepSplit]) -> list[tuple]:
        return [(*s.train, *(() if s.replicas is None else s.replicas)) for s in found]

    trace = recording(Law(), 0)
    for options in ({}, {"fit_replicas": 2}):
        once, again = (told(halves(trace, 5, n_split=10, **options)) for _ in range(2))
        assert once == again
        assert len(set(once)) == 10
        assert told(halves(trace, 6, n_split=10, **options)) != once
        assert told(halves(trace, 5, n_split=3, **options)) == once[:3]  # more splits leave the first ones alone


def test_every_step_is_as_often_fitted_on() -> None:
    """Binomial(400, 1/2) for each of 40 steps, within five standard deviations: false alarm once in 40,000 runs."""
    found = halves(recording(Law(), 0), n_split=400)
    count = np.bincount(np.concatenate([split.train for split in found]), minlength=N_STEP)
    assert np.abs(count - 200).max() < 5 * np.sqrt(400 / 4)


def test_fits_on_replicas_use_and_score_all_steps() -> None:
    for split in halves(recording(Law(), 0), n_split=30, train_fraction=1.0, fit_replicas=3):
        assert split.replicas is not None
        assert len(set(split.replicas)) == 3
        assert set(split.replicas) <= set(range(4))
        np.testing.assert_array_equal(split.train, np.arange(N_STEP))
        np.testing.assert_array_equal(split.test, np.arange(N_STEP))


@pytest.mark.parametrize("fraction", [0.01, 0.03, 0.97, 0.99])
def test_fewer_than_two_steps_in_a_part_are_refused(fraction: float) -> None:
    with pytest.raises(DataError, match=r"synthetic\.csv: --train-fraction .* of 40 recorded steps .* at least 2"):
        halves(recording(Law(), 0), train_fraction=fraction)


@pytest.mark.parametrize("n", [0, 5, 1000])
def test_more_replicas_than_were_recorded_are_refused(n: int) -> None:
    with pytest.raises(DataError, match=f"--fit-replicas {n}, but 4 dp replicas were recorded. Choose 1 to 4"):
        halves(recording(Law(), 0), train_fraction=1.0, fit_replicas=n)


def test_logs_are_split_like_traces() -> None:
    (split,) = halves(log())
    assert len(split.train) == len(split.test) == 30
    with pytest.raises(DataError, match="1 dp replicas were recorded"):
        halves(log(), fit_replicas=2)


# --- Scores ----------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def many_scores() -> list[SplitScore]:
    """One split of each of 30 recordings of a job, so that scores are independent."""
    found = []
    for seed in range(30):
        trace = recording(SHARED, seed)
        (split,) = halves(trace, seed)
        found.append(score_split(trace, split, seed=seed, n_draw=N_DRAW)[0])
    return found


def test_intervals_cover_as_often_as_they_say(many_scores: list[SplitScore]) -> None:
    """Not so seldom that it happens by chance once in 10,000 runs, or less, were seeds not fixed."""
    n_covered = sum(split.score.p95_covered for split in many_scores)
    assert stats.binom.cdf(n_covered, len(many_scores), LEVEL) > 1e-4


@pytest.mark.parametrize("field", ["p50_error", "p95_error"])
def test_errors_are_zero_on_average(many_scores: list[SplitScore], field: str) -> None:
    """Four standard errors: false alarm once in 16,000 runs."""
    errors = np.array([getattr(split.score, field) for split in many_scores])
    assert abs(errors.mean()) < 4 * errors.std(ddof=1) / np.sqrt(len(errors))
    assert errors.std() < 0.05


def test_shared_micro_batches_are_what_independent_pools_lack(many_scores: list[SplitScore]) -> None:
    """The slowest of replicas in which a micro-batch is slow as a whole is slower than that of replicas that mix."""
    pools = np.array([split.score.naive["independent pools"].p95_error for split in many_scores])
    assert pools.mean() < -0.04
    assert pools.mean() + 5 * pools.std() / np.sqrt(len(pools)) < 0.0


def test_predictions_come_closer_than_what_is_simpler(many_scores: list[SplitScore]) -> None:
    """KS distance: closer than the recorded steps themselves, which are rough, and than independent pools."""
    mean = mean_of_splits(many_scores)
    assert mean.ks_distance < mean.ks_floor < mean.naive["independent pools"].ks_distance


def test_without_anything_shared_independent_pools_are_right() -> None:
    errors = []
    for seed in range(8):
        trace = recording(Law(own=0.1), seed)
        (split,) = halves(trace, seed)
        found = score_split(trace, split, seed=seed, n_draw=N_DRAW)[0].score
        errors.append(found.naive["independent pools"].p95_error)
    assert np.abs(np.mean(errors)) < 0.01


def test_scores_say_what_was_measured() -> None:
    trace = recording(SHARED, 0)
    (split,) = halves(trace, 3)
    scored, prediction = score_split(trace, split, seed=1, n_draw=N_DRAW)
    held_out_s, score = trace.step_s[split.test], scored.score
    assert (scored.n_train, scored.n_test) == (20, 20)
    assert (score.measured_s.p50, score.measured_s.p95) == tuple(np.quantile(held_out_s, (0.5, 0.95)))
    assert score.p95_error == score.predicted_s.p95 / score.measured_s.p95 - 1
    assert score.p95_covered == (score.p95_interval_s[0] <= score.measured_s.p95 <= score.p95_interval_s[1])
    assert score.long_run_s.p99 == prediction.quantile(0.99)
    reused = np.quantile(trace.step_s[split.train], 0.95) / score.measured_s.p95 - 1
    assert score.naive["recorded steps"].p95_error == pytest.approx(reused)
    assert score.naive["recorded steps"].ks_distance == score.ks_floor


def test_held_out_steps_do_not_reach_the_prediction() -> None:
    trace = recording(SHARED, 0)
    (split,) = halves(trace, 3)
    spoilt = trace.end_s.copy()
    spoilt[..., split.test] += 100.0
    _, prediction = score_split(trace, split, seed=1, n_draw=N_DRAW)
    score, same = score_split(replace(trace, end_s=spoilt), split, seed=1, n_draw=N_DRAW)
    np.testing.assert_array_equal(same.step_s, prediction.step_s)
    assert score.score.p95_error < -0.9


@pytest.mark.parametrize(("n_draw", "n_test"), [(100, 2), (100, 50), (4000, 7), (4001, 7)])
def test_enough_is_drawn_for_what_is_compared(n_draw: int, n_test: int) -> None:
    n_refit, per_refit = fit_and_predict(log(), seed=0, n_draw=n_draw, n_test=n_test)[0].step_s.shape
    assert n_refit * per_refit >= n_draw
    assert per_refit >= n_test
    trace = recording(SHARED, 0, n_step=N_STEP // 2)
    assert fit_and_predict(trace, seed=0, n_draw=100, n_test=N_DRAW // 40)[0].step_s.shape == (40, N_DRAW // 40)


def test_log_is_predicted_by_its_own_steps() -> None:
    """The distribution is that of the log's step times, in new proportions whose mean is equal weight."""
    found = log()
    prediction, job = fit_and_predict(found, seed=0, n_draw=200_000, n_test=2)
    assert job is None
    counts = np.histogram(prediction.step_s, [0.0, *np.sort(found.step_s), np.inf])[0]
    share = counts / counts.sum()  # mean of 40 Dirichlet weights, each of standard deviation about 1/n
    assert np.abs(share * (len(found) + 1) - 1).max() < 5 / np.sqrt(40)
    (split,) = halves(found)
    score, drawn = score_split(found, split, seed=0, n_draw=N_DRAW)
    known = found.choose(split.train)
    np.testing.assert_array_equal(
        drawn.step_s, fit_and_predict(known, seed=0, n_draw=N_DRAW, n_test=30)[0].step_s
    )  # nothing but the fitted steps
    assert set(score.score.naive) == {"recorded steps"}


def test_without_micro_batches_whole_recorded_steps_are_redrawn() -> None:
    """Of a trace that says nothing of micro-batches as much is predicted as of the log of its steps."""
    trace = recording(SHARED, 0)
    plain = replace(trace, ops=tuple(op._replace(op_type="x", micro_batch=-1, chunk=-1) for op in trace.ops))
    prediction, job = fit_and_predict(plain, seed=3, n_draw=N_DRAW, n_test=2)
    steps = StepLog("a.log", "a", trace.steps, trace.step_s, np.ones(N_STEP, dtype=np.int32))
    np.testing.assert_array_equal(prediction.step_s, fit_and_predict(steps, seed=3, n_draw=N_DRAW, n_test=2)[0].step_s)
    assert job is not None
    assert job.agreement == IDENTITY


def test_mean_of_splits_is_taken_field_by_field(many_scores: list[SplitScore]) -> None:
    few = [split.score for split in many_scores[:3]]
    mean = mean_of_splits(many_scores[:3])
    assert mean.p95_error == pytest.approx(np.mean([score.p95_error for score in few]))
    assert mean.measured_s.p50 == pytest.approx(np.mean([score.measured_s.p50 for score in few]))
    assert mean.p95_interval_s[1] == pytest.approx(np.mean([score.p95_interval_s[1] for score in few]))
    assert mean.p95_covered == pytest.approx(np.mean([score.p95_covered for score in few]))
    pools = [score.naive["independent pools"].ks_distance for score in few]
    assert mean.naive["independent pools"].ks_distance == pytest.approx(np.mean(pools))


# --- Some of the replicas --------------------------------------------------------------------------------------------

WIDE = PipelineJob(pp=1, dp=16, n_micro_batch=4)


def test_part_of_the_replicas_predicts_the_whole_job() -> None:
    """Fits on 4 of 16 replicas, 6 recordings; the slowest of 4 replicas is 3% too fast."""
    errors, slowest = [], []
    for seed in range(6):
        trace = recording(SHARED, seed, WIDE, 30)
        (split,) = halves(trace, seed, train_fraction=1.0, fit_replicas=4)
        score = score_split(trace, split, seed=seed, n_draw=N_DRAW)[0].score
        errors.append(score.p95_error)
        slowest.append(score.naive["slowest of 4 replicas"].p95_error)
    assert abs(np.mean(errors)) < 4 * np.std(errors, ddof=1) / np.sqrt(len(errors))
    assert abs(np.mean(errors)) < 0.02
    assert np.mean(slowest) < -0.02


def test_slowest_of_all_replicas_is_the_recorded_step() -> None:
    trace = recording(SHARED, 0)
    np.testing.assert_allclose(slowest_recorded(trace), trace.step_s, rtol=1e-5)
    fewer = slowest_recorded(trace.choose(replicas=np.array([1, 2])))
    assert (fewer <= trace.step_s * (1 + 1e-5)).all()
    assert fewer.mean() < 0.99 * trace.step_s.mean()


def test_recorded_transfers_across_replicas_are_freed_of_the_wait_for_the_absent(shared_data: Path) -> None:
    """SE: the reduction of gradients takes 8 replicas as long as 32, though most of what they recorded is waiting."""
    trace = measured(shared_data, "SE")
    whole, part = fit_job(trace), fit_job(trace.choose(replicas=np.arange(0, 32, 4)))
    for index in np.flatnonzero(whole.waits.needs.meets_replicas):
        assert np.median(part.run_s[index]) < np.median(whole.run_s[index]) + 0.01


@pytest.mark.slow
def test_8_of_32_replicas_predict_the_measured_job(shared_data: Path) -> None:
    """SE, 20 random choices of 8 replicas: p95 of the whole job within 5% each, 1.5% on average."""
    trace = measured(shared_data, "SE")
    found = halves(trace, n_split=20, train_fraction=1.0, fit_replicas=8)
    scores = [score_split(trace, split, seed=i, n_draw=4000)[0].score for i, split in enumerate(found)]
    errors = [score.p95_error for score in scores]
    assert np.abs(errors).max() < 0.05
    assert np.mean([score.naive["slowest of 8 replicas"].p95_error for score in scores]) < -0.05
    assert abs(np.mean(errors)) < 0.015


def test_independent_pools_are_repeatable_and_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = recording(SHARED, 0)
    whole_s = independent_pools(trace, seed=1, n_draw=1000)
    np.testing.assert_array_equal(whole_s, independent_pools(trace, seed=1, n_draw=1000))
    monkeypatch.setattr(held_out, "MAX_DRAWN", 300 * 4 * len(trace.ops))
    pieces_s = independent_pools(trace, seed=1, n_draw=1000)
    assert pieces_s.shape == (1000,)
    assert ks_distance(whole_s, pieces_s) < 0.087  # two samples of 1,000: false alarm once in 1,000 runs
