"""The straggler-analysis parquet, and the metadata beside it."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_jax.core.errors import ConfigError, DataError
from prism_jax.recorded.formats.open_trace import find_meta, read_meta
from prism_jax.recorded.formats.plain_table import read_straggler_parquet
from prism_jax.trace import parquet_columns
from prism_jax.trace.columns import FileColumn, OpColumns
from prism_jax.trace.trace import JobShape
from tests.support.broken_traces import straggler
from tests.support.traces import measured


def test_columns_become_fields(tmp_path: Path):
    table = read_straggler_parquet(
        straggler(tmp_path / "t.parquet", mb_id=[3] * 6, mc=[1, 1, 1, -1, 1, 1], start_ts=[0.0, 1, 2, 3, 4, 5.5])
    )
    assert table.dp.tolist() == table.rank.tolist() == [0, 1] * 3
    assert table.step.tolist() == [4, 4, 5, 5, 6, 6]
    assert table.start_s.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.5]
    assert table.micro_batch.tolist() == [3] * 6
    assert table.chunk.tolist() == [1, 1, 1, -1, 1, 1]
    assert table.op_types == ("forward-compute",)
    assert table.tp.tolist() == table.pp.tolist() == [0] * 6
    assert table.group.tolist() == [-1] * 6


@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())], ids=str)
def test_names_may_have_any_text_type(tmp_path: Path, kind: pa.DataType):
    names = ["b", "a", "b", "c", "a", "b"]
    table = read_straggler_parquet(straggler(tmp_path / "t.parquet", optype=pa.array(names).cast(kind)))
    assert [table.op_types[code] for code in table.op_type] == names


@pytest.mark.parametrize(("start", "duration"), [(pa.float64(), pa.float32()), (pa.int64(), pa.float16())])
def test_times_may_have_any_number_type(tmp_path: Path, start: pa.DataType, duration: pa.DataType):
    values = {"start_ts": pa.array([2] * 6, start), "duration": pa.array(np.full(6, 0.5, np.float16)).cast(duration)}
    table = read_straggler_parquet(straggler(tmp_path / "t.parquet", **values))
    assert table.start_s.dtype == table.duration_s.dtype == np.float64
    assert (table.start_s.sum(), table.duration_s.sum()) == (12.0, 3.0)


@pytest.mark.parametrize("batch", [1, 4, 5, 100])
def test_batches_and_row_groups_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int):
    names = ["b", "a", "b", "c", "a", "b"]
    path = straggler(tmp_path / "t.parquet", optype=names)
    whole = read_straggler_parquet(path)
    pq.write_table(pq.read_table(path), path, row_group_size=4)
    monkeypatch.setattr(parquet_columns, "BATCH_ROWS", batch)
    parts = read_straggler_parquet(path)
    for field in ("step", "dp", "rank", "op_type", "start_s"):
        np.testing.assert_array_equal(getattr(parts, field), getattr(whole, field))
    assert parts.op_types == whole.op_types


def test_rows_are_counted_over_all_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(parquet_columns, "BATCH_ROWS", 2)
    path = straggler(tmp_path / "t.parquet", duration=[1.0, 1.0, 1.0, 1.0, -2.0, 1.0])
    with pytest.raises(DataError, match=r"t\.parquet: row 5 duration: -2\.0 is not between"):
        read_straggler_parquet(path)


def test_columns_that_are_not_needed_may_be_absent_or_strange(tmp_path: Path):
    path = straggler(tmp_path / "t.parquet", seq_id=None, gmc=None, comment=[["any"]] * 6)
    assert len(read_straggler_parquet(path)) == 6


@pytest.mark.parametrize(("name", "n_op", "n_replica", "n_step", "sp"), [("SE", 78, 32, 43, 2), ("ST", 106, 2, 32, 1)])
def test_published_traces_are_complete(shared_data: Path, name: str, n_op: int, n_replica: int, n_step: int, sp: int):
    trace = measured(shared_data, name)
    assert trace.start_s.shape == (n_op, n_replica, n_step)
    assert (trace.job.name, trace.job.dp, trace.job.sp) == (name, n_replica, sp)
    assert trace.n_stage == trace.job.pp
    rows = pq.read_table(shared_data / "traces" / f"trace-{name}.parquet").to_pandas()
    rows["end"] = rows.start_ts.astype(float) + rows.duration.astype(float)
    expected = rows.groupby("step").end.max() - rows.groupby("step").start_ts.min()
    np.testing.assert_allclose(trace.step_s, expected.to_numpy(), rtol=1e-6)


def test_codes_without_a_text_are_a_damaged_file(tmp_path: Path):
    """Found by damaging files at random: dictionary indices beyond the dictionary."""
    damaged = pa.DictionaryArray.from_arrays(pa.array([0, 5]), pa.array(["a"]), safe=False)
    column, path = FileColumn("optype", "op_type", "text"), tmp_path / "t.parquet"
    with pytest.raises(DataError, match=r"t\.parquet: not a whole parquet file"):
        parquet_columns._codes(damaged, column, OpColumns(str(path), [column]), path, str)


# --- Metadata of a trace: both spellings, and which file belongs to which trace --------------------------------------


PUBLISHED = (
    "trial_name: SE\nrun_id: 0\ndp_size: 32\ndsp_size: 2\npp_size: 2\ntp_size: 1\nvpp_size: 1\nworld_size: 128\n"
)


def write(path: Path, text: str = "dp: 1\n") -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_published_names_and_ours_mean_the_same(tmp_path: Path):
    expected = JobShape("SE", dp=32, pp=2, tp=1, sp=2, virtual_stages=1)
    ours = "name: SE\ndp: 32\nsp: 2\npp: 2\ntp: 1\nvirtual_stages: 1\nworld_size: 128\n"
    assert read_meta(write(tmp_path / "a.yaml", PUBLISHED)) == expected
    assert read_meta(write(tmp_path / "b.yaml", ours)) == expected


def test_what_is_absent_is_one_and_the_file_names_the_job(tmp_path: Path):
    assert read_meta(write(tmp_path / "job7.yaml", "pp: 4\n")) == JobShape("job7", pp=4)


def test_every_mistake_is_listed_with_its_line(tmp_path: Path):
    path = write(tmp_path / "m.yaml", "dp: 0\npp: two\nworld_sise: 3\nname: [a]\n")
    with pytest.raises(ConfigError) as error:
        read_meta(path)
    assert [str(mistake).split(": ")[0] for mistake in error.value.mistakes] == [
        f"{path}:3:1 world_sise",
        f"{path}:1:1 dp",
        f"{path}:2:1 pp",
        f"{path}:4:1 name",
    ]


def test_wrong_world_size_says_the_right_one(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"dp 32 x pp 2 x tp 1 x sp 2 = 128\. Write 128, or correct the degrees"):
        read_meta(write(tmp_path / "m.yaml", PUBLISHED.replace("128", "64")))


def test_absent_file_is_said(tmp_path: Path):
    with pytest.raises(DataError, match=r"no\.yaml: cannot be read: No such file"):
        read_meta(tmp_path / "no.yaml")


@pytest.mark.parametrize(
    ("trace", "files", "found"),
    [
        ("trace-SE.parquet", ["meta-SE.yaml", "meta-ST.yaml", "meta.yaml"], "meta-SE.yaml"),
        ("trace-SE.parquet", ["meta-ST.yaml"], None),
        ("trace-SE.csv.gz", ["meta-SE.yaml"], "meta-SE.yaml"),
        ("trace-SE.parquet", ["meta.yaml", "meta-ST.yaml"], "meta.yaml"),
        ("ops.csv.gz", ["ops.meta.yaml", "meta.yaml"], "ops.meta.yaml"),
        ("ops.parquet", ["meta.yaml", "meta-A.yaml", "meta-B.yaml"], "meta.yaml"),
        ("ops.parquet", ["meta-A.yaml"], "meta-A.yaml"),
        ("ops.parquet", ["job.yaml"], None),
        ("rank0.pt.trace.json", ["rank0.meta.yaml"], "rank0.meta.yaml"),
    ],
)
def test_metadata_beside_the_trace(tmp_path: Path, trace: str, files: list[str], found: str | None):
    for name in files:
        write(tmp_path / name)
    assert find_meta(tmp_path / trace) == (tmp_path / found if found else None)


def test_metadata_of_a_folder_lies_inside(tmp_path: Path):
    write(tmp_path / "meta-job.yaml")
    assert find_meta(tmp_path) == tmp_path / "meta-job.yaml"


def test_several_that_could_be_meant_are_named(tmp_path: Path):
    for name in ("meta-A.yaml", "meta-B.yaml"):
        write(tmp_path / name)
    with pytest.raises(ConfigError, match=r"meta-A\.yaml, meta-B\.yaml\? Say it with --meta"):
        find_meta(tmp_path / "ops.csv")


def test_published_metadata(shared_data: Path):
    assert read_meta(shared_data / "traces" / "meta-SE.yaml").world_size == 128
    assert read_meta(shared_data / "traces" / "meta-ST.yaml") == JobShape("ST", dp=2, pp=4)


def test_a_trace_with_a_name_as_long_as_names_may_be_has_no_metadata(tmp_path: Path):
    assert find_meta(tmp_path / f"{'x' * 251}.csv") is None
