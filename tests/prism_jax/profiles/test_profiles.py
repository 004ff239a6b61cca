"""Profiles of the PyTorch profiler: ranks, steps, gloo, and every kind of bad file."""

import gzip
import json
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.profiles import events as kineto_events, file as kineto_file
from prism_jax.profiles.kineto import read_kineto
from prism_jax.trace.assemble import assemble
from prism_jax.trace.trace import JobShape
from tests.support.kineto_profiles import bare, kernel, profile, span, step, write

RECORDED = Path(__file__).parents[2] / "data" / "kineto_gloo"


def test_compute_fills_the_step_around_communication(tmp_path):
    """Overlapping collectives leave a compute op of length zero, so that every step has the same ops."""
    files = []
    for rank in range(2):
        events = []
        for n in range(3):
            at = 1000.0 * n
            events += [step(n, at, 990), span("cpu_op", "c10d::allreduce_", at + 90, 5)]
            second = 150 if n == 1 else 450
            events.append(span("user_annotation", "gloo:all_reduce", at + 100, 200, tid=5))
            events.append(span("user_annotation", "gloo:all_reduce", at + second, 200, tid=6))
        files.append(profile(events, rank))
    table, job = read_kineto(write(tmp_path, files))
    assert job == JobShape("PyTorch profile", dp=2)
    trace = assemble(table, job)
    assert trace.steps.tolist() == [0, 1, 2]
    kinds = [op.op_type for op in trace.ops]
    assert kinds.count("compute") == 3
    assert kinds.count("all_reduce") == 2
    compute = (trace.end_s - trace.start_s)[[k == "compute" for k in kinds], 0, :]
    np.testing.assert_allclose(np.sort(compute, axis=0)[:, 0] * 1e6, [100, 150, 340], atol=1e-3)
    np.testing.assert_allclose(np.sort(compute, axis=0)[:, 1] * 1e6, [0, 100, 640], atol=1e-3)


def test_calls_stand_in_where_gloo_recorded_nothing(tmp_path):
    files = [profile([step(1, 0, 100), span("cpu_op", "c10d::allreduce_", 40, 20)], rank) for rank in range(2)]
    table, _ = read_kineto(write(tmp_path, files))
    assert set(table.op_types) == {"compute", "all_reduce"}
    assert sorted(np.round(table.duration_s * 1e6).tolist()) == [20, 20, 40, 40, 40, 40]


def test_a_recorded_job_of_two_processes():
    table, job = read_kineto([RECORDED / "rank0.json.gz", RECORDED / "rank1.json.gz"])
    assert job == JobShape("PyTorch profile", dp=2)
    trace = assemble(table, job)
    assert trace.steps.tolist() == [2, 3, 4, 5]
    assert sorted(op.op_type for op in trace.ops) == ["all_reduce", "barrier", "compute", "compute", "compute"]
    assert table.clock_error_s < 1e-3  # one host, one clock
    assert (trace.step_s > 1e-4).all()
    assert (trace.step_s < 1.0).all()


def events(*numbers: int) -> list:
    return [step(n, 100 * n, 100) for n in numbers]


def test_the_file_name_may_say_the_rank(tmp_path):
    for name, rank in (("trace_rank12.json", 12), ("Rank-3.json", 3), ("rank_4.pt.trace.json", 4), ("rank.7.json", 7)):
        path = tmp_path / name
        path.write_text(json.dumps(profile(events(1), None)))
        assert read_kineto([path])[0].rank.tolist() == [rank]


def test_a_single_file_without_a_rank_is_rank_0_unless_it_is_said(tmp_path):
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(profile(events(1), None)))
    table, _ = read_kineto([path])
    assert set(table.rank.tolist()) == {0}
    assert any("rank 0 is assumed (--rank says another)" in note for note in table.notes)
    table, _ = read_kineto([path], 5)
    assert set(table.rank.tolist()) == {5}
    assert not any("assumed" in note for note in table.notes)


def test_files_without_a_rank_are_numbered_by_their_names_or_refused(tmp_path):
    paths = [tmp_path / f"host_{index}.pt.trace.json" for index in (1, 0, 2)]
    for path in paths:
        path.write_text(json.dumps(profile(events(1), None)))
    table, _ = read_kineto(paths)
    assert set(table.rank.tolist()) == {0, 1, 2}
    with pytest.raises(DataError, match="no distributedInfo.rank. Name the file by its rank, as in trace_rank3"):
        read_kineto(paths[::2])
    with pytest.raises(DataError, match="--rank 1: it says the rank of one file, and there are 3"):
        read_kineto(paths, 1)


