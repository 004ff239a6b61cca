"""Steps that were not recorded are drawn from what the recorded ones share, and from nothing else."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from scipy import stats

from prism_jax.recorded import unseen_steps as module
from prism_jax.recorded.effects import Strata
from prism_jax.recorded.factor_shape import POOL, ShapeChoice
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.replay import replay
from prism_jax.recorded.unseen_steps import (
    StepSampler,
    StepStreams,
    _scores,
    _spread,
    drawn_durations,
    drawn_steps,
    predict_job,
    step_law,
    unseen_steps,
)
from prism_jax.trace.assemble import assemble
from prism_jax.trace.trace import JobShape, OpRow, OpTable
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, effects_of, planted, timed

JOB = PipelineJob(pp=2, dp=4, n_micro_batch=4)
NOISE = Law(micro_batch=0.15, own=0.03)
N_STEP, N_DRAW, MORE = 60, 3000, 16


def fitted(law: Law, job: PipelineJob = JOB, n_step: int = N_STEP, seed: int = 0) -> RecordedJob:
    return fit_job(timed(job, planted(job, n_step, seed, law).run_s))


@pytest.fixture(autouse=True)
def pool_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Micro-batch factors are those that were recorded, not those of a family fitted to them."""
    monkeypatch.setattr("prism_jax.recorded.effects.choose_shape", lambda log_factor: ShapeChoice(POOL, {}))


def drawn(law: StepSampler, seed: int, n_draw: int = N_DRAW) -> tuple[np.ndarray, np.ndarray]:
    """Work and gaps of draws that weigh all recorded steps alike."""
    found = list(drawn_durations(law, StepStreams(seed), even(law), n_draw))
    run_s, gap_s = (np.concatenate(part, axis=-1) for part in zip(*found, strict=True))
    return run_s, gap_s


def steps(law: StepSampler, seed: int) -> np.ndarray:
    return drawn_steps(law, StepStreams(seed), even(law), N_DRAW)


def even(law: StepSampler) -> np.ndarray:
    n_step = law.run_s.shape[-1]
    return np.full(n_step, 1.0 / n_step)


def test_same_key_same_answer() -> None:
    job = fitted(NOISE)
    a, b, c = (predict_job(job, key=jax.random.key(k), n_draw=1999).step_s for k in (1, 1, 2))
    assert a.shape == (40, 50)
    np.testing.assert_array_equal(a, b)
    assert np.isin(a, c).mean() < 0.01  # numbers of single precision meet by chance
    assert (a[0] == a[1]).mean() < 0.1


def test_prediction_is_nearer_to_the_truth_than_the_recorded_steps() -> None:
    """Median and p95 of the law that 60 steps were drawn from, over 12 recordings: unbiased to 0.6%, and a third nearer."""
    truth = np.quantile(timed(JOB, planted(JOB, 5000, 99, NOISE).run_s).step_s, [0.5, 0.95])
    predicted, seen = [], []
    for seed in range(12):
        job = fitted(NOISE, seed=seed)
        found = predict_job(job, key=jax.random.key(seed), n_draw=6_000)
        predicted.append([found.quantile(0.5), found.quantile(0.95)] / truth - 1.0)
        seen.append(np.quantile(job.trace.step_s, [0.5, 0.95]) / truth - 1.0)
    assert np.abs(np.mean(predicted, axis=0)).max() < 0.006
    assert np.std(predicted) < 0.7 * np.std(seen)


def test_more_replicas_draw_as_the_pool_drawn_by_hand() -> None:
    """Independent micro-batches, 16 replicas out of 4: the same law as picking recorded ones at random; KS at 0.1%."""
    job = fitted(NOISE)
    found = effects_of(job)
    found = replace(found, strata=Strata(1.0, 1.0), step=0 * found.step, rank=0 * found.rank)
    law, n = step_law(replace(job, effects=found), MORE), N_DRAW
    got = steps(law, 3)
    rng = np.random.default_rng(3)
    run_s = np.repeat(job.run_s[:, :1, :1], MORE, axis=1).repeat(n, axis=2)
    entry = rng.integers(0, found.pool.shape[1], (4, MORE, n))
    run_s[found.op] = np.exp(found.base[:, :, None, None] + np.moveaxis(found.pool[:, entry], 0, 1))
    by_hand = timed(replace(JOB, dp=MORE), run_s).step_s
    assert stats.ks_2samp(got, by_hand)[0] < 1.95 * np.sqrt(2 / n)


