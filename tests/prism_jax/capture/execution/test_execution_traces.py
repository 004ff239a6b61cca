"""PyTorch execution traces as captured programs, and hostile ones."""

import gzip
import io
import json
import tarfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import prism_jax as pj
from prism_jax.capture.execution.ops import item_bytes
from prism_jax.capture.execution.program import TracedJob, read_traces
from prism_jax.core.errors import DataError, PrismError
from prism_jax.workload.captured.files import read_capture, write_capture
from prism_jax.workload.captured.program import CapturedOp
from tests.support.files.execution_traces import (
    GEMM_FLOPS,
    GRADIENT_BYTES,
    KERNEL_US,
    VERSIONS,
    profile_text,
    program,
    trace_text,
    written,
)


def _read(folder: Path, text: str, *profiles: str) -> TracedJob:
    folder.mkdir(exist_ok=True)
    (folder / "et.json").write_text(text)
    for number, one in enumerate(profiles):
        (folder / f"profile{number}.json").write_text(one)
    return read_traces(folder)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_the_same_program(version: str, tmp_path: Path) -> None:
    expected = _read(tmp_path / "a", trace_text()).program
    found = _read(tmp_path / "b", trace_text(version, groups=version.startswith("1.1"))).program
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
    one = _read(tmp_path, trace_text()).program.classes[0]
    ((comm, _),), ((forward, _), (backward, _), _) = one.comms, one.ops
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
    assert read_capture(tmp_path / "a.capture.gz").assumptions == program.assumptions


@pytest.mark.parametrize(
    ("name", "n_bytes"),
    [("Float", 4), ("BFloat16", 2), ("Long", 8), ("c10::Half", 2), ("Byte", 1), ("Float8_e4m3fn", 1), ("?", 7)],
)
def test_bytes_of_an_element_follow_from_the_name_that_pytorch_gives_its_type(name: str, n_bytes: int) -> None:
    """Collectives state elements and such a name where they state no tensor."""
    assert item_bytes(name, 7) == n_bytes


# --- Hostile traces --------------------------------------------------------------------------------------------------
# Execution traces that contradict themselves or were made to hurt: one error each, which names the file and the
# place.


LATEST = "1.1.1-chakra.0.0.4"


def _with(change: Callable[[dict[str, Any], dict[int, dict[str, Any]]], object]) -> bytes:
    """The valid trace after a change of its JSON or of its nodes (by number)."""
    whole = written(program(), LATEST)
    change(whole, {node["id"]: node for node in whole["nodes"]})
    return json.dumps(whole).encode()


def _inputs(number: int, **fields: Any) -> bytes:
    return _with(lambda _, nodes: nodes[number]["inputs"].update(fields))


def _shape(*sizes: Any) -> bytes:
    return _inputs(10, shapes=[list(sizes), [4, 16]])


