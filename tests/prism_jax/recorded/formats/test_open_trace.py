"""`open_trace`: the content decides the format, and broken files are refused by place."""

import errno
import gzip
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.trace import columns as op_columns
from prism_jax.trace.trace import JobShape, OpRow, OpTable
from tests.support.broken_traces import BROKEN, GOOD_ROW, HEADER, MEGATRON, kineto, mllog_line, straggler
from tests.support.traces import trace_at
from tests.support.training_logs import read_log

CSV = "step,dp,pp,op_type,chunk,start_s,duration_s\n" + "".join(
    f"{step},{dp},{pp},work,1,{step}.5,0.25\n" for step in (3, 4) for dp in range(2) for pp in range(3)
)


def write(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


@pytest.mark.parametrize("name", ["ops.csv", "ops.txt", "ops", "ops.csv.gz", "ops.gz"])
def test_table_is_recognised_by_its_header(tmp_path: Path, name: str):
    path = write(tmp_path / name, gzip.compress(CSV.encode()) if name.endswith(".gz") else CSV)
    trace = trace_at(path)
    assert trace.start_s.shape == (3, 2, 2)
    assert trace.job == JobShape("ops", dp=2, pp=3, virtual_stages=2)
    np.testing.assert_allclose(trace.step_s, 0.25)


@pytest.mark.parametrize("name", ["t.parquet", "t.dat", "t.csv"])
def test_parquet_is_recognised_by_its_magic_and_its_columns(tmp_path: Path, name: str):
    assert trace_at(straggler(tmp_path / name)).start_s.shape == (1, 2, 3)
    plain = pa.table({"step": [1, 2], "op_type": ["a", "a"], "start_s": [0.0, 0.0], "duration_s": [1.0, 2.0]})
    pq.write_table(plain, tmp_path / name)
    assert trace_at(tmp_path / name).step_s.tolist() == [1.0, 2.0]


def test_plain_parquet_that_lacks_a_column_is_told_about_plain_columns(tmp_path: Path):
    pq.write_table(pa.table({"step": [1], "op_type": ["a"], "start_s": [0.0]}), tmp_path / "t.parquet")
    with pytest.raises(Exception, match="the column duration_s is missing"):
        open_trace(tmp_path / "t.parquet")


@pytest.mark.parametrize("name", ["train.log", "slurm-1.out", "log.gz"])
def test_logs_are_recognised_by_their_lines(tmp_path: Path, name: str):
    before = "[2025-01-01 00:00:00] starting\n" * 5000  # more than the first bytes that are looked at
    assert read_log(tmp_path, before + MEGATRON.format(1500.0), name).step_s.tolist() == [1.5]
    entries = "".join(mllog_line("train_loss", 500 * n, 1.0, step_num=n) for n in (1, 2))
    assert read_log(tmp_path, before + entries, name).step_s.tolist() == [0.5]


def test_line_that_begins_with_a_bracket_is_not_json(tmp_path: Path):
    for first in ("[default0]: hello", "[1, 2] are the ranks", "{'lr': 0.1}", "{hello}"):
        assert len(read_log(tmp_path, first + "\n" + MEGATRON.format(2000.0))) == 1


def test_name_of_the_metadata_is_that_of_the_log(tmp_path: Path):
    meta = write(tmp_path / "m.yaml", "name: big job\n")
    assert read_log(tmp_path, MEGATRON.format(2000.0), meta=meta).name == "big job"


def test_degrees_are_those_given_then_those_beside_then_the_highest_ranks(tmp_path: Path):
    path = straggler(tmp_path / "trace-X.parquet")
    alone = trace_at(path)
    assert alone.job == JobShape("trace-X", dp=2)
    assert any("highest ranks" in note for note in alone.notes)
    write(tmp_path / "meta-X.yaml", "name: beside\ndp: 2\nsp: 4\n")
    beside = trace_at(path)
    assert beside.job == JobShape("beside", dp=2, sp=4)
    assert any("meta-X.yaml" in note for note in beside.notes)
    given = trace_at(path, meta=write(tmp_path / "mine.yaml", "name: given\ndp: 2\ntp: 8\n"))
    assert given.job == JobShape("given", dp=2, tp=8)


class FakeKineto(SimpleNamespace):
    """A stand-in that remembers what it was asked for."""

    def read_kineto(self, paths: Sequence[Path], *_: object) -> tuple[OpTable, JobShape | None]:
        self.asked = [path.name for path in paths]
        rows = [OpRow(1, dp, 0, 0, "work", -1, -1, 0.0, 1.0) for dp in range(len(paths))]
        return OpTable.from_rows(str(paths[0]), rows), self.job


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeKineto:
    module = FakeKineto(job=None, asked=[])
    monkeypatch.setitem(sys.modules, "prism_jax.profiles.kineto", module)  # pyright: ignore[reportArgumentType]
    return module


def test_kineto_files_of_a_folder_a_pattern_or_one(tmp_path: Path, fake: FakeKineto):
    names = ["rank0.json", "rank1.json.gz", "rank2.json"]
    for rank, name in enumerate(names):
        write(tmp_path / name, gzip.compress(kineto(rank)) if name.endswith(".gz") else kineto(rank))
    write(tmp_path / ".hidden.json", "{}")
    assert trace_at(tmp_path).n_replica == 3
    assert fake.asked == names
    trace_at(tmp_path / "rank*.json")
    assert fake.asked == ["rank0.json", "rank2.json"]
    trace_at(tmp_path / "rank1.json.gz")
    assert fake.asked == ["rank1.json.gz"]


def test_files_of_the_profiler_are_preferred_in_a_folder(tmp_path: Path, fake: FakeKineto):
    for name in ("config.json", "host_1.1700000000.pt.trace.json", "host_2.1700000000.pt.trace.json"):
        write(tmp_path / name, kineto())
    trace_at(tmp_path)
    assert fake.asked == ["host_1.1700000000.pt.trace.json", "host_2.1700000000.pt.trace.json"]


def test_kineto_says_its_degrees_unless_metadata_does(tmp_path: Path, fake: FakeKineto):
    fake.job = JobShape("inside", dp=1, tp=2)
    path = write(tmp_path / "rank0.json", kineto())
    assert trace_at(path).job == JobShape(tmp_path.name, dp=1, tp=2)  # a profile has no name but that of its folder
    write(tmp_path / "meta.yaml", "name: beside\n")
    assert trace_at(path).job == JobShape("beside")


def test_name_with_a_bracket_is_a_file_before_it_is_a_pattern(tmp_path: Path):
    assert trace_at(write(tmp_path / "ops[1].csv", CSV)).n_replica == 2


def test_nothing_is_imported_that_the_format_does_not_need():
    """A log needs neither pyarrow nor pandas nor JAX."""
    import subprocess

    formats = "prism_jax.recorded.formats"
    code = f"import sys, {formats}.open_trace, {formats}.text_logs, {formats}.mllog;"
    code += "print(*sorted({'jax', 'pandas', 'pyarrow', 'pydantic'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env={**os.environ})
    assert done.stdout.strip() == ""


# --- Broken files: every kind is refused by `prism-jax trace info` in test_refused; here is what cannot lie on disk ---


def test_what_the_kinds_break_is_good_before(tmp_path: Path):
    (tmp_path / "ops.csv").write_text(f"{HEADER}\n{GOOD_ROW}")
    (tmp_path / "run").mkdir()
    for rank in (0, 1):
        (tmp_path / "run" / f"rank{rank}.json").write_bytes(kineto(rank))
    for path in (straggler(tmp_path / "trace-X.parquet"), tmp_path / "ops.csv", tmp_path / "run"):
        trace_at(path)


def test_kinds_have_different_names_and_there_are_many():
    assert len({kind.name for kind in BROKEN}) == len(BROKEN) > 90


def test_more_rows_than_the_limit_are_refused_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(op_columns, "MAX_ROWS", 3)
    path = tmp_path / "ops.csv"
    path.write_text(f"{HEADER}\n" + GOOD_ROW * 4)
    with pytest.raises(DataError, match=r"ops\.csv: more than 3 rows"):
        open_trace(path)


def test_file_that_may_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Root may read everything, so the refusal is made up."""

    def refuse(path: Path, *args: object, **kwargs: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    path = tmp_path / "ops.csv"
    path.write_text(f"{HEADER}\n{GOOD_ROW}")
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(DataError, match=r"ops\.csv: cannot be read: Permission denied"):
        open_trace(path)