def test_more_replicas_agree_with_a_recording_of_more_replicas() -> None:
    """Four times as many as were recorded: quantiles of the true law, to what 4 x 60 x 4 micro-batches leave open."""
    errors = []
    more = replace(JOB, dp=MORE)
    truth = timed(more, planted(more, N_DRAW, 77, NOISE).run_s).step_s
    for seed in range(4):
        law = step_law(fitted(NOISE, seed=seed), MORE)
        got = steps(law, seed)
        errors.append([np.quantile(got, p) / np.quantile(truth, p) - 1.0 for p in (0.1, 0.5, 0.95)])
    assert np.abs(np.mean(errors, axis=0)).max() < 0.015
    assert np.abs(errors).max() < 0.04


def test_forward_and_backward_of_a_micro_batch_stay_together() -> None:
    """On all stages, and only they: other micro-batches and replicas are independent."""
    job = fitted(Law(micro_batch=0.1, own=0.03))
    run_s, _ = drawn(step_law(job), 0)
    log_s = np.log(np.asarray(run_s))[effects_of(job).op]  # [mb, signature, replica, draw]
    expected = 0.1**2 / (0.1**2 + 0.03**2)
    together = [np.corrcoef(log_s[m, :, r])[np.triu_indices(4, 1)] for m in range(4) for r in range(4)]
    np.testing.assert_allclose(np.mean(together, axis=0), expected, atol=0.03)
    apart = [
        np.corrcoef(log_s[0, 0, 0], log_s[m, s, r])[0, 1] for m, s, r in [(1, 0, 0), (2, 3, 0), (0, 0, 1), (0, 2, 3)]
    ]
    assert np.abs(apart).max() < 0.25  # within a step they may be alike, as the strata of 60 steps say


@pytest.mark.parametrize("strata", [Strata(1.0, 1.0), Strata(0.2, 0.5), Strata(4.0, 0.1), Strata(0.05, 3.0)])
def test_scores_are_standard_and_have_the_planted_strata(strata: Strata) -> None:
    n_mb, n_replica, n = 3, 4, 20_000
    effects = replace(effects_of(fitted(NOISE, PipelineJob(1, 4, n_mb), 3)), strata=strata)
    own = np.random.default_rng(0).standard_normal((n_mb, n_replica, n))
    score = _scores(_spread(effects, 1.0, n_replica), own)
    assert score.var() == pytest.approx(1.0, abs=0.02)
    by_replica = score.mean(axis=0)
    by_step = by_replica.mean(axis=0)
    within = ((score - by_replica) ** 2).sum() / (n_replica * n * (n_mb - 1))
    between = n_mb * ((by_replica - by_step) ** 2).sum() / (n * (n_replica - 1))
    assert between / within == pytest.approx(strata.replica, rel=0.05)
    assert n_mb * n_replica * by_step.var() / within == pytest.approx(strata.step, rel=0.05)


def test_stratum_of_the_step_grows_with_the_replicas() -> None:
    """What replicas share does not average out: with four times as many it is four times as much of what would be left."""
    effects = replace(effects_of(fitted(NOISE, PipelineJob(1, 4, 2), 3)), strata=Strata(1.0, 1.5))
    once, four = (_spread(effects, more, int(4 * more)) for more in (1.0, 4.0))
    assert (once[2] / once[0]) ** 2 == pytest.approx(1.5)
    assert (four[2] / four[0]) ** 2 == pytest.approx(3.0)
    law = step_law(replace(fitted(NOISE, PipelineJob(1, 4, 2), 3), effects=effects), 16)
    np.testing.assert_allclose(law.spread, four, rtol=1e-6)
    balanced = _spread(replace(effects, strata=Strata(1.0, 0.5)), 4.0, 16)
    assert (balanced[2] / balanced[0]) ** 2 == pytest.approx(0.05)


