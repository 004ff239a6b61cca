"""Host time of a step, and overheads of its programs."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.cost.step import step_cost
from prism_jax.host.busy_time import busy_time
from prism_jax.host.program import (
    FEWEST,
    Action,
    Call,
    Operator,
    Overhead,
    TimedCall,
    overheads,
    recorded_calls,
    without_outliers,
)
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


# --- Overheads of the host by operator -------------------------------------------------------------------------------


def operator(name, start, n_call=2):
    """Two launches of 1 s, 2 s into the operator, 3 s apart, 4 s before its end."""
    calls = [
        TimedCall(Call(Action.KERNEL, call_s=1.0, busy_s=0.5), start + 2 + 4 * i, start + 3 + 4 * i)
        for i in range(n_call)
    ]
    return Operator(name, start, calls[-1].end_s + 4, tuple(calls))


STEP = [operator("linear", 10.0), operator("linear", 27.0), Operator("view", 42.0, 42.5)]  # each linear takes 11 s


def test_the_five_overheads_are_read_off():
    table = overheads([STEP])
    assert table.of(Overhead.T1, "linear") == pytest.approx(6)
    assert table.of(Overhead.T1, "linear after linear") == pytest.approx(6)
    assert table.of(Overhead.T1, "view after linear") == pytest.approx(4)
    assert table.of(Overhead.T2, "linear") == pytest.approx(2)
    assert table.of(Overhead.T2, "view") == pytest.approx(0.5)
    assert table.of(Overhead.T3, "linear") == pytest.approx(4)
    assert table.of(Overhead.T4, "linear") == pytest.approx(1)
    assert table.of(Overhead.T5, "linear") == pytest.approx(3)


def test_operators_never_seen_have_the_mean_of_all():
    table = overheads([STEP])
    assert table.of(Overhead.T3, "conv") == table.of(Overhead.T3, "")
    assert overheads([]).of(Overhead.T1, "conv") == 0.0


def test_recorded_gaps_fill_the_step():
    calls = recorded_calls(STEP, 5.0, 60.0)
    assert sum(c.gap_s + c.call_s for c in calls) == pytest.approx(55.0)


def test_outliers_are_left_out_of_many_values_only():
    many = np.append(np.linspace(1.0, 2.0, 20), 100.0)
    assert 100.0 not in without_outliers(many)
    assert 100.0 in without_outliers(many[-FEWEST + 1 :])
