"""`prism-jax plan`: fleets, the least that does, and wrong options."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from prism_jax.shell.app import main
from prism_jax.study.capacity import Span, capacities
from prism_jax.study.figures import JobFigures
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


# --- Capacity: the closed form without doubt, and money that follows days --------------------------------------------


ONE = np.ones((1, 2))


def figures(mean_s: float, n_devices: float, watts: float = 500.0) -> JobFigures:
    """A step of a million tokens; nothing else is known."""
    known = {"mean_s": mean_s, "value": mean_s, "value_error": 0.0, "n_devices": n_devices, "tokens_per_step": 1e6}
    return JobFigures(**{item.name: known.get(item.name, np.nan) for item in fields(JobFigures)} | {"gpu_watts": watts})


def test_without_doubt_it_is_arithmetic() -> None:
    fleets = [figures(1.0, 8.0), figures(2.0, 2.0)]
    found = capacities(fleets, [0.5, 1.0], [2.0, 3.0], ONE, Span(tokens=86_400e6))
    first, second = found.fleets
    assert (first.days_p50, first.days_p95, second.days_p50) == pytest.approx((2.0, 2.0, 2.0))
    assert first.money_p50 == pytest.approx(8 * 2.0 * 48)
    assert first.energy_kwh_p50 == pytest.approx(0.5 * 8 * 48)
    assert found.prob_faster[0][1] == 0.5  # equal
    assert found.prob_cheaper[1][0] == 1.0


def test_days_give_tokens_at_a_price_that_is_known() -> None:
    factors = np.exp(0.1 * np.random.default_rng(0).normal(size=(100_000, 1)))
    made = capacities([figures(1.0, 8.0)], [1.0], [2.0], factors, Span(days=10.0)).fleets[0]
    assert made.tokens_p50 == pytest.approx(864e9, rel=2e-3)
    assert made.tokens_p95 == pytest.approx(864e9 * np.exp(-0.1 * 1.645), rel=3e-3)
    assert made.money_p50 == made.money_p95 == 8 * 2.0 * 240


def test_fleets_without_a_price_are_not_compared_by_money() -> None:
    found = capacities([figures(1.0, 8.0), figures(2.0, 8.0)], [1.0, 1.0], [2.0, np.nan], ONE, Span(days=1.0))
    assert found.prob_cheaper == found.prob_cheapest == ()
    assert found.prob_fastest == (1.0, 0.0)
