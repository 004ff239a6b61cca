"""Memory tables: counts are whole and can be simulated, and a row counts once."""

from pathlib import Path

import pytest

from experiments.step_tables.memory_table import read_memory_table
from prism_jax.core.errors import DataError

ROW = {
    "status": "Success", "model": "tiny 1B", "layers": "16", "hidden": "2048", "heads": "16", "ffn": "8192", "vocab": "131072",
    "seq_len": "4096", "tp": "1", "pp": "1", "dp": "8", "zero_stage": "0", "micro_batch": "1", "peak_mem_reserved_gb": "20",
}  # fmt: skip


def read(folder: Path, *changes: dict[str, str]):
    rows = [ROW | change for change in changes]
    columns = list(rows[0])
    file = folder / "rows.csv"
    file.write_text("\n".join([",".join(columns), *(",".join(row[name] for name in columns) for row in rows)]))
    return read_memory_table(file)


@pytest.mark.parametrize("spelling", ["8", "8.0", "8e0", " 8 "])
def test_whole_numbers_may_be_spelled_as_floats(tmp_path: Path, spelling: str) -> None:
    (row,) = read(tmp_path, {"dp": spelling})
    assert row.plan.dp == 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"layers": "1.5"}, "layers = '1.5' is not a whole number"),
        ({"tp": "1.5"}, "tp = '1.5' is not a whole number"),
        ({"micro_batch": "1_0"}, "micro_batch = '1_0' is not a whole number"),
        ({"micro_batch": "١"}, "micro_batch = '١' is not a whole number"),
        ({"hidden": "nan"}, "hidden = 'nan' is not a whole number"),
        ({"dp": "-8"}, "dp = '-8', but it must not be negative"),
        ({"zero_stage": "-1"}, "zero_stage = '-1', but it must be 0, 1, 2 or 3"),
        ({"zero_stage": "1.5"}, "zero_stage = '1.5', but it must be 0, 1, 2 or 3"),
        ({"zero_stage": "1e30"}, "zero_stage = '1e30', but it must be 0, 1, 2 or 3"),
        ({"pp": "1e9"}, "pp = '1e9', but at most 10,000 can be simulated"),
        ({"layers": "1e9"}, "layers = '1e9', but at most 10,000 can be simulated"),
        ({"seq_len": "1e30"}, "seq_len = '1e30', but at most 4,294,967,296 can be simulated"),
        ({"dp": "1e999"}, "dp = '1e999' is not a whole number"),
        ({"peak_mem_reserved_gb": "1_0"}, "peak_mem_reserved_gb = '1_0' is not a positive number"),
    ],
)
def test_counts_that_cannot_be_are_refused_with_line_and_field(tmp_path: Path, change: dict, message: str) -> None:
    with pytest.raises(DataError, match=f"rows.csv line 2: {message}"):
        read(tmp_path, change)


def test_a_row_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"rows.csv line 4: the same row as rows.csv line 2\. Keep one"):
        read(tmp_path, {}, {"tp": "2"}, {})
