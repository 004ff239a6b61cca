"""The recorded example of experiments/local_cluster, and the parts of that experiment that need no PyTorch."""

import gzip
import importlib.util
import json
import re
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.replay import replay, replay_program
from prism_jax.trace.dependencies import durations
from prism_jax.trace.pipeline import dependencies
from prism_jax.trace.trace import Trace

SOURCE = Path(__file__).resolve().parents[2] / "experiments" / "local_cluster"
SLOW_RANK = 3


def load(name: str) -> ModuleType:
    """A module of the experiment, which is a folder of scripts and no package."""
    spec = importlib.util.spec_from_file_location(f"local_cluster_{name}", SOURCE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trace(examples: Path) -> Trace:
    found = open_trace(examples / "local_cluster")
    assert isinstance(found, Trace)
    return found


def test_the_example_is_a_whole_job(trace: Trace):
    assert (trace.job.dp, trace.job.pp, trace.job.tp) == (2, 2, 1)
    assert len(trace.steps) >= 30
    assert trace.rank.tolist() == [[0, 2], [1, 3]]


def test_recorded_durations_give_the_recorded_step_times(trace: Trace):
    needs = dependencies(trace)
    run_s, gap_s = durations(trace, needs)
    program = replay_program(trace, needs)
    np.testing.assert_allclose(replay(program, run_s, gap_s), trace.step_s, rtol=1e-5)
    without_gaps = replay(program, run_s) / trace.step_s
    assert 0.9 < without_gaps.mean() <= 1.0


def test_the_slow_rank_is_slow(trace: Trace):
    run_s, _ = durations(trace, dependencies(trace))
    by_rank = {}
    for stage in range(2):
        ops = [i for i, op in enumerate(trace.ops) if op.stage == stage and op.op_type.endswith("-compute")]
        for replica in range(2):
            by_rank[int(trace.rank[replica, stage])] = run_s[ops, replica].sum(axis=0).mean()
    others = [seconds for rank, seconds in by_rank.items() if rank != SLOW_RANK]
    assert by_rank[SLOW_RANK] > 1.2 * max(others)


def test_the_example_is_small_and_names_nothing_but_ops(examples: Path):
    files = sorted((examples / "local_cluster").iterdir())
    assert [file.name for file in files] == [f"rank{rank}.json.gz" for rank in range(4)]
    assert sum(file.stat().st_size for file in files) < 300_000
    slim = load("slim")
    for file in files:
        profile = json.loads(gzip.decompress(file.read_bytes()))
        assert set(profile) == {*slim.HEAD, "distributedInfo", "traceEvents"}
        assert set(profile["distributedInfo"]) == {"backend", "rank", "world_size"}
        names = {event.pop("name") for event in profile["traceEvents"]}
        assert {re.sub(r"#\d+$| .*$", "", name) for name in names} <= {*slim.OPS, "ProfilerStep"}
        kept = {(event["ph"], event["cat"]) for event in profile["traceEvents"]}
        assert kept == {("X", "user_annotation")}
        assert {key for event in profile["traceEvents"] for key in event} == {"ph", "cat", "ts", "dur", "pid", "tid"}


def test_slimming_keeps_spans_and_their_times_only(tmp_path: Path):
    span = {"ph": "X", "cat": "user_annotation", "pid": 4711, "ts": 5.25, "dur": 1.5, "args": {"External id": 1}}
    raw = {
        "traceName": "/home/someone/raw.json",
        "host_name": "a-machine",
        "prism": {"dp": 0},
        "baseTimeNanoseconds": 17,
        "distributedInfo": {"backend": "gloo", "rank": 2, "world_size": 4, "pg_config": []},
        "traceEvents": [
            {"ph": "M", "name": "process_name", "pid": 4711, "tid": 0, "args": {"name": "python"}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4711, "tid": 4711, "ts": 5.5, "dur": 1.0},
            span | {"name": "gloo:recv", "tid": 4712},
            span | {"name": "forward-recv mb=3", "tid": 4712, "ts": 6.125},
            span | {"name": "ProfilerStep#7", "tid": 4711},
        ],
    }
    (tmp_path / "raw.json").write_text(json.dumps(raw))
    load("slim").slim(tmp_path / "raw.json", tmp_path / "slim.json.gz")
    text = gzip.decompress((tmp_path / "slim.json.gz").read_bytes()).decode()
    assert not re.search("home|machine|python|aten|gloo:|471", text)
    found = json.loads(text)
    events = [(event["name"], event["ts"], event["dur"], event["pid"], event["tid"]) for event in found["traceEvents"]]
    assert events == [("ProfilerStep#7", 5.25, 1.5, 2, 0), ("forward-recv mb=3", 6.125, 1.5, 2, 1)]
    assert found["baseTimeNanoseconds"] == 17


@pytest.mark.parametrize(("pp", "n_micro_batch"), [(1, 3), (2, 1), (2, 6), (4, 2), (4, 8)])
def test_the_schedule_is_1f1b(pp: int, n_micro_batch: int):
    job = load("job").Job(pp=pp, n_micro_batch=n_micro_batch)
    for stage in range(pp):
        order, ahead = job.schedule(stage), 0
        for way in ("forward", "backward"):
            assert [mb for name, mb in order if name == way] == list(range(n_micro_batch))
        for name, _ in order:
            ahead += 1 if name == "forward" else -1
            assert 0 <= ahead <= min(pp - stage, n_micro_batch)


def test_uneven_lengths_are_repeatable_and_have_the_stated_mean():
    module = load("job")
    job, other = module.Job(sigma=0.3, seed=1), module.Job(sigma=0.3, seed=2)
    cells = [(step, replica, mb) for step in range(100) for replica in range(2) for mb in range(6)]
    lengths = [job.length(*cell) for cell in cells]
    assert lengths == [job.length(*cell) for cell in cells]
    assert lengths != [other.length(*cell) for cell in cells]
    assert np.mean(lengths) == pytest.approx(job.n_token, rel=0.03)
    assert {module.Job().length(*cell) for cell in cells} == {128}


def test_kernels_of_the_halves_of_a_run_join_to_those_of_the_run():
    found = open_trace(SOURCE.parent / "kernel_pools" / "recording", kernels=True)
    assert isinstance(found, Trace)
    assert found.kernels is not None
    steps = np.arange(len(found.steps))
    joined = load("kernels").joined_kernels([found.choose(steps=steps[:20]), found.choose(steps=steps[20:])])
    assert joined.seconds.shape == found.kernels.seconds.shape
    for op in np.unique(found.kernels.op):
        ours, theirs = (np.nansum(one.seconds[one.op == op], axis=0) for one in (joined, found.kernels))
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