@pytest.mark.parametrize("launches", [True, False])
def test_a_recording_without_steps_is_one_step_from_its_first_span_to_its_last(tmp_path, launches):
    made = [span("kernel", "gemm", 100.0 + 50 * n, 40.0, tid=7, correlation=n, stream=7) for n in range(4)]
    if launches:
        made += [span("cuda_runtime", "cudaLaunchKernel", 10.0 + 5 * n, 4.0, correlation=n) for n in range(4)]
    (path,) = write(tmp_path, [profile(made, 0, world=1)])
    table, job = read_kineto([path])
    trace = assemble(table, job)
    np.testing.assert_allclose(trace.step_s * 1e6, [190.0], rtol=1e-6)  # of the ops: from 100 to 290 us
    assert any("the whole recording is taken as one step" in note for note in table.notes)


def test_operators_of_the_host_alone_are_one_step(tmp_path):
    made = [span("cpu_op", "aten::mm", 10.0 * n, 9.0) for n in range(5)]
    table, _ = read_kineto(write(tmp_path, [profile(made)]))
    np.testing.assert_allclose(table.duration_s * 1e6, [49.0], rtol=1e-6)


def test_steps_that_old_versions_write_as_operators(tmp_path):
    made = [span("Operator", f"ProfilerStep#{n}", 100.0 * n, 90.0) for n in range(3)]
    table, _ = read_kineto(write(tmp_path, [profile(made)]))
    assert table.step.tolist() == [0, 1, 2]


def test_a_rank_twice_is_an_error(tmp_path):
    with pytest.raises(DataError, match="rank 0 again"):
        read_kineto(write(tmp_path, [profile(events(1), 0)] * 2))


def test_steps_that_a_rank_lacks_are_left_out_and_counted(tmp_path):
    files = [profile(events(1, 2, 3), 0), profile(events(2, 3, 4), 1)]
    table, _ = read_kineto(write(tmp_path, files))
    assert set(table.step.tolist()) == {2, 3}
    assert "2 of 4 steps were not recorded on every rank" in table.notes


def test_no_common_step_is_an_error(tmp_path):
    with pytest.raises(DataError, match="no step was recorded on every rank .rank 0: 1-1, rank 1: 2-2"):
        read_kineto(write(tmp_path, [profile(events(1), 0), profile(events(2), 1)]))


@pytest.mark.parametrize(
    ("events", "message"),
    [
        ([step(1, 0, 10), step(1, 20, 10)], "ProfilerStep#1 is there twice"),
        ([step(1, 0, 30), step(2, 20, 10)], "steps overlap"),
    ],
)
def test_steps_that_cannot_be_told_apart_are_refused(tmp_path, events, message):
    with pytest.raises(DataError, match=message):
        read_kineto(write(tmp_path, [profile(events)]))


def test_ranks_read_in_different_ways_are_refused(tmp_path):
    gpu = [step(1, 0, 1000), *kernel(100, "gemm", 1)]
    with pytest.raises(DataError, match="rank 1 has to be read from gloo's collectives, but rank 0 from GPU kernels"):
        read_kineto(write(tmp_path, [profile(gpu, 0), profile([step(1, 0, 1000)], 1)]))


def test_no_file_is_an_error():
    with pytest.raises(DataError, match="no profile was given"):
        read_kineto([])


def read(tmp_path, text: str | bytes) -> None:
    path = tmp_path / "rank0.json"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    read_kineto([path])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not JSON after event 0"),
        ("{}", 'no "traceEvents"'),
        ("[]", 'no "traceEvents"'),
        ('{"traceEvents": {"a": 1}}', 'no "traceEvents"'),
        ("hello", "not JSON after event 0"),
        (b'{"\xff": 1}', "not JSON after event 0.*UTF8"),
        ('{"traceEvents": [{"ph": "i"}, {"ph": "X", ', "not JSON after event 1 .near byte .* cut off"),
        ('{"traceEvents": [{"ph": "i"}]} x', "not JSON after event 1"),
        ("[" * 100_000, "nested more than 64 deep"),
        ('{"traceEvents": [{"a": ' + "[" * 100_000, "nested more than 64 deep in event 1"),
        ('{"a": ' + "9" * 3000 + "}", "a number of more than 2,000 digits"),
        ('{"a": -' + "9" * 5000 + "}", "a number of more than 2,000 digits"),
        (" " * (2**18 - 2500) + '{"a": ' + "9" * 5000 + "}", "a number of more than 2,000 digits"),
        ('{"a": 1e' + "9" * 30 + "}", "not JSON after event 0"),
    ],
)
def test_what_is_no_profile_is_said_with_its_place(tmp_path, text, message):
    with pytest.raises(DataError, match=rf"rank0.json: {message}"):
        read(tmp_path, text)


