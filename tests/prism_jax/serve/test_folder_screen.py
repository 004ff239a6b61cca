"""The folder screen: what is listed, with which figures, filtered, pinned; damaged and foreign files."""

import json
import os
from pathlib import Path

import pytest

from tests.prism_jax.serve.client import Client

PREDICTION = {
    "schema": "prism-jax/prediction/1",
    "job": {"name": "seventy", "n_devices": 512},
    "step_time_s": {"p50": 11.478, "p95": 11.648},
    "model_band_s": {"p5": 8.0, "p95": 19.0},
    "mfu": 0.431,
    "memory_bytes_per_gpu": {"total": 61.5 * 2**30},
    "fits": False,
    "record": {"command": "prism-jax predict seventy.yaml --json", "inputs": {"job": "seventy.yaml"}, "versions": {}},
}


@pytest.fixture
def client(tmp_path: Path) -> Client:
    return Client(tmp_path)


HEAD = """------------------------ arguments ------------------------
  num_layers ...................................... 32
  hidden_size ..................................... 4096
-------------------- end of arguments ---------------------
"""


def write(client: Client, name: str, at: float = 1e9, **changes: object) -> None:
    path = client.site.folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**PREDICTION, **changes}, indent=2))
    os.utime(path, (at, at))


def names(text: str) -> list[str]:
    return [part.partition('"')[0] for part in text.split('name="file" value="')[1:]]


def test_an_empty_folder_offers_an_example(client: Client):
    text = client.get("/").text
    assert "No reports are here yet." in text
    assert "Predict llama2_7b_fsdp_64" in text


def test_a_row_has_the_figures_of_the_report(client: Client):
    write(client, "deep/a.json")
    text = client.get("/").text
    shown = ("seventy", "512", "11.5 s (8 s to 19 s)", "11.6 s", "43.1%", "61.5 GiB, does not fit")
    assert all(f">{one}<" in text for one in shown)
    assert "2001-09-09 01:46" in text
    assert "prism-jax predict seventy.yaml --json" in text


def test_the_latest_stands_first_and_pinned_ones_before_it(client: Client):
    for number in range(4):
        write(client, f"{number}.json", at=1e9 + number)
    assert names(client.get("/rows").text) == ["3.json", "2.json", "1.json", "0.json"]
    assert client.post("/pin", {"file": "1.json", "pinned": "yes"}).status == 303
    assert names(client.get("/rows").text) == ["1.json", "3.json", "2.json", "0.json"]
    assert (client.site.folder / "pinned.txt").read_text() == "1.json\n"
    client.post("/pin", {"file": "1.json", "pinned": "no"})
    assert names(client.get("/rows").text) == ["3.json", "2.json", "1.json", "0.json"]


def test_the_filter_takes_all_words_of_job_kind_command_and_file(client: Client):
    write(client, "a.json")
    write(client, "b.json", job={"name": "forty", "n_devices": 8})
    assert names(client.get("/rows", filter="FORTY prediction").text) == ["b.json"]
    assert names(client.get("/rows", filter="seventy.yaml").text) == ["a.json", "b.json"]
    assert "None fits the filter." in client.get("/rows", filter="nothing").text


def test_many_reports_come_by_fifty(client: Client):
    for number in range(120):
        write(client, f"{number:03d}.json", at=1e9 - number)
    found = [names(client.get("/rows", start=str(start)).text) for start in (0, 50, 100)]
    assert [len(own) for own in found] == [50, 50, 20]
    assert sorted(sum(found, [])) == sorted(f"{number:03d}.json" for number in range(120))


def test_a_file_that_changes_is_read_again(client: Client):
    write(client, "a.json")
    assert "seventy" in client.get("/rows").text
    write(client, "a.json", at=2e9, job={"name": "eighty", "n_devices": 8})
    assert "eighty" in client.get("/rows").text
    (client.site.folder / "a.json").unlink()
    assert names(client.get("/rows").text) == []


@pytest.mark.parametrize(
    "content",
    [
        b'{"schema": "prism-jax/prediction/1", "job": ',
        b'{"schema": "prism-jax/',
        b'{"schema": "prism-jax/prediction/1", "job": {"n_devices": {}, "name": [1]}, "mfu": "x", "record": 3}',
        b'{"schema": "prism-jax/prediction/1", "step_time_s": {"p50": 1e999, "p95": -1}, "record": {"command": {}}}',
        b'{"schema": "prism-jax/x", "a": "\xff"}',
        b'{"schema": "prism-jax/' + b"[" * 100_000,
    ],
)
def test_damaged_reports_are_listed_and_break_nothing(client: Client, content: bytes):
    write(client, "good.json")
    (client.site.folder / "bad.json").write_bytes(content)
    answer = client.get("/")
    assert answer.status == 200
    assert "good.json" in answer.text
    assert "bad.json" in answer.text


def test_files_that_are_no_reports_are_not_listed(client: Client):
    (client.site.folder / "profile.json").write_text('{"traceEvents": []}')
    (client.site.folder / ".hidden.json").write_text(json.dumps(PREDICTION))
    (client.site.folder / "link.json").symlink_to("/etc/passwd")
    assert "No reports are here yet." in client.get("/").text


def test_reports_beyond_the_most_are_counted(client: Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("prism_jax.serve.results.MOST_FILES", 2)
    for number in range(5):
        write(client, f"{number}.json")
    text = client.get("/").text
    assert "2 reports" in text
    assert "not listed: 3." in text
    assert "4.json" not in text
    (client.site.folder / "z.yaml").write_text("model: llama-2-7b\n")
    assert "z.yaml" in client.get("/").text, "jobs are found behind any number of reports"
    assert "None fits the filter." in client.get("/rows", filter="4.json").text
    assert "not listed: 3." in client.get("/rows", filter="4.json").text
    assert "not listed: 3." in client.get("/compare").text


def test_pages_and_pictures_that_commands_write_are_no_inputs(client: Client):
    for name in ("c.html", "C.HTM", "c.png", "c.svg", "c.pdf"):
        (client.site.folder / name).write_text("<!doctype html>")
    assert "Logs, scripts" not in client.get("/").text
    (client.site.folder / "c.log").write_text("step 1\n")
    assert "Logs, scripts" in client.get("/").text


def test_hostile_names_are_text(client: Client):
    write(client, "<script>x.json", job={"name": "<img src=x>", "n_devices": 8})
    text = client.get("/").text
    assert "<script>x" not in text
    assert "<img src=x>" not in text
    assert "&lt;img src=x&gt;" in text


@pytest.mark.parametrize(
    ("name", "content", "screen"),
    [
        ("a.json", json.dumps(PREDICTION), "/answer"),
        ("job.yaml", "model: llama-3-8b\n", "/job"),
        ("run.sh", "torchrun pretrain_gpt.py --num-layers 32\n", "/job"),
        ("profile.json", '{"traceEvents": []}', "/recording"),
        ("steps.csv", "step,rank,step_s\n0,0,1.5\n1,0,1.6\n", "/recording"),
        ("head.log", HEAD, "/job"),
    ],
)
def test_a_file_opens_on_the_screen_for_its_content(client: Client, name: str, content: str, screen: str):
    (client.site.folder / name).write_text(content)
    answer = client.get("/open", file=name)
    assert (answer.status, answer.headers["location"]) == (303, f"{screen}?file={name}")
