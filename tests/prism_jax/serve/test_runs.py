"""The queue of runs: what it refuses, cancels, resumes and finds again; answers are those of the command line."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from prism_jax.core.errors import DataError
from prism_jax.core.processes import Terminated
from prism_jax.core.units import format_bytes
from prism_jax.core.write_file import write_text
from prism_jax.search.figures import SearchedPlan
from prism_jax.serve import runs as queue, worker
from prism_jax.serve.lanes import LostWorkerError, Order
from prism_jax.serve.partial_rows import partial_rows
from prism_jax.serve.runs import MOST_LOST, MOST_WAITING, NAME, CommandRun, Runs
from prism_jax.serve.words import checked_words
from prism_jax.serve.worker import CommandOutcome, run_words
from prism_jax.shell.app import main
from prism_jax.shell.catalogue import COMMANDS
from prism_jax.shell.streams import VERBOSITY

ROOT = Path(__file__).parents[3]
JOB = "llama2_7b_fsdp_64"


def ended(runs: Runs, name: str, within_s: float = 300.0) -> CommandRun:
    """A run that does not wait or run any more."""
    until = time.monotonic() + within_s
    while (run := runs.run(name)).state in ("waiting", "running") and time.monotonic() < until:
        time.sleep(0.05)
    return run


class MadeLane:
    """A lane that answers as it is told, without a process."""

    def __init__(self, answer: Callable[[Order, Callable[[], bool]], CommandOutcome]) -> None:
        self.answer = answer

    def run(self, order: Order, stops: Callable[[], bool], _: Callable[[], bool], /) -> CommandOutcome:
        return self.answer(order, stops)

    def close(self) -> None:
        pass


def with_lane(monkeypatch: pytest.MonkeyPatch, answer: Callable[[Order, Callable[[], bool]], CommandOutcome]) -> None:
    @contextmanager
    def lanes(_: object) -> Iterator[list[MadeLane]]:
        yield [MadeLane(answer)]

    monkeypatch.setattr(queue, "lanes_of", lanes)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "must have 1 to"),
        (["x"] * 1000, "must have 1 to"),
        (["nonsense", "x"], "there is none"),
        (["predict"], "JOB is missing or has no value"),
        (["predict", JOB, "--nonsense"], "Unknown option"),
        (["predict", JOB, "--help"], "makes no report"),
        (["--version"], "there is none"),
        (["init", "new.yaml"], "makes no report"),
        (["measure", "--save-dir", "x"], "makes no report"),
        (["capture", "program.py:step"], "executes code"),
        (["sweep", JOB, "--set", "plan.tp=1,2", "--executor", "dask://host:1"], "--executor"),
        (["predict", JOB, "--processes", "mpi"], "--executor"),
        (["predict", "/etc/passwd"], "leads out"),
        (["predict", "../job.yaml"], "leads out"),
        (["predict", "a/../../job.yaml"], "leads out"),
        (["predict", "~/job.yaml"], "leads out"),
        (["predict", "outside/job.yaml"], "a link leads out"),
        (["predict", "link.yaml"], "a link leads out"),
        (["search", JOB, "-o", "/tmp/best.yaml"], "leads out"),
        (["search", JOB, "-o/tmp/best.yaml"], "leads out"),
        (["search", JOB, "--save-dir=../plans"], "leads out"),
        (["search", JOB, "--resume", "../kept"], "leads out"),
        (["sweep", JOB, "--csv", "outside/table.csv"], "a link leads out"),
        (["predict", JOB, "--plot", "../step.png"], "leads out"),
        (["predict", JOB, "--html", "/tmp/step.html"], "leads out"),
        (["predict", JOB, "--set", "variability=../fit.npz"], "leads out"),
        (["predict", JOB, "--fit", "good.npz", "--fit", "/fit.npz"], "leads out"),
        (["calibrate", "runs.csv", "--log", "1=/var/log/messages"], "leads out"),
        (["predict", "a\0b"], "no usable text"),
        (["predict", "a\ud800"], "no usable text"),
        (["predict", "a\x1b[2Jb"], "no usable text"),
    ],
)
def test_words_that_the_page_does_not_run_are_refused(words: list[str], said: str, tmp_path: Path):
    folder = tmp_path / "served"
    folder.mkdir()
    (folder / "outside").symlink_to(tmp_path)
    (folder / "link.yaml").symlink_to("/etc/hostname")
    with pytest.raises(DataError, match=said):
        Runs(folder).submit(words)
    assert not list(folder.glob("*.run"))


WORDS = st.one_of(
    st.text(max_size=8),
    st.sampled_from(
        ["predict", "search", "trace", "info", JOB, "--set", "plan.tp=2", "--top", "3", "--", "-o", "--json", "-"]
    ),
)


@settings(
    max_examples=300, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.lists(WORDS, max_size=6))
def test_any_words_are_taken_or_refused_in_one_line(tmp_path: Path, words: list[str]):
    try:
        checked = checked_words(words, tmp_path)
    except DataError as error:
        assert "\n" not in str(error)
        assert str(error).isprintable()
    else:
        assert checked_words(checked.words, tmp_path) == checked


def test_words_are_kept_as_the_command_line_takes_them(tmp_path: Path):
    assert checked_words(["job", JOB, "--json"], tmp_path).words == ("run", JOB)  # an earlier name
    assert checked_words(["validate", "train.log"], tmp_path).words == ("validate", "file", "train.log")
    search = checked_words(["search", "jobs/a b.yaml", "--set", "plan.tp=4"], tmp_path)
    assert (search.keeps_work, search.subject) == (True, "jobs/a b.yaml")
    assert not checked_words(["cloud", JOB, "--steps", "10"], tmp_path).keeps_work  # --resume there is another thing
    own = checked_words(["search", JOB, "--resume", "mine.npz"], tmp_path)
    assert (own.journal, worker.words_to_run(own, "mine.npz")) == ("mine.npz", [*own.words, "--json"])
    script = checked_words(["import", "run.sh", "--env", "DATA=/data", "--", "-x"], tmp_path)
    assert script.with_options("--json") == ["import", "run.sh", "--env", "DATA=/data", "--json", "--", "-x"]


def test_one_more_run_than_may_wait_is_refused_with_the_bound(tmp_path: Path):
    runs = Runs(tmp_path)  # without workers
    names = [runs.submit(["check", JOB]).name for _ in range(MOST_WAITING)]
    assert names[:2] == [f"check-{JOB}-1", f"check-{JOB}-2"]
    assert all(NAME.fullmatch(name) for name in names)
    with pytest.raises(DataError, match=rf"queue: {MOST_WAITING} runs wait"):
        runs.submit(["check", JOB])
    assert runs.cancel(names[3]).state == "cancelled"
    assert runs.submit(["check", JOB]).state == "waiting"
    with pytest.raises(DataError, match=f"{MOST_WAITING} runs wait"):
        runs.resume(names[3])
    runs.cancel(names[0])
    runs.resume(names[3])
    waiting = [run.name for run in runs.runs() if run.state == "waiting"]
    assert waiting[-2:] == [f"check-{JOB}-{MOST_WAITING + 1}", names[3]]


def test_names_are_safe_and_lead_to_no_other_file(tmp_path: Path):
    runs = Runs(tmp_path)
    name = runs.submit(["check", "jobs/a b;$(x)…é.yaml"]).name
    assert name == "check-a_b_x-1"
    (tmp_path / f"check-{JOB}-1.json").write_text("{}")  # a report that someone saved
    assert runs.submit(["check", JOB]).name == f"check-{JOB}-2"
    for wrong in ("../a", "a/b", "", "nothing-1", "a" * 300, "a\0b"):
        for act in (runs.run, runs.cancel, runs.resume, runs.shell_words):
            with pytest.raises(DataError, match="there is none"):
                act(wrong)


def saved(folder: Path, name: str = "a-1", **changes: Any) -> Path:
    """The file of a run that waits, with some fields changed; None: left out."""
    runs = Runs(folder)
    run = runs.submit(["check", JOB])
    found = json.loads((folder / f"{run.name}.run").read_text()) | changes
    (folder / f"{run.name}.run").unlink()
    path = folder / f"{name}.run"
    path.write_text(json.dumps({key: value for key, value in found.items() if key not in changes or value is not None}))
    return path


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"null",
        b'{"schema": "prism-jax/run-of-command/1"}',
        b"[" * 100_000,
        b" " * (1 << 19),
        b'{"schema": 1, "schema": 2}',
    ],
)
def test_a_damaged_file_is_a_failed_run_that_says_why(content: bytes, tmp_path: Path):
    (tmp_path / "a-1.run").write_bytes(content)
    with Runs(tmp_path) as runs:
        (run,) = runs.runs()
        assert run.state == "failed"
        assert "a-1.run" in run.error
        assert "\n" not in run.error
        assert runs.cancel("a-1").state == "failed"
        with pytest.raises(DataError):
            runs.resume("a-1")
    assert (tmp_path / "a-1.run").read_bytes() == content


@pytest.mark.parametrize(
    "changes",
    [
        {"words": "check"},
        {"words": [1]},
        {"words": ["x"] * 10_000},
        {"state": "sleeping"},
        {"state": ["waiting"]},
        {"turn": -1},
        {"turn": True},
        {"turn": 2**70},
        {"n_lost": None},
        {"error": "x" * 100_000},
        {"exit_code": "0"},
        {"is_stopping": 1},
        {"schema": "prism-jax/run-of-command/2"},
    ],
)
def test_a_file_with_a_wrong_field_is_a_failed_run(changes: dict[str, Any], tmp_path: Path):
    saved(tmp_path, **changes)
    (run,) = Runs(tmp_path).runs()
    assert run.state == "failed"
    assert run.error


def test_a_link_in_the_place_of_a_run_is_never_written_through(tmp_path: Path):
    folder = tmp_path / "served"
    folder.mkdir()
    target = saved(tmp_path, state="running")
    before = target.read_bytes()
    (folder / "b-1.run").symlink_to(target)
    (folder / "pipe-1.run").mkdir()
    with Runs(folder) as runs:
        assert [run.state for run in runs.runs()] == ["failed", "failed"]
        runs.cancel("b-1")
    assert target.read_bytes() == before


def test_words_of_a_file_are_checked_before_they_run(tmp_path: Path):
    saved(tmp_path, words=["check", "/etc/passwd"])
    with Runs(tmp_path) as runs:
        run = ended(runs, "a-1")
    assert run.state == "failed"
    assert run.exit_code == 2
    assert "leads out" in run.error


def test_a_start_takes_up_what_a_killed_server_left_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    def answer(order: Order, _: object) -> CommandOutcome:
        seen.append(order.name)
        return CommandOutcome(0, "", True, "")

    with_lane(monkeypatch, answer)
    for number, state in enumerate(("waiting", "running", "done", "cancelled", "running", "waiting")):
        saved(tmp_path, f"a-{number}", turn=6 - number, state=state, is_stopping=number == 4)
    for name in ("a-1.progress", "a-4.cancel"):
        (tmp_path / name).write_text("{}")
    with Runs(tmp_path) as runs:
        assert ended(runs, "a-0").state == "done"
        assert seen == ["a-5", "a-1", "a-0"]
        assert runs.run("a-4").state == "cancelled"
    assert not list(tmp_path.glob("*.progress"))
    assert not list(tmp_path.glob("*.cancel"))


def test_a_run_whose_worker_is_lost_is_put_back_a_few_times(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    seen: list[str] = []

    def answer(order: Order, _: object) -> CommandOutcome:
        seen.append(order.name)
        raise LostWorkerError("its worker ended: it was killed, or ran out of memory")

    with_lane(monkeypatch, answer)
    with Runs(tmp_path) as runs:
        run = ended(runs, runs.submit(["check", JOB]).name)
        assert (run.state, run.n_lost, len(seen)) == ("interrupted", MOST_LOST + 1, MOST_LOST + 1)
        assert "out of memory" in run.error
        assert ended(runs, runs.resume(run.name).name).state == "interrupted"
    assert len(seen) == 2 * (MOST_LOST + 1)


def test_an_error_in_a_lane_fails_its_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def answer(order: Order, _: object) -> CommandOutcome:
        if order.name.endswith("-1"):
            raise RuntimeError("no such thing")
        return CommandOutcome(0, "", True, "")

    with_lane(monkeypatch, answer)
    with Runs(tmp_path) as runs:
        first, second = runs.submit(["check", JOB]), runs.submit(["check", JOB])
        assert ended(runs, second.name).state == "done"
        assert (runs.run(first.name).state, runs.run(first.name).error) == ("failed", "RuntimeError: no such thing")


def test_a_disk_that_is_full_for_a_while_and_a_file_of_a_person_stop_no_lane(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    with_lane(monkeypatch, lambda *_: CommandOutcome(0, "", True, ""))
    monkeypatch.setattr(queue, "LOOK_AGAIN_S", 0.05)
    is_full, tried = threading.Event(), list[Path]()

    def write(path: Path, text: str) -> None:
        tried.append(path)
        if is_full.is_set():
            raise OSError(28, "No space left on device")
        write_text(path, text)

    monkeypatch.setattr(queue, "write_text", write)
    runs = Runs(tmp_path)
    name = runs.submit(["check", JOB]).name
    is_full.set()
    with runs:
        while len(tried) < 4:
            time.sleep(0.01)
        assert runs.run(name).state == "waiting"
        is_full.clear()
        assert ended(runs, name).state == "done"
        saved(tmp_path, "by-hand-1", state="waiting")
        assert ended(runs, "by-hand-1").state == "done"


def test_a_run_is_cancelled_on_a_full_disk_and_ends_well_without_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def answer(_: Order, stops: Callable[[], bool]) -> CommandOutcome:
        while not stops():
            time.sleep(0.01)
        return CommandOutcome(143, "", False, "")

    def is_full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with_lane(monkeypatch, answer)
    with Runs(tmp_path) as runs:
        for way in ("full", "removed"):
            name = runs.submit(["check", JOB]).name
            while runs.run(name).state != "running":
                time.sleep(0.01)
            if way == "full":
                with monkeypatch.context() as disk:
                    disk.setattr(queue, "write_text", is_full)
                    disk.setattr(queue.os, "open", is_full)
                    assert runs.cancel(name).is_stopping
                    run = ended(runs, name)
                assert (run.state, "cannot be written: No space left" in run.error) == ("cancelled", True)
            else:
                (tmp_path / f"{name}.run").unlink()
                runs._ask_to_stop(name)
                while not (tmp_path / f"{name}.run").exists():
                    time.sleep(0.01)
        assert all(thread.is_alive() for thread in runs._threads)


def test_closing_puts_a_run_back_and_cancelling_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def answer(_: Order, stops: Callable[[], bool]) -> CommandOutcome:
        while not stops():
            time.sleep(0.01)
        return CommandOutcome(143, "", False, "kept.work")

    with_lane(monkeypatch, answer)
    with Runs(tmp_path) as runs:
        first, second = runs.submit(["search", JOB]), runs.submit(["search", JOB])
        while runs.run(first.name).state != "running":
            time.sleep(0.01)
        assert runs.cancel(first.name).is_stopping
        run = ended(runs, first.name)
        assert (run.state, run.journal, run.is_stopping) == ("cancelled", "kept.work", False)
        assert runs.shell_words(run.name) == f"prism-jax search {JOB} --resume kept.work --json > {run.report}"
        while runs.run(second.name).state != "running":
            time.sleep(0.01)
    assert Runs(tmp_path).run(second.name).state == "waiting"
    assert not list(tmp_path.glob("*.cancel"))


def test_threads_that_submit_at_once_get_names_and_turns_of_their_own(tmp_path: Path):
    runs = Runs(tmp_path)
    threads = [threading.Thread(target=lambda: runs.submit(["check", JOB]), daemon=True) for _ in range(MOST_WAITING)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [run.turn for run in runs.runs()] == list(range(1, MOST_WAITING + 1))


def test_progress_is_noted_and_a_file_stops_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(worker, "EVERY_S", 0.01)
    seen: list[CommandRun] = []
    saved(tmp_path, state="running")
    runs = Runs(tmp_path)

    def command(_: object) -> int:
        assert VERBOSITY.progress is not None
        try:
            for step in range(1000):
                VERBOSITY.progress(min(0.5, step / 100), "plans")
                time.sleep(0.01)
                if not seen and step > 20 and (run := runs.run("a-1")).done > 0.1:
                    seen.append(run)
                    (tmp_path / "a-1.cancel").touch()
        except Terminated:
            return 143
        return 0

    monkeypatch.setattr(worker, "main", command)
    found = run_words(("check", JOB), str(tmp_path), "a-1")
    assert found == CommandOutcome(143, "", False, "")
    (run,) = seen
    assert run.what == "plans"
    assert 0.1 < run.done <= 0.5
    assert run.seconds_left is not None
    assert 0.1 < run.seconds_left < 60.0
    assert VERBOSITY.progress is None
    assert not (tmp_path / "a-1.progress").exists()


@pytest.mark.parametrize("text", ["", "{}", "[", '{"done": 2, "what": 1, "at": 0, "since": 0, "from": 0}', "[1]"])
def test_damaged_progress_is_none(text: str, tmp_path: Path):
    saved(tmp_path, state="running")
    (tmp_path / "a-1.progress").write_text(text)
    run = Runs(tmp_path).run("a-1")
    assert (run.done, run.what, run.seconds_left) == (0.0, "", None)


def test_the_report_is_that_of_the_command_line_and_errors_are_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "wrong.yaml").write_text("model: gpt3_175b\nplann: 1\n")
    with Runs(tmp_path) as runs:
        names = [runs.submit(words).name for words in (["check", JOB], ["check", "wrong.yaml"])]
        good, wrong = (ended(runs, name) for name in names)
    monkeypatch.chdir(tmp_path)
    line = good.words
    assert (good.state, good.exit_code, good.error) == ("done", 0, "")
    assert main([*line, "--json"]) == 0
    assert (tmp_path / good.report).read_text() == capsys.readouterr().out
    assert (wrong.state, wrong.exit_code) == ("failed", 2)
    assert main(["check", "wrong.yaml", "--json"]) == 2
    assert wrong.error == capsys.readouterr().err.strip()
    assert "wrong.yaml:2" in wrong.error
    assert not (tmp_path / wrong.report).exists()


SERVER = """
import sys, time
from prism_jax.serve.runs import Runs
if __name__ == "__main__":
    runs = Runs(sys.argv[1]).start()
    runs.submit(sys.argv[2:])
    runs.submit(["check", sys.argv[3]])
    print("started", flush=True)
    time.sleep(600)
