"""Rows that are events are refused by their number, not dropped: a rate without them would be wrong."""

from pathlib import Path

import pandas as pd
import pytest

import inference
from inference.data.checks import ROW
from prism_jax.core.errors import DataError

HEADER = "system,node,start,end\n"


def read(tmp_path: Path, *rows: str, header: str = HEADER) -> pd.DataFrame:
    path = tmp_path / "log.csv"
    path.write_text(header + "\n".join(rows) + "\n")
    return inference.measured([str(path)], "repairs").frame


GOOD = "a,1,2026-03-01T10:00:00Z,2026-03-01T11:00:00+01:00"


def test_offsets_count(tmp_path: Path) -> None:
    frame = read(tmp_path, GOOD, "a,2,2026-03-01T12:00:00+02:00,2026-03-01T10:30:00Z")
    assert frame["start_time"].tolist() == [frame["start_time"].iloc[0]] * 2
    assert (frame["end_time"] - frame["start_time"]).tolist() == [0.0, 1800.0]
    assert frame[ROW].tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("row", "text"),
    [
        ("a,2,2026-03-01 10:00:00,", "row 2: start '2026-03-01 10:00:00' has no time zone. Write"),
        ("a,2,2026-03-01T10:00:00Z,2026-03-01 12:00", "row 2: end '2026-03-01 12:00' has no time zone"),
        ("a,2,2026-03-01T10:00:00Z,2026-03-01T09:00:00Z", "row 2: end_time is 3,600 s before start_time"),
        ("a,2,,", "row 2: start is missing"),
        ("a,2,soonZ,", "row 2: start 'soonZ' is not a date with its zone"),
        ("a,2,1772359200000,", "row 2: start 1772359200000 is after the year 2200"),
        (",2,2026-03-01T10:00:00Z,", "row 2: system is missing"),
    ],
)
def test_a_wrong_row_is_named_with_its_file(tmp_path: Path, row: str, text: str) -> None:
    good = "a,1,1772359200," if "1772" in row else GOOD
    with pytest.raises(DataError) as error:
        read(tmp_path, good, row)
    assert text in str(error.value)
    assert "log.csv" in str(error.value)


def test_a_typed_clock_without_a_zone_is_told(tmp_path: Path) -> None:
    times = pd.to_datetime(["2026-03-01 10:00", "2026-03-01 12:00"])
    path = tmp_path / "log.parquet"
    pd.DataFrame({"system": ["a", "a"], "start": times}).to_parquet(path)
    assert "names no zone: one clock" in " ".join(inference.measured([str(path)], "repairs").hygiene.notes)


def test_an_empty_table_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.csv"):
        read(tmp_path)


@pytest.mark.parametrize("header", ["batch,step_ms", "batch_size,step_time_ms"])
def test_a_wrong_value_is_told_in_the_name_and_unit_of_the_file(header: str, tmp_path: Path) -> None:
    file = tmp_path / "ladder.csv"
    file.write_text(f"{header}\n8,30\n16,-4\n")
    name = header.split(",")[1]
    with pytest.raises(DataError, match=rf"row 2: {name} -4.* must be above 0"):
        inference.measured(file, "ladder")
