"""Tables of recorded ops: names become numbers, and impossible numbers are refused with their row."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.trace.trace import NONE, JobShape, OpRow, OpTable

ROWS = [
    OpRow(7, 0, 0, 0, "forward-compute", 0, 0, 1.0, 0.5),
    OpRow(7, 1, 0, 0, "all-reduce", NONE, NONE, 2.0, 0.25, "comm", "step 7", rank=3),
]


def test_rows_become_columns() -> None:
    table = OpTable.from_rows("ops.csv", ROWS, clock_error_s=1e-3, notes=("a note",))
    assert len(table) == 2
    assert [table.op_types[i] for i in table.op_type] == ["forward-compute", "all-reduce"]
    assert [table.streams[i] for i in table.stream] == ["", "comm"]
    assert table.group.tolist() == [NONE, table.groups.index("step 7")]
    assert (table.rank.tolist(), table.dp.tolist()) == ([NONE, 3], [0, 1])
    assert (table.clock_error_s, table.notes) == (1e-3, ("a note",))
    np.testing.assert_array_equal(table.duration_s, [0.5, 0.25])


@pytest.mark.parametrize(
    ("field", "value"),
    [("duration_s", -0.1), ("duration_s", np.nan), ("duration_s", 1e9), ("start_s", np.inf), ("dp", -1), ("tp", 2e6),
     ("step", -1), ("chunk", -2), ("rank", -2)],
)  # fmt: skip
def test_impossible_number_names_row_and_field(field: str, value: float) -> None:
    rows = [ROWS[0], ROWS[1]._replace(**{field: value})]
    with pytest.raises(DataError, match=f"ops.csv: row 2 {field}: .* is not between"):
        OpTable.from_rows("ops.csv", rows)


def test_no_rows_are_an_error() -> None:
    with pytest.raises(DataError, match="ops.csv: no recorded ops"):
        OpTable.from_rows("ops.csv", [])


def test_world_size_is_the_product_of_the_degrees() -> None:
    assert JobShape("j", dp=3, pp=4, tp=2, sp=5, virtual_stages=7).world_size == 120
