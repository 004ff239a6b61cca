"""Every example file of profiles: ranks, seconds by class and steps against counts that are made in another way.

The independent counts: SQL for Nsight Systems, pandas for nsys-jax, `jax.profiler.ProfileData` for XPlane, raw JSON for Kineto.
"""

import gzip
import io
import json
import re
import sqlite3
import zipfile
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import prism_jax
from prism_jax.recorded.describe_trace import export_trace
from prism_jax.recorded.report import TraceInfoReport
from prism_jax.recorded.trace_facts import StepDraws
from prism_jax.trace.trace import Trace

FORMATS = Path(__file__).resolve().parents[4] / "shared" / "data" / "formats"
pytestmark = pytest.mark.skipif(not FORMATS.is_dir(), reason="no shared data")
Sums = dict[tuple[int, str], list[float]]


def coarse(name: str) -> str:
    """Communication by kind, copies, products of matrices by words of these files alone; the rest."""
    lower = name.lower()
    for kind, words in (
        ("all_reduce", "all-?reduce"),
        ("all_gather", "all-?gather"),
        ("reduce_scatter", "reduce-?scatter"),
    ):
        if re.match(f"(nccl\\w*_)?{words}", lower):
            return kind
    if lower.startswith("nccl"):
        return "broadcast" if "broadcast" in lower else "send_recv"
    if "memcpy" in lower or "memset" in lower or "rocclr_copy" in lower:
        return "copy"
    return "work"


def add(sums: Sums, rank: int, name: str, seconds: float) -> None:
    found = sums.setdefault((rank, coarse(name)), [0, 0.0])
    found[0] += 1
    found[1] += seconds


def xplane() -> Sums:
    from jax.profiler import ProfileData

    sums: Sums = {}
    for plane in ProfileData.from_file(str(FORMATS / "jax" / "tw003.xplane.pb")).planes:
        if plane.name.startswith("/device:GPU:"):
            for event in (event for line in plane.lines for event in line.events):
                add(sums, int(plane.name.rpartition(":")[2]), event.name, event.duration_ns * 1e-9)
    return sums


def nsight() -> Sums:
    sums: Sums = {}
    file = FORMATS / "nsight" / "h100_2gpu_1s.sqlite"
    with closing(sqlite3.connect(f"file:{file}?mode=ro&immutable=1", uri=True)) as database:
        kernels = "SELECT deviceId, 'work', count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1"
        copies = " UNION ALL ".join(
            f"SELECT deviceId, 'memcpy', count(*), sum(end - start) FROM CUPTI_ACTIVITY_KIND_{table} GROUP BY 1"
            for table in ("MEMCPY", "MEMSET")
        )
        for rank, name, n, nanoseconds in database.execute(f"{kernels} UNION ALL {copies}"):
            found = sums.setdefault((rank, coarse(name)), [0, 0.0])
            found[0] += n
            found[1] += nanoseconds * 1e-9
    return sums


def nsys_jax() -> Sums:
    sums: Sums = {}
    for rank in range(4):
        with zipfile.ZipFile(FORMATS / "nsight" / f"pax_fsdp4_4proc_proc{rank}.zip") as archive:
            table = pq.read_table(io.BytesIO(archive.read("nvtx_gpu_proj_trace/trace.parquet"))).to_pandas()
        thunks = table[table.Name.fillna("").str.startswith("TSL:Thunk:")]
        around = set(thunks.RangeStack.str.split(":").map(lambda parts: parts[1:-1]).explode())
        own = thunks[~thunks.RangeId.astype("int64").astype(str).isin(around)]
        for name, nanoseconds in zip(
            own.Name.str.extract(r"hlo_op=([^#]*)")[0], own["Projected Duration"], strict=True
        ):
            add(sums, rank, name, nanoseconds * 1e-9)
    return sums


def kineto(*names: str) -> Callable[[], Sums]:
    def count() -> Sums:
        sums: Sums = {}
        for rank, name in enumerate(names):
            with gzip.open(FORMATS / name) as file:
                found = json.load(file)
            for event in found["traceEvents"]:
                if event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset"):
                    add(sums, rank, event["name"], event["dur"] * 1e-6)
        return sums

    return count


CASES = {
    "XPlane": ("jax/tw003.xplane.pb", xplane, 8, None),
    "Nsight": ("nsight/h100_2gpu_1s.sqlite", nsight, 2, None),
    "nsys-jax": ("nsight/pax_fsdp4_4proc_proc*.zip", nsys_jax, 4, list(range(5))),
    "AMD": (
        "kineto/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
        kineto("kineto/mi250_minitoy_train_ROCm6_2_kineto.json.gz"),
        1,
        [1],
    ),
    "NCCL": ("kineto/nccl_data.json.gz", kineto("kineto/nccl_data.json.gz"), 1, [4, 5, 6]),
    "sampled": (
        "kineto/sampled_rank-*.json.gz",
        kineto("kineto/sampled_rank-0.json.gz", "kineto/sampled_rank-1.json.gz"),
        2,
        [551, 552],
    ),
    "linear": ("et/linear_kineto.json.gz", kineto("et/linear_kineto.json.gz"), 1, None),
    "ResNet-50": ("et/resnet_kineto.json.gz", kineto("et/resnet_kineto.json.gz"), 1, None),
}


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[Trace, Callable[[], Sums], int, list[int] | None]:
    path, count, n_rank, steps = CASES[request.param]
    trace = prism_jax.open_trace(FORMATS / path)
    assert isinstance(trace, Trace)
    return trace, count, n_rank, steps


def test_seconds_of_every_rank_and_class_are_those_of_an_independent_count(case):
    trace, count, n_rank, _ = case
    found: Sums = {}
    for one in trace.busy:
        kind = (
            one.kernel_class
            if one.kernel_class == "copy" or "_" in one.kernel_class or one.kernel_class == "broadcast"
            else "work"
        )
        sums = found.setdefault((one.rank, kind), [0, 0.0])
        sums[0] += one.n
        sums[1] += one.seconds
    expected = count()
    assert {rank for rank, _ in expected} == set(range(n_rank))
    assert found.keys() == expected.keys()
    for key, (n, seconds) in expected.items():
        assert found[key][0] == n
        assert found[key][1] == pytest.approx(seconds, rel=1e-9)


def test_ranks_and_steps_are_those_that_the_file_marks(case):
    trace, _, n_rank, steps = case
    assert trace.rank.size == n_rank
    if steps is None:
        assert trace.steps.tolist() == [0]
        assert any("whole recording is taken as one step" in note for note in trace.notes)
    else:
        assert trace.steps.tolist() == steps


def test_seconds_in_steps_are_a_part_of_all(case):
    trace = case[0]
    assert all(0.0 <= one.in_steps_s <= one.seconds * (1 + 1e-12) for one in trace.busy)
    if Counter(one.rank for one in trace.busy) and len(trace.steps) == 1 and trace.steps[0] == 0:
        assert all(one.in_steps_s == pytest.approx(one.seconds, rel=1e-9) for one in trace.busy)


def test_all_commands_answer_on_every_file(case, tmp_path):
    trace = case[0]
    info = prism_jax.describe_trace(trace)
    assert isinstance(info, TraceInfoReport)
    assert info.info.busy == trace.busy
    assert type(info).from_dict(info.to_dict()) == info
    export_trace(trace, tmp_path / "steps.json")
    assert prism_jax.predict_trace(trace, draws=StepDraws(n_draw=200)).steps_s.p50 > 0.0
    assert prism_jax.what_if(trace, draws=StepDraws(n_draw=200)).slowdown > 0.0