@pytest.mark.parametrize(("replica", "step"), [(0.3, 1.0), (3.0, 1.0), (1.0, 0.3)])
def test_drawn_micro_batches_are_alike_or_balance_as_the_recorded_ones(replica: float, step: float) -> None:
    """Seconds, not scores; the fit draws strata a little towards one."""
    job = fitted(Law(micro_batch=0.15, replica_stratum=replica, step_stratum=step))
    law = step_law(job)
    run_s, _ = drawn(law, 0)
    found = effects_of(job)
    recorded, got = (strata_of(x[found.op].sum(axis=1)) for x in (job.run_s, np.asarray(run_s)))
    np.testing.assert_allclose(got, recorded, rtol=0.35)
    assert recorded[0] == pytest.approx(replica, rel=0.2)


@pytest.mark.parametrize("replica", [0.3, 3.0])
def test_strata_of_skewed_micro_batches_are_those_of_seconds(replica: float) -> None:
    """The longest are many times as long as the shortest, so scores must be more alike than seconds shall be; to 10%."""
    for seed in range(3):
        job = fitted(Law(micro_batch=0.8, replica_stratum=replica), seed=seed)
        law = step_law(job)
        run_s, _ = drawn(law, 0)
        recorded, got = (strata_of(x[effects_of(job).op].sum(axis=1)) for x in (job.run_s, np.asarray(run_s)))
        assert got[0] == pytest.approx(recorded[0], rel=0.1)


def strata_of(seconds: np.ndarray) -> tuple[float, float]:
    n_mb, n_replica, n_step = seconds.shape
    by_replica = seconds.mean(axis=0)
    by_step = by_replica.mean(axis=0)
    within = ((seconds - by_replica) ** 2).sum() / (n_replica * n_step * (n_mb - 1))
    between = n_mb * ((by_replica - by_step) ** 2).sum() / (n_step * (n_replica - 1))
    return between / within, n_mb * n_replica * by_step.var(ddof=1) / within


def test_step_without_weight_never_appears() -> None:
    """Neither its regime nor its micro-batches; every op carries the number of the step that it was taken from."""
    law = step_law(fitted(NOISE))
    n_op = law.run_s.shape[0]
    number = np.broadcast_to(np.arange(N_STEP, dtype=np.float32), law.run_s.shape)
    found = effects_of(law)
    pool = np.broadcast_to(0.01 * found.pool_step.astype(float), found.pool.shape)
    effects = replace(found, base=0 * found.base, step=0 * found.step, rank=0 * found.rank, pool=pool)
    law = replace(law, run_s=number, gap_s=number, effects=effects)
    weight = np.zeros(N_STEP)
    weight[[3, 4, 11]] = [0.5, 0.3, 0.2]
    ((run_s, gap_s),) = drawn_durations(law, StepStreams(0), weight, N_DRAW)
    mine = effects.op.ravel()
    regime = np.delete(run_s, mine, axis=0)
    np.testing.assert_array_equal(regime, np.broadcast_to(gap_s[0, 0], regime.shape))
    assert len(regime) + len(mine) == n_op
    for taken, step in ((gap_s[0, 0], "regime"), (np.round(100 * np.log(run_s[mine])), "micro-batches")):
        values, count = np.unique(taken, return_counts=True)
        assert values.tolist() == [3.0, 4.0, 11.0], step
        np.testing.assert_allclose(count / taken.size, [0.5, 0.3, 0.2], atol=0.03)


def test_refits_weigh_the_recorded_steps_differently() -> None:
    """The Bayesian bootstrap of a mean has the variance of the mean (times n / (n + 1))."""
    law = step_law(only_meetings(20))
    got = unseen_steps(law, 0, 400, 400)  # [refit, draw]
    recorded = replay(law.program, np.asarray(law.run_s, np.float64), np.asarray(law.gap_s, np.float64))
    spread = np.sqrt(recorded.var() * (1 / 21 + 1 / 400))
    assert got.mean(axis=1).std() == pytest.approx(spread, rel=4 * np.sqrt(0.5 / 400))
    assert got.mean() == pytest.approx(recorded.mean(), abs=4 * spread / np.sqrt(400))


