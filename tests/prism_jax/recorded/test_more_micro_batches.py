"""Recorded jobs with another number of micro-batches: closed forms, jobs that were recorded that way, and what is refused."""

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.edits import with_micro_batches
from prism_jax.recorded.recorded_job import RecordedJob, fit_job
from prism_jax.recorded.unseen_steps import predict_job
from prism_jax.schedule.order import ScheduleOrder, StepOps
from prism_jax.schedule.registry import make_schedule
from prism_jax.trace.dependencies import Links
from prism_jax.trace.trace import Trace
from tests.support import trace_oracle
from tests.support.trace_oracle import PipelineJob, Task
from tests.support.traces import TYPICAL_S, Law, measured, planted, record, skeleton, timed, trace_at

F_S, B_S = TYPICAL_S["forward-compute"], TYPICAL_S["backward-compute"]
ENDS = ("gc", "layernorm-grads-all-reduce", "grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer")
ENDS_S = TYPICAL_S["params-all-gather"] + sum(TYPICAL_S[name] for name in ENDS)  # of a job with replicas


@pytest.fixture
def as_schedule(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | Callable[..., ScheduleOrder]], None]:
    """From now on the event simulator runs its jobs in the order of another schedule."""

    def choose(name: str | Callable[..., ScheduleOrder]) -> None:
        made = name if callable(name) else lambda _, *degrees: make_schedule(name, *degrees)
        monkeypatch.setattr(trace_oracle, "make_schedule", made)

    return choose


def exact(task: Task) -> float:
    """Nothing varies, transfers take no time."""
    return TYPICAL_S.get(task.op_type, 0.0)


def with_slow_links(task: Task) -> float:
    """Stages differ, and transfers take time."""
    return TYPICAL_S.get(task.op_type, 0.03) * (1.0 + 0.1 * task.stage)


def recorded(pp: int, n: int, work: Callable[[Task], float] = exact, dp: int = 2) -> RecordedJob:
    return fit_job(record(PipelineJob(pp, dp, n), 2, work).trace())


def step_s(job: RecordedJob) -> np.ndarray:
    """[step] its steps under the recorded durations, in plain NumPy."""
    needs = job.waits.needs
    ready, end = np.zeros_like(job.run_s), np.zeros_like(job.run_s)
    members = needs.members()
    left = [len(ops) for ops in members]
    for op in needs.order.tolist():
        ready[op] = np.max([end[u] for u in needs.after[op]], axis=0, initial=0.0) + job.gap_s[op]
        peers = members[needs.group[op]] if needs.group[op] >= 0 else [op]
        if needs.group[op] >= 0:
            left[needs.group[op]] -= 1
        if needs.group[op] < 0 or left[needs.group[op]] == 0:
            last = ready[peers].max(axis=0)
            end[peers] = (last.max(axis=0) if needs.meets_replicas[op] else last) + job.run_s[peers]
    return end.max(axis=(0, 1))


def predicted(job: RecordedJob, n_draw: int = 200) -> np.ndarray:
    return predict_job(job, key=jax.random.key(1), n_draw=n_draw).step_s


def names(job: RecordedJob) -> dict[str, tuple[list[str], bool, bool]]:
    """What every op waits for, by name."""
    ops, needs = job.trace.ops, job.waits.needs
    return {
        str(op): (sorted(str(ops[u]) for u in needs.after[i]), needs.meets_replicas[i], needs.hidden_meeting[i])
        for i, op in enumerate(ops)
    }


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize("pp", [1, 2, 4])
def test_step_without_noise_is_the_closed_form(pp: int, schedule: str, as_schedule) -> None:
    """(n + pp - 1) (F + B), and what surrounds it."""
    as_schedule(schedule)
    job = recorded(pp, n=4)
    ends_s = ENDS_S + (TYPICAL_S["embedding-grads-all-reduce"] if pp > 1 else 0.0)
    for n in (1, 2, 3, 4, 5, 9, 16):
        expected = (n + pp - 1) * (F_S + B_S) + ends_s
        changed = with_micro_batches(job, n)
        np.testing.assert_allclose(step_s(changed), expected, rtol=1e-9)
        if (schedule, pp, n) == ("1f1b", 2, 5):  # one shape: each is compiled
            np.testing.assert_allclose(predicted(changed, 80), expected, rtol=1e-5)


