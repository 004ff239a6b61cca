"""Busy seconds of a step: sums over passes of one stage, against the step itself."""

from dataclasses import replace

import pytest

from prism_jax.cost.step import step_cost
from prism_jax.host.busy_time import busy_time
from tests.support.jobs import make_job, stated


def busy(job, **constants):
    return busy_time(job.model, job.cluster, job.plan, replace(job.efficiency, **constants))


def test_one_device_works_in_all_of_its_step_but_what_nothing_runs_in():
    job = stated(make_job(tp=1, pp=1, dp=1))
    found, eff = busy(job), job.efficiency
    plain = replace(eff.correction, host=0.0, micro_batch_s=0.0, step_s=0.0, network_step_s=0.0)
    cost = step_cost(job.model, job.cluster, job.plan, replace(eff, correction=plain))
    whole_s = job.plan.n_micro_batch * cost.compute_s.sum() + cost.end_compute_s.sum()
    assert found.gpu_active_s == pytest.approx(whole_s)
    assert (found.hidden_s, found.p2p_s) == (0.0, 0.0)
    assert found.naive_sum_s == pytest.approx(found.gpu_active_s + found.host_s)


def test_host_seconds_follow_the_seconds_per_kernel_and_decide_when_they_are_long():
    job = make_job()
    slow, fast = busy(job, host_launch_s=1.0), busy(job, host_launch_s=1e-9)
    assert slow.host_s == pytest.approx(1e9 * fast.host_s)
    assert slow.host_bound
    assert not fast.host_bound
    assert slow.gpu_active_s == fast.gpu_active_s


def test_cuda_graphs_of_the_whole_step_leave_no_host():
    job = make_job()
    software = replace(job.plan.software, cuda_graphs="step")
    assert busy(replace(job, plan=replace(job.plan, software=software))).host_s == 0.0


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe", "dualpipe", "zb_h1"])
def test_schedules_do_not_change_what_is_to_be_done(schedule):
    """Up to who hands over to whom; with as many layers on both stages."""
    job = make_job(pp=2, n_micro_batch=8)
    other = replace(job, plan=replace(job.plan, schedule=schedule))
    assert busy(other).host_s == pytest.approx(busy(job).host_s, rel=0.2)
    assert busy(other).naive_sum_s == pytest.approx(busy(job).naive_sum_s, rel=0.2)


def test_a_step_without_variability_is_no_shorter_than_its_busiest_stage():
    job = make_job(pp=4, tp=1, dp=2, n_micro_batch=8)
    assert busy(job).gpu_active_s <= job_step_s(job)


def job_step_s(job):
    """All passes of all stages after each other: an upper bound of any order of them."""
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    passes_s = job.plan.n_micro_batch * float(cost.compute_s.sum() + cost.comm_s.sum() + 2 * cost.p2p_s.sum())
    return passes_s + float(cost.end_compute_s.max() + cost.end_comm_s.max())