_TEXT = trace_text()
HOSTILE: dict[str, tuple[bytes, str]] = {
    "callers in a circle": (_with(lambda _, n: (n[6].update(ctrl_deps=8), n[8].update(ctrl_deps=6))), r"node 6: .* in a circle"),
    "a circle of three": (
        _with(lambda _, n: (n[6].update(ctrl_deps=8), n[7].update(ctrl_deps=6), n[8].update(ctrl_deps=7))),
        r"node \d+: nodes \d+ and \d+ call each other in a circle",
    ),
    "a caller that is not there": (_with(lambda _, n: n[8].update(ctrl_deps=99)), r"node 8: 99 is called its caller"),
    "a number twice": (_with(lambda _, n: n[8].update(id=7)), r"node 8 id: 7 is the number of another node"),
    "a negative size": (_shape(-4, 4), r"node 10 inputs: size -4 of a tensor"),
    "a size that is a fraction": (_shape(2.5, 4), r"node 10 inputs: size 2\.5 of a tensor"),
    "a size that is no number": (_TEXT.replace("[8, 4]", "[NaN, 4]").encode(), r"node 10 inputs: size nan of a tensor"),
    "an endless size": (_TEXT.replace("[8, 4]", "[1e999, 4]").encode(), r"node 10 inputs: size inf of a tensor"),
    "huge shapes": (_inputs(10, shapes=[[2**39, 2**39], [2**39, 2**39]]), r"node 10 \(aten::mm\): .*flops"),
    "a shape of 100 sizes": (_shape(*[1] * 100), r"node 10 inputs: .* is not the shape"),
    "an infinite number": (_TEXT.replace('"id": 10,', '"id": Infinity,').encode(), r"node 10 id: inf is not a whole number"),
    "a number of 5,000 digits": (_TEXT.replace('"id": 10,', f'"id": {"9" * 5000},').encode(), r"node \d+: not JSON"),
    "values without shapes": (_inputs(10, shapes=[]), r"node 10 inputs: 2 values, 0 shapes and 2 types"),
    "a tensor that is a text": (_inputs(10, values=["x", "y"]), r"node 10 inputs: 'x' is not a tensor"),
    "a group that is not listed": (_TEXT.replace('["0", "default_pg"]', '["5", "mesh_tp"]').encode(), r"node 14 .* group '5'"),
    "groups that are no list": (_inputs(4, values=['{"a": 1}']), r"node 4 .* is no list of"),
    "groups that are not JSON": (_inputs(4, values=["[{"]), r"node 4 .* is not JSON"),
    "a group of -2 ranks": (_TEXT.replace('\\"group_size\\": 2', '\\"group_size\\": -2').encode(), r"node 4 .* group_size: -2"),
    "another schema": (_with(lambda whole, _: whole.update(schema="7.2.0")), r"schema '7\.2\.0' of execution traces"),
    "a schema that is a list": (_with(lambda whole, _: whole.update(schema=[1])), r"schema \[1\] of execution traces"),
    "a file that is cut": (_TEXT[: len(_TEXT) // 2].encode(), r"node \d+: (not JSON|it ends too early)"),
    "nodes that are numbers": (b'{"schema": "1.0.1", "nodes": [1, 2]}', r"node 1: 1 is no node"),
    "no nodes": (b'{"schema": "1.0.1", "nodes": []}', r"an execution trace without nodes"),
    "nodes that are nested 1e6 deep": (b'{"schema": "1.0.1", "nodes": ' + b"[" * 10**6, r"node 1: nested too deeply"),
    "a node nested 1e6 deep": (b'{"nodes": [' + b'{"a": ' * 10**6, r"node 1: nested too deeply"),
    "a node without an end": (b'{"nodes": [{"name": "' + b"x" * 9_000_000, r"node 1: no node ends within"),
    "a key twice": (_TEXT.replace('"id": 10,', '"id": 10, "id": 11,').encode(), r"same key twice"),
    "something behind the end": (_TEXT.encode() + b"[]", r"'\[' stands behind the end"),
    "no operator": (_with(lambda _, n: [node.update(name="x") for node in n.values()]), r"no node is work of a device"),
    "half of a gzip file": (gzip.compress(_TEXT.encode())[:-20], r"ends too early"),
    "no trace": (b'{"a": 1}', r"no execution trace|traceEvents"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_traces_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    content, match = HOSTILE[kind]
    (tmp_path / "et.json").write_bytes(content)
    with pytest.raises(DataError, match=match) as caught:
        read_traces(tmp_path / "et.json")
    assert "et.json" in str(caught.value)


@pytest.mark.parametrize("kind", list(HOSTILE)[::4])
def test_commands_refuse_them_too(kind: str, tmp_path: Path) -> None:
    (tmp_path / "et.json").write_bytes(HOSTILE[kind][0])
    with pytest.raises(PrismError, match=r"et\.json"):
        pj.describe_trace(tmp_path / "et.json")
    with pytest.raises(PrismError, match=r"et\.json"):
        pj.check_job(tmp_path / "et.json", overrides=["cluster=dgx-h100"])


@pytest.mark.parametrize(
    ("old", "new", "match"),
    [
        ('"dur": 30.0', '"dur": -1', r"event \d+ dur"),
        ('"dur": 30.0', '"dur": Infinity', r"event \d+ dur"),
        ('"ts": 1000.0', '"ts": "x"', r"event \d+ ts"),
        ('"traceEvents"', '"Events"', r'no "traceEvents"'),
    ],
)
def test_hostile_profiles_are_refused_by_name(old: str, new: str, match: str, tmp_path: Path) -> None:
    (tmp_path / "et.json").write_text(trace_text())
    (tmp_path / "profile.json").write_text(profile_text().replace(old, new))
    with pytest.raises(DataError, match=rf"profile\.json.*{match}"):
        read_traces(tmp_path)


def test_memory_is_that_of_the_largest_node(tmp_path: Path) -> None:
    node = json.dumps(written(program(), LATEST)["nodes"][1])[:-1] + ', "x": "' + "y" * 100_000 + '"}'
    with gzip.open(tmp_path / "et.json.gz", "wt", compresslevel=1) as file:
        file.write('{"schema": "1.1.1-chakra.0.0.4", "nodes": [')
        file.write(",".join(node.replace('"id": 2', f'"id": {n + 2}') for n in range(400)))
        file.write("]}")
    tracemalloc.start()
    with pytest.raises(DataError, match="unpacks to more than|no node is work"):
        read_traces(tmp_path / "et.json.gz")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6  # of 40 MB
