"""Traces are valid Chrome trace events, say what the timelines say, and stay of a size that a viewer opens."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.explain import perfetto
from prism_jax.explain.types import Timeline


def timeline(title: str = "median step", n_level: int = 4, n_lane: int = 2) -> Timeline:
    """Lanes that run an op per level, one second each, the last 0.25 s of it communication; lane 1 idles first."""
    start = np.tile(np.arange(float(n_level))[:, None], (1, n_lane))
    label = np.tile((np.arange(n_level) % 2)[:, None], (1, n_lane)).astype(np.int32)
    label[0, 1:] = -1
    end = start + 1.0
    return Timeline(
        title=title,
        start_s=start,
        end_s=end,
        compute_s=np.full(start.shape, 0.75),
        label=label,
        labels=("F0 c0", "B0 c0"),
        end_of_lane_s=end[-1] + 0.5,
        step_s=n_level + 0.5,
    )


def slices(content: dict, **where: object) -> list[dict]:
    return [e for e in content["traceEvents"] if e["ph"] == "X" and all(e[k] == v for k, v in where.items())]


def test_every_event_has_what_the_format_demands():
    for event in perfetto.trace([timeline(), timeline("p99 step")], "a job")["traceEvents"]:
        assert event["ph"] in {"X", "M"}
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        assert isinstance(event["name"], str)
        if event["ph"] == "X":
            assert event["ts"] >= 0
            assert event["dur"] > 0


def test_one_process_per_timeline_and_one_thread_per_lane():
    content = perfetto.trace([timeline(), timeline("p99 step")], "a job")
    names = {e["pid"]: e["args"]["name"] for e in content["traceEvents"] if e["name"] == "process_name"}
    assert names == {0: "a job: median step, 4.5 s, slowest replica", 1: "a job: p99 step, 4.5 s, slowest replica"}
    threads = {(e["pid"], e["tid"]) for e in content["traceEvents"] if e["name"] == "thread_name"}
    assert threads == {(0, 0), (0, 1), (1, 0), (1, 1)}


def test_ops_are_placed_in_microseconds_and_idle_cells_are_not_drawn():
    content = perfetto.trace([timeline()], "a job")
    assert [(e["name"], e["ts"], e["dur"]) for e in slices(content, cat="op", tid=1)] == [
        ("B0 c0", 1e6, 1e6),
        ("F0 c0", 2e6, 1e6),
        ("B0 c0", 3e6, 1e6),
    ]


def test_compute_and_communication_fill_their_op():
    content = perfetto.trace([timeline()], "a job")
    compute, communication = (slices(content, cat=c, tid=0) for c in ("compute", "exposed communication"))
    assert [(e["ts"], e["dur"]) for e in compute] == [(i * 1e6, 0.75e6) for i in range(4)]
    assert [(e["ts"], e["dur"]) for e in communication] == [(i * 1e6 + 0.75e6, 0.25e6) for i in range(4)]


def test_the_end_of_the_step_follows_the_last_op():
    end = slices(perfetto.trace([timeline()], "a job"), tid=0)[-1]
    assert (end["name"], end["ts"], end["dur"]) == ("optimizer and parameter exchange", 4e6, 0.5e6)


def test_slices_of_a_lane_nest_whatever_the_rounding():
    rng = np.random.default_rng(0)
    end = np.cumsum(rng.exponential(1e-3, (200, 1)), axis=0)
    start = np.concatenate([np.zeros((1, 1)), end[:-1]])
    compute = (end - start) * rng.random((200, 1))
    label = np.zeros((200, 1), np.int32)
    line = Timeline("t", start, end, compute, label, ("F0",), end[-1], float(end[-1, 0]))
    content = perfetto.trace([line], "a job")
    ops = slices(content, cat="op")
    for before, after in pairwise(ops):
        assert round(before["ts"] + before["dur"], 3) <= after["ts"]
    for inner in slices(content, cat="compute") + slices(content, cat="exposed communication"):
        assert any(
            o["ts"] <= inner["ts"] and round(inner["ts"] + inner["dur"], 3) <= round(o["ts"] + o["dur"], 3) for o in ops
        )


def test_a_long_step_is_cut_and_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(perfetto, "MAX_EVENTS", 60)
    content = perfetto.trace([timeline(n_level=100)], "a job")
    assert len(slices(content)) <= 60
    assert content["otherData"]["cut"] == "only the first 10 ops of every lane are shown"


@pytest.mark.parametrize("name", ["step.json", "step.json.gz"])
def test_the_file_is_json_and_gzipped_if_its_name_says_so(tmp_path: Path, name: str):
    path = tmp_path / name
    perfetto.write_trace(path, [timeline()], "a job")
    data = path.read_bytes()
    content = json.loads(gzip.decompress(data) if name.endswith(".gz") else data)
    assert content == perfetto.trace([timeline()], "a job")
    perfetto.write_trace(path, [timeline()], "a job")
    assert path.read_bytes() == data


def test_a_missing_folder_is_named(tmp_path: Path):
    with pytest.raises(DataError, match="absent"):
        perfetto.write_trace(tmp_path / "absent" / "step.json", [timeline()], "a job")
