"""Execution traces of all versions are one program; with a profile, its kernels are those of the rows."""

import gzip
import io
import tarfile
from pathlib import Path

import pytest

from prism_jax.capture.execution.ops import item_bytes
from prism_jax.capture.execution.program import TracedJob, read_traces
from prism_jax.workload.captured.files import read_capture, write_capture
from prism_jax.workload.captured.program import CapturedComm, CapturedOp
from tests.support.files.execution_traces import (
    GEMM_FLOPS,
    GRADIENT_BYTES,
    KERNEL_US,
    VERSIONS,
    profile_text,
    trace_text,
)


def _read(folder: Path, text: str, *profiles: str) -> TracedJob:
    (folder / "et.json").write_text(text)
    for number, one in enumerate(profiles):
        (folder / f"profile{number}.json").write_text(one)
    return read_traces(folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_the_same_program(version: str, tmp_path: Path) -> None:
    first, second = ((tmp_path / name) for name in ("a", "b"))
    first.mkdir()
    second.mkdir()
    expected = _read(first, trace_text()).program
    found = _read(second, trace_text(version, groups=version.startswith("1.1"))).program
    assert [row for one in found.classes for row in one.rows] == [row for one in expected.classes for row in one.rows]


def test_attributes_may_be_an_object(tmp_path: Path) -> None:
    assert _read(tmp_path, trace_text(attrs_as="object")).program.n_rows == 4


def test_the_innermost_operator_with_work_counts(tmp_path: Path) -> None:
    rows = _read(tmp_path, trace_text()).program.classes[0].rows
    assert [getattr(row, "name", "all_reduce") for row in rows] == [
        "aten::addmm",
        "aten::mm",
        "all_reduce",
        "aten::add_",
    ]
    assert [row.phase for row in rows] == ["F", "B", "B", "opt"]


def test_products_have_their_closed_form(tmp_path: Path) -> None:
    forward, backward, comm, _ = _read(tmp_path, trace_text()).program.classes[0].rows
    assert isinstance(forward, CapturedOp)
    assert isinstance(backward, CapturedOp)
    assert isinstance(comm, CapturedComm)
    assert forward.shape == (1, 4, 16, 8)
    assert backward.shape == (1, 8, 16, 4)
    assert forward.flops == backward.flops == GEMM_FLOPS
    assert (comm.collective, comm.ranks, comm.n_bytes) == ("all_reduce", 2, GRADIENT_BYTES)


def test_parameters_and_samples_are_read_off(tmp_path: Path) -> None:
    program = _read(tmp_path, trace_text()).program
    assert program.classes[0].n_parameters == 8 * 16
    assert program.samples_per_step == 4 * 2  # of both ranks of the group


def test_no_duration_comes_from_an_execution_trace(tmp_path: Path) -> None:
    assert all(row.seconds is None for row in _read(tmp_path, trace_text()).program.classes[0].rows)


@pytest.mark.parametrize("numbered", [False, True])
@pytest.mark.parametrize("extra", [(), ("only::here", "aten::t")])
def test_kernels_are_given_to_the_operators_that_started_them(
    numbered: bool, extra: tuple[str, ...], tmp_path: Path
) -> None:
    job = _read(tmp_path, trace_text(), profile_text(numbered=numbered and not extra, extra=extra))
    measured = job.ranks[0].measured
    assert measured is not None
    assert measured.kernels.same_process
    assert measured.kernels.matched == 1.0
    assert measured.kernels.kernel_s == pytest.approx(3e-6 * sum(KERNEL_US.values()), rel=1e-12)
    assert measured.kernels.communication_s == pytest.approx(3e-6 * KERNEL_US["nccl:all_reduce"], rel=1e-12)
    seconds = {row.name: row.seconds for row in job.program.classes[0].rows if isinstance(row, CapturedOp)}
    assert seconds == pytest.approx({name: 1e-6 * KERNEL_US[name] for name in seconds}, rel=1e-12)


def test_a_profile_of_another_program_is_left_out(tmp_path: Path) -> None:
    other = (
        profile_text().replace("aten::addmm", "aten::conv").replace("aten::mm", "aten::bmm").replace('"nccl:', '"x:')
    )
    job = _read(tmp_path, trace_text(), other)
    assert job.ranks[0].measured is None
    assert any("another program" in one for one in job.program.assumptions)


def test_archives_and_packed_files_are_read_in_place(tmp_path: Path) -> None:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, text in (
            ("run/et.json", trace_text()),
            ("run/kineto.json", profile_text()),
            ("run/readme.py", "no JSON"),
        ):
            member = tarfile.TarInfo(name)
            member.size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    (tmp_path / "run.tar.gz").write_bytes(file.getvalue())
    (tmp_path / "et.json.gz").write_bytes(gzip.compress(trace_text().encode()))
    packed = read_traces(tmp_path / "run.tar.gz")
    assert packed.ranks[0].measured is not None
    assert packed.program.n_rows == read_traces(tmp_path / "et.json.gz").program.n_rows == 4
    assert sorted(one.name for one in tmp_path.iterdir()) == ["et.json.gz", "run.tar.gz"]


def test_ranks_that_run_the_same_are_one_class(tmp_path: Path) -> None:
    (tmp_path / "et1.json").write_text(trace_text())
    (tmp_path / "et2.json").write_text(
        trace_text().replace("[4, 8]", "[6, 8]").replace("[4, 16]", "[6, 16]").replace("[8, 4]", "[8, 6]")
    )
    (tmp_path / "et3.json").write_text(trace_text())
    program = read_traces(tmp_path).program
    assert [one.n_ranks for one in program.classes] == [2, 1]


def test_the_program_survives_its_file(tmp_path: Path) -> None:
    program = _read(tmp_path, trace_text(), profile_text()).program
    write_capture(tmp_path / "a.capture.gz", program)
    assert read_capture(tmp_path / "a.capture.gz") == program


@pytest.mark.parametrize(
    ("name", "n_bytes"),
    [("Float", 4), ("BFloat16", 2), ("Long", 8), ("c10::Half", 2), ("Byte", 1), ("Float8_e4m3fn", 1), ("?", 7)],
)
def test_bytes_of_an_element_follow_from_the_name_that_pytorch_gives_its_type(name: str, n_bytes: int) -> None:
    """Collectives state elements and such a name where they state no tensor."""
    assert item_bytes(name, 7) == n_bytes
