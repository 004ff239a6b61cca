"""Pages: what is laid out once is text of any width and HTML in which names stay names."""

import re
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, strategies as st

from prism_jax.core.page import (
    MOST_POINTS,
    Bar,
    Bars,
    Card,
    Code,
    Facts,
    Group,
    Note,
    Page,
    Table,
    curve_tables,
    excess_bars,
    left_out,
    page_of_data,
    waterfall,
)
from prism_jax.core.page_html import Sheet, block_html, sheets_html
from prism_jax.core.page_text import block_lines, page_lines
from prism_jax.core.report import then_or

HOSTILE = "<script>alert('x')</script> \"&\" \u202edlrow\x1b[31m"
CARD = Card(
    "a job on 64 GPUs",
    "Fits.",
    "good",
    facts={"step time": "median 6.5 s (90%: 5.0 to 8.6 s)"},
    evidence="25 measured runs of 2 sources near: off by 9% (median)",
    assumptions=(
        "software.norm fused (80%); eager: step 4.3% longer",
        "software.compile false (75%); true: step 5% shorter",
    ),
    next_step="prism-jax search job.yaml",
)
TABLE = Table(
    "Sizes",
    ["GPUs", *(f"column {n}" for n in range(12))],
    [[str(8 * k), *(f"{k}.{n}" for n in range(12))] for k in range(3)],
)
BLOCKS = [
    Note("a sentence " * 30),
    Facts("facts", {"name": "value " * 40}),
    TABLE,
    Bars("bars", [Bar("compute", "4.7 s 68%", 0.68), Bar("waiting", "0.1 s 2%", 0.02)]),
    Group("group", [Note("inside")]),
]


@pytest.mark.parametrize("width", [80, 100, 200])
def test_no_line_is_wider_than_the_terminal(width: int):
    lines = page_lines(Page(CARD, BLOCKS), width)
    assert max(map(len, lines)) <= width


@given(
    st.integers(60, 200),
    st.lists(st.lists(st.text("abc 0", max_size=70), min_size=4, max_size=4), min_size=1, max_size=4),
)
def test_every_word_of_a_table_is_printed_once_at_any_width(width: int, rows: list[list[str]]):
    """The first column names the rows and is repeated; the others are not."""
    table = Table("", ["name", "b", "c", "d"], rows)
    lines = block_lines(table, width)
    assert max(map(len, lines)) <= width
    letters = [sum(text.count(letter) for row in rows for text in row[1:]) for letter in "abc"]
    named = [sum(row[0].count(letter) for row in rows) for letter in "abc"]
    printed = "".join(lines)
    heads = {"a": 1, "b": 0, "c": 0}  # of the word "name"
    for letter, own, first in zip("abc", letters, named, strict=True):
        at_least = own + first + heads[letter]
        assert printed.count(letter) >= at_least


def test_the_first_screen_is_the_card_alone():
    page = Page(CARD, BLOCKS)
    first = page_lines(replace(page, is_short=True), 80)
    assert first[0] == CARD.title
    assert first[1] == CARD.verdict
    assert len(first) <= 10
    assert page_lines(page, 80)[: len(first)] == first
    assert page_lines(replace(Page(None, BLOCKS), is_short=True), 80) == page_lines(Page(None, BLOCKS), 80)


@pytest.mark.parametrize(
    ("notes", "told"), [((), ""), (("note: a",), " (1 note)"), (("note: a", "warning: b"), " (2 notes)")]
)
def test_the_option_that_prints_the_rest_is_named_where_options_are_typed(notes: tuple[str, ...], told: str):
    page = Page(CARD, [*BLOCKS, *map(Note, notes)])
    last = page_lines(replace(page, is_short=True), 80)[-1]
    assert last.split(maxsplit=1) == ["next", f"prism-jax search job.yaml; --details{told}"]
    alone = page_lines(replace(page, card=replace(CARD, next_step=""), is_short=True), 80)[-1]
    assert alone.split(maxsplit=1) == ["next", f"--details{told}"]
    assert "--details" not in sheets_html([Sheet("x", page, None, {})])


def test_a_verdict_has_its_colour_and_nothing_else_has():
    lines = page_lines(Page(CARD, ()), 80, colour=True)
    assert [line for line in lines if "\x1b" in line] == ["\x1b[1;32mFits.\x1b[0m"]


def test_bars_of_excess_begin_where_the_per_cent_shows_it():
    far = excess_bars("", {"best": ("1 ms", 1.0), "worse": ("1.1 ms", 1.1), "worst": ("1.2 ms", 1.2)}, 1.0, 1)
    assert [round(bar.share, 6) for bar in far.bars] == [0.0, 0.5, 1.0]
    assert far.bars[2].text == "1.2 ms  +20.0%"
    near = excess_bars("", {"best": ("1 ms", 1.0), "same": ("1 ms", 1.0 + 1e-9)}, 1.0, 1)
    assert [bar.share for bar in near.bars] == [0.0, 0.0]


