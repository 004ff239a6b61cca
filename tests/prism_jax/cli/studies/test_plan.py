"""`prism-jax plan`: fleets side by side, impossible ones told, wrong options refused in one line."""

import json
from pathlib import Path

import pytest

from prism_jax.shell.app import main
from prism_jax.study.scaling_report import CapacityReport
from tests.support.job_texts import JOB

SPACE = (
    "{tp: [2, 4], pp: [2], cp: [1], micro_batch: [1], recompute: [none], schedule: [1f1b], sequence_parallel: [true]}"
)
PRICES = ["--price", "h100-sxm=2", "--price", "h200=2.2"]


@pytest.fixture
def job(tmp_path: Path) -> list[str]:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "space.yaml").write_text(SPACE)
    return [str(tmp_path / "job.yaml"), "--space", str(tmp_path / "space.yaml"), "--samples", "64"]


def test_fleets_are_told_with_their_tokens_money_and_probabilities(job: list[str], capsys) -> None:
    fleets = ["--fleet", "32xh100-sxm", "--fleet", "32xh200", "--fleet", "7xh200"]
    arguments = ["plan", *job, *fleets, "--days", "10", *PRICES, "--reliability", "llama3-2024"]
    assert main([*arguments, "--json"]) == 0
    report = CapacityReport.from_dict(json.loads(capsys.readouterr().out))
    first, better, impossible = report.fleets
    assert impossible.capacity is None
    assert "no plan of the space is feasible" in impossible.problem
    assert first.figures is not None
    assert first.capacity is not None
    assert better.capacity is not None
    made = first.capacity
    assert 0.9 < made.goodput < 1.0
    rate = first.figures.tokens_per_step / first.figures.mean_s * 86_400.0
    assert made.tokens_per_day == pytest.approx(rate * made.goodput)
    assert made.money_p50 == made.money_p95 == pytest.approx(32 * 24 * 10 * 2.0)
    assert made.tokens_p95 < made.tokens_p50
    assert better.capacity.tokens_per_day > made.tokens_per_day
    assert report.prob_faster[1][0] > 0.5
    assert len(report.prob_cheaper) == len(report.prob_faster) == 2
    assert first.prob_fastest + better.prob_fastest == pytest.approx(1.0)
    text = "\n".join(report.lines())
    assert "C: 7xh200 is impossible" in text
    assert "tokens sure at 95 %" in text


def test_tokens_ask_for_days_and_batches_that_cannot_be_shared_are_told(job: list[str], capsys) -> None:
    assert main(["plan", *job, "--fleet", "24xh200", "--tokens", "10B", "--json"]) == 0
    report = CapacityReport.from_dict(json.loads(capsys.readouterr().out))
    made, figures = report.fleets[0].capacity, report.fleets[0].figures
    assert made is not None
    assert figures is not None
    assert made.days_p50 < made.days_p95
    assert made.tokens_p50 == made.tokens_p95 == 1e10
    assert figures.tokens_per_step == 72 * 4096
    assert any("batch of 72 instead of 64" in note for note in report.notes)
