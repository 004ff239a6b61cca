"""Rows, numbers and lines of tables, packed or not: what is read, and what is refused with its line."""

import csv
import gzip
import io
import math
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.tables import csv_rows, csv_rows as packed, streams
from prism_jax.tables.csv_rows import CsvTable, Seen, cell, is_plain, number_of

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


# --- Numbers of files: what every tool reads as the same number, and nothing else ------------------------------------


@given(value=st.floats(allow_nan=False, allow_infinity=False))
def test_what_python_prints_is_read_to_the_last_digit(value: float) -> None:
    assert number_of(f" {value!r} ") == value


@given(value=st.integers(-(10**40), 10**40))
def test_whole_numbers_are_read(value: int) -> None:
    assert number_of(str(value)) == float(value)


@pytest.mark.parametrize(
    "text", ["1_0", "١٢", "１２", "²", "0x10", "nan", "inf", "1e", "1.2.3", "", ".", "1,5", "1" * 101]
)
def test_what_only_some_tools_read_is_no_number(text: str) -> None:
    assert math.isnan(number_of(text))


@given(text=st.text(st.characters(codec="utf-8"), max_size=8))
def test_a_number_is_plain_and_python_agrees(text: str) -> None:
    if not math.isnan(number_of(text)):
        assert is_plain(text.strip())
        assert number_of(text) == float(text)


def test_too_large_a_number_is_infinite() -> None:
    assert number_of("1e999") == math.inf


# --- Packed text: the same whether packed or not, and bounded whatever it unpacks to ---------------------------------


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_text_is_told_by_its_content(tmp_path: Path, pack) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes(pack("\ufeffa,µ\n1,2\n".encode()))
    assert packed.read_packed_text(file, "a table") == "a,µ\n1,2\n"


def test_a_small_file_that_unpacks_to_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MAX_BYTES", 1 << 20)
    file = tmp_path / "bomb.csv.gz"
    file.write_bytes(gzip.compress(bytes(1 << 24)))
    assert file.stat().st_size < 1 << 15
    with pytest.raises(DataError, match="unpacks to more than 100 times its size|larger than 1 MiB. Give a table"):
        packed.read_packed_text(file, "a table")


def test_half_a_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "half.gz"
    file.write_bytes(gzip.compress(b"a" * 1000)[:-9])
    with pytest.raises(DataError, match="the gzip file ends too early"):
        packed.read_packed_text(file, "a table")


# --- Lines of text files: numbers, pieces, limits, whatever the size of the chunks they arrive in --------------------


TEXTS = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"\n\n"]), max_size=30).map(b"".join)


def expected(content: bytes) -> list[tuple[int, bytes]]:
    """Pieces that are not empty, the slow way."""
    found = []
    for number, line in enumerate(content.split(b"\n"), start=1):
        found += [(number, piece) for piece in line.split(b"\r") if piece]
    return found


@given(content=TEXTS, chunk=st.integers(1, 7), packed=st.booleans())
def test_lines_do_not_depend_on_the_chunks(tmp_path_factory, content: bytes, chunk: int, packed: bool):
    path = tmp_path_factory.mktemp("lines") / "log"
    path.write_bytes(gzip.compress(content) if packed else content)
    before = streams.CHUNK_BYTES
    streams.CHUNK_BYTES = chunk
    try:
        found = [(number, piece) for number, piece in streams.lines(path, cut=False) if piece]
    finally:
        streams.CHUNK_BYTES = before
    assert found == expected(content)


@pytest.mark.parametrize("chunk", [7, 10, 64])
def test_long_lines_are_cut_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int):
    monkeypatch.setattr(streams, "CHUNK_BYTES", chunk)
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 10)
    path = tmp_path / "log"
    path.write_bytes(b"one\n" + b"x" * 95 + b"\nthree\n" + b"y" * 40)
    assert list(streams.lines(path, cut=True)) == [(1, b"one"), (2, b"x" * 10), (3, b"three"), (4, b"y" * 10)]
    with pytest.raises(DataError, match=r"log:2: a line of more than 10 bytes"):
        list(streams.lines(path, cut=False))


def test_what_a_progress_bar_wrote_is_pieces_and_may_be_longer_than_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(streams, "CHUNK_BYTES", 16)
    monkeypatch.setattr(streams, "MAX_LINE_BYTES", 10)
    path = tmp_path / "log"
    path.write_bytes(b"\r".join(b"step %d" % n for n in range(50)) + b"\nend")
    found = [(number, piece) for number, piece in streams.lines(path, cut=False) if piece]
    assert found == [(1, b"step %d" % n) for n in range(50)] + [(2, b"end")]


def test_head_is_unpacked_and_short(tmp_path: Path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"abc" * 100_000))
    assert streams.head(path, 7) == b"" or b"abcabca".startswith(streams.head(path, 7))
    assert streams.head(path) == (b"abc" * 100_000)[: 2**16]


def test_ordinary_packing_is_no_bomb(tmp_path: Path):
    path = tmp_path / "log.gz"
    path.write_bytes(gzip.compress(b"".join(b"step %d took %d ms\n" % (n, n * n % 97) for n in range(20_000))))
    assert sum(len(chunk) for chunk in streams.chunks(path)) == len(gzip.decompress(path.read_bytes()))


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("=1+1", "'=1+1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("+cmd|x", "'+cmd|x"),
        ("-x", "'-x"),
        ("-5", "-5"),
        ("+1e3", "+1e3"),
        (-2.5, -2.5),
        ("plan.tp", "plan.tp"),
    ],
)
def test_no_cell_that_is_written_is_a_formula(value: object, written: object):
    assert cell(value) == written