@pytest.mark.parametrize("field", ["ts", "dur"])
@pytest.mark.parametrize("value", ["null", '"12"', "true", "1e400", "1e99999999", "[]", "-1e999", "9" * 400])
def test_times_must_be_finite_numbers(tmp_path, field, value):
    event = step(1, 0, 10)
    text = json.dumps({"traceEvents": [{"ph": "i"}, {**event, field: "HERE"}]}).replace('"HERE"', value)
    with pytest.raises(DataError, match=rf"rank0.json: event 2 {field}: .* is not a finite number of microseconds"):
        read(tmp_path, text)


def test_a_duration_is_not_negative(tmp_path):
    with pytest.raises(DataError, match="event 1 dur: -1 is not a finite number of microseconds, 0 or more"):
        read(tmp_path, json.dumps({"traceEvents": [step(1, 0, -1)]}))


def test_events_that_are_not_used_may_hold_anything(tmp_path):
    odd = [1, None, "text", [1, [2]], {}, {"ph": "X"}, {"ph": "X", "cat": ["kernel"]}, {"ph": "X", "cat": 5}]
    odd += [{"ph": "X", "cat": "python_function", "ts": "x", "args": {"Comms Id": 2**64 - 1, "deep": [[[]]]}}]
    read(tmp_path, json.dumps({"traceEvents": [*odd, step(1, 0, 10)], "more": {"x": [1]}}))


def test_odd_streams_and_links_do_no_harm(tmp_path):
    args = {"stream": 2**70, "correlation": "7", "Collective name": 5, "Group size": -3, "Process Group Ranks": ["x"]}
    events = [step(1, 0, 1000), *kernel(10, "gemm", 1), {**span("kernel", "ncclX", 20, 5), "args": args}]
    events.append({**span("kernel", "gemm", 20, 5), "args": 7})
    assert len(read_kineto([bare(tmp_path, events)])[0]) == 1  # what nobody launched belongs to no step


def test_a_base_time_must_be_a_whole_number(tmp_path):
    with pytest.raises(DataError, match="baseTimeNanoseconds: 1.5 is not a whole number"):
        read(tmp_path, json.dumps({"baseTimeNanoseconds": 1.5, "traceEvents": [step(1, 0, 10)]}))


def test_truncated_gzip_is_said(tmp_path):
    path = tmp_path / "rank0.json.gz"
    noise = [span("cpu_op", f"{n * 7919 % 1000}", n, 1) for n in range(2000)]
    path.write_bytes(gzip.compress(json.dumps({"traceEvents": noise}).encode())[:-2000])
    with pytest.raises(DataError, match="ends too early"):
        read_kineto([path])


def test_a_missing_file_is_said(tmp_path):
    with pytest.raises(DataError, match="absent.json: cannot be read"):
        read_kineto([tmp_path / "absent.json"])


def test_sizes_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(kineto_file, "MAX_EVENT_BYTES", 2**20)
    monkeypatch.setattr(kineto_file, "MAX_BYTES", 2**22)
    long = '{"traceEvents": [{"ph": "X", "name": "' + "x" * 2**21 + '"}]}'
    with pytest.raises(DataError, match="no event ends between bytes 0 and"):
        read(tmp_path, long)
    with pytest.raises(DataError, match="unpacked. Record fewer steps"):
        read(tmp_path, '{"traceEvents": [' + '{"ph": "X"},' * 2**19)
    monkeypatch.setattr(kineto_events, "MAX_SPANS", 3)
    with pytest.raises(DataError, match="more than 3 kernels"):
        read(tmp_path, json.dumps({"traceEvents": [step(n, 10 * n, 5) for n in range(4)]}))
    monkeypatch.setattr(kineto_events, "MAX_NAMES", 2)
    ops = [span("user_annotation", f"optimizer mb={n}", 10 * n, 5) for n in range(3)]
    with pytest.raises(DataError, match="more than 2 different annotated ops"):
        read(tmp_path, json.dumps({"traceEvents": ops}))
