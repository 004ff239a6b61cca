"""Recorded steps as timelines: one process per worker, one thread per stream, nothing overlaps, times as recorded."""

import gzip
import json
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded import describe_trace as perfetto_trace
from prism_jax.recorded.describe_trace import typical_steps, write_recorded
from prism_jax.trace.trace import Trace
from tests.support.trace_oracle import PipelineJob
from tests.support.traces import FIRST_STEP, draws, measured, record, trace_at

JOB = PipelineJob(pp=2, dp=3, n_micro_batch=4)
FIRST, SECOND, THIRD = range(FIRST_STEP, FIRST_STEP + 3)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return record(JOB, 3, *draws(0, host_s=0.001)).trace()


def written(trace: Trace, steps: list[int], folder: Path, name: str = "steps.json") -> dict:
    write_recorded(folder / name, trace, steps)
    data = (folder / name).read_bytes()
    return json.loads(gzip.decompress(data) if name.endswith(".gz") else data)


def slices(content: dict) -> list[dict]:
    return [event for event in content["traceEvents"] if event["ph"] == "X"]


def named(content: dict, kind: str) -> dict[tuple[int, int], str]:
    return {(e["pid"], e["tid"]): e["args"]["name"] for e in content["traceEvents"] if e["name"] == kind}


def threads(content: dict) -> dict[tuple[int, int], list[dict]]:
    found = defaultdict(list)
    for event in slices(content):
        found[event["pid"], event["tid"]].append(event)
    return found


def check_viewable(content: dict, trace: Trace, n_step: int) -> None:
    """What every file must fulfil: complete, named, in order, without overlaps."""
    processes, streams = named(content, "process_name"), named(content, "thread_name")
    assert sorted(pid for pid, _ in processes) == sorted(trace.rank.ravel().tolist())
    assert len(slices(content)) == len(trace.ops) * trace.n_replica * n_step
    for place, events in threads(content).items():
        assert place in streams
        for event in events:
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["name"].startswith(event["cat"])
        for before, after in pairwise(events):
            assert before["ts"] + before["dur"] <= after["ts"] + 1e-6
    kinds = {event["name"] for event in content["traceEvents"] if event["ph"] == "M"}
    assert kinds == {"process_name", "thread_name", "thread_sort_index"}


@pytest.mark.parametrize("steps", [[FIRST], [THIRD, FIRST], [FIRST, SECOND, THIRD]])
def test_file_is_complete_and_in_order(trace: Trace, steps: list[int], tmp_path: Path) -> None:
    content = written(trace, steps, tmp_path)
    check_viewable(content, trace, len(steps))
    assert list(content["otherData"]) == ["job", *(f"step {step}" for step in steps)]
    assert content["otherData"][f"step {FIRST}"] == f"{trace.step_s[0]:.6g} s"