@pytest.mark.parametrize("schedule", ["1f1b", "gpipe"])
@pytest.mark.parametrize(("pp", "before", "after"), [(2, 3, 8), (3, 6, 2), (4, 5, 7), (4, 2, 6)])
def test_job_is_the_one_that_would_have_been_recorded(
    pp: int, before: int, after: int, schedule: str, as_schedule
) -> None:
    """Stages differ and transfers take time, so that there is no closed form, but the event simulator knows."""
    as_schedule(schedule)
    changed = with_micro_batches(recorded(pp, before, with_slow_links), after)
    truth = recorded(pp, after, with_slow_links)
    assert names(changed) == names(truth)
    np.testing.assert_allclose(step_s(changed), truth.trace.step_s, rtol=1e-9)


def with_hidden_barrier(job: PipelineJob, n_step: int, law: Law, seed: int = 0) -> Trace:
    """Replicas wait for each other before the norms, and the gradients for the last but one send: neither is in the rules."""
    trace, needs = skeleton(job)
    links = Links.of(trace, needs)
    at = {(op.op_type, op.stage, op.seq): i for i, op in enumerate(trace.ops)}
    for stage in range(job.pp):
        norm = at["layernorm-grads-all-reduce", stage, 0]
        links.groups.append([norm])
        links.meeting.add(norm)
        links.hidden.add(norm)
    return timed(job, planted(job, n_step, seed, law).run_s, needs=links.done())


def test_waits_that_were_read_off_the_recording_are_carried_over() -> None:
    law = Law(micro_batch=0.1, own=0.05)
    before, after = (fit_job(with_hidden_barrier(PipelineJob(2, 3, n), 12, law)) for n in (4, 7))
    changed = with_micro_batches(before, 7)
    assert changed.waits.needs.hidden_meeting.any()
    assert names(changed) == names(after)


def test_the_recorded_number_gives_the_recorded_job_bit_for_bit() -> None:
    law = Law(step=0.05, rank=0.05, micro_batch=0.1, own=0.05)
    job = fit_job(with_hidden_barrier(PipelineJob(3, 3, 4), 10, law))
    same = with_micro_batches(job, 4)
    assert names(same) == names(job)
    np.testing.assert_allclose(step_s(same), job.trace.step_s, rtol=1e-9)
    np.testing.assert_array_equal(predicted(same), predicted(job))


@pytest.mark.parametrize("name", ["SE", pytest.param("ST", marks=pytest.mark.slow)])
def test_the_recorded_number_gives_the_recorded_job_of_real_traces(name: str, shared_data: Path) -> None:
    job = fit_job(measured(shared_data, name))
    same = with_micro_batches(job, len(job.effects.op) if job.effects else 0)
    assert names(same) == names(job)
    np.testing.assert_array_equal(predicted(same, 80), predicted(job, 80))


@pytest.mark.parametrize("name", ["SE", "ST"])
def test_real_steps_grow_by_what_a_micro_batch_takes(name: str, shared_data: Path) -> None:
    """In the steady state of 1F1B every further micro-batch costs forward and backward of the slowest stage, and transfers."""
    job = fit_job(measured(shared_data, name))
    axes = (1, 2)
    job = replace(job, run_s=job.run_s.mean(axes, keepdims=True), gap_s=job.gap_s.mean(axes, keepdims=True))
    assert job.effects is not None
    n = len(job.effects.op)
    middle = n // 2  # which further ones take after
    seconds = job.run_s[job.effects.op[middle], 0, 0]
    slowest_s = max(
        sum(t for t, signature in zip(seconds, job.effects.signatures, strict=True) if signature.stage == stage)
        for stage in range(job.trace.n_stage)
    )
    mean_s = [float(step_s(with_micro_batches(job, n + more))[0]) for more in (8, 16, 32)]
    growth_s = np.diff(mean_s) / (8, 16)
    assert slowest_s <= growth_s[0] < 1.05 * slowest_s
    assert growth_s[1] == pytest.approx(growth_s[0], rel=1e-6)


