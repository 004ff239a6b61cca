"""The straggler-analysis parquet: what is read, and that batches and row groups do not matter."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.recorded.formats.straggler_parquet import read_straggler_parquet
from prism_jax.trace import parquet_columns
from prism_jax.trace.columns import FileColumn, OpColumns
from prism_jax.trace.trace import Trace
from tests.support.broken_traces import straggler


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
    trace = open_trace(shared_data / "traces" / f"trace-{name}.parquet")
    assert isinstance(trace, Trace)
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