@pytest.mark.parametrize("source", ["examples/local_cluster", "tests/data/kineto_gloo", "SE", "ST"])
def test_traces_of_real_jobs_are_viewable(source: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """Published times are rounded to single precision, so that ops of one stream overlap by microseconds."""
    shipped = Path(__file__).parents[3] / source
    found = trace_at(shipped) if shipped.exists() else measured(request.getfixturevalue("shared_data"), source)
    check_viewable(written(found, typical_steps(found), tmp_path), found, 2)


def test_ops_are_where_they_were_recorded(trace: Trace, tmp_path: Path) -> None:
    """To a nanosecond; the second step begins 5% of the first after its end."""
    content = written(trace, [SECOND, FIRST], tmp_path)
    rank = int(trace.rank[2, 1])
    for op, found in enumerate(trace.ops):
        if found.stage != 1:
            continue
        name = f"{found.op_type} {found.micro_batch}" if found.micro_batch >= 0 else found.op_type
        seen = [(e["ts"], e["dur"]) for e in slices(content) if e["pid"] == rank and e["name"] == name]
        start, end = 1e6 * trace.start_s[op, 2], 1e6 * trace.end_s[op, 2]
        at_us = 1e6 * 1.05 * trace.step_s[1]
        for expected in ((start[1], end[1] - start[1]), (at_us + start[0], end[0] - start[0])):
            assert np.abs(np.array(seen) - expected).sum(axis=1).min() < 2e-3


def test_workers_are_named_by_their_place_and_streams_in_plain_words(trace: Trace, tmp_path: Path) -> None:
    content = written(trace, [FIRST], tmp_path)
    processes = named(content, "process_name")
    for (replica, stage), rank in np.ndenumerate(trace.rank):
        assert processes[int(rank), 0] == f"rank {rank}: dp {replica}, stage {stage}"
    part = named(written(trace.choose(replicas=np.array([2])), [FIRST], tmp_path), "process_name")
    assert set(part.values()) == {f"rank {trace.rank[2, s]}: recorded replica 0, stage {s}" for s in range(2)}
    streams = {name for (pid, _), name in named(content, "thread_name").items() if pid == trace.rank[0, 0]}
    assert {"compute", "forward-send", "backward-recv", "replicas", "end of step"} <= streams
    assert not any(name[0].isdigit() for name in streams)


def test_ops_that_overlap_by_a_fault_of_clocks_end_when_the_next_one_starts(trace: Trace, tmp_path: Path) -> None:
    late = replace(trace, end_s=trace.end_s + 1e-5)
    check_viewable(written(late, [FIRST, SECOND], tmp_path), late, 2)


def test_one_op_inside_another_of_its_stream_is_shown_after_its_start(trace: Trace, tmp_path: Path) -> None:
    end_s = trace.end_s.copy()
    longest = int(np.argmax(end_s[:, 0, 0] - trace.start_s[:, 0, 0]))
    end_s[longest] += 1.0
    check_viewable(written(replace(trace, end_s=end_s), [FIRST], tmp_path), trace, 1)


def test_typical_steps_are_the_median_and_the_slowest(trace: Trace) -> None:
    order = np.argsort(trace.step_s) + FIRST_STEP
    assert typical_steps(trace) == [order[1], order[2]]
    two = trace.choose(steps=np.array([0, 2]))
    assert sorted(typical_steps(two)) == [FIRST, THIRD]
    assert typical_steps(trace.choose(steps=np.array([1]))) == [SECOND]


def test_a_step_asked_for_twice_is_written_once(trace: Trace, tmp_path: Path) -> None:
    check_viewable(written(trace, [FIRST, FIRST], tmp_path), trace, 1)


@pytest.mark.parametrize("name", ["steps.json", "steps.json.gz"])
def test_the_same_steps_give_the_same_bytes(trace: Trace, name: str, tmp_path: Path) -> None:
    content = written(trace, [FIRST], tmp_path, name)
    before = (tmp_path / name).read_bytes()
    assert written(trace, [FIRST], tmp_path, name) == content
    assert (tmp_path / name).read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize(("step", "nearest"), [(0, FIRST), (99, THIRD), (-(10**30), FIRST), (10**30, THIRD)])
def test_a_step_that_was_not_recorded_gets_the_nearest_one_named(
    trace: Trace, step: int, nearest: int, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=f"--step: step {step} was not recorded; the nearest one is {nearest}"):
        write_recorded(tmp_path / "steps.json", trace, [FIRST, step])
    assert list(tmp_path.iterdir()) == []


def test_more_ops_than_a_viewer_opens_are_refused(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    n = len(trace.ops) * trace.n_replica
    monkeypatch.setattr(perfetto_trace, "MAX_EVENTS", n)
    write_recorded(tmp_path / "one.json", trace, [FIRST])
    with pytest.raises(DataError, match=f"{2 * n:,} ops are more than a viewer opens .* Choose fewer steps"):
        write_recorded(tmp_path / "two.json", trace, [FIRST, SECOND])
    assert not (tmp_path / "two.json").exists()
