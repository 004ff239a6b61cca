"""The plain table: round trips in every ending, defaults, copied rows, and the places that mistakes name."""

from dataclasses import fields
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats import plain_table
from prism_jax.recorded.formats.plain_table import read_plain_csv, read_plain_parquet, read_straggler_parquet
from prism_jax.trace import columns as csv_columns
from prism_jax.trace.trace import OpRow, OpTable, Trace
from tests.support.traces import measured, trace_at

ENDINGS = ("csv", "csv.gz", "parquet")
RANKS = st.integers(0, 5)
NAMES = st.sampled_from(["forward-compute", 'ncclKernel<"a", 2>', "attention, fused", "größte", "x"])
ROWS = st.builds(
    OpRow,
    step=st.integers(0, 2**53),
    dp=RANKS,
    pp=RANKS,
    tp=RANKS,
    op_type=NAMES,
    micro_batch=st.integers(-1, 9),
    chunk=st.integers(-1, 3),
    start_s=st.floats(-1e12, 1e12),
    duration_s=st.floats(0.0, 1e7),
    stream=st.sampled_from(["", "7", "copy"]),
    group=st.sampled_from(["", "all 0", "all 1"]),
    rank=st.integers(-1, 999_999),
)


def read(path: Path) -> OpTable:
    return read_plain_parquet(path) if path.suffix == ".parquet" else read_plain_csv(path)


def table_of(tmp_path: Path, text: str) -> OpTable:
    path = tmp_path / "ops.csv"
    path.write_bytes(text.encode())
    return read_plain_csv(path)


def assert_same(one: OpTable, other: OpTable) -> None:
    for item in fields(OpTable):
        if item.name not in ("source", "notes"):
            a, b = getattr(one, item.name), getattr(other, item.name)
            assert np.array_equal(a, b), item.name
            assert not isinstance(a, np.ndarray) or a.dtype == b.dtype, item.name


def write_plain_table(table: OpTable, path: Path) -> None:
    """Writes `table` as its ending says: `.csv`, `.csv.gz` or `.parquet`. Numbers keep every digit."""
    texts = {"op_type": table.op_types, "stream": table.streams, "group": (*table.groups, "")}  # -1: no group
    own = {name: np.asarray(getattr(table, name)) for name in (column.field for column in plain_table.COLUMNS)}
    rows = pd.DataFrame({n: np.array(texts[n], dtype=object)[v] if n in texts else v for n, v in own.items()})
    rows.to_parquet(path, index=False) if path.suffix == ".parquet" else rows.to_csv(path, index=False)


@settings(max_examples=30)
@given(rows=st.lists(ROWS, min_size=1, max_size=20), ending=st.sampled_from(ENDINGS))
def test_what_is_written_is_read_again_to_the_last_bit(tmp_path_factory, rows: list[OpRow], ending: str):
    path = tmp_path_factory.mktemp("plain") / f"ops.{ending}"
    table = OpTable.from_rows("made", rows)
    write_plain_table(table, path)
    assert_same(read(path), table)


@pytest.mark.parametrize("ending", ENDINGS)
def test_published_trace_is_the_same_after_conversion(shared_data: Path, tmp_path: Path, ending: str):
    table = read_straggler_parquet(shared_data / "traces" / "trace-ST.parquet")
    path = tmp_path / f"st.{ending}"
    write_plain_table(table, path)
    original, copy = measured(shared_data, "ST"), trace_at(path, meta=shared_data / "traces" / "meta-ST.yaml")
    np.testing.assert_array_equal(copy.start_s, original.start_s)
    np.testing.assert_array_equal(copy.end_s, original.end_s)
    assert (copy.ops, copy.job) == (original.ops, original.job)


def test_absent_columns_have_their_defaults(tmp_path: Path):
    table = table_of(tmp_path, "op_type,step,duration_s,start_s\nwork,3,0.5,1e-3\n")
    row = (table.step[0], table.dp[0], table.pp[0], table.tp[0], table.micro_batch[0], table.chunk[0], table.rank[0])
    assert row == (3, 0, 0, 0, -1, -1, -1)
    assert (table.start_s[0], table.duration_s[0]) == (1e-3, 0.5)
    assert (table.streams, table.groups, table.group[0]) == (("",), ("",), -1)


