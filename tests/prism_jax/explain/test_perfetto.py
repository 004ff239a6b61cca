"""Traces are valid Chrome trace events, say what the timelines say, and stay of a size that a viewer opens."""

import gzip
import json
from itertools import pairwise
from pathlib import Path

import jax
import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.core.kernels import COMPUTE_CLASSES
from prism_jax.explain import perfetto
from prism_jax.explain.explain import timelines
from prism_jax.explain.types import Timeline
from prism_jax.job.job import Job
from prism_jax.job.load_job import load_job
from prism_jax.plan.plan import device_layout
from prism_jax.simulate.inputs import KnownGpus
from prism_jax.simulate.predict import predict
from prism_jax.simulate.program import lower


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
        check(event)


FIELDS = {  # phases of the format: fields that it demands on top of ph, pid, tid and name
    "X": {"ts", "dur"},
    "M": {"args"},
    "C": {"ts", "args"},
    "i": {"ts", "s"},
}


def check(event: dict) -> None:
    """Asserts what "Trace Event Format" demands of an event."""
    assert set(event) >= FIELDS[event["ph"]]
    assert isinstance(event["pid"], int)
    assert isinstance(event["tid"], int)
    assert isinstance(event["name"], str)
    if event["ph"] == "X":
        assert event["ts"] >= 0
        assert event["dur"] > 0
    if event["ph"] == "C":
        assert all(value >= 0 for value in event["args"].values())
    if event["ph"] == "i":
        assert event["s"] in {"g", "p", "t"}
    assert event.get("ts", 0) >= 0


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
    assert content["otherData"]["cut"] == "only the first 5 ops of every lane are shown"


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


JOBS = {
    "1f1b": {"plan.pp": 4, "plan.dp": 2, "plan.tp": 1, "plan.schedule": "1f1b"},
    "interleaved": {"plan.pp": 2, "plan.dp": 4, "plan.schedule": "interleaved", "plan.virtual_stages": 2},
    "zb_h1": {"plan.pp": 4, "plan.dp": 2, "plan.schedule": "zb_h1"},
    "gpipe": {"plan.pp": 2, "plan.dp": 4, "plan.schedule": "gpipe"},
}
SMALL = """\
model: {n_layers: 4, hidden: 512, n_heads: 8, ffn_hidden: 2048, vocab: 1000}
cluster: {preset: dgx-a100, n_devices: 8}
plan: {micro_batch: 1, global_batch: 32, seq_len: 512, dp: 8}
variability: a100-default
"""


@pytest.fixture(scope="module", params=list(JOBS))
def traced(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Job, list[Timeline], dict]:
    """A job, its timelines with GPU 1 of the node measured at 1.3, and the content of the file."""
    file = tmp_path_factory.mktemp("traced") / "job.yaml"
    file.write_text(SMALL)
    job = load_job(file, [f"{name}={value}" for name, value in JOBS[request.param].items()])
    key, factor = jax.random.key(0), np.full((len(COMPUTE_CLASSES), 8), np.nan)
    factor[:, 1] = 1.3
    known = KnownGpus(factor)
    found = predict(job, key=key, n_samples=64, known=known)
    lines = timelines(lower(job), found, key, known, ["gpu-node-09"])
    return job, lines, perfetto.trace(lines, "a job")


def test_every_event_of_a_job_has_what_the_format_demands(traced):
    for event in traced[2]["traceEvents"]:
        check(event)


def test_slices_of_every_stage_sum_to_the_step(traced):
    job, lines, content = traced
    inner = {"compute", "exposed communication"}
    for process, line in enumerate(lines):
        for stage in range(job.plan.pp):
            own = [one for one in slices(content, pid=process, tid=stage) if one["cat"] not in inner]
            assert sum(one["dur"] for one in own) == pytest.approx(1e6 * line.step_s, rel=1e-5)
            assert all(a["ts"] + a["dur"] <= b["ts"] + 2e-3 for a, b in pairwise(own))


def test_memory_returns_to_the_start_and_reaches_the_peak_of_the_memory_model(traced):
    job, lines, content = traced
    for process in range(len(lines)):
        for stage, model in enumerate(job.memory.stages):
            counts = [
                one["args"] for one in content["traceEvents"]
                if one["ph"] == "C" and (one["pid"], one["tid"]) == (process, stage)
            ]  # fmt: skip
            held = [one["activations"] for one in counts]
            assert held[0] == held[-1] == 0.0
            assert min(held) >= 0.0
            # 2%: the model counts chunks in flight as many times each, the trace those that are
            assert max(held) == pytest.approx(model.activations_bytes / 2**30, rel=0.02)
            whole = max(sum(one.values()) for one in counts)
            assert whole == pytest.approx(model.total_bytes / 2**30, rel=0.002)


def test_arguments_tell_pass_micro_batch_and_mean(traced):
    job, _, content = traced
    ops = slices(content, cat="op", pid=0)
    assert {one["args"]["stage"] for one in ops} == set(range(job.plan.pp))
    n_forward = sum("forward" in one["args"]["pass"] for one in ops)
    assert n_forward == job.plan.n_micro_batch * job.plan.pp * job.plan.virtual_stages
    assert {one["args"]["micro_batch"] for one in ops} == {str(n) for n in range(job.plan.n_micro_batch)}
    by_stage = [[one for one in ops if one["tid"] == stage] for stage in range(job.plan.pp)]
    for own in by_stage:
        mean_s = sum(one["args"]["mean_seconds"] for one in own)
        assert mean_s == pytest.approx(sum(one["args"]["seconds"] for one in own), rel=0.5)
        assert all(0.0 <= one["args"]["waiting_share"] < 1.0 for one in own)


def test_the_measured_slow_gpu_is_marked_by_name_where_it_works(traced):
    job, _, content = traced
    marks = [one for one in content["traceEvents"] if one["ph"] == "i" and one["pid"] == 0]
    named = [one for one in marks if one["args"]["gpu"] == "gpu-node-09 GPU 1"]
    (mark,) = named
    assert mark["cat"] == "slow GPU"
    assert mark["args"]["slowdown"] == pytest.approx(1.3)
    layout = device_layout(job.plan)
    assert mark["tid"] == int(np.argwhere(layout == 1)[0][1])
    name = next(one["args"]["name"] for one in content["traceEvents"]
                if one["name"] == "thread_name" and (one["pid"], one["tid"]) == (0, mark["tid"]))  # fmt: skip
    assert name == f"stage {mark['tid']}, slow GPU: gpu-node-09 GPU 1 +30.0%"
    of_it = slices(content, cat="op", pid=0, tid=mark["tid"])
    assert {one["args"]["gpu"] for one in of_it} == {"gpu-node-09 GPU 1"}
    assert max(one["args"]["gpu_slowdown"] for one in of_it) == pytest.approx(1.3)
