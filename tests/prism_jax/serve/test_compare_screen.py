"""Saved reports side by side: what differs stands first, and the probability is that of `prism-jax compare`."""

import json
import re
import shutil
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from prism_jax.core.readable import percent, prob
from prism_jax.job.load_job import load_job
from prism_jax.prediction.report import PredictionReport
from prism_jax.show.reports import report_of
from prism_jax.study.compare_predictions import compared_predictions
from tests.prism_jax.serve.client import Client
from tests.prism_jax.serve.test_answer_screen import shown, written

COMMANDS = {
    "a.json": "predict job.yaml --samples 64",
    "b.json": "predict other.yaml --samples 64",
    "set.json": "predict job.yaml --samples 64 --set plan.global_batch=32",
    "fast.json": "predict job.yaml --samples 64 --fast",
    "both.json": "compare job.yaml other.yaml --samples 64",
    "check.json": "check job.yaml",
    "check2.json": "check other.yaml",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("compared"), COMMANDS)


@pytest.fixture
def client(made: Path, tmp_path: Path) -> Client:
    return Client(Path(shutil.copytree(made, tmp_path / "dir")))


def compared(client: Client, *names: str) -> str:
    answer = client.ask("GET", "/compare?" + "&".join(f"file={name}" for name in names))
    assert answer.status == 200
    assert answer.text.count("<h1") == 1
    assert not re.search(r"<[^>]+\s(style|on\w+)=", answer.text)
    return answer.text


def predictions(folder: Path, *names: str) -> list[PredictionReport]:
    found = [report_of(json.loads((folder / name).read_text())) for name in names]
    return [one for one in found if isinstance(one, PredictionReport)]


def test_probability_and_gain_are_those_of_the_command(client: Client):
    folder = client.site.folder
    both = json.loads((folder / "both.json").read_text())
    jobs = [load_job(folder / name) for name in ("job.yaml", "other.yaml")]
    _, p95, _ = compared_predictions(predictions(folder, "a.json", "b.json"), jobs)
    for own, job in zip(p95.values, both["jobs"], strict=True):
        assert own == pytest.approx(job["figures"]["p95_s"], rel=1e-9)
    assert p95.prob_less == tuple(map(tuple, both["prob_less"]))
    first, second = both["jobs"]
    base, other = (first, second) if first["is_best"] else (second, first)
    low, high = p95.ratios[1] if other is second else [1.0 / one for one in reversed(p95.ratios[1])]
    assert (low, high) == pytest.approx((other["ratio_low"], other["ratio_high"]), rel=1e-5)
    best, worse = ("A", "B") if first["is_best"] else ("B", "A")
    text = shown(compared(client, "a.json", "b.json"))
    chance = both["prob_less"][best == "B"][worse == "B"]
    assert f"{best} beats {worse} with probability {prob(chance)}" in text
    gain = 1.0 - base["figures"]["p95_s"] / other["figures"]["p95_s"]
    assert f"its p95 is lower by {percent(gain)} (90% interval {percent(1.0 - 1.0 / low, sign=True)}" in text


def test_what_differs_stands_first(client: Client):
    text = shown(compared(client, "a.json", "b.json"))
    fields, faster, figures = (
        text.index(one) for one in ("Fields of the jobs that differ", "Which is faster", "P(B beats A)")
    )
    assert fields < faster < figures
    assert "field A B plan.micro_batch" in text[fields:faster]
    assert "plan.dp" not in text
    link = next(
        one for one in re.findall(r'href="(/start[?]command=compare[^"]*)"', compared(client, "a.json", "b.json"))
    )
    query = parse_qs(urlsplit(unescape(link)).query)
    assert query == {"command": ["compare"], "job": ["job.yaml", "other.yaml"]}
    assert client.ask("GET", unescape(link)).status == 200


