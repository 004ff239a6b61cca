"""Stragglers of a recording, changes that would help, and what its steps wait for."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from prism_jax.explain.types import Stragglers
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.replay import (
    HOST,
    ideal_durations,
    replay,
    replay_program,
    stragglers,
    trace_criticality,
    worst_workers,
)
from prism_jax.recorded.report import CriticalShares
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, draws, measured, ops_of, planted, record, skeleton, timed

# ByteDance-Seed/StragglerAnalysis @8efcd7f3, Apache-2.0: data/result-*.json, mw-*.json, ms-*.json
PUBLISHED = {
    "SE": {
        "S": 1.5373613711484118,
        "M_W": 0.025062266911209777,
        "M_S": 0.6877108929755429,
        "ideal_s": 5.897478331588793,
        "stage": {1: 1.4354480066634938, 0: 1.1678121027453754},
        "dp": {8: 1.204479822846585, 27: 1.190060993692899, 9: 1.1876746302649381, 24: 1.1180441127858989},
        "op_type": {
            "backward-compute": 1.412770613588,
            "forward-compute": 1.145963507348328,
            "embedding-grads-all-reduce": 1.001754713787978,
            "grads-reduce-scatter": 1.0004516377173556,
            "backward-pp-comm": 1.0002539364514438,
            "forward-pp-comm": 1.0001717021645775,
            "gc": 1.0,
        },
    },
    "ST": {
        "S": 1.1787021836556841,
        "M_W": 0.031404269124045224,
        "M_S": 1.2193563788811714,
        "ideal_s": 1.843295824372035,
        "stage": {3: 1.2322559543157936, 0: 0.9980450635272368, 1: 0.9830562530894704, 2: 0.9824931309515252},
        "dp": {1: 1.1778704237064905, 0: 1.1730828198099532},
        "op_type": {
            "forward-compute": 1.0874989663025318,
            "backward-compute": 1.074156472437866,
            "embedding-grads-all-reduce": 1.0095504024370303,
            "optimizer-clip-main-grad": 1.0023506224771044,
            "params-all-gather": 1.0011307740825817,
            "forward-pp-comm": 0.9998586213458615,
        },
    },
}


@pytest.mark.parametrize("trial", ["SE", "ST"])
def test_published_numbers_are_reproduced(shared_data: Path, trial: str) -> None:
    """Every slowdown to 1e-5, every share of the lost time to 1e-4 (float32 replays)."""
    found, published = stragglers(measured(shared_data, trial)), PUBLISHED[trial]
    assert found.slowdown == pytest.approx(published["S"], rel=1e-5)
    assert (found.m_w, found.m_s) == pytest.approx((published["M_W"], published["M_S"]), abs=1e-4)
    np.testing.assert_allclose(found.ideal_s, published["ideal_s"], rtol=1e-5)
    for part, values in (("stage", found.by_stage), ("dp", found.by_dp), ("op_type", found.by_op_type)):
        for name, value in published[part].items():
            assert values[name] == pytest.approx(value, abs=1e-5), (part, name)
    assert list(found.by_stage) == list(published["stage"])  # the slowest first
    assert next(iter(found.by_dp)) == next(iter(published["dp"]))


def of(job: PipelineJob, law: Law, n_step: int = 6) -> Stragglers:
    return stragglers(timed(job, planted(job, n_step, 0, law).run_s))


def test_one_slow_worker_owns_all_that_is_lost() -> None:
    """Half again as slow, among 16 of which one is replaced."""
    job = PipelineJob(2, 8, 4)
    found = of(job, Law(own=0.01, slow={(3, 1): np.log(1.5)}))
    assert found.worst == ((3, 1),)
    assert found.m_w == pytest.approx(1.0, abs=0.05)
    assert found.slowdown > 1.2
    assert found.by_worker[3, 1] == pytest.approx(found.slowdown, rel=0.02)
    assert np.delete(found.by_worker, 3, axis=0).max() < 1.02
    assert next(iter(found.by_dp)) == 3
    assert found.by_stage[1] > 1.2


def test_slow_last_stage_owns_what_is_lost() -> None:
    """All workers of it: no single one helps, the stage gives back all, and more as it then is faster than average."""
    found = of(PipelineJob(4, 4, 8), Law(own=0.01, last_stage=np.log(1.5)))
    assert found.m_s > 0.9
    assert found.m_w < 0.1
    assert next(iter(found.by_stage)) == 3
    assert found.by_stage[3] > 1.1 > max(found.by_stage[s] for s in (0, 1, 2))


@pytest.mark.parametrize("job", [PipelineJob(2, 4, 4), PipelineJob(1, 1, 2), PipelineJob(2, 2, 4, 2, "inner", True)])
def test_nothing_is_lost_where_all_are_alike(job: PipelineJob) -> None:
    """Exactly, though the recorded times are rounded."""
    for trace in (timed(job, planted(job, 3, 0, Law()).run_s), record(job, 3, *draws(0, spread=0.0)).trace()):
        found = stragglers(trace)
        assert found.slowdown == pytest.approx(1.0, abs=1e-6)
        assert np.isnan(found.m_w)
        assert np.isnan(found.m_s)
        for parts in (found.by_op_type, found.by_stage, found.by_dp):
            assert list(parts.values()) == pytest.approx([1.0] * len(parts), abs=1e-6)


def test_host_gaps_are_left_out() -> None:
    job = PipelineJob(2, 3, 4)
    run_s = planted(job, 4, 0, Law(micro_batch=0.2, rank=0.1)).run_s
    gaps = np.random.default_rng(0).exponential(0.01, run_s.shape)
    plain, late = stragglers(timed(job, run_s)), stragglers(timed(job, run_s, gaps))
    np.testing.assert_allclose(late.recorded_s, plain.recorded_s, rtol=1e-5)
    assert late.slowdown == pytest.approx(plain.slowdown, rel=1e-5)
    assert late.m_w == pytest.approx(plain.m_w, abs=1e-3)


def test_recorded_steps_are_replayed_and_ideal_steps_are_all_alike() -> None:
    job = PipelineJob(2, 3, 4)
    trace = timed(job, planted(job, 4, 0, Law(micro_batch=0.2)).run_s)
    found = stragglers(trace)
    np.testing.assert_allclose(found.recorded_s, trace.step_s, rtol=1e-5)
    assert np.ptp(found.ideal_s) == 0.0
    assert found.slowdown == pytest.approx(trace.step_s.mean() / found.ideal_s[0], rel=1e-5)


def test_ideal_is_the_mean_of_compute_and_the_median_of_transfers() -> None:
    """Per op type, over ranks, stages and steps."""
    job = PipelineJob(2, 2, 3)
    trace, _ = skeleton(job)
    run_s = np.random.default_rng(0).lognormal(size=(len(trace.ops), 2, 5))
    ideal = ideal_durations(trace, run_s)
    for name, statistic in (("forward-compute", np.mean), ("optimizer", np.mean), ("forward-send", np.median),
                            ("layernorm-grads-all-reduce", np.median), ("optimizer-clip-main-grad", np.median)):  # fmt: skip
        mine = ops_of(trace, name)
        np.testing.assert_allclose(ideal[mine], statistic(run_s[mine]))


def test_ops_of_groups_are_transfers_whatever_their_name() -> None:
    trace, _ = skeleton(PipelineJob(1, 2, 1))
    grouped = replace(trace, ops=tuple(op._replace(op_type="x", group="g") for op in trace.ops))
    run_s = np.random.default_rng(0).lognormal(size=(len(trace.ops), 2, 5))
    np.testing.assert_allclose(ideal_durations(grouped, run_s), np.median(run_s))


@pytest.mark.parametrize(("n_replica", "n_worst"), [(1, 1), (16, 1), (17, 2), (50, 3), (51, 4)])
def test_three_percent_of_the_workers_are_the_worst(n_replica: int, n_worst: int) -> None:
    """Rounded up, the slowest first, and among equals the lower rank."""
    by_worker = np.ones((n_replica, 2))
    rank = np.arange(2 * n_replica).reshape(2, n_replica).T
    found = worst_workers(by_worker, rank)
    assert len(found) == n_worst
    assert [rank[worker] for worker in found] == list(range(n_worst))
    by_worker[-1, 1] = 2.0
    assert worst_workers(by_worker, rank)[0] == (n_replica - 1, 1)


# --- Criticality -----------------------------------------------------------------------------------------------------
# Criticality of recorded steps: shares of a whole, all of it where there is but one path, and equal to finite
# differences.


def fitted(job: PipelineJob, law: Law, gap_s: np.ndarray | float = 0.0, n_step: int = 4) -> RecordedJob:
    return fit_job(timed(job, planted(job, n_step, 0, law).run_s, gap_s))


def check_sums(found: CriticalShares) -> None:
    assert sum(found.by_op_type.values()) == pytest.approx(1.0, abs=1e-6)
    assert sum(found.by_rank.values()) == pytest.approx(1.0, abs=1e-6)
    assert list(found.by_op_type.values()) == sorted(found.by_op_type.values(), reverse=True)
    assert min(found.by_rank.values()) >= 0


def test_one_chain_is_critical_throughout() -> None:
    """One worker and no transfers: every op has the share of the step that it takes."""
    job = fitted(PipelineJob(1, 1, 3), Law(micro_batch=0.2))
    found = trace_criticality(job)
    check_sums(found)
    assert list(found.by_rank.values()) == [1.0]
    for name in {op.op_type for op in job.trace.ops}:
        assert found.by_op_type[name] == pytest.approx(
            job.run_s[ops_of(job.trace, name)].sum() / job.trace.step_s.sum(), rel=1e-5
        )


def test_shares_are_those_of_finite_differences(x64: None) -> None:
    """All ops of a type one millionth longer: the step grows by their share of a millionth."""
    shape = PipelineJob(2, 2, 4)
    gaps = np.random.default_rng(1).exponential(0.01, planted(shape, 4, 0, Law()).run_s.shape)
    job = fitted(shape, Law(micro_batch=0.2, own=0.1, rank=0.1), gaps)
    job = replace(job, run_s=planted(shape, 4, 0, Law(micro_batch=0.2, own=0.1, rank=0.1)).run_s, gap_s=gaps)
    found = trace_criticality(job)
    check_sums(found)
    program = replay_program(job.trace, job.waits.needs)
    step_s, h = replay(program, job.run_s, job.gap_s).mean(), 1e-6
    for name in {op.op_type for op in job.trace.ops} | {HOST}:
        longer = np.where([[[op.op_type == name]] for op in job.trace.ops], 1.0 + h, 1.0)
        gap_s = job.gap_s * (1.0 + h if name == HOST else 1.0)
        more = replay(program, job.run_s * longer, gap_s).mean() / step_s - 1.0
        assert found.by_op_type.get(name, 0.0) == pytest.approx(more / h, abs=1e-5)
    stage = np.array([op.stage for op in job.trace.ops])
    for replica in (0, 1):
        longer = np.ones_like(job.run_s)
        longer[stage == 1, replica] += h
        more = replay(program, job.run_s * longer, job.gap_s * longer).mean() / step_s - 1.0
        assert found.by_rank[str(job.trace.rank[replica, 1])] == pytest.approx(more / h, abs=1e-5)


def test_slow_replica_is_the_critical_one() -> None:
    """Of three alike but for 30%: all compute on the path is its own; what follows the meeting is shared."""
    job = fitted(PipelineJob(2, 3, 4), Law(own=0.01, slow={(1, 0): 0.3, (1, 1): 0.3}))
    found = trace_criticality(job)
    check_sums(found)
    assert sum(found.by_rank[str(rank)] for rank in job.trace.rank[1]) > 0.85
    assert found.by_op_type["forward-compute"] + found.by_op_type["backward-compute"] > 0.8
    assert HOST not in found.by_op_type


def test_slow_stage_is_the_critical_one() -> None:
    job = fitted(PipelineJob(3, 2, 6), Law(own=0.01, last_stage=0.5))
    found = trace_criticality(job)
    check_sums(found)
    assert sum(found.by_rank[str(rank)] for rank in job.trace.rank[:, 2]) > 0.6


def test_host_gaps_on_the_path_have_a_share() -> None:
    """A tenth of a second before every op of the only worker."""
    job = fitted(PipelineJob(1, 1, 3), Law(), 0.1)
    found = trace_criticality(job)
    check_sums(found)
    assert found.by_op_type[HOST] == pytest.approx(job.gap_s.sum() / job.trace.step_s.sum(), rel=1e-5)
    assert found.by_op_type[HOST] > 0.3
