"""The screen of a recording: which rank is slow, the picture of ranks by steps, refusals, and the same numbers as the command."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from prism_jax.shell.app import main
from prism_jax.tables.streams import example_traces

from .client import Client

SLOW, ONSET = 5, 60


def write_log(path: Path, n_rank: int = 8, n_step: int = 120, factor: float = 1.2) -> None:
    """A table of steps and ranks, one of which is slow from a step on."""
    random, lines = np.random.default_rng(1), ["step,rank,step_time_s,forward_s"]
    for step in range(n_step):
        forward = 0.5 * np.exp(random.normal(0.0, 0.005, n_rank))
        forward[SLOW] *= factor if step >= ONSET else 1.0
        longest = forward.max() + 0.5
        lines += [f"{step},{rank},{longest:.6f},{forward[rank]:.6f}" for rank in range(n_rank)]
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture
def client(tmp_path: Path) -> Client:
    write_log(tmp_path / "log.csv")
    return Client(tmp_path)


def test_the_slow_rank_is_named(client: Client) -> None:
    page = client.get("/recording", file="log.csv")
    assert page.status == 200
    verdict = re.search(r'id="slow-rank"[^>]*>([^<]*)<', page.text)
    assert verdict is not None
    assert verdict[1].startswith(f"Rank {SLOW} is slow since step {ONSET}")
    assert "WAIT: steps are" in page.text


def test_even_ranks_are_cleared(client: Client) -> None:
    write_log(client.site.folder / "even.csv", factor=1.0)
    page = client.get("/recording", file="even.csv").text
    assert "No rank is slow" in page
    assert "No slow phase" in page


def test_cells_of_the_picture_are_the_slow_rank_alone(client: Client) -> None:
    page = client.get("/recording", file="log.csv").text
    drawn = page[page.index("<svg") : page.index("</svg>")]
    cells = re.findall(r'<rect class="heat-([1-5])" x="([\d.]+)" y="(\d+)" width="([\d.]+)"', drawn)
    assert {int(y) for _, _, y, _ in cells} == {26 + 16 * SLOW}
    assert min(float(x) for _, x, _, _ in cells) == pytest.approx(90 + 900 * ONSET / 120, abs=0.1)
    assert sum(float(width) for *_, width in cells) == pytest.approx(450.0, abs=1.0)
    assert "style=" not in drawn
    assert 'role="img"' in drawn
    assert "<title" in drawn


def test_another_column_can_be_compared(client: Client) -> None:
    page = client.get("/recording", file="log.csv", part="").text
    assert 'aria-current="true">step<' in page or 'aria-current="true">forward_s<' in page
    assert "/recording?file=log.csv&amp;part=forward_s" in page


def test_numbers_are_those_of_the_command(
    client: Client, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    client.get("/recording", file="log.csv")
    kept = json.loads((client.site.folder / "log.csv.watch.json").read_text())
    monkeypatch.chdir(client.site.folder)
    capsys.readouterr()
    assert main(["watch", "log.csv", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    for data in (kept, printed):
        data.pop("command")
    assert kept == printed


def test_the_report_is_kept_and_made_again_when_the_log_changes(client: Client) -> None:
    client.get("/recording", file="log.csv")
    kept = client.site.folder / "log.csv.watch.json"
    first = kept.stat().st_mtime_ns
    page = client.get("/recording", file="log.csv").text
    assert kept.stat().st_mtime_ns == first
    assert "/picture?file=log.csv.watch.json" in page
    write_log(client.site.folder / "log.csv", factor=1.0)
    assert "No rank is slow" in client.get("/recording", file="log.csv").text
    assert kept.stat().st_mtime_ns > first


def test_a_file_of_somebody_else_stays(client: Client) -> None:
    other = client.site.folder / "log.csv.watch.json"
    other.write_text("mine")
    assert "is another file" in client.get("/recording", file="log.csv").text
    assert other.read_text() == "mine"


def test_costs_are_told_again(client: Client) -> None:
    page = client.get("/recording", **{"file": "log.csv", "restart-cost": "1s", "remaining": "1000"}).text
    assert "ACT:" in page
    assert "1,000 steps take" in page
    assert 'value="1s"' in page


@pytest.mark.parametrize(
    "query", [{"restart-cost": "soon"}, {"remaining": "-1"}, {"remaining": "9" * 40}, {"remaining": "0"}]
)
def test_what_cannot_be_is_refused(client: Client, query: dict[str, str]) -> None:
    assert client.get("/recording", file="log.csv", **query).status == 400


@pytest.mark.parametrize("name", ["", "nothing.csv", "../log.csv", ".prism-jax", "no.bin", "empty.log", "text.txt"])
def test_what_is_no_recording_is_told_in_its_own_words(client: Client, name: str) -> None:
    (client.site.folder / "no.bin").write_bytes(bytes(range(256)) * 20)
    (client.site.folder / "empty.log").write_bytes(b"")
    (client.site.folder / "text.txt").write_text("a line\nanother line\n")
    answer = client.get("/recording", file=name)
    assert answer.status == 400
    assert str(client.site.folder) not in answer.text


def test_a_short_log_is_shown_and_says_why_phases_are_not(client: Client) -> None:
    write_log(client.site.folder / "short.csv", n_step=6)
    page = client.get("/recording", file="short.csv")
    assert page.status == 200
    assert "6 steps, but 20 are learnt from" in page.text
    assert "<svg" in page.text


def test_a_folder_of_profiles_names_its_slow_rank(tmp_path: Path) -> None:
    shutil.copytree(example_traces()["local_cluster"], tmp_path / "profiles")
    client = Client(tmp_path)
    page = client.get("/recording", file="profiles").text
    assert "Rank 3 is slow" in page
    assert "its stage" in page
    assert "/recording?file=profiles" in client.get("/recording", file="profiles/rank0.json.gz").text


def test_a_large_recording_is_read_by_a_run(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("prism_jax.serve.files.LARGE", 100)
    page = client.get("/recording", file="log.csv")
    assert page.status == 200
    assert "too large to be read while you wait" in page.text
    assert 'value="watch"' in page.text


def test_buttons_go_on_with_it(client: Client) -> None:
    page = client.get("/recording", file="log.csv").text
    assert 'value="trace predict"' in page
    assert "/start?command=calibrate&amp;log=log.csv" in page
    answer = client.post("/runs", {"command": "trace predict", "job": "log.csv"})
    assert answer.status == 303
    assert client.runs.submitted == [("trace", "predict", "log.csv")]


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "served" / "profiles").mkdir(parents=True)
    write_log(tmp_path / "log.csv")
    (tmp_path / "served" / "profiles" / "rank0.csv").symlink_to(tmp_path / "log.csv")
    (tmp_path / "served" / "own.csv").symlink_to(tmp_path / "log.csv")
    client = Client(tmp_path / "served")
    for name in ("profiles", "profiles/rank0.csv", "own.csv"):
        answer = client.get("/recording", file=name)
        assert answer.status == 400
        assert "leads out of the folder" in answer.text
