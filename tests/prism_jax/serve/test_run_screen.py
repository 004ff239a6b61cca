"""The screen of a run in each of its states, and what its buttons post."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.errors import DataError
from prism_jax.serve.runs import CommandRun

from .client import Client
from .test_partial_rows import write_study

WORDS = ("predict", "a<b.yaml", "--set", "plan.tp=2")


def a_run(name: str, **state: Any) -> CommandRun:
    return CommandRun(name, **{"words": WORDS, **state})


class FixedRuns:
    """Runs that are as a test has set them."""

    def __init__(self, *runs: CommandRun) -> None:
        self.known = {run.name: run for run in runs}
        self.asked: list[tuple[str, str]] = []

    def runs(self) -> list[CommandRun]:
        return list(self.known.values())

    def run(self, name: str) -> CommandRun:
        if name not in self.known:
            raise DataError(f"run {name}: there is none in this folder")
        return self.known[name]

    def shell_words(self, name: str) -> str:
        return f"prism-jax {' '.join(self.run(name).words)} --resume {name}.work --json"

    def cancel(self, name: str) -> CommandRun:
        self.asked.append(("cancel", name))
        return self.run(name)

    def resume(self, name: str) -> CommandRun:
        self.asked.append(("resume", name))
        return self.run(name)


def client(folder: Path, *runs: CommandRun) -> Client:
    return Client(folder, FixedRuns(*runs))


def test_a_running_run_tells_how_far_it_is(tmp_path: Path) -> None:
    run = a_run("a-1", state="running", done=0.25, what="drawing", seconds_left=90.0)
    page = client(tmp_path, run).get("/run", name="a-1").text
    assert ">Running<" in page
    assert 'value="0.2500"' in page
    assert "25%" in page
    assert "drawing" in page
    assert "90 s left" in page
    assert "prism-jax predict &#39;a&lt;b.yaml&#39; --set plan.tp=2" in page
    assert 'hx-trigger="every 1s"' in page
    assert 'action="/run/cancel"' in page
    assert "/run/resume" not in page


def test_buttons_stand_outside_of_what_is_renewed(tmp_path: Path) -> None:
    part = client(tmp_path, a_run("a-1", state="running")).get("/run/state", name="a-1", was="running False")
    assert "<button" not in part.text
    assert "<progress" in part.text
    assert "hx-redirect" not in part.headers


def test_a_run_that_is_done_leads_to_its_answer(tmp_path: Path) -> None:
    own = client(tmp_path, a_run("a-1", state="done"))
    assert own.get("/run/state", name="a-1", was="running False").headers["hx-redirect"] == "/answer?file=a-1.json"
    page = own.get("/run", name="a-1").text
    assert 'href="/answer?file=a-1.json"' in page
    assert "hx-trigger" not in page


@pytest.mark.parametrize("state", ["failed", "cancelled", "interrupted"])
def test_another_state_is_a_new_page_with_a_way_on(tmp_path: Path, state: str) -> None:
    run = a_run("a-1", state=state, error="error: j.yaml:3: plan.tp: 0, but it must be 1 or more\n1 mistake")
    own = client(tmp_path, run)
    assert own.get("/run/state", name="a-1", was="running False").headers["hx-refresh"] == "true"
    page = own.get("/run", name="a-1").text
    assert "j.yaml:3: plan.tp: 0, but it must be 1 or more" in page
    assert 'action="/run/resume"' in page
    assert "/start?again=a-1" in page
    assert "hx-trigger" not in page


def test_a_run_that_is_stopping_has_no_button(tmp_path: Path) -> None:
    page = client(tmp_path, a_run("a-1", state="running", is_stopping=True)).get("/run", name="a-1").text
    assert "Stopping" in page
    assert "/run/cancel" not in page


def test_a_waiting_run_has_its_place_in_the_queue(tmp_path: Path) -> None:
    first = a_run("a-1", state="running", turn=1)
    own = client(tmp_path, first, a_run("a-2", turn=2), a_run("a-3", turn=3))
    assert "It is the next one." in own.get("/run", name="a-2").text
    page = own.get("/run", name="a-3").text
    assert "1 run before this one." in page
    assert "/run?name=a-1" in page
    assert "/run?name=a-2" in page


def test_buttons_act_and_lead_back(tmp_path: Path) -> None:
    runs = FixedRuns(a_run("a-1", state="running"))
    own = Client(tmp_path, runs)
    for what in ("cancel", "resume"):
        answer = own.post(f"/run/{what}", {"name": "a-1"})
        assert answer.status == 303
        assert answer.headers["location"] == "/run?name=a-1"
    assert runs.asked == [("cancel", "a-1"), ("resume", "a-1")]


@pytest.mark.parametrize(
    "target", ["/run", "/run/state", "/run?name=b", "/run/state?name=b", "/run?name=%00", "/start?again=b"]
)
def test_a_run_that_is_not_there_is_told(tmp_path: Path, target: str) -> None:
    assert client(tmp_path).ask("GET", target).status == 400


def test_all_runs_are_listed(tmp_path: Path) -> None:
    own = client(tmp_path, a_run("a-1", state="done"), a_run("a-2", state="running"), replace(a_run("a-3"), words=()))
    page = own.get("/runs").text
    assert len(re.findall(r"/run\?name=a-\d", page)) == 3
    assert page.index("a-2") < page.index("a-1")
    assert "Nothing was run here yet" in client(tmp_path).get("/runs").text


def test_rows_come_when_the_journal_was_saved_again(tmp_path: Path) -> None:
    words = ("sweep", "j.yaml", "--set", "plan.tp=1,2")
    own = client(tmp_path, a_run("a-1", state="running", words=words))
    assert own.get("/run/rows", name="a-1", was="").status == 204
    write_study(tmp_path / "a-1.work", {0: 3.0})
    first = own.get("/run/rows", name="a-1", was="")
    assert first.status == 200
    assert "1 of 2 jobs are done" in first.text
    was = re.search(r"was=(\d+)", first.text)
    assert was is not None
    assert own.get("/run/rows", name="a-1", was=was[1]).status == 204
    assert "1 of 2 jobs are done" in own.get("/run", name="a-1").text


def test_a_long_list_shows_the_latest(tmp_path: Path) -> None:
    runs = [a_run(f"a-{number}", state="done", turn=number) for number in range(1, 251)]
    page = client(tmp_path, *runs).get("/runs").text
    assert page.count("/run?name=a-") == 200
    assert "/run?name=a-250" in page
    assert "and 50 earlier ones" in page


def test_the_words_of_a_run_fill_the_form(tmp_path: Path) -> None:
    page = client(tmp_path, a_run("a-1")).get("/start", again="a-1").text
    assert 'value="a&lt;b.yaml"' in page
    assert "plan.tp=2</textarea>" in page


def test_a_run_without_a_known_command_shows_the_list(tmp_path: Path) -> None:
    page = client(tmp_path, a_run("a-1", words=("capture", "x"))).get("/start", again="a-1")
    assert page.status == 200
    assert "Run a command" in page.text
