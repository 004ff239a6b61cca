"""First screens at 80 columns: at most ten lines, with every part that a first screen must have."""

from dataclasses import replace

import pytest

from benchmarks.first_screens import COLUMNS, GPUS, VARIANTS, Screen, kinds_with_a_card, missing_parts, screen_of
from benchmarks.golden.inputs import ROOT
from prism_jax.core.page import Card
from prism_jax.core.page_text import page_lines
from prism_jax.core.report import Report
from tests.prism_jax.shell.test_reports import strict_promotion  # noqa: F401
from tests.support.report_cases import CASES

WITH_A_CARD = kinds_with_a_card()
with_a_card = pytest.mark.parametrize("report", WITH_A_CARD, indirect=True)


@with_a_card
def test_the_first_screen_answers_in_ten_lines(report: Report):
    card = report.card()
    assert card is not None
    lines = page_lines(replace(report.page(), is_short=True), COLUMNS)
    screen = Screen(report.kind, tuple(lines), missing_parts(report, card))
    assert screen.is_good, "\n".join((*screen.lines, *screen.missing))
    assert max(map(len, page_lines(report.page(), COLUMNS))) <= COLUMNS
    assert len(card.assumptions) <= 2


@pytest.mark.parametrize("report", ["check", "watch"], indirect=True)
def test_a_command_prints_the_first_screen_of_its_report(report: Report):
    screen = screen_of(CASES[report.kind][0])
    assert screen is not None
    assert screen.lines == tuple(page_lines(replace(report.page(), is_short=True), COLUMNS))


CARD = Card(
    "a job",
    "It fits.",
    "good",
    facts={"p50": "2 s (90%: 1.8 to 2.4 s)"},
    evidence="9 runs",
    assumptions=("all alike",),
)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"verdict": "It fits"}, "verdict"),
        ({"facts": {}}, "central figure"),
        ({"facts": {"p50": "2 s"}}, "interval"),
        ({"evidence": ""}, "evidence"),
        ({"assumptions": ()}, "assumptions"),
    ],
)
def test_a_part_that_is_not_there_is_named(change: dict, part: str):
    assert CARD.missing(is_estimate=True) == ()
    assert part in replace(CARD, **change).missing(is_estimate=True)
    counted = replace(CARD, facts={"rows": "9"}, assumptions=())
    assert counted.missing(is_estimate=False) == ()


def test_screens_that_are_long_or_wide_are_not_good():
    assert Screen("x", ("a",) * 10, ()).is_good
    assert not Screen("x", ("a",) * 11, ()).is_good
    assert not Screen("x", ("a" * 81,), ()).is_good


def test_commands_that_take_a_job_are_measured_on_all_shipped_ones():
    assert set(GPUS) == {path.stem for path in (ROOT / "examples").glob("*.yaml")}
    assert set(VARIANTS) <= set(WITH_A_CARD)


@with_a_card
def test_a_stored_report_is_drawn(report: Report):
    """Pictures are made of the report alone, and so they stand in the page of a stored one."""
    assert not report.picture or type(report).from_dict(report.to_dict())._svg() is not None
