"""Criticality of recorded steps: shares of a whole, all of it where there is but one path, and equal to finite differences."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.replay import HOST, replay, replay_program, trace_criticality
from prism_jax.recorded.report import CriticalShares
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, planted, timed


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
        mine = [i for i, op in enumerate(job.trace.ops) if op.op_type == name]
        assert found.by_op_type[name] == pytest.approx(job.run_s[mine].sum() / job.trace.step_s.sum(), rel=1e-5)


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
    """Of three alike but for 30 %: all compute on the path is its own; what follows the meeting is shared."""
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
