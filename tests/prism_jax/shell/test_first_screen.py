"""First screens at 80 columns: at most ten lines, with a verdict, a central figure, evidence and what to do next."""

import shlex

import pytest

from prism_jax.core.page_text import page_lines
from prism_jax.core.report import Report
from prism_jax.shell.app import main
from prism_jax.show.reports import REPORTS
from tests.prism_jax.shell.test_reports import CASES, answers, folder, report, strict_promotion  # noqa: F401

COLUMNS, MOST_LINES = 80, 10
WITH_A_CARD = [kind for kind in CASES if REPORTS.named(kind).card is not Report.card]
with_a_card = pytest.mark.parametrize("report", WITH_A_CARD, indirect=True)


@with_a_card
def test_the_first_screen_answers_in_ten_lines(report: Report, capsys, monkeypatch):  # noqa: F811
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    card = report.card()
    if card is None:  # of short reports
        return
    assert card.verdict.endswith(".")
    assert next(iter(card.facts.values()))
    assert card.evidence
    assert "--details" in card.next_step
    assert len(card.assumptions) <= 2
    assert main(shlex.split(CASES[report.kind][0])) in (0, 1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= MOST_LINES, "\n".join(lines)
    assert max(map(len, lines)) <= COLUMNS
    assert max(map(len, page_lines(report.page(), COLUMNS))) <= COLUMNS


@with_a_card
def test_a_stored_report_is_drawn(report: Report):  # noqa: F811
    """Pictures are made of the report alone, and so they stand in the page of a stored one."""
    assert not report.picture or type(report).from_dict(report.to_dict())._svg() is not None
