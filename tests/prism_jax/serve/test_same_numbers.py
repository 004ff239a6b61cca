"""Each of the seven screens shows the numbers that the command prints with --json."""

import contextlib
import io
import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.units import format_bytes, format_s
from prism_jax.shell.app import main
from prism_jax.show.reports import report_of
from tests.prism_jax.serve.client import JOB, Client

COMMANDS = {
    "a.json": ["predict", "job.yaml"],
    "b.json": ["predict", "job.yaml", "--set", "plan.micro_batch=2"],
    "check.json": ["check", "job.yaml"],
    "compare.json": ["compare", "job.yaml", "other.yaml"],
    "sweep.json": ["sweep", "job.yaml", "--set", "plan.micro_batch=1,2"],
    "watch.json": ["watch", "steps.csv"],
    "run.json": ["run", "job.yaml", "--steps", "100000", "--reliability", "llama3-2024", "--deadline", "1d"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what each command has printed."""
    folder = tmp_path_factory.mktemp("numbers")
    (folder / "job.yaml").write_text(JOB)
    (folder / "other.yaml").write_text(JOB.replace("micro_batch: 1", "micro_batch: 2"))
    rows = [f"{step},{rank},{1.0 + 0.1 * (rank == 3 and step > 30)}" for step in range(60) for rank in range(8)]
    (folder / "steps.csv").write_text("\n".join(["step,rank,duration_s", *rows]) + "\n")
    with contextlib.chdir(folder):
        for name, words in COMMANDS.items():
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                assert main([*words, "--json"]) == 0
            (folder / name).write_text(printed.getvalue())
    return folder


@pytest.fixture(scope="module")
def client(folder: Path) -> Client:
    return Client(folder)


def text_of(client: Client, path: str, **query: str) -> str:
    """What a screen says, without tags."""
    answer = client.get(path, **query)
    assert answer.status == 200, answer.text
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def saved(client: Client, name: str) -> Any:
    return json.loads((client.site.folder / name).read_text())


def shows_the_card(text: str, data: Any) -> None:
    """Whether the verdict and the facts of the report of `data` stand in a text."""
    card = report_of(data).card()
    assert card is not None
    missing = [own for own in (card.verdict, *card.facts.values()) if own and " ".join(own.split()) not in text]
    assert missing == []


def test_the_folder(client: Client):
    text, data = text_of(client, "/"), saved(client, "a.json")
    low, high = data["model_band_s"]["p5"], data["model_band_s"]["p95"]
    time, memory = data["step_time_s"], data["memory_bytes_per_gpu"]
    assert f"{format_s(time['p50'], 3)} ({format_s(low, 2)} to {format_s(high, 2)})" in text
    assert format_s(time["p95"], 3) in text
    assert f"{data['mfu']:.1%}" in text
    assert format_bytes(memory["total"], 3) in text


@pytest.mark.parametrize("name", ["a.json", "sweep.json", "run.json"])
def test_answers_studies_and_runs(client: Client, name: str):
    text, data = text_of(client, "/answer", file=name), saved(client, name)
    page = report_of(data).page()
    cells = [cell for block in page.blocks for row in getattr(block, "rows", ()) for cell in row]
    assert cells
    assert [cell for cell in cells if " ".join(cell.split()) not in text] == []
    if page.card is not None:
        shows_the_card(text, data)


def test_the_job(client: Client):
    checked = client.post("/job/check", {"file": "job.yaml", "name": "job.yaml", "text": JOB})
    text = " ".join(unescape(re.sub(r"<[^>]*>", " ", checked.text)).split())
    shows_the_card(text, saved(client, "check.json"))


def test_a_recording(client: Client):
    text, data = text_of(client, "/recording", file="steps.csv"), saved(client, "watch.json")
    shows_the_card(text, data)
    assert "Rank 3" in text


def test_a_comparison(client: Client):
    answer, data = client.ask("GET", "/compare?file=a.json&file=b.json"), saved(client, "compare.json")
    text = " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())
    low, high = (1.0 - 1.0 / data["jobs"][0][end] for end in ("ratio_low", "ratio_high"))
    assert f"B beats A with probability {data['prob_less'][1][0]:.0%}" in text
    assert f"(90% interval {low:.1%} to {high:+.0%})" in text