def only_meetings(n_step: int, dp: int = 2) -> RecordedJob:
    """A job of nothing but collectives."""
    rng = np.random.default_rng(0)
    rows = []
    for step in range(n_step):
        start = rng.uniform(0.0, 0.1, dp) * (np.arange(dp) > 0)
        ends = start.max() + np.cumsum(rng.uniform(0.1, 0.2, 3))
        for d in range(dp):
            for k, end in enumerate(ends):
                begin = start[d] if k == 0 else ends[k - 1]
                rows.append(OpRow(step, d, 0, 0, "all-reduce", -1, -1, begin, end - begin, "comm", f"g{k}"))
    return fit_job(assemble(OpTable.from_rows("x", rows), JobShape("j", dp=dp)))


def test_without_compute_the_recorded_steps_are_redrawn_exactly() -> None:
    job = only_meetings(20)
    assert job.effects is None
    law = step_law(job)
    recorded = replay(law.program, law.run_s, law.gap_s)
    np.testing.assert_allclose(recorded, job.trace.step_s, rtol=1e-5)
    got = unseen_steps(law, 1, 400, 400)
    assert np.unique(got).tolist() == np.unique(recorded).tolist()


def test_slow_rank_stays_where_it_is_or_moves_with_the_replica_it_belongs_to() -> None:
    """At the recorded replicas the same worker is slow in every step; of 12 replicas as many as chance has it."""
    job = fitted(replace(NOISE, slow={(1, 0): np.log(1.5)}))
    found = effects_of(job)
    mine = [i for i, s in enumerate(found.signatures) if s.stage == 0]
    for n_replica in (4, 12):
        law = step_law(job, n_replica)
        run_s, _ = drawn(law, 0)
        log_s = np.log(np.asarray(run_s))[found.op[:, mine]].mean(axis=(0, 1))  # [replica, draw]
        slow = log_s > np.median(log_s) + 0.5 * np.log(1.5)
        if n_replica == 4:
            assert slow[1].mean() > 0.97
            assert np.delete(slow, 1, axis=0).mean() < 0.03
        else:
            assert slow.mean() == pytest.approx(0.25, abs=0.05)
            assert np.abs(slow.mean(axis=1) - slow.mean()).max() < 4 * np.sqrt(0.25 * 0.75 / N_DRAW)


def test_single_precision_is_enough() -> None:
    """The same draws in double precision: steps that differ by rounding, quantiles by much less than their own error."""
    job = fitted(NOISE)
    double = steps(step_law(job, MORE, np.float64), 0)
    single = steps(step_law(job, MORE), 0)
    law = step_law(job)
    assert effects_of(law).pool.dtype == law.spread.dtype == np.float32
    assert np.median(np.abs(single / double - 1.0)) < 1e-6
    for p in (0.1, 0.5, 0.9):
        assert np.quantile(single, p) == pytest.approx(np.quantile(double, p), rel=1e-3)


def test_draws_do_not_depend_on_how_many_are_made_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    job = fitted(NOISE)
    for n_replica in (None, MORE):
        law = step_law(job, n_replica)
        whole = unseen_steps(law, 5, 3, 50)
        monkeypatch.setattr(module, "MAX_DRAWN", 7 * law.run_s.shape[0] * law.program.n_replica)
        np.testing.assert_array_equal(unseen_steps(law, 5, 3, 50), whole)
        monkeypatch.undo()


def test_a_seed_is_the_key_made_of_it() -> None:
    job = fitted(NOISE)
    ours, theirs = (predict_job(job, key=key, n_draw=100).step_s for key in (7, jax.random.key(7)))
    np.testing.assert_array_equal(ours, theirs)


def test_replicas_of_the_job_are_drawn_though_fewer_were_recorded() -> None:
    """A part of the replicas tells of all: the law is that of the whole job, and longer than the part's."""
    job = replace(JOB, dp=MORE)
    whole = timed(job, planted(job, N_STEP, 5, NOISE).run_s)
    part = fit_job(whole.choose(replicas=np.arange(4)))
    law = step_law(part)
    assert law.program.n_replica == MORE
    assert not law.same_replicas
    got = steps(law, 0)
    assert np.median(got) == pytest.approx(np.median(whole.step_s), rel=0.02)
    alone = timed(JOB, part.run_s).step_s
    assert np.median(got) > 1.02 * np.median(alone)
