"""First screens at 80 columns: at most ten lines, with a verdict, a central figure, evidence and what to do next."""

import shlex
from pathlib import Path

import pytest

from benchmarks.golden.inputs import write_inputs
from prism_jax.core.page_text import page_lines
from prism_jax.core.report import Report
from prism_jax.shell.app import main
from tests.prism_jax.shell.test_reports import CASES

COLUMNS, MOST_LINES = 80, 10
WITH_A_CARD = ("run",)


@pytest.fixture(autouse=True)
def strict_promotion() -> None:
    """In place of the one of all these tests: NumPyro relies on promotion."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("screens")
    write_inputs(folder)
    return folder


@pytest.mark.parametrize("kind", WITH_A_CARD)
def test_the_first_screen_answers_in_ten_lines(kind: str, folder: Path, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    command, call = CASES[kind]
    report: Report = call()
    card = report.card()
    assert card is not None
    assert card.verdict.endswith(".")
    assert card.facts
    assert card.evidence
    assert "--details" in card.next_step
    assert len(card.assumptions) <= 2
    assert main(shlex.split(command)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= MOST_LINES
    assert max(map(len, lines)) <= COLUMNS
    assert max(map(len, page_lines(report.page(), COLUMNS))) <= COLUMNS
