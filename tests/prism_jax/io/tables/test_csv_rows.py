"""Rows of CSV tables: what the csv module writes is read back, whatever stands in it; the rest is refused with its line."""

import csv
import io

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.tables import csv_rows
from prism_jax.tables.csv_rows import CsvTable, Seen

FIELDS = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6)
TABLES = st.integers(1, 4).flatmap(lambda n: st.lists(st.lists(FIELDS, min_size=n, max_size=n), max_size=5))


def rows_of(text: str) -> list[dict[str, str]]:
    return [row.fields for row in CsvTable(text, "t.csv").rows()]


@given(rows=TABLES, end=st.sampled_from(["\n", "\r\n", "\r"]))
def test_what_csv_writes_is_read(rows: list[list[str]], end: str) -> None:
    columns = [f"c{i}" for i in range(len(rows[0]) if rows else 1)]
    file = io.StringIO(newline="")
    writer = csv.writer(file, lineterminator=end, quoting=csv.QUOTE_ALL)
    writer.writerows([columns, *rows])
    kept = [[field.strip() for field in row] for row in rows if any(field.strip() for field in row)]
    assert rows_of(file.getvalue()) == [dict(zip(columns, row, strict=True)) for row in kept]


@pytest.mark.parametrize("break_", ["\u2028", "\u2029", "\x0b", "\x0c", "\x1c", "\x85"])
def test_only_line_ends_end_lines(break_: str) -> None:
    assert rows_of(f'a,b\n1,"x{break_}y"\n2,z{break_}z\n') == [
        {"a": "1", "b": f"x{break_}y"},
        {"a": "2", "b": f"z{break_}z"},
    ]


def test_the_line_is_the_one_on_which_a_row_ends() -> None:
    assert [row.line for row in CsvTable('a,b\n\n1,"x\ny"\r\n,\r\n2,z', "t.csv").rows()] == [4, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,a\n", "t.csv line 1: the column 'a' is there twice"),
        ("a,b\n1\n", r"t.csv line 2: the number of fields differs from the header's \(1 and 2\)"),
        ("a,b\n1,2\n1,2,3\n", "t.csv line 3: the number of fields"),
        ('a,b\n1,"2\n', "t.csv line 2 is not CSV"),
        ('a,b\n1,"2"3\n', "t.csv line 2 is not CSV"),
        ("a\n" + "1\n" * 11, "t.csv: more than 10 rows"),
        ("a\n" + "\n" * 100, "t.csv: 101 lines, more than 50"),
        (",".join(f"c{i}" for i in range(9)), "t.csv line 1: 9 columns, more than 8"),
        ("a,b\n" + "x," * 500, "t.csv line 2: a row of more than 300"),
        ('a,b\n1,"' + "x\n" * 40 + "x" * 300, "t.csv line 42: a row of more than 300"),
    ],
)
def test_what_is_no_table_is_refused_with_its_line(text: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MAX_LINES", 50), ("MAX_COLUMNS", 8), ("MAX_ROW_CHARACTERS", 300)):
        monkeypatch.setattr(csv_rows, name, value)
    with pytest.raises(DataError, match=message):
        list(CsvTable(text, "t.csv", max_rows=10).rows())


def test_a_row_is_seen_again_only_if_all_its_fields_are_the_same() -> None:
    seen = Seen()
    assert [seen.before(fields, f"line {n}") for n, fields in enumerate((["a", "bc"], ["ab", "c"], ["a", "bc"]))] == [
        "", "", "line 0"
    ]  # fmt: skip
    with pytest.raises(DataError, match="line 9: the same row as line 1. Keep one"):
        seen.check(["ab", "c"], "line 9")
