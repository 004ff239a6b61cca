"""Replay of a recorded trace, and the graph it runs on."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.graph.propagate import GivenDurations, trail
from prism_jax.graph.step_graph import StepGraph
from prism_jax.recorded.replay import (
    ReplayProgram,
    TraceGraph,
    _no_network,
    replay,
    replay_program,
    step_seconds,
    trace_graph,
    with_durations,
)
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


def test_replay_is_exact_in_double_precision(x64: None) -> None:
    recording = record(JOBS[3], 2, *draws(1, host_s=0.002))
    trace = recording.trace()
    found = replay(replay_program(trace, dependencies(trace)), *recording.truth(trace))
    np.testing.assert_allclose(found, recording.step_s, rtol=1e-12)


def test_starts_and_ends_of_all_ops_are_those_of_the_recording(x64: None) -> None:
    """A transfer's work starts when its last peer is there."""
    recording = record(JOBS[2], 2, *draws(4, host_s=0.002))
    trace = recording.trace()
    needs = dependencies(trace)
    run_s, gap_s = (jnp.asarray(x) for x in recording.truth(trace))
    start, end = replayed_ends(replay_program(trace, needs), run_s, gap_s)
    shape = trace.start_s.shape
    np.testing.assert_allclose(np.asarray(end).reshape(shape), trace.end_s, atol=1e-9)
    transfer = needs.group >= 0
    began = last_arrival(trace.start_s, needs)
    np.testing.assert_allclose(np.asarray(start).reshape(shape)[transfer], began[transfer], atol=1e-9)
    work = np.asarray(start).reshape(shape)[~transfer]
    np.testing.assert_allclose(work, (trace.start_s - np.asarray(gap_s))[~transfer], atol=1e-9)


def test_samples_do_not_touch() -> None:
    trace, needs = skeleton(JOBS[1])
    run_s = planted(JOBS[1], 4, 0, LAW).run_s
    program = replay_program(trace, needs)
    one_by_one = [replay(program, run_s[:, :, [s]]).item() for s in range(4)]
    np.testing.assert_array_equal(replay(program, run_s), one_by_one)


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
    ends = [np.asarray(replayed_ends(program, jnp.asarray(x, float), jnp.zeros(x.shape))[1]) for x in (run_s, late)]
    delay = ends[1] - ends[0]
    clip = [i for i, op in enumerate(trace.ops) if op.op_type == "optimizer-clip-main-grad"]
    assert (delay[clip] > 0.5).all()
    compute = [i for i, op in enumerate(trace.ops) if op.op_type.endswith("-compute")]
    np.testing.assert_allclose(delay[np.ix_(compute, [0, 1, 3])], 0.0, atol=1e-6)
    assert (delay[compute, 2] > 0.5).any()


def mean_step(program: ReplayProgram, run_s: jax.Array, gap_s: jax.Array) -> jax.Array:
    return step_seconds(program, run_s, gap_s).mean()


def test_gradient_equals_finite_differences(x64: None) -> None:
    """And obeys Euler: the mean step is the sum of all seconds times their derivatives."""
    job = PipelineJob(2, 2, 3)
    recording = record(job, 3, *draws(6, host_s=0.004))
    trace = recording.trace()
    program = replay_program(trace, dependencies(trace))
    seconds = [jnp.asarray(x) for x in recording.truth(trace)]
    step = eqx.filter_jit(mean_step)
    slope = eqx.filter_jit(jax.grad(mean_step, argnums=(1, 2)))(program, *seconds)
    total = float(step(program, *seconds))
    assert sum(float((x * g).sum()) for x, g in zip(seconds, slope, strict=True)) == pytest.approx(total, rel=1e-12)
    rng, h = np.random.default_rng(0), 1e-7
    for which in (0, 1):
        value, on_path = np.asarray(seconds[which]), np.asarray(slope[which]) > 0
        critical, other = (
            np.argwhere((value > 0) & x) for x in (on_path, ~on_path)
        )  # ties of zeros have no derivative
        for place in [*critical[rng.choice(len(critical), 6)], *other[rng.choice(len(other), 6)]]:
            at = tuple(int(i) for i in place)
            up, down = ([x.at[at].add(d) if k == which else x for k, x in enumerate(seconds)] for d in (h, -h))
            difference = float(step(program, *up) - step(program, *down)) / (2 * h)
            assert difference == pytest.approx(float(slope[which][at]), abs=1e-6)


def test_other_durations_do_not_compile_again() -> None:
    trace, needs = skeleton(JOBS[1])
    n_trace = 0

    @eqx.filter_jit
    def steps(program: ReplayProgram, run_s: jax.Array, gap_s: jax.Array) -> jax.Array:
        nonlocal n_trace
        n_trace += 1
        return step_seconds(program, run_s, gap_s)

    for seed in range(3):
        run_s = jnp.asarray(planted(JOBS[1], 2, seed, LAW).run_s, float)
        steps(replay_program(trace, needs), run_s, 0.1 * run_s)
    assert n_trace == 1