"""


def without_times(text: str) -> Any:
    """A report without how long it took."""
    found = json.loads(text)
    for times in ("elapsed_s", "timing_s"):
        found.pop(times, None)
    return found


def in_terminal(line: str, folder: Path) -> None:
    """Runs the line that a person would paste."""
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    line = line.replace("prism-jax", f"{shlex.quote(sys.executable)} -m prism_jax", 1)
    subprocess.run(line, shell=True, cwd=folder, env=environment, check=True, timeout=300)


def test_a_search_of_a_killed_server_goes_on_and_answers_as_the_command_line(tmp_path: Path):
    served, other = tmp_path / "served", tmp_path / "other"
    served.mkdir()
    other.mkdir()
    program = tmp_path / "server.py"
    program.write_text(SERVER)
    words = ["search", JOB, "--top", "3"]
    name = f"search-{JOB}-1"
    server = subprocess.Popen(
        [sys.executable, program, served, *words], env=os.environ | {"PYTHONPATH": str(ROOT)}, start_new_session=True
    )
    until = time.monotonic() + 300
    while not (served / f"{name}.work").exists() and time.monotonic() < until:
        time.sleep(0.02)
    server.send_signal(signal.SIGKILL)
    server.wait()
    assert Runs(served).run(name).state == "running"
    assert not (served / f"{name}.json").exists()
    with Runs(served) as runs:
        run = ended(runs, name)
        assert ended(runs, f"check-{JOB}-1").state == "done"
        assert [(run.state, run.n_lost) for run in runs.runs()] == [("done", 0)] * 2
    in_terminal(runs.shell_words(run.name), other)
    assert without_times((served / run.report).read_text()) == without_times((other / run.report).read_text())


def test_a_server_that_is_terminated_puts_its_search_back_with_what_was_done(tmp_path: Path):
    pytest.importorskip("uvicorn")
    name = Runs(tmp_path).submit(["search", JOB]).name
    server = subprocess.Popen(
        [sys.executable, "-m", "prism_jax", "serve", tmp_path, "--port", "0"],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
    )
    until = time.monotonic() + 300
    while not (tmp_path / f"{name}.work").exists() and time.monotonic() < until:
        time.sleep(0.02)
    kept = (tmp_path / f"{name}.work").stat().st_mtime_ns
    server.terminate()
    assert server.wait(60) == 143
    run = Runs(tmp_path).run(name)
    assert (run.state, run.journal) == ("waiting", f"{name}.work")
    assert (tmp_path / run.journal).stat().st_mtime_ns > kept
    assert not list(tmp_path.glob("*.cancel"))


def test_a_search_that_was_cancelled_goes_on_from_its_journal(tmp_path: Path):
    with Runs(tmp_path) as runs:
        name = runs.submit(["search", JOB, "--top", "3"]).name
        while not (tmp_path / f"{name}.work").exists():
            time.sleep(0.02)
        runs.cancel(name)
        run = ended(runs, name)
        assert (run.state, run.exit_code) == ("cancelled", 143)
        assert runs.shell_words(name) == f"prism-jax search {JOB} --top 3 --resume {name}.work --json > {name}.json"
        kept = (tmp_path / f"{name}.work").stat().st_mtime_ns
        runs.resume(name)
        done, size = ended(runs, name), ended(runs, runs.submit(["search", JOB, "--gpus", "64"]).name)
    assert (done.state, done.journal) == ("done", f"{name}.work")
    assert (tmp_path / f"{name}.work").stat().st_mtime_ns > kept
    assert (size.state, size.journal) == ("done", "")  # several sizes keep no work
    kept = partial_rows(COMMANDS.named("search"), done.words, tmp_path / done.journal)
    assert kept is not None
    (plans,) = (one for one in kept.tables if one.columns[0] == "plan")
    report = json.loads((tmp_path / done.report).read_text())
    table = {row[0]: dict(zip(plans.columns, row, strict=True)) for row in plans.rows}
    for one in report["top"]:
        words = SearchedPlan(**{field.name: one["plan"][field.name] for field in fields(SearchedPlan)}).words
        assert table[words]["memory"] == format_bytes(one["memory_bytes"])
    assert plans.columns[1] == report["objective"]


def test_a_killed_worker_interrupts_no_other_run(tmp_path: Path):
    with Runs(tmp_path) as runs:
        name = runs.submit(["search", JOB]).name
        follows = runs.submit(["predict", JOB, "--fast"]).name
        while not (tmp_path / f"{name}.progress").exists():
            time.sleep(0.02)
        os.kill(queue_pid(runs), signal.SIGKILL)
        first, second = ended(runs, name), ended(runs, follows)
    assert (first.state, first.n_lost, second.state, second.n_lost) == ("done", 1, "done", 0)
    other = tmp_path / "other"
    other.mkdir()
    in_terminal(runs.shell_words(follows), other)
    here, there = (without_times((folder / second.report).read_text()) for folder in (tmp_path, other))
    assert here == there


def queue_pid(runs: Runs) -> int:
    """The one process that works for a queue of this process."""
    import multiprocessing

    (child,) = multiprocessing.active_children()
    assert child.pid is not None
    return child.pid
