"""The graph of a trace: walked by hand it gives the times of the event simulator, and every op has a place in it."""

import numpy as np
import pytest

from prism_jax.graph.step_graph import StepGraph
from prism_jax.recorded.replay import TraceGraph, trace_graph
from prism_jax.trace.dependencies import durations
from prism_jax.trace.pipeline import dependencies
from prism_jax.trace.trace import TraceOp
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import draws, record, skeleton

JOBS = [
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


@pytest.mark.parametrize("job", JOBS, ids=lambda j: f"{j.pp}x{j.virtual_stages}-{j.dp}")
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
