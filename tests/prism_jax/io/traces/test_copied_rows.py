"""A plain trace in which rows stand twice is the trace in which they stand once."""

from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.recorded.formats.open_trace import open_trace
from prism_jax.trace.trace import Trace

HEADER = "step,dp,op_type,start_s,duration_s"
ROWS = [
    f"{step},{dp},{op},{step + k},{0.5 + 0.01 * dp + 0.001 * step}"
    for step in range(4)
    for dp in range(2)
    for k, op in enumerate(("forward-compute", "backward-compute"))
]


def trace_of(folder: Path, rows: list[str]) -> Trace:
    file = folder / "ops.csv"
    file.write_text("\n".join([HEADER, *rows]))
    found = open_trace(file)
    assert isinstance(found, Trace)
    return found


@pytest.mark.parametrize("order", ["behind", "beside", "some"])
def test_copied_rows_count_once_and_are_told(tmp_path: Path, order: str) -> None:
    again = {"behind": ROWS + ROWS, "beside": [row for row in ROWS for _ in "ab"], "some": ROWS + ROWS[3:5]}[order]
    once, twice = trace_of(tmp_path, ROWS), trace_of(tmp_path, again)
    assert np.array_equal(once.step_s, twice.step_s)
    n = len(again) - len(ROWS)
    assert [note for note in twice.notes if note not in once.notes] == [
        f"{n} of {len(again)} rows are the same as one before and left out"
    ]


def test_ops_that_take_no_time_may_be_the_same(tmp_path: Path) -> None:
    marks = [f"{step},{dp},mark,{step},0" for step in range(4) for dp in range(2)]
    assert not any("the same as one before" in note for note in trace_of(tmp_path, ROWS + marks + marks).notes)


@pytest.mark.parametrize(("field", "kind"), [(0, "a whole number"), (3, "a number")])
@pytest.mark.parametrize("text", ["1_0", "١"])
def test_numbers_are_digits_of_ascii(tmp_path: Path, field: int, kind: str, text: str) -> None:
    fields = ROWS[0].split(",")
    fields[field] = text
    with pytest.raises(
        DataError, match=rf"ops\.csv:{len(ROWS) + 2} {HEADER.split(',')[field]}: '{text}' is not {kind}"
    ):
        trace_of(tmp_path, [*ROWS, ",".join(fields)])
