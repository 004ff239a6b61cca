"""Workers of the queue: they are made to stop, are replaced, work side by side, and may be those of an executor."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from threading import Thread

import pytest

from prism_jax.core.executor import Workers
from prism_jax.core.processes import Terminated, terminated_by_an_exception
from prism_jax.core.write_file import write_text
from prism_jax.serve import lanes
from prism_jax.serve.lanes import LostWorkerError, Order, lanes_of
from prism_jax.serve.runs import Runs
from prism_jax.serve.worker import CommandOutcome
from tests.prism_jax.serve.test_runs import JOB, ended
from tests.support.dask_cluster import dask_cluster

DONE = CommandOutcome(0, "", True, "")


def in_place(words: tuple[str, ...], folder: str, name: str) -> CommandOutcome:
    """In place of a command: does what its first word says."""
    here = Path(folder)
    write_text(here / f"{name}.pid", f"{os.getpid()}")
    match words[0]:
        case "sleep":
            time.sleep(60)
        case "saves":
            try:
                with terminated_by_an_exception():
                    time.sleep(60)
            except Terminated:
                return CommandOutcome(143, "saved", False, "")
        case "deaf":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(60)
        case "dies":
            os.kill(os.getpid(), signal.SIGKILL)
        case "meets":
            until = time.monotonic() + 60
            while len([*here.glob("*.pid")]) < 2 and time.monotonic() < until:
                time.sleep(0.01)
            return CommandOutcome(0, f"{len([*here.glob('*.pid')])}", True, "")
    return DONE


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "run_words", in_place)
    monkeypatch.setattr(lanes, "ASKED_S", 0.2)
    monkeypatch.setattr(lanes, "TERMINATED_S", 0.5)


@pytest.mark.usefixtures("soon")
def test_a_worker_that_does_not_stop_is_terminated_then_killed_and_replaced(tmp_path: Path):
    def run(word: str) -> CommandOutcome:
        started = tmp_path / f"{word}.pid"
        return lane.run(Order((word,), str(tmp_path), word), started.exists, lambda: False)

    with lanes_of(Workers()) as (lane,):
        for word in ("sleep", "deaf", "dies"):
            with pytest.raises(LostWorkerError, match="ended"):
                run(word)
        pids = {(tmp_path / f"{word}.pid").read_text() for word in ("sleep", "deaf", "dies")}
        assert len(pids) == 3
        assert run("saves") == CommandOutcome(143, "saved", False, "")
        assert run("works") == DONE
        assert (tmp_path / "saves.pid").read_text() == (tmp_path / "works.pid").read_text() not in pids


@pytest.mark.usefixtures("soon")
def test_two_lanes_are_two_processes(tmp_path: Path):
    found: list[CommandOutcome] = []
    with lanes_of(Workers(executor="processes:2")) as both:
        threads = [
            Thread(
                target=lambda lane=lane, k=k: found.append(
                    lane.run(Order(("meets",), str(tmp_path), f"{k}"), lambda: False, lambda: False)
                )
            )
            for k, lane in enumerate(both)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [one.error for one in found] == ["2", "2"]


@pytest.mark.usefixtures("soon")
def test_closing_ends_a_worker_in_the_middle_and_the_run_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(lanes, "ASKED_S", 1e9)  # at once all the same
    monkeypatch.setattr("prism_jax.serve.lanes.run_words", sleeping)
    with Runs(tmp_path) as runs:
        name = runs.submit(["check", JOB]).name
        while not (tmp_path / f"{name}.pid").exists():
            time.sleep(0.01)
        pid = int((tmp_path / f"{name}.pid").read_text())
    assert Runs(tmp_path).run(name).state == "waiting"
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def sleeping(_words: tuple[str, ...], folder: str, name: str) -> CommandOutcome:
    """In place of a command that takes a minute."""
    return in_place(("sleep",), folder, name)


def test_workers_of_dask_run_cancel_and_resume(tmp_path: Path):
    pytest.importorskip("distributed")
    with dask_cluster(1) as cluster, Runs(tmp_path, Workers(executor=f"dask://{cluster.address}")) as runs:
        assert ended(runs, runs.submit(["check", JOB]).name).state == "done"
        name = runs.submit(["search", JOB, "--top", "3"]).name
        while not (tmp_path / f"{name}.work").exists():
            time.sleep(0.02)
        runs.cancel(name)
        assert (ended(runs, name).state, runs.run(name).exit_code) == ("cancelled", 143)
        runs.resume(name)
        assert ended(runs, name).state == "done"
