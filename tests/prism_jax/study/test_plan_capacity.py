"""`prism-jax capacity`: fleets, the least that does, and wrong options."""

import json
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest

from prism_jax.core.readable import amount
from prism_jax.job.fleet import cluster_of, fleets_of, job_on, written_fleet
from prism_jax.job.load_job import load_job
from prism_jax.shell.app import main
from prism_jax.study.capacity import Capacities, Span, capacities, chosen_fleet
from prism_jax.study.figures import JobFigures
from prism_jax.study.run_grid import StudyRequest, figures_of
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
    arguments = ["capacity", *job, *fleets, "--days", "10", *PRICES, "--reliability", "llama3-2024"]
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
    assert "tokens sure at 95%" in text


def test_tokens_ask_for_days_and_batches_that_cannot_be_shared_are_told(job: list[str], capsys) -> None:
    assert main(["capacity", *job, "--fleet", "24xh200", "--tokens", "10B", "--json"]) == 0
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


# --- Deadline, the chosen fleet, its file and the picture ------------------------------------------------------------


def rated(span: Span, sizes: list[float], prices: list[float], spread: float = 0.0) -> Capacities:
    """Fleets with a million tokens per second and GPU and a doubt that all share."""
    factors = np.exp(spread * np.random.default_rng(0).normal(size=(50_000, 1))) * np.ones((1, len(sizes)))
    return capacities([figures(1.0 / n, n) for n in sizes], [1.0] * len(sizes), prices, factors, span)


def test_a_deadline_at_the_median_is_kept_with_one_half() -> None:
    span = Span(tokens=86_400e6, deadline_days=0.5)
    first, second = rated(span, [2.0, 4.0], [1.0, 1.0], 0.1).fleets
    assert first.deadline_prob == pytest.approx(0.5, abs=0.01)
    assert second.deadline_prob == 1.0
    assert np.isnan(rated(Span(days=1.0), [2.0], [1.0]).fleets[0].deadline_prob)


@pytest.mark.parametrize(
    ("deadline", "prices", "best", "why"),
    [
        (0.3, [1.0, 3.0, 2.0], 2, "least money of those done within 0.3 days"),
        (0.3, [1.0, np.nan, 2.0], 1, "fewest GPUs of those"),
        (0.1, [1.0, 3.0, 2.0], 2, "no fleet is done within 0.1 days"),
        (None, [1.0, 3.0, 2.0], 0, "least money per token"),
        (None, [1.0, np.nan, 2.0], 2, "most per day"),
    ],
)
def test_the_chosen_fleet_keeps_the_deadline_and_is_cheap(
    deadline: float | None, prices: list[float], best: int, why: str
) -> None:
    span, sizes = Span(tokens=86_400e6, deadline_days=deadline), [2.0, 4.0, 8.0]
    chosen, told = chosen_fleet(rated(span, sizes, prices).fleets, [2, 4, 8], span)
    assert chosen == best
    assert why in told


def test_the_job_of_the_chosen_fleet_is_written_and_drawn(job: list[str], tmp_path: Path, capsys) -> None:
    fleets = ["--fleet", "32xh100-sxm", "--fleet", "24xh200"]
    made = ["-o", str(tmp_path / "chosen.yaml"), "--plot", str(tmp_path / "plan.png")]
    prices = ["--price", "h100-sxm=20", "--price", "h200=2.2"]
    assert main(["capacity", *job, *fleets, "--tokens", "10B", "--deadline", "30d", *prices, *made, "--json"]) == 0
    report = CapacityReport.from_dict(json.loads(capsys.readouterr().out))
    chosen = report.fleets[1]
    assert (report.deadline_days, report.chosen) == (30.0, "B")
    assert chosen.figures is not None
    assert chosen.plan is not None
    assert "B, 24xh200: least money of those done within 30 days" in "\n".join(report.lines())
    card = report.card()
    assert card.verdict.startswith("Choose B, 24xh200: done within 30 days with probability ")
    assert chosen.capacity is not None
    assert card.facts["money"].startswith(amount(chosen.capacity.money_p50))
    left = report.figure().axes[0]  # drawn from the report alone
    longest_d = max(one.capacity.days_p50 for one in report.fleets if one.capacity is not None)
    assert left.get_xlabel() == ("days" if longest_d >= 2.0 else "hours")
    middle = [np.interp(0.5, line.get_ydata(), line.get_xdata()) for line in left.lines if len(line.get_xdata()) > 2]
    assert max(middle) == pytest.approx(longest_d * (1.0 if longest_d >= 2.0 else 24.0), rel=0.02)
    written = load_job(tmp_path / "chosen.yaml")
    assert (written.cluster.device.name, written.cluster.n_devices, written.plan.global_batch) == ("h200", 24, 72)
    assert (written.plan.tp, written.plan.pp) == (chosen.plan.tp, chosen.plan.pp)
    again = figures_of(written, StudyRequest("mean", None, None, 64, 0))
    assert again.p50_s == pytest.approx(chosen.figures.p50_s, rel=1e-6)
    assert (tmp_path / "plan.png").stat().st_size > 1000


