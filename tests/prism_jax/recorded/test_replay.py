"""Replay of a recorded trace, and the graph it runs on."""

from pathlib import Path

import numpy as np
import pytest

from prism_jax.recorded import replay as module
from prism_jax.recorded.replay import Ready, ReplayProgram, _critical_seconds, _ends, replay, replay_program
from prism_jax.trace.dependencies import durations, last_arrival, observed_waits
from prism_jax.trace.pipeline import dependencies
from prism_jax.trace.trace import TraceOp
from tests.support.trace_oracle import PipelineJob, Task, simulate_step
from tests.support.traces import Law, draws, measured, planted, record, skeleton

JOBS = [
    PipelineJob(1, 1, 4),
    PipelineJob(2, 3, 5),
    PipelineJob(4, 2, 6, overlaps=True),
    PipelineJob(2, 2, 4, 2, "inner"),
    PipelineJob(3, 2, 6, 2, "absent", overlaps=True),
]
LAW = Law(micro_batch=0.1, own=0.05)
FLOAT32 = 2e-6  # relative error of a step


def name(job: PipelineJob) -> str:
    return f"{job.pp}x{job.virtual_stages}-{job.dp}"


@pytest.mark.parametrize("job", JOBS, ids=name)
def test_replay_gives_back_the_recorded_steps_and_those_of_other_durations(job: PipelineJob) -> None:
    """Dependencies are learned from one recording; then the simulator and the replay run other work, with host gaps."""
    recording = record(job, 3, *draws(1, host_s=0.002))
    trace = recording.trace()
    program = replay_program(trace, dependencies(trace))
    np.testing.assert_allclose(replay(program, *recording.truth(trace)), recording.step_s, rtol=FLOAT32)
    other = record(job, 3, *draws(2, spread=0.8, host_s=0.01))
    np.testing.assert_allclose(replay(program, *other.truth(trace)), other.step_s, rtol=FLOAT32)
    without = [max(t.end_s for t in simulate_step(job, as_recorded(other.work_s, s))) for s in trace.steps]
    np.testing.assert_allclose(replay(program, other.truth(trace)[0]), without, rtol=FLOAT32)


def as_recorded(work_s: dict, step: int):
    def work(task: Task) -> float:
        return work_s[task.op_type, task.stage, task.index, task.replica, int(step)]

    return work


def test_replay_is_exact_in_double_precision() -> None:
    recording = record(JOBS[3], 2, *draws(1, host_s=0.002))
    trace = recording.trace()
    found = replay(replay_program(trace, dependencies(trace)), *recording.truth(trace))
    np.testing.assert_allclose(found, recording.step_s, rtol=1e-12)


@pytest.mark.parametrize("job", JOBS, ids=name)
def test_starts_and_ends_of_all_ops_are_those_of_the_recording(job: PipelineJob) -> None:
    """A transfer's work starts when its last peer is there."""
    recording = record(job, 2, *draws(4, host_s=0.002))
    trace = recording.trace()
    needs = dependencies(trace)
    run_s, gap_s = recording.truth(trace)
    end = replayed_ends(replay_program(trace, needs), run_s, gap_s)
    np.testing.assert_allclose(end, trace.end_s, atol=1e-9)
    transfer = needs.group >= 0
    began = last_arrival(trace.start_s, needs)
    np.testing.assert_allclose((end - run_s)[transfer], began[transfer], atol=1e-9)
    np.testing.assert_allclose((end - run_s)[~transfer], trace.start_s[~transfer], atol=1e-9)


def test_samples_do_not_touch() -> None:
    trace, needs = skeleton(JOBS[1])
    run_s = planted(JOBS[1], 4, 0, LAW).run_s
    program = replay_program(trace, needs)
    one_by_one = [replay(program, run_s[:, :, [s]]).item() for s in range(4)]
    np.testing.assert_array_equal(replay(program, run_s), one_by_one)


def test_steps_do_not_depend_on_how_many_are_held_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    trace, needs = skeleton(JOBS[1])
    run_s = planted(JOBS[1], 7, 0, LAW).run_s
    program = replay_program(trace, needs)
    whole = replay(program, run_s, 0.1 * run_s), *_critical_seconds(program, run_s, 0.1 * run_s)
    monkeypatch.setattr(module, "MAX_CELLS", 2 * len(program.ops) * program.n_replica)
    parts = replay(program, run_s, 0.1 * run_s), *_critical_seconds(program, run_s, 0.1 * run_s)
    np.testing.assert_array_equal(parts[0], whole[0])
    for mine, theirs in zip(parts[1:], whole[1:], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-12)


def test_more_replicas_than_recorded_can_be_replayed() -> None:
    """The same skeleton; replicas that are copies of each other take as long as one."""
    trace, needs = skeleton(JOBS[1])
    run_s = planted(JOBS[1], 4, 0, LAW).run_s
    copies = replay(replay_program(trace, needs, 6), np.concatenate([run_s, run_s], axis=1))
    np.testing.assert_array_equal(copies, replay(replay_program(trace, needs), run_s))


