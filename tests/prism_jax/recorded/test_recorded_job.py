"""Fitted jobs: work and gaps of the recording, also where only some of the replicas were recorded."""

import numpy as np
import pytest

from prism_jax.recorded.recorded_job import fit_job
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import Law, draws, planted, record, timed

JOB = PipelineJob(pp=2, dp=4, n_micro_batch=4)


def test_work_of_the_simulator_is_found() -> None:
    recording = record(JOB, 3, *draws(2, host_s=0.001))
    job = fit_job(recording.trace())
    run_s, gap_s = recording.truth(job.trace)
    np.testing.assert_allclose(job.run_s, run_s, atol=1e-10)
    np.testing.assert_allclose(job.gap_s[~job.waits.unexplained], gap_s[~job.waits.unexplained], atol=1e-10)
    assert job.effects is not None
    assert job.effects.op.shape == (4, 4)


def test_transfers_of_a_part_of_the_replicas_are_freed_of_the_wait_for_the_others() -> None:
    """Half of 8 replicas: a reduction takes 40 ms, and seems to take more whenever the last replica is not among them."""
    job = PipelineJob(pp=1, dp=8, n_micro_batch=2)
    trace = timed(job, planted(job, 40, 0, Law(micro_batch=0.2)).run_s)
    part = fit_job(trace.choose(replicas=np.arange(4)))
    meets = [i for i, op in enumerate(trace.ops) if op.op_type == "grads-reduce-scatter"]
    whole = fit_job(trace)
    np.testing.assert_allclose(whole.run_s[meets], 0.04, atol=1e-12)
    raw = whole.trace.end_s[meets] - whole.trace.start_s[meets, :4].max(axis=1, keepdims=True)
    assert raw.mean() > 0.05
    assert part.run_s[meets].mean() == pytest.approx(0.04, rel=0.1)
