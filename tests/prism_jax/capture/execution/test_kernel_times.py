"""Kernels of a profile of one GPU, found again in a captured program by name and shapes."""

import json
from pathlib import Path
from typing import Any

import pytest

import prism_jax as pj
from prism_jax.capture.execution.kernel_times import read_kernel_times
from prism_jax.core.errors import DataError, PrismError
from prism_jax.cost.compute import op_seconds
from prism_jax.job.load_job import load_job
from prism_jax.workload.captured.kernel_times import with_times
from prism_jax.workload.captured.program import CapturedOp, RankClass, RankProgram
from tests.support.files.execution_traces import KERNEL_US, profile_text, trace_text

CONV = ["[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"]


def _profile(folder: Path, *ops: tuple[str, list[Any], list[str], float, list[str]]) -> Path:
    """Operators with name, sizes and types of their inputs, microseconds and what is no tensor."""
    events: list[dict[str, Any]] = []
    for at, (name, dims, types, length, concrete) in enumerate(ops):
        now = 100.0 * at
        args = {"Input Dims": dims, "Input type": types, "Concrete Inputs": concrete}
        own = {"ph": "X", "pid": 1, "tid": 1}
        events.append({**own, "cat": "cpu_op", "name": name, "ts": now, "dur": 50.0, "args": args})
        events.append(
            {**own, "cat": "cuda_runtime", "name": "launch", "ts": now + 1, "dur": 1.0, "args": {"correlation": at}}
        )
        events.append({**own, "cat": "kernel", "name": "k", "ts": now + 9, "dur": length, "args": {"correlation": at}})
    file = folder / "profile.json"
    file.write_text(json.dumps({"deviceProperties": [{"name": "A GPU"}], "traceEvents": events}))
    return file


def _program(*rows: CapturedOp) -> RankProgram:
    return RankProgram("made", 1, {}, (RankClass("all", 1, 0, rows),), 1, 1)


def test_operators_are_found_by_their_shapes(tmp_path: Path) -> None:
    file = _profile(
        tmp_path,
        ("aten::addmm", [[16], [4, 8], [8, 16], [], []], ["float"] * 3 + ["Scalar"] * 2, 30.0, []),
        ("aten::relu", [[4, 16]], ["float"], 3.0, []),
        ("aten::relu", [[4, 16]], ["float"], 5.0, []),
        ("aten::sum", [[4, 16], []], ["float", "Scalar"], 7.0, []),
        ("aten::cat", [[], []], ["TensorList", "Scalar"], 9.0, []),
        (
            "aten::convolution",
            [[2, 3, 224, 224], [64, 3, 7, 7], [], *[[]] * 6],
            ["float"] * 2 + [""] * 7,
            80.0,
            ["", "", "", *CONV],
        ),
        (
            "aten::convolution_backward",
            [[2, 64, 112, 112], [2, 3, 224, 224], [64, 3, 7, 7], []],
            ["float"] * 3 + ["Scalar"],
            100.0,
            ["", "", "", "[False, True, False]"],
        ),
    )
    implicit = (1, 2 * 112 * 112, 64, 3 * 49)
    rows = (
        CapturedOp("aten::linear", "gemm", "F", "tf32", (1, 4, 16, 8), 1024.0, 900.0),
        CapturedOp("aten::mm", "gemm", "B", "fp32", (1, 16, 4, 8), 1024.0, 900.0),  # m and n change sides
        CapturedOp("aten::relu", "memory", "F", "fp32", (4, 16), 0.0, 512.0, output_bytes=256.0),
        CapturedOp("aten::sum", "memory", "F", "fp32", (16,), 0.0, 320.0, output_bytes=64.0),
        CapturedOp("aten::cat", "memory", "F", "fp32", (99,), 0.0, 800.0),
        CapturedOp("aten::cudnn_convolution", "conv", "F", "fp32", implicit, 1e9, 1e6),
        CapturedOp("aten::convolution_backward", "conv", "B", "fp32", (1, 64, 147, 2 * 112 * 112), 1e9, 1e6),
    )
    found = with_times(_program(*rows), read_kernel_times(file))
    assert found.covered == 1.0
    seconds = [row.seconds for row in found.program.classes[0].rows if isinstance(row, CapturedOp)]
    assert seconds == pytest.approx([3e-5, 3e-5, 4e-6, 7e-6, 9e-6, 8e-5, 1e-4])


def test_other_shapes_names_and_formats_are_not_found(tmp_path: Path) -> None:
    file = _profile(
        tmp_path,
        ("aten::mm", [[4, 8], [8, 16]], ["c10::BFloat16"] * 2, 10.0, []),
        ("aten::mul", [[4, 16]], ["float"], 2.0, []),
    )
    rows = (
        CapturedOp("aten::mm", "gemm", "F", "bf16", (1, 4, 16, 8), 1024.0, 900.0),
        CapturedOp("aten::mm", "gemm", "F", "fp32", (1, 4, 16, 8), 1024.0, 900.0),
        CapturedOp("aten::mm", "gemm", "F", "bf16", (1, 4, 16, 9), 1024.0, 900.0),
        CapturedOp("aten::add", "memory", "F", "fp32", (4, 16), 0.0, 512.0),
        CapturedOp("aten::mul", "memory", "F", "fp32", (400, 16), 0.0, 51200.0),
    )
    found = with_times(_program(*rows), read_kernel_times(file))
    seconds = [row.seconds for row in found.program.classes[0].rows if isinstance(row, CapturedOp)]
    assert seconds == pytest.approx([1e-5, None, None, None, None])
    assert sum(found.missing.values()) == pytest.approx(1.0 - found.covered)
    assert set(found.missing) == {"aten::mm", "aten::add", "aten::mul"}
    assert "aten::mm" in found.program.assumptions[-1]


def test_nothing_corrects_measured_kernels(tmp_path: Path) -> None:
    (tmp_path / "et.json").write_text(trace_text())
    (tmp_path / "kineto.json").write_text(profile_text())
    job = load_job(tmp_path, ["cluster=dgx-h100"])
    kernels = job.model.block(job.model.layout[0].kind, job.plan).kernels
    found = op_seconds(kernels, job.cluster.device, job.plan.dtype, job.efficiency)
    gap_s = job.efficiency.launch_s
    assert found == pytest.approx([1e-6 * KERNEL_US[name] + gap_s for name in ("aten::addmm", "aten::mm")], rel=1e-12)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (profile_text(), r"profile\.json: a profile without shapes .*record_shapes=True"),
        ('{"traceEvents": []}', r"profile\.json: a profile without kernels"),
        (trace_text(), r"profile\.json: no profile of PyTorch"),
    ],
)
def test_profiles_that_do_not_serve_are_refused(text: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "profile.json").write_text(text)
    with pytest.raises(DataError, match=match):
        read_kernel_times(tmp_path / "profile.json")
    (tmp_path / "et.json").write_text(trace_text())
    with pytest.raises(PrismError, match=r"profile\.json"):
        pj.check_job(tmp_path / "et.json", overrides=["cluster=dgx-h100", f"model.kernels={tmp_path / 'profile.json'}"])