@pytest.mark.parametrize(("trial", "largest"), [("SE", 0.0048), ("ST", 0.019)])
def test_measured_steps_are_replayed(shared_data: Path, trial: str, largest: float) -> None:
    """By rule alone, without host gaps, to 0.48 % and 1.9 % (median); with gaps, and with observed waits, exactly."""
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


@eqx.filter_jit
def replayed_ends(program: ReplayProgram, run_s: jax.Array, gap_s: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Start and end of every op's work [op, column] of a replay, for timelines."""
    graph = with_durations(program, run_s, gap_s)
    seen = trail(graph, GivenDurations(), _no_network(graph), None)
    n_cell = seen.start_s.shape[0] * seen.start_s.shape[1]
    cells = (seen.start_s.reshape(n_cell, -1), seen.end_s.reshape(n_cell, -1))
    return cells[0][program.run_cell], cells[1][program.run_cell]


# --- Graph -----------------------------------------------------------------------------------------------------------
# The graph of a trace: walked by hand it gives the times of the event simulator, and every op has a place in it.


GRAPH_JOBS = [
    PipelineJob(1, 1, 3),
    PipelineJob(1, 2, 3),
    PipelineJob(2, 2, 4),
    PipelineJob(4, 2, 4, overlaps=True),
    PipelineJob(2, 2, 4, 2, "inner", True),
    PipelineJob(3, 1, 6, 2, "absent"),
]


def walked_s(graph: StepGraph, duration_s: np.ndarray) -> np.ndarray:
    """End of every cell [level, lane, replica], one level after another."""
    end = np.zeros((graph.n_level, graph.n_lane, duration_s.shape[-1]))
    free = np.zeros(end.shape[1:])
    for level in range(graph.n_level):
        start = free.copy()
        for lane in range(graph.n_lane):
            for d in range(graph.dep_level.shape[-1]):
                if graph.dep_level[level, lane, d] >= 0:
                    before = end[graph.dep_level[level, lane, d], graph.dep_lane[level, lane, d]]
                    start[lane] = np.maximum(start[lane], before)
            if graph.meets[level, lane]:
                start[lane] = start[lane].max()
        end[level] = free = start + duration_s[level]
    return end


@pytest.mark.parametrize("job", GRAPH_JOBS, ids=lambda j: f"{j.pp}x{j.virtual_stages}-{j.dp}")
def test_graph_walked_by_hand_gives_the_recorded_ends(job: PipelineJob) -> None:
    recording = record(job, 1, *draws(8, host_s=0.002))
    trace = recording.trace()
    needs = dependencies(trace)
    found = trace_graph(trace, needs)
    run_s, gap_s = durations(trace, needs)
    shape = (found.graph.n_level, found.graph.n_lane, job.dp)
    table = np.zeros((shape[0] * shape[1], job.dp))
    np.add.at(table, found.gap_cell, gap_s[:, :, 0])
    np.add.at(table, found.run_cell, run_s[:, :, 0])
    end = walked_s(found.graph, table.reshape(shape)).reshape(-1, job.dp)
    np.testing.assert_allclose(end[found.run_cell], trace.end_s[:, :, 0], atol=1e-9)
    assert end.max() == pytest.approx(recording.step_s[0], abs=1e-9)


@pytest.fixture(scope="module")
def interleaved() -> tuple[TraceGraph, list[str]]:
    trace, needs = skeleton(PipelineJob(4, 2, 8, 2, overlaps=True))
    return trace_graph(trace, needs), [str(op) for op in trace.ops]


def test_every_op_has_a_place_of_its_own(interleaved: tuple[TraceGraph, list[str]]) -> None:
    """Work of a transfer and the moment its worker is ready are two rows; plain work is one."""
    found, names = interleaved
    row, ops = found.graph.op.ravel(), found.graph.ops
    assert len(set(found.run_cell)) == len(names)
    assert [str(ops[row[cell]]) for cell in found.run_cell] == names
    plain = found.run_cell == found.gap_cell
    ready = [str(ops[row[cell]]) for cell in found.gap_cell[~plain]]
    assert ready == [f"ready for {name}" for name, p in zip(names, plain, strict=True) if not p]
    assert (row >= 0).sum() == len(names) + (~plain).sum()


def test_predecessors_lie_on_other_lanes_at_earlier_levels(interleaved: tuple[TraceGraph, list[str]]) -> None:
    graph = interleaved[0].graph
    level, lane, dep = np.nonzero(graph.dep_level >= 0)
    assert (graph.dep_level[level, lane, dep] < level).all()
    assert (graph.dep_lane[level, lane, dep] != lane).all()
    assert (graph.op[graph.dep_level[level, lane, dep], graph.dep_lane[level, lane, dep]] >= 0).all()


def test_only_collectives_of_replicas_meet(interleaved: tuple[TraceGraph, list[str]]) -> None:
    graph = interleaved[0].graph
    met = [graph.ops[i] for i in graph.op[graph.meets]]
    assert {op.op_type for op in met if isinstance(op, TraceOp)} == {
        "params-all-gather",
        "grads-reduce-scatter",
        "separate-grads-all-reduce",
        "optimizer-clip-main-grad",
    }