def test_days_are_drawn_and_a_fleet_alone_is_written(job: list[str], tmp_path: Path) -> None:
    made = ["-o", str(tmp_path / "chosen.yaml"), "--plot", str(tmp_path / "plan.svg")]
    assert main(["capacity", *job, "--fleet", "64xh100-sxm", *made]) == 0
    assert load_job(tmp_path / "chosen.yaml").cluster == load_job(job[0]).cluster
    assert (tmp_path / "plan.svg").read_text().startswith("<?xml")


CLUSTERS = [
    "dgx-h100",
    "{preset: dgx-h100, n_devices: 64, device: {power: 500 W}}",
    "{device: h200, n_devices: 64}",
    "{preset: dgx-h100, n_devices: 64, tiers: [{name: nvlink, n_devices: 8, bandwidth: 400 GB/s, latency: 1 us}, "
    "{name: rail, n_devices: 64, bandwidth: 50 GB/s, latency: 5 us}]}",
]


@pytest.mark.parametrize("cluster", CLUSTERS)
@pytest.mark.parametrize("fleet", ["32xh100-sxm", "128xh100-sxm", "64xH200", "48xb200", "64xaws-p5"])
def test_a_written_fleet_is_the_fleet(cluster: str, fleet: str, tmp_path: Path) -> None:
    plan = "{micro_batch: 1, global_batch: 128, seq_len: 4096, dp: 64}"
    (tmp_path / "job.yaml").write_text(f"model: llama-2-7b\ncluster: {cluster}\nplan: {plan}\n")
    job, (wanted,) = load_job(tmp_path / "job.yaml"), fleets_of([fleet])
    moved = job_on(job, cluster_of(wanted, job))
    sections = written_fleet(wanted, tmp_path / "job.yaml")
    data = {"model": "llama-2-7b", "plan": {"micro_batch": 1, "global_batch": wanted.n_devices, "seq_len": 4096}}
    data["plan"] |= {"dp": wanted.n_devices}
    read = load_job({**data, **{name: value for name, value in sections.items() if value is not None}})
    *inner, outer = moved.cluster.tiers
    assert read.cluster.device == moved.cluster.device
    assert read.cluster.n_devices == wanted.n_devices
    assert read.cluster.tiers[:-1] == tuple(inner)
    assert read.cluster.tiers[-1].bytes_per_s == outer.bytes_per_s
    assert read.variability == moved.variability


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--deadline", "30d"], "Add --tokens"),
        (["--days", "3", "--deadline", "30d"], "Add --tokens"),
        (["--tokens", "1B", "--deadline", "0d"], "must be above 0"),
        (["--tokens", "1B", "--deadline", "soon"], "--deadline"),
        (["--tokens", "1B", "-o", "no/such/chosen.yaml"], "no/such"),
        (["--price", "h100-sxm=3"], "--price: h100-sxm has a price, but nothing runs on it. Give the price of h200."),
        (["--objective", "cost_per_mtoken"], "needs the price of a GPU-hour of h200: --price h200=2.5"),
    ],
)
def test_wrong_deadlines_prices_and_files_are_refused(job: list[str], options: list[str], message: str, capsys) -> None:
    assert main(["capacity", *job, "--fleet", "8xh200", *options]) == 2
    assert message in capsys.readouterr().err


def test_a_wrong_space_is_no_fault_of_the_fleets(job: list[str], tmp_path: Path, capsys) -> None:
    (tmp_path / "space.yaml").write_text("{tp: [two]}")
    assert main(["capacity", *job, "--fleet", "8xh200"]) == 2
    said = capsys.readouterr().err
    assert "space.yaml:1:" in said
    assert "no fleet can run the job" not in said


def test_a_fleet_that_fails_too_often_is_impossible_and_the_others_are_told(
    job: list[str], tmp_path: Path, capsys
) -> None:
    """One failure a day per GPU: of 8 GPUs a run of days ends, of 2,048 none does."""
    (tmp_path / "often.yaml").write_text("hazards: [{cause: gpu, per_gpu_h: 0.0417, nodes_lost: 0}]")
    fleets = ["--fleet", "8xh200", "--fleet", "2048xh200", "--reliability", str(tmp_path / "often.yaml")]
    assert main(["capacity", *job, *fleets, "--days", "3", "--set", "plan.global_batch=2048", "--details"]) == 0
    told = capsys.readouterr().out
    assert "B: 2048xh200 is impossible: the job hardly makes progress" in told
