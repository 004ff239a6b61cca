"""Readers of profiles on made-up files: steps, ranks, classes and waits that are known, and files that must be refused."""

import io
import json
import pickle
import sqlite3
import time
import zipfile
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import prism_jax
from prism_jax.core.errors import DataError
from prism_jax.profiles import nsight as nsight_reader, nsys_jax as nsys_jax_reader, xplane as xplane_reader
from prism_jax.profiles.names import kernel_class
from prism_jax.profiles.step_marks import StepMarks
from prism_jax.trace.trace import Trace
from tests.support.files.profiles import (
    N_STEP,
    Plane,
    flight_recorder,
    nsight,
    nsys_jax,
    part,
    ranges_table,
    steps,
    whole,
    xplane,
)


def opened(path: Path | str) -> Trace:
    trace = prism_jax.open_trace(path)
    assert isinstance(trace, Trace)
    return trace


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def seconds(trace: Trace) -> dict[tuple[int, str], float]:
    return {(one.rank, one.kernel_class): one.seconds for one in trace.busy}


def expected(*, ranks: int = 2) -> dict[tuple[int, str], float]:
    """The work that the made-up files hold."""
    found = {}
    for rank in range(ranks):
        own = {"gemm": 300_000, "memory": 50_000, "all_reduce": 200_000 + 1000 * rank}
        found |= {(rank, name): N_STEP * length * 1e-9 for name, length in own.items()}
    return found


def test_xplane_has_a_rank_per_device_and_the_steps_that_were_annotated(tmp_path):
    trace = opened(written(tmp_path / "host.xplane.pb", xplane()))
    assert trace.steps.tolist() == [n for n, _ in steps()]
    assert trace.rank.tolist() == [[0], [1]]
    assert seconds(trace) == pytest.approx(expected(), rel=1e-12)
    assert {op.op_type for op in trace.ops} == {"compute", "all_reduce"}
    assert all(op.group for op in trace.ops if op.op_type == "all_reduce")  # where the ranks wait for each other


def test_xplane_is_known_by_its_content_and_packed(tmp_path):
    import gzip

    assert len(opened(written(tmp_path / "profile.pb.gz", gzip.compress(xplane()))).steps) == N_STEP


def test_xplane_without_annotations_is_one_step_and_says_so(tmp_path):
    trace = opened(written(tmp_path / "host.xplane.pb", xplane(marked=False)))
    assert len(trace.steps) == 1
    assert any("the whole recording is taken as one step" in note for note in trace.notes)
    assert seconds(trace) == pytest.approx(expected(), rel=1e-12)


def test_operations_inside_another_are_counted_once(tmp_path):
    plane = Plane("/device:TPU:0")
    plane.line("XLA Modules", [("jit_step", 0, 1000, {})])
    ops: list[tuple[str, int, int, dict[str, int]]] = [("%while.1 = f32[] while()", 0, 900, {})]
    ops += [("%fusion.2", 0, 300, {}), ("%dot.3", 400, 400, {}), ("%all-reduce.4", 900, 50, {})]
    plane.line("XLA Ops", ops)
    plane.line("Steps", [("5", 0, 1000, {})])
    trace = opened(written(tmp_path / "host.xplane.pb", part(1, plane.content())))
    assert trace.steps.tolist() == [5]
    assert sum(one.seconds for one in trace.busy) == pytest.approx(750e-9)


def test_xplane_recorded_on_a_cpu_has_the_steps_that_were_annotated(tmp_path):
    import jax
    import jax.numpy as jnp

    step, x = jax.jit(lambda x: jnp.tanh(x @ x).sum()), jnp.ones((256, 256))
    step(x).block_until_ready()
    annotated = []
    with jax.profiler.trace(str(tmp_path)):
        for number in (3, 4, 8):
            start = time.perf_counter()
            with jax.profiler.StepTraceAnnotation("train", step_num=number):
                step(x).block_until_ready()
            annotated.append(time.perf_counter() - start)
    (file,) = tmp_path.rglob("*.xplane.pb")
    trace = opened(file)
    assert trace.steps.tolist() == [3, 4, 8]
    assert (trace.step_s <= annotated).all()  # work lies inside the steps
    assert (trace.step_s > 0).all()


@pytest.mark.parametrize(("content", "match"), [
    (b"\n\x20\x12\x09/host:CPU", "not a whole XPlane file"),
    (part(1, part(2, "/host:CPU")), "no kernels"),
    (part(1, part(2, "/device:GPU:0") + part(3, part(2, "Stream #1") + part(4, b"\x08\x80"))), "not a whole XPlane file"),
    (part(1, part(2, "/host:CPU") + whole(1, 2**63) + b"\x0c"), "not a whole XPlane file"),
])  # fmt: skip
def test_damaged_xplane_is_refused(tmp_path, content, match):
    with pytest.raises(DataError, match=match):
        opened(written(tmp_path / "host.xplane.pb", content))


