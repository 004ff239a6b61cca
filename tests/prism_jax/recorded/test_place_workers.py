"""Recorded jobs with something changed: only that changes, and it changes as it says."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.edits import (
    with_even_micro_batches,
    with_even_stages,
    with_even_transfers,
    with_layer_moved,
    with_median_worker,
    with_slower_worker,
    with_workers_placed,
)
from prism_jax.recorded.effects import fit_effects
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.unseen_steps import StepStreams, drawn_durations, step_law
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, effects_of, planted, timed

JOB = PipelineJob(pp=3, dp=4, n_micro_batch=4)
SLOW = (2, 1)  # replica, stage
LAW = Law(micro_batch=0.1, own=0.02, slow={SLOW: np.log(1.4)}, last_stage=0.3)
RANK = SLOW[1] * JOB.dp + SLOW[0]


@pytest.fixture(scope="module")
def job() -> RecordedJob:
    return fit_job(timed(JOB, planted(JOB, 20, 0, LAW).run_s))


def of_stage(job: RecordedJob, stage: int) -> list[int]:
    return [i for i, signature in enumerate(effects_of(job).signatures) if signature.stage == stage]


def drawn_s(job: RecordedJob) -> np.ndarray:
    """Seconds of compute of new steps, [mb, signature, replica, draw]."""

    law = step_law(job)
    n_step = law.run_s.shape[-1]
    found = drawn_durations(law, StepStreams(0), np.full(n_step, 1.0 / n_step), 2000)
    return np.concatenate([run_s for run_s, _ in found], axis=-1)[effects_of(job).op]


def work_s(job: RecordedJob) -> float:
    """Mean seconds of compute of the median worker in a step, over stages."""
    found = effects_of(job)
    return float((np.exp(found.base).sum(axis=0) * np.exp(found.pool).mean(axis=1)).sum())


def test_median_worker_is_not_slow_any_more(job: RecordedJob) -> None:
    """In recorded steps, in the effects, and in drawn steps; all others stay as they are."""
    changed = with_median_worker(job, RANK)
    assert job.trace.rank[SLOW] == RANK
    mine = np.array([op.stage == SLOW[1] for op in job.trace.ops])
    np.testing.assert_array_equal(changed.run_s[mine, SLOW[0]], np.median(job.run_s[mine], axis=1))
    np.testing.assert_array_equal(changed.gap_s[mine, SLOW[0]], np.median(job.gap_s[mine], axis=1))
    others = np.ones(job.run_s.shape[:2], dtype=bool)
    others[mine, SLOW[0]] = False
    np.testing.assert_array_equal(changed.run_s[others], job.run_s[others])
    before, after = (drawn_s(x)[:, of_stage(job, SLOW[1])].mean(axis=(0, 1, 3)) for x in (job, changed))
    assert before[SLOW[0]] / np.delete(before, SLOW[0]).mean() == pytest.approx(1.4, rel=0.02)
    assert after[SLOW[0]] / np.delete(after, SLOW[0]).mean() == pytest.approx(1.0, rel=0.02)
    np.testing.assert_allclose(np.delete(after, SLOW[0]), np.delete(before, SLOW[0]), rtol=1e-6)


def test_slower_worker_is_slower_by_the_factor(job: RecordedJob) -> None:
    other = 0  # replica 0 of stage 0
    before, after = drawn_s(job), drawn_s(with_slower_worker(job, other, 1.25))
    expected = np.ones(before.shape[1:3])
    expected[of_stage(job, 0), 0] = 1.25
    np.testing.assert_allclose(after / before, np.broadcast_to(expected[None, :, :, None], before.shape), rtol=1e-5)
    back = with_slower_worker(with_slower_worker(job, other, 1.25), other, 0.8)
    np.testing.assert_allclose(effects_of(back).rank, effects_of(job).rank, atol=1e-12)


def test_even_micro_batches_take_the_spread_and_leave_the_work(job: RecordedJob) -> None:
    changed = with_even_micro_batches(job)
    assert work_s(changed) == pytest.approx(work_s(job), rel=1e-12)
    before, after = drawn_s(job), drawn_s(changed)
    assert np.log(before).std(axis=-1).min() > 0.08
    assert np.log(after).std(axis=-1).max() < 1e-3
    np.testing.assert_allclose(after.mean(axis=(0, -1)), before.mean(axis=(0, -1)), rtol=0.01)


def test_even_stages_keep_the_work(job: RecordedJob) -> None:
    """Every stage takes the mean; forward stays forward, and every micro-batch keeps its own."""
    before, after = (np.exp(effects_of(x).base) for x in (job, with_even_stages(job)))
    np.testing.assert_allclose(after.sum(axis=1), before.sum(axis=1), rtol=1e-12)
    for op_type in ("forward-compute", "backward-compute"):
        mine = [i for i, s in enumerate(effects_of(job).signatures) if s.op_type == op_type]
        assert np.ptp(before[:, mine], axis=1).min() > 0.02
        np.testing.assert_allclose(after[:, mine], before[:, mine].mean(axis=1, keepdims=True).repeat(3, axis=1))


@pytest.mark.parametrize("layers", [1, 4])
def test_moved_layer_keeps_the_work(job: RecordedJob, layers: int) -> None:
    """A share of the median stage goes from the last stage to the first, as far as the last stage has it."""
    before, after = (np.exp(effects_of(x).base) for x in (job, with_layer_moved(job, layers)))
    np.testing.assert_allclose(after.sum(axis=1), before.sum(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(after[:, of_stage(job, 1)], before[:, of_stage(job, 1)])
    for op_type in ("forward-compute", "backward-compute"):
        mine = [i for i, s in enumerate(effects_of(job).signatures) if s.op_type == op_type]
        layer_s = np.median(before[:, mine], axis=1) / layers
        np.testing.assert_allclose(after[:, mine[0]] - before[:, mine[0]], layer_s, rtol=1e-9)


def test_layer_of_a_stage_with_several_chunks_is_a_share_of_all_of_them() -> None:
    """Two chunks of two layers: half a chunk moves, out of both."""
    shape = PipelineJob(2, 2, 4, 2)
    chunked = fit_job(timed(shape, planted(shape, 4, 0, Law()).run_s))
    before, after = (np.exp(effects_of(x).base) for x in (chunked, with_layer_moved(chunked, 4)))
    np.testing.assert_allclose(after[:, of_stage(chunked, 0)], 1.25 * before[:, of_stage(chunked, 0)])
    np.testing.assert_allclose(after[:, of_stage(chunked, 1)], 0.75 * before[:, of_stage(chunked, 1)])


def test_a_layer_that_the_last_stage_does_not_have_is_moved_as_far_as_there_is() -> None:
    """A last stage a third as long as the others, which have one layer each; the work stays the same all the same."""
    law = replace(LAW, last_stage=-np.log(3), slow=None)
    short = fit_job(timed(JOB, planted(JOB, 4, 0, law).run_s))
    before, after = (np.exp(effects_of(x).base) for x in (short, with_layer_moved(short, 1)))
    np.testing.assert_allclose(after.sum(axis=1), before.sum(axis=1), rtol=1e-12)
    assert (after > 0).all()


def test_workers_take_their_slowness_with_them(job: RecordedJob) -> None:
    """To the other place, also of another stage; who was there takes the place that is free."""
    other = 0  # replica 0 of stage 0
    changed = with_workers_placed(job, {RANK: other, other: RANK})
    before, after = effects_of(job).rank, effects_of(changed).rank
    np.testing.assert_array_equal(after[of_stage(job, 0), 0], before[of_stage(job, SLOW[1]), SLOW[0]])
    np.testing.assert_array_equal(after[of_stage(job, SLOW[1]), SLOW[0]], before[of_stage(job, 0), 0])
    assert after[of_stage(job, 0), 0].min() > 0.1
    assert (before != after).sum() == 4
    np.testing.assert_array_equal(effects_of(changed).base, effects_of(job).base)


def test_workers_moved_back_and_forth_are_where_they_were(job: RecordedJob) -> None:
    places = {0: 5, 5: 9, 9: 0, 2: 3, 3: 2}
    back = {place: worker for worker, place in places.items()}
    changed = with_workers_placed(with_workers_placed(job, places), back)
    np.testing.assert_array_equal(effects_of(changed).rank, effects_of(job).rank)
    assert (effects_of(with_workers_placed(job, places)).rank != effects_of(job).rank).any()
    same = with_workers_placed(job, {rank: rank for rank in range(12)})
    np.testing.assert_array_equal(effects_of(same).rank, effects_of(job).rank)


def test_stages_that_do_other_work_can_change_places_and_keep_what_is_in_no_layer() -> None:
    """A worker is then as slow as it was on average; only work that both end stages do counts as layers."""
    law = replace(LAW, slow={(2, 0): np.log(1.4)})
    trace = timed(JOB, planted(JOB, 20, 0, law).run_s)
    ops = tuple(
        op._replace(op_type="loss", micro_batch=-1, chunk=-1) if op.stage == 2 and op.op_type == "forward-compute"
        else op._replace(micro_batch=-1, chunk=-1)
        for op in trace.ops
    )  # fmt: skip
    odd = fit_job(timed(JOB, planted(JOB, 20, 0, law).run_s))
    found = fit_effects(replace(trace, ops=ops), odd.run_s)
    odd = replace(odd, trace=replace(trace, ops=ops), effects=found)
    changed = with_workers_placed(odd, {2: 10, 10: 2})
    mine, before = of_stage(odd, 2), effects_of(odd).rank[of_stage(odd, 0), 2]
    assert before.max() > 0.2
    loss = [i for i in mine if effects_of(odd).signatures[i].op_type == "loss"]
    np.testing.assert_allclose(effects_of(changed).rank[loss, 2], before.mean())
    moved = with_layer_moved(odd, 2)
    kept = [i for i, s in enumerate(effects_of(odd).signatures) if s.op_type in ("loss", "forward-compute")]
    np.testing.assert_allclose(effects_of(moved).base[:, kept], effects_of(odd).base[:, kept], atol=1e-12)


def test_even_transfers_are_all_at_the_median_of_their_op(job: RecordedJob) -> None:
    noisy = replace(job, run_s=job.run_s * np.random.default_rng(0).lognormal(size=job.run_s.shape))
    changed = with_even_transfers(noisy)
    for index, op in enumerate(job.trace.ops):
        if op.op_type in ("forward-send", "params-all-gather", "optimizer-clip-main-grad"):
            assert np.ptp(changed.run_s[index]) == 0.0
            assert changed.run_s[index, 0, 0] == np.median(noisy.run_s[index])
        if op.op_type in ("forward-compute", "optimizer", "gc"):
            np.testing.assert_array_equal(changed.run_s[index], noisy.run_s[index])


def test_mistakes_are_said(job: RecordedJob) -> None:
    with pytest.raises(DataError, match="rank 99 was not recorded. Recorded ranks are 0, 1, 2"):
        with_median_worker(job, 99)
    with pytest.raises(DataError, match="rank 99 was not recorded"):
        with_slower_worker(job, 99, 1.1)
    for factor in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(DataError, match="a worker cannot be .* times as slow"):
            with_slower_worker(job, 0, factor)
    with pytest.raises(DataError, match="must change places among themselves"):
        with_workers_placed(job, {0: 1, 1: 2})
    with pytest.raises(DataError, match="places: rank 99 was not recorded"):
        with_workers_placed(job, {99: 0, 0: 99})
    with pytest.raises(DataError, match="at least two stages and one layer per stage"):
        with_layer_moved(job, 0)
    single = PipelineJob(1, 2, 2)
    with pytest.raises(DataError, match="at least two stages"):
        with_layer_moved(fit_job(timed(single, planted(single, 3, 0, Law()).run_s)), 4)
    for change in (with_even_micro_batches, with_even_stages, lambda j: with_layer_moved(j, 4),
                   lambda j: with_workers_placed(j, {0: 1, 1: 0}), lambda j: with_slower_worker(j, 0, 1.1)):  # fmt: skip
        with pytest.raises(DataError, match="no compute that belongs to micro-batches"):
            change(replace(job, effects=None))
    assert with_median_worker(replace(job, effects=None), RANK).effects is None