def test_one_late_replica_delays_the_whole_job() -> None:
    """One second at the first compute of one worker: all replicas clip a second later, none of their computes does."""
    job = PipelineJob(2, 4, 3)
    trace, needs = skeleton(job)
    run_s = planted(job, 1, 0, LAW).run_s
    late = run_s.copy()
    first = next(i for i, op in enumerate(trace.ops) if op.op_type == "forward-compute" and op.stage == 0)
    late[first, 2] += 1.0
    program = replay_program(trace, needs, 4)
    ends = [replayed_ends(program, x, np.zeros(x.shape)) for x in (run_s, late)]
    delay = (ends[1] - ends[0])[..., 0]
    clip = [i for i, op in enumerate(trace.ops) if op.op_type == "optimizer-clip-main-grad"]
    assert (delay[clip] > 0.5).all()
    compute = [i for i, op in enumerate(trace.ops) if op.op_type.endswith("-compute")]
    np.testing.assert_allclose(delay[np.ix_(compute, [0, 1, 3])], 0.0, atol=1e-6)
    assert (delay[compute, 2] > 0.5).any()


def test_critical_seconds_equal_finite_differences() -> None:
    """And obey Euler: the mean step is the sum of all critical seconds."""
    job = PipelineJob(2, 2, 3)
    recording = record(job, 3, *draws(6, host_s=0.004))
    trace = recording.trace()
    program = replay_program(trace, dependencies(trace))
    seconds = recording.truth(trace)
    critical = _critical_seconds(program, *seconds)
    total = replay(program, *seconds).mean()
    assert sum(part.sum() for part in critical) == pytest.approx(total, rel=1e-12)
    rng, h = np.random.default_rng(0), 1e-7
    for which in (0, 1):
        value, on_path = seconds[which], critical[which] > 0
        places = [
            np.argwhere((value > 0).all(axis=-1) & x) for x in (on_path, ~on_path)
        ]  # ties of zeros have no derivative
        for op, replica in [place for found in places for place in found[rng.choice(len(found), 6)]]:
            longer = np.ones_like(value)
            longer[op, replica] += h
            changed = [x * longer if k == which else x for k, x in enumerate(seconds)]
            difference = (replay(program, *changed).mean() - total) / h
            assert difference == pytest.approx(critical[which][op, replica], abs=1e-6)


def test_paths_that_end_together_share_their_seconds_evenly() -> None:
    """Replicas alike in everything: each has an equal part of what is critical."""
    job = PipelineJob(2, 3, 4)
    trace, needs = skeleton(job)
    run_s = np.repeat(planted(job, 2, 0, LAW).run_s[:, :1], 3, axis=1)
    run, _ = _critical_seconds(replay_program(trace, needs), run_s, np.zeros_like(run_s))
    np.testing.assert_allclose(run, np.repeat(run[:, :1], 3, axis=1), rtol=1e-12)
    assert run.sum() == pytest.approx(replay(replay_program(trace, needs), run_s).mean(), rel=1e-12)


@pytest.mark.parametrize(("trial", "largest"), [("SE", 0.0048), ("ST", 0.019)])
def test_measured_steps_are_replayed(shared_data: Path, trial: str, largest: float) -> None:
    """By rule alone, without host gaps, to 0.48% and 1.9% (median); with gaps, and with observed waits, exactly."""
    trace = measured(shared_data, trial)
    by_rule = dependencies(trace)
    found = durations(trace, by_rule)
    program = replay_program(trace, by_rule)
    alone = replay(program, found.run_s)
    assert np.median(np.abs(alone / trace.step_s - 1.0)) <= largest
    np.testing.assert_allclose(replay(program, *found), trace.step_s, rtol=1e-5)
    waits = observed_waits(trace, by_rule).needs
    seen = durations(trace, waits)
    closer = replay(replay_program(trace, waits), seen.run_s)
    assert np.median(np.abs(closer / trace.step_s - 1.0)) < np.median(np.abs(alone / trace.step_s - 1.0))
    np.testing.assert_allclose(replay(replay_program(trace, waits), *seen), trace.step_s, rtol=1e-5)


def replayed_ends(program: ReplayProgram, run_s: np.ndarray, gap_s: np.ndarray) -> np.ndarray:
    """End of every op's work [op, replica, sample] of a replay."""
    return _ends(program, run_s, gap_s)[program.run_row]


@pytest.fixture(scope="module")
def interleaved() -> tuple[ReplayProgram, list[str]]:
    trace, needs = skeleton(PipelineJob(4, 2, 8, 2, overlaps=True))
    return replay_program(trace, needs), [str(op) for op in trace.ops]


def test_every_op_has_a_row_of_its_own(interleaved: tuple[ReplayProgram, list[str]]) -> None:
    """Work of a transfer and the moment its worker is ready are two rows; plain work is one."""
    program, names = interleaved
    assert [str(program.ops[row]) for row in program.run_row] == names
    plain = program.run_row == program.gap_row
    ready = [str(program.ops[row]) for row in program.gap_row[~plain]]
    assert ready == [f"ready for {name}" for name, p in zip(names, plain, strict=True) if not p]
    assert len(program.ops) == len(names) + (~plain).sum()
    assert sorted(row for start in program.starts for row in start.rows) == list(range(len(program.ops)))


def test_predecessors_have_started_before(interleaved: tuple[ReplayProgram, list[str]]) -> None:
    started: set[int] = set()
    for start in interleaved[0].starts:
        assert started.issuperset(start.before)
        started.update(start.rows)


def test_only_collectives_of_replicas_meet(interleaved: tuple[ReplayProgram, list[str]]) -> None:
    program = interleaved[0]
    met = [program.ops[row] for start in program.starts if start.meets for row in start.rows]
    assert not any(isinstance(op, Ready) for op in met)
    assert {op.op_type for op in met if isinstance(op, TraceOp)} == {
        "params-all-gather",
        "grads-reduce-scatter",
        "separate-grads-all-reduce",
        "optimizer-clip-main-grad",
    }
