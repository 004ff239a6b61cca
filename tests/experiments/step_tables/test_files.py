"""Files of steps tables: what they may hold, and what is refused, with its place."""

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.step_tables.table import read_step_rows
from prism_jax.core.errors import DataError
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.experiments.step_tables.test_table import CSV, REFERENCE, csv_row, json_row, write_csv


def test_gzip_and_schema_are_told_by_content(tmp_path: Path):
    plain = write_csv(tmp_path / "steps.csv", {})
    packed = tmp_path / "table.json"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_step_rows(packed) == read_step_rows(plain)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"L": "many"}, r"row 1 \(gpt\): L = 'many' is not a number"),
        ({"h": None}, r"row 1 \(gpt\): field h is missing"),
        ({"tp": 2.5}, "tp = 2.5 is not a whole number"),
        ({"measured_s": -1}, "measured_s = -1, but it must be finite and not negative"),
        ({"sp": "maybe"}, "sp = 'maybe', but it must be true or false"),
        ({"measured_range": [2, 1]}, r"measured_range = \[2, 1\], but it must be \[low, high\]"),
    ],
)
def test_malformed_reference_rows_name_row_and_field(tmp_path: Path, changes: dict[str, Any], message: str):
    with pytest.raises(DataError, match=message):
        json_row(tmp_path, **changes)


def test_malformed_tables_name_what_is_wrong(tmp_path: Path):
    with pytest.raises(DataError, match=r"steps.csv line 2 \(x-1\): tp = 'two' is not a number"):
        csv_row(tmp_path, tp="two")
    file = tmp_path / "other.csv"
    file.write_text("id,model\n1,2\n")
    with pytest.raises(DataError, match="no column source"):
        read_step_rows(file)
    file.write_text("[{]")
    with pytest.raises(DataError, match="is not JSON"):
        read_step_rows(file)
    file.write_text('{"id": 1}')
    with pytest.raises(DataError, match="a list of rows is needed"):
        read_step_rows(file)
    for nothing in ("[]", ",".join(CSV)):
        file.write_text(nothing)
        with pytest.raises(DataError, match="no rows"):
            read_step_rows(file)
    file.write_text("[" * 100_000)
    with pytest.raises(DataError, match="is not JSON"):
        read_step_rows(file)
    for long in ("x" * 200_000, ",".join(CSV) + "\n" + "x" * 200_000):
        file.write_text(long)
        with pytest.raises(DataError, match=r"line \d is not CSV"):
            read_step_rows(file)
    with pytest.raises(DataError, match="cannot be read"):
        read_step_rows(tmp_path / "absent.csv")


@pytest.mark.parametrize("break_", ["\u2028", "\x0b", "\x85", "\n"])
def test_a_field_in_quotes_may_hold_what_looks_like_a_line_end(tmp_path: Path, break_: str):
    rows = read_step_rows(write_csv(tmp_path / "steps.csv", {"notes": f"a{break_}b"}, {"id": "x-2"}))
    assert [row.id for row in rows] == ["x-1", "x-2"]
    assert not rows[0].unsupported


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"measured_step_time_s": "0"}, "measured_step_time_s = '0', but no step takes no time"),
        ({"tp": "2_0"}, "tp = '2_0' is not a number"),
        ({"tp": "٢"}, "tp = '٢' is not a number"),
        ({"dp": "1e999"}, "dp = '1e999', but it must be finite"),
    ],
)
def test_numbers_that_cannot_be_are_refused_with_line_and_field(tmp_path: Path, changes: dict[str, str], message: str):
    with pytest.raises(DataError, match=rf"steps.csv line 2 \(x-1\): {message}"):
        csv_row(tmp_path, **changes)


def test_a_copied_row_counts_once(tmp_path: Path):
    file = tmp_path / "rows.json"
    file.write_text(json.dumps([REFERENCE, REFERENCE | {"id": "other"}, REFERENCE]))
    for rows in (read_step_rows(write_csv(tmp_path / "steps.csv", {}, {"id": "x-2"}, {})), read_step_rows(file)):
        assert [row.unsupported for row in rows] == ["", "", "the same row as one above"]
        model = rows[0].job[0]
        assert isinstance(model, TransformerSpec)
        named = replace(model, name=rows[1].job[0].name)  # a model without a name has that of its row
        assert rows[1] == replace(rows[0], id=rows[1].id, model=named)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (json.dumps([REFERENCE])[:-2] + ', "tp": 1}]', "the key 'tp' is there twice"),
        (json.dumps([REFERENCE | {"measured_s": 0}]), "measured_s = 0, but no step takes no time"),
        (json.dumps([REFERENCE | {"h": True}]), "h = True is not a number"),
        (json.dumps([REFERENCE | {"h": 10**400}]), r"h = 10+\.\.\.0+, but it must be finite"),
        (json.dumps([REFERENCE | {"src": [[]]}]), r"src = \[\[\]\] is not text"),
        ("[" + "{}," * 100_000 + "{}]", "100,001 rows, more than 100,000"),
        ("[" + " " * 2**24 + "]", "more than 16 MiB of JSON"),
    ],
)
def test_json_that_means_two_things_or_too_much_is_refused(tmp_path: Path, text: str, message: str):
    file = tmp_path / "rows.json"
    file.write_text(text)
    with pytest.raises(DataError, match=f"rows.json.*{message}"):
        read_step_rows(file)


def test_a_size_beyond_all_leaves_the_other_rows_as_they_are(tmp_path: Path):
    (alone,) = read_step_rows(write_csv(tmp_path / "steps.csv", {}))
    rows = read_step_rows(write_csv(tmp_path / "steps.csv", {"id": "y", "layers": "1e300"}, {}))
    assert rows[1] == alone
    assert rows[0].unsupported == "beyond what is simulated: n_layers 1e+300"