@pytest.mark.parametrize(("stratum", "stratum_of_8"), [(1.0, 1.0), (2.5, 4.5)])
def test_prediction_agrees_with_a_job_that_has_so_many_micro_batches(stratum: float, stratum_of_8: float) -> None:
    """From 4 to 8, micro-batches of a replica being independent, or correlated by 0.5.

    Standard errors of the comparison, from 200 recorded steps: 0.4% (median) and 0.8% (p95); four of them are allowed.
    """
    law = Law(step=0.02, micro_batch=0.15, own=0.03)
    job = PipelineJob(2, 4, 4)
    few = fit_job(timed(job, planted(job, 200, 0, replace(law, replica_stratum=stratum)).run_s))
    more = replace(job, n_micro_batch=8)
    truth_s = timed(more, planted(more, 2000, 1, replace(law, replica_stratum=stratum_of_8)).run_s).step_s
    drawn_s = predicted(with_micro_batches(few, 8), 4000)
    for p, error in ((0.5, 0.004), (0.95, 0.008)):
        assert np.quantile(drawn_s, p) == pytest.approx(np.quantile(truth_s, p), rel=4 * error)
        assert np.quantile(truth_s, p) > 1.5 * np.quantile(few.trace.step_s, p)


def test_first_and_last_micro_batches_keep_their_places() -> None:
    """A warm-up that makes the first micro-batch slow is paid once, however many follow."""

    def slow_start(task: Task) -> float:
        return exact(task) * (3.0 if task.micro_batch == 0 else 1.0)

    job = recorded(1, 4, slow_start)
    extra_s = 2.0 * (F_S + B_S)
    for n in (2, 4, 8):
        expected = n * (F_S + B_S) + extra_s + ENDS_S
        np.testing.assert_allclose(step_s(with_micro_batches(job, n)), expected, rtol=1e-9)


def test_every_micro_batch_has_its_ops_once() -> None:
    job = recorded(3, 4)
    for n in (1, 3, 6):
        changed = with_micro_batches(job, n)
        compute = [op for op in changed.trace.ops if op.op_type.endswith("-compute")]
        assert sorted((op.op_type, op.stage, op.micro_batch) for op in compute) == sorted(
            product(("backward-compute", "forward-compute"), range(3), range(n))
        )
        assert changed.effects is not None
        assert changed.effects.op.shape == (n, 6)
        assert changed.run_s.shape[0] == len(changed.trace.ops) == len(changed.waits.needs.after)


def test_several_chunks_per_stage_are_refused() -> None:
    job = fit_job(record(PipelineJob(2, 2, 4, 2), 1, exact).trace())
    with pytest.raises(DataError, match="one model chunk per stage only"):
        with_micro_batches(job, 8)


def test_an_order_of_its_own_is_refused(as_schedule) -> None:
    """The last stage runs two forwards before its first backward, as no schedule of ours does."""

    def eager(_: str, *degrees: int) -> ScheduleOrder:
        made = make_schedule("1f1b", *degrees)
        *before, last = made.orders
        first, backward, second, *rest = last
        return replace(made, ops=StepOps.of((*before, (first, second, backward, *rest))))

    as_schedule(eager)
    job = fit_job(record(PipelineJob(2, 1, 4), 1, exact).trace())
    with pytest.raises(DataError, match="no known schedule \\(gpipe, 1f1b"):
        with_micro_batches(job, 8)


def test_other_op_types_are_refused() -> None:
    trace = trace_at(Path(__file__).parents[2] / "data" / "kineto_gloo")
    with pytest.raises(DataError, match="in a pipeline job"):
        with_micro_batches(fit_job(trace), 8)