def test_empty_fields_of_optional_columns_have_the_default_too(tmp_path: Path):
    table = table_of(tmp_path, "step,op_type,start_s,duration_s,micro_batch,dp\n1,a,0,1,,\n2,a,0,1,4,0\n")
    assert table.micro_batch.tolist() == [-1, 4]
    assert table.dp.tolist() == [0, 0]


def test_spaces_blank_lines_marks_and_windows_line_ends_do_not_matter(tmp_path: Path):
    table = table_of(tmp_path, '\ufeffstep, op_type ,start_s,duration_s\r\n\r\n 1 , a ,0,1\r\n2,"b",0,1\r\n\r\n')
    assert table.step.tolist() == [1, 2]
    assert table.op_types == ("a", "b")


def test_mistakes_name_the_line_of_the_file_blank_lines_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(csv_columns, "BLOCK_ROWS", 2)
    text = "step,op_type,start_s,duration_s\n" + "1,a,0,1\n" * 5 + "\n\n" + "1,a,0,x\n"
    with pytest.raises(DataError, match=r"ops\.csv:9 duration_s: 'x' is not a number"):
        table_of(tmp_path, text)


def test_example_of_the_documentation_is_a_table(tmp_path: Path):
    assert plain_table.__doc__ is not None
    example = plain_table.__doc__.partition("Example:\n")[2]
    table = table_of(tmp_path, "\n".join(line.strip() for line in example.splitlines()))
    assert table.op_types == ("backward-compute", "forward-compute")
    for column in plain_table.COLUMNS:
        assert column.name in plain_table.__doc__


# --- A plain trace in which rows stand twice is the trace in which they stand once -----------------------------------


HEADER = "step,dp,op_type,start_s,duration_s"
COPIED_ROWS_ROWS = [
    f"{step},{dp},{op},{step + k},{0.5 + 0.01 * dp + 0.001 * step}"
    for step in range(4)
    for dp in range(2)
    for k, op in enumerate(("forward-compute", "backward-compute"))
]


def trace_of(folder: Path, rows: list[str]) -> Trace:
    file = folder / "ops.csv"
    file.write_text("\n".join([HEADER, *rows]))
    return trace_at(file)


@pytest.mark.parametrize("order", ["behind", "beside", "some"])
def test_copied_rows_count_once_and_are_told(tmp_path: Path, order: str) -> None:
    again = {
        "behind": COPIED_ROWS_ROWS + COPIED_ROWS_ROWS,
        "beside": [row for row in COPIED_ROWS_ROWS for _ in "ab"],
        "some": COPIED_ROWS_ROWS + COPIED_ROWS_ROWS[3:5],
    }[order]
    once, twice = trace_of(tmp_path, COPIED_ROWS_ROWS), trace_of(tmp_path, again)
    assert np.array_equal(once.step_s, twice.step_s)
    n = len(again) - len(COPIED_ROWS_ROWS)
    assert [note for note in twice.notes if note not in once.notes] == [
        f"{n} of {len(again)} rows are the same as one before and left out"
    ]


def test_ops_that_take_no_time_may_be_the_same(tmp_path: Path) -> None:
    marks = [f"{step},{dp},mark,{step},0" for step in range(4) for dp in range(2)]
    assert not any(
        "the same as one before" in note for note in trace_of(tmp_path, COPIED_ROWS_ROWS + marks + marks).notes
    )


@pytest.mark.parametrize(("field", "kind"), [(0, "a whole number"), (3, "a number")])
@pytest.mark.parametrize("text", ["1_0", "١"])
def test_numbers_are_digits_of_ascii(tmp_path: Path, field: int, kind: str, text: str) -> None:
    fields = COPIED_ROWS_ROWS[0].split(",")
    fields[field] = text
    with pytest.raises(
        DataError, match=rf"ops\.csv:{len(COPIED_ROWS_ROWS) + 2} {HEADER.split(',')[field]}: '{text}' is not {kind}"
    ):
        trace_of(tmp_path, [*COPIED_ROWS_ROWS, ",".join(fields)])