def test_unlike_batches_are_compared_per_token(client: Client):
    folder = client.site.folder
    reports = predictions(folder, "a.json", "set.json")
    _, p95, _ = compared_predictions(reports, None)
    assert (p95.name, p95.unit) == ("p95 GPU-hours per million tokens", "GPU-hours")
    for value, one in zip(p95.values, reports, strict=True):
        per_token = one.step_time_s.p95 * one.job.n_devices / one.job.tokens_per_step
        assert value == pytest.approx(per_token * 1e6 / 3600.0)
    text = shown(compared(client, "a.json", "set.json"))
    assert "p95 GPU-hours per million tokens" in text
    assert "plan.global_batch" in text
    assert "/start?command=compare" not in compared(client, "a.json", "set.json"), "one job file"


def test_without_the_jobs_the_intervals_are_unrelated_and_the_page_says_so(client: Client):
    folder = client.site.folder
    reports = predictions(folder, "a.json", "b.json")
    jobs = [load_job(folder / name) for name in ("job.yaml", "other.yaml")]
    for together, apart in zip(compared_predictions(reports, jobs), compared_predictions(reports, None), strict=True):
        assert apart.values == together.values
        assert abs(apart.prob_less[0][1] - 0.5) <= abs(together.prob_less[0][1] - 0.5)
        assert apart.ratios[1][1] - apart.ratios[1][0] > together.ratios[1][1] - together.ratios[1][0]
        width = [one.model_band_s.p95 / one.model_band_s.p5 for one in reports]
        own = apart.ratios[1][1] / apart.ratios[1][0]
        assert max(width) < own < width[0] * width[1]
    data = json.loads((folder / "b.json").read_text())
    del data["record"]["job_file"]
    (folder / "old.json").write_text(json.dumps(data))
    text = shown(compared(client, "a.json", "old.json"))
    assert "taken as unrelated" in text
    assert "taken as unrelated" not in shown(compared(client, "a.json", "b.json"))


def test_a_job_that_does_not_fit_is_told_beside_its_speed(client: Client):
    data = json.loads((client.site.folder / "b.json").read_text())
    (client.site.folder / "full.json").write_text(json.dumps({**data, "fits": False}))
    assert "B does not fit into memory." in shown(compared(client, "a.json", "full.json"))
    assert "does not fit" not in shown(compared(client, "a.json", "b.json"))


def test_a_report_beside_its_copy_differs_in_nothing(client: Client):
    shutil.copy(client.site.folder / "a.json", client.site.folder / "copy.json")
    text = shown(compared(client, "a.json", "copy.json"))
    assert "Their jobs state the same." in text
    assert "A and B have the same p95." in text
    assert "All figures that differ" not in text


def test_more_than_two_have_a_table_of_figures_and_of_probabilities(client: Client):
    text = shown(compared(client, "a.json", "b.json", "fast.json"))
    assert "figure A B C" in text
    assert "of the row would be measured less" in text
    assert "has the least p95" in text


def test_reports_of_one_kind_have_their_cards_and_the_keys_that_differ(client: Client):
    text = shown(compared(client, "check.json", "check2.json"))
    checked = [json.loads((client.site.folder / name).read_text()) for name in ("check.json", "check2.json")]
    a, b = (one["micro_batch"] for one in checked)
    assert f"micro_batch {a} {b} {b - a:+.4g} {b / a:.4g}" in text
    assert text.count("Nothing was simulated.") == 2
    assert "different kinds" in shown(compared(client, "a.json", "check.json"))


def test_less_than_two_reports_are_a_choice_and_many_are_refused(client: Client):
    for target in ("/compare", "/compare?file=a.json", "/compare?file=a.json&file=a.json"):
        text = client.ask("GET", target).text
        assert text.count("<select") == 2
    assert 'value="a.json" selected' in client.ask("GET", "/compare?file=a.json").text
    names = [f"{n}.json" for n in range(9)]
    for name in names:
        shutil.copy(client.site.folder / "check.json", client.site.folder / name)
    answer = client.ask("GET", "/compare?" + "&".join(f"file={name}" for name in names))
    assert answer.status == 400
    assert "at most 8" in answer.text
    for bad in ("../a.json", "none.json", "job.yaml"):
        assert client.ask("GET", f"/compare?file=a.json&file={bad}").status == 400
    assert Client(client.site.folder / "empty").get("/compare").status == 200