def test_xplane_of_more_events_or_names_than_are_kept_is_refused(tmp_path, monkeypatch):
    file = written(tmp_path / "host.xplane.pb", xplane())
    for name, match in (
        ("MAX_KEPT", "more than 3 kernels"),
        ("MAX_NAMES", "3 names"),
        ("MAX_BYTES", "larger than 3 bytes"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(xplane_reader, name, 3)
            with pytest.raises(DataError, match=match):
                opened(file)


@pytest.mark.parametrize("by_process", [False, True])
def test_nsight_has_a_rank_per_device_or_per_process_of_one_device(tmp_path, by_process):
    trace = opened(nsight(tmp_path / "run.sqlite", by_process=by_process))
    assert trace.steps.tolist() == [n for n, _ in steps()]
    assert trace.rank.tolist() == [[0], [1]]
    copies = {(rank, "copy"): N_STEP * 10_000e-9 for rank in (0, 1)}
    assert seconds(trace) == pytest.approx({**expected(), **copies}, rel=1e-12)


def test_ranges_that_name_no_step_leave_the_whole_recording(tmp_path):
    trace = opened(nsight(tmp_path / "run.sqlite", [("aten::mm, op_id = 3", 0, 10**9), ("step", 0, 10**9)]))
    assert len(trace.steps) == 1
    assert any("the whole recording is taken as one step" in note for note in trace.notes)


def test_a_view_in_the_place_of_a_table_is_not_read(tmp_path):
    file = nsight(tmp_path / "run.sqlite")
    with closing(sqlite3.connect(file)) as database, database:
        database.executescript(
            "ALTER TABLE CUPTI_ACTIVITY_KIND_KERNEL RENAME TO kept;"
            "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
            "SELECT x AS start, x + 1 AS end, 0 AS deviceId, 7 AS streamId, 1 AS globalPid, 1 AS demangledName FROM n;"
        )
    with pytest.raises(DataError, match="no table CUPTI_ACTIVITY_KIND_KERNEL"):
        opened(file)


def test_columns_that_are_computed_are_not_read(tmp_path):
    with closing(sqlite3.connect(tmp_path / "run.sqlite")) as database, database:
        columns = "deviceId INTEGER, globalPid INTEGER, start INTEGER AS (length(hex(zeroblob(400000))))"
        database.execute(f"CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL ({columns})")
    with pytest.raises(DataError, match="CUPTI_ACTIVITY_KIND_KERNEL has no column start"):
        opened(tmp_path / "run.sqlite")


@pytest.mark.parametrize("limit", ["MAX_ROWS", "MAX_NAMES"])
def test_an_export_with_too_much_is_refused(tmp_path, monkeypatch, limit):
    monkeypatch.setattr(nsight_reader, limit, 2)
    with pytest.raises(DataError, match="run.sqlite.*more than 2 "):
        opened(nsight(tmp_path / "run.sqlite"))


def test_a_corrupt_page_is_one_message(tmp_path):
    content = bytearray(nsight(tmp_path / "run.sqlite").read_bytes())
    content[4096 : 4096 * 3] = b"\xff" * 8192
    with pytest.raises(DataError, match="run.sqlite: not a whole SQLite export"):
        opened(written(tmp_path / "run.sqlite", bytes(content)))


def test_the_recording_of_nsight_itself_is_refused_with_the_command(tmp_path):
    with pytest.raises(DataError, match="nsys export --type sqlite 'my report.nsys-rep'"):
        opened(written(tmp_path / "my report.nsys-rep", b"\x01\x02" * 100))


def test_nsys_jax_takes_the_runs_of_the_longest_program_as_steps(tmp_path):
    for rank in range(2):
        written(tmp_path / f"run_proc{rank}.zip", nsys_jax())
    trace = opened(tmp_path)
    assert trace.rank.tolist() == [[0], [1]]
    assert trace.steps.tolist() == list(range(N_STEP))
    own = {"gemm": 300_000, "memory": 50_000, "all_reduce": 200_000}
    assert seconds(trace) == pytest.approx(
        {(rank, name): N_STEP * length * 1e-9 for rank in (0, 1) for name, length in own.items()}, rel=1e-9
    )
    assert any("3 runs of jit_step (program 4)" in note for note in trace.notes)


def test_a_member_that_unpacks_to_more_than_its_bound_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(nsys_jax_reader, "MAX_MEMBER", 2**20)
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("nvtx_gpu_proj_trace/trace.parquet", bytes(2**24))
    with pytest.raises(DataError, match="unpacks to more than 1 MiB"):
        opened(written(tmp_path / "bomb.zip", file.getvalue()))


@pytest.mark.parametrize(("table", "match"), [
    (b"PAR1", "not a whole parquet file"),
    (ranges_table([]), "bomb|column"),
])  # fmt: skip
def test_damaged_tables_in_an_archive_are_refused(tmp_path, table, match):
    with pytest.raises(DataError, match=match):
        opened(written(tmp_path / "bomb.zip", nsys_jax(table)))


def test_an_archive_without_operations_is_refused(tmp_path):
    table = pq.read_table(io.BytesIO(ranges_table())).slice(0, 1)
    file = io.BytesIO()
    pq.write_table(pa.table(table), file)
    with pytest.raises(DataError, match="no operations"):
        opened(written(tmp_path / "run.zip", nsys_jax(file.getvalue())))


def test_a_zip_of_something_else_is_refused_as_before(tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("a.txt", "a")
    with pytest.raises(DataError, match="packed with zip. Unpack it"):
        opened(written(tmp_path / "run.zip", file.getvalue()))


def test_the_flight_recorder_says_who_waits_for_whom(tmp_path):
    for rank, late in ((0, 0), (1, 300_000)):
        written(tmp_path / f"nccl_trace_rank_{rank}.json", json.dumps(flight_recorder(rank, late)).encode())
    trace = opened(tmp_path)
    assert trace.rank.tolist() == [[0], [1]]
    collective = [op for op, found in enumerate(trace.ops) if found.group]
    assert len(collective) == 6
    lasts = (trace.end_s - trace.start_s)[collective][..., 0]
    np.testing.assert_allclose(lasts[:, 0], 500e-6, rtol=1e-6)
    np.testing.assert_allclose(lasts[:, 1], 200e-6, rtol=1e-6)
    assert seconds(trace)[0, "all_reduce"] == pytest.approx(3 * 500e-6)
    assert seconds(trace)[1, "all_gather"] == pytest.approx(3 * 200e-6)


def test_collectives_that_did_not_complete_are_said(tmp_path):
    found = flight_recorder(0)
    found["entries"][-1] |= {"state": "started", "time_discovered_completed_ns": None}
    trace = opened(written(tmp_path / "nccl_trace_rank_0.json", json.dumps(found).encode()))
    assert any(
        "1 collectives had not completed" in note and "nccl:all_reduce (started)" in note for note in trace.notes
    )


def test_a_pickle_of_the_flight_recorder_is_never_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (exec, (f"open({str(tmp_path / 'ran')!r}, 'w').close()",))

    content = pickle.dumps({"pg_config": Trap(), "entries": []}, protocol=2)
    with pytest.raises(DataError, match="as a pickle, which is never loaded.*as JSON"):
        opened(written(tmp_path / "nccl_trace_rank_0", content))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("name", "number"), [
    ("ProfilerStep#12", 12), ("TSL:train#step_num=12#", 12), ("step 12", 12), ("iteration_12", 12), ("train_step: 12", 12),
    ("Iter[12]", 12), ("global_step=12", 12),
])  # fmt: skip
def test_ranges_that_mark_steps(name, number):
    marks = StepMarks("made")
    marks.add(name, 0.0, 5.0)
    assert [one.number for one in marks.steps()[0]] == [number]


@pytest.mark.parametrize(
    "name", ["step", "optimizer.step", "aten::mm, op_id = 12", "forward 12", "step twelve", "Optimizer.step#Adam.step"]
)
def test_ranges_that_mark_nothing(name):
    marks = StepMarks("made")
    marks.add(name, 0.0, 5.0)
    assert marks.steps() == ([], "")


def test_numbers_that_repeat_are_counted_anew_and_inner_ranges_left_out():
    marks = StepMarks("made")
    for start in (0.0, 10.0, 20.0):
        marks.add("step 1", start, 8.0)
        marks.add("iteration 0", start + 1, 2.0)
        marks.add("step 3", start + 2, 1.0)
    assert [(one.number, one.start_us) for one in marks.steps()[0]] == [(0, 0.0), (1, 10.0), (2, 20.0)]


@pytest.mark.parametrize(("name", "expected"), [
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_tn", "gemm"),
    ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64", "gemm"),
    ("nvjet_tst_128x256_64x4_2x1_v_bz_coopA_NNT", "gemm"),
    ("gemm_fusion_dot.571", "gemm"),
    ("void fbgemm_gpu::permute_2D_data_kernel<false, int>(int, int const*)", "memory"),
    ("flash_fwd_kernel", "attention"),
    ("void cutlass_cudnn_infer::Kernel<cutlass_tensorop_s1688fprop_optimized_tf32>(int)", "convolution"),
    ("input_convert_reduce_fusion", "memory"),
    ("Memcpy HtoD (Pageable -> Device)", "copy"),
    ("__amd_rocclr_copyBuffer.kd", "copy"),
    ("custom-call.5", "other"),
])  # fmt: skip
def test_classes_of_kernels(name, expected):
    assert kernel_class(name) == expected
    assert kernel_class(expected) == expected