def test_bars_of_a_waterfall_begin_where_the_one_before_ends():
    import htpy

    found = waterfall([Bar("a", "70%", 0.7), Bar("b", "20%", 0.2), Bar("c", "10%", 0.1)])
    assert [round(one.start, 6) for one in found] == [0.0, 0.7, 0.9]
    html = str(htpy.div[block_html(Bars("", found), 2)])
    drawn = re.findall(r'<rect(?: x="([\d.]+)%")? width="([\d.]+)%"', html)
    assert drawn == [("", "70.0"), ("70.0", "20.0"), ("90.0", "10.0")]


def test_curves_are_tables_of_their_points_from_end_to_end():
    n = 1000
    curve = {
        "level": [k / (n - 1) for k in range(n)],
        "time_s": [float(k) for k in range(n)],
        "name": "x",
        "few": [1, 2],
    }
    [table] = curve_tables({"rows": [{"a": 1}, {"curve": curve}], "band": [1.0, 2.0], "alone": [1.0, 2.0, 3.0]})
    assert (table.title, table.columns) == ("rows 2 curve", ["level", "time_s"])
    assert (table.rows[0], table.rows[-1]) == (["0", "0"], ["1", "999"])
    assert len(table.rows) == MOST_POINTS
    steps = {round(float(b[1]) - float(a[1])) for a, b in pairwise(table.rows)}
    assert steps <= {24, 25}
    [short] = curve_tables({"curve": {"level": [0.1, 0.5, None], "time_s": [1.0, 2.0, 3.0]}})
    assert short.rows == [["0.1", "1"], ["0.5", "2"], ["", "3"]]


def test_numbers_are_aligned_right():
    head, _, *rows = block_lines(Table("", ["name", "value"], [["a", "1.5"], ["b", "10.25"]]))
    assert (head, rows) == (" name   value", [" a        1.5", " b      10.25"])


@pytest.mark.parametrize(
    "block",
    [
        Note(HOSTILE),
        Facts(HOSTILE, {HOSTILE: HOSTILE}),
        Table(HOSTILE, [HOSTILE], [[HOSTILE]]),
        Bars(HOSTILE, [Bar(HOSTILE, HOSTILE, 0.5)]),
        Code(HOSTILE, HOSTILE),
        Group(HOSTILE, [Note(HOSTILE)]),
    ],
)
def test_names_from_files_stay_names(block):
    import htpy

    html = str(htpy.div[block_html(block, 2)])
    assert "<script" not in html
    assert '"&"' not in re.sub(r'="[^"]*"', "", html)
    text = "\n".join(block_lines(block, 80))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_a_kind_without_a_layout_shows_all_that_it_holds():
    page = page_of_data(
        {"schema": "x", "a": 1.5, "b": {"c": "text", "d": None}, "rows": [{"n": 1}, {"n": 2, "m": "x"}]}
    )
    assert page.card is None
    assert page.blocks == (
        Facts("", {"a": "1.5"}),
        Facts("b", {"c": "text"}),
        Table("rows", ["n", "m"], [["1", ""], ["2", "x"]]),
    )


def test_a_table_is_made_of_items_and_columns_and_leaves_out_what_no_item_has():
    made = Table.of("", (1, 2), {"n": str, "square": lambda n: str(n * n), "none": lambda _: ""})
    assert made == Table("", ("n", "square"), [("1", "1"), ("2", "4")])
    assert Table.named("", "name", {"a": 1}.items(), {"n": str}) == Table("", ("name", "n"), [("a", "1")])


def test_what_holds_nothing_is_not_on_a_page():
    nothing = [Note(""), Facts("facts", {"a": ""}), Table.of("table", [], {"n": str}), Bars("bars", [])]
    assert Page(None, [*nothing, Group("group", nothing), Note("text")]).blocks == (Note("text"),)
    assert left_out(3, 3, "rows") in nothing
    assert left_out(1_203, 3, "rows") == Note("and 1,200 more rows (--json lists them)")


@pytest.mark.parametrize(
    ("command", "step"),
    [
        ("prism-jax search job.yaml -o best.yaml", "predict best.yaml"),
        ("prism-jax search job.yaml --output=best.yaml --seed 1", "predict best.yaml"),
        ("prism-jax search job.yaml --output 'my best.yaml'", "predict 'my best.yaml'"),
        ("prism-jax search job.yaml '--output=my best.yaml'", "predict 'my best.yaml'"),
        ("prism-jax search 'a -o b.yaml'", "keep"),
        ("prism-jax search 'job", "keep"),
        (None, "keep"),
    ],
)
def test_a_next_step_names_the_file_that_was_written(command: str | None, step: str) -> None:
    assert then_or(command, "predict {}", "keep") == step
