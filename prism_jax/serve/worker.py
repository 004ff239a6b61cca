"""Runs one command of the queue; what a worker does, in a process of its own or of an executor.

The command is called as the command line calls it, in the same folder and with the same options, so its report is the same.
Files are read below the folder alone, also those that a job names. Programs that JAX has compiled stay from run to run. How far
it is goes to `NAME.progress`; a file `NAME.cancel` stops it at its next sign of progress, and kept work is saved then as after
SIGTERM.
"""

from __future__ import annotations

import io
import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import NamedTuple, Self

from ..core.errors import PrismError, shortened
from ..core.executor import WorkerKind, worker_kind
from ..core.processes import Terminated
from ..core.read_file import only_below
from ..core.write_file import write_text
from ..shell.app import main
from ..shell.streams import TERMINATED, VERBOSITY, WRONG_INPUT
from .words import WORK as WORK, CheckedWords, checked_words, is_inside

EVERY_S = 0.5  # seconds between two notes of progress
RUN, REPORT, PROGRESS, CANCEL = ".run", ".json", ".progress", ".cancel"  # endings of the other files of a run
_ONE_AT_A_TIME = threading.Lock()  # workers of some executors are threads, and a process has one working folder


class CommandOutcome(NamedTuple):
    """How a command ended.

    Attributes:
        exit_code: as in a terminal.
        error: what it said on stderr.
        has_report: whether its report was written.
        journal: name of the file that it kept its work in; empty: none.
    """

    exit_code: int
    error: str
    has_report: bool
    journal: str


def run_words(words: tuple[str, ...], folder: str, name: str, kind: WorkerKind | None = None) -> CommandOutcome:
    """Runs a command and writes its report to `NAME.json`, whole or not at all.

    Args:
        words: of the command; checked again here.
        folder: absolute path; the files of the run are in it.
        name: of the run.
        kind: of the process that asks; a worker of another kind refuses. None: any will do.
    """
    if kind is not None and (why := kind.unlike(worker_kind())):
        return CommandOutcome(WRONG_INPUT, f"error: the worker {why}: its last digits could differ", False, "")
    base = Path(folder)
    try:
        asked = checked_words(words, base)
        for ending in (WORK, REPORT, PROGRESS):
            if not is_inside(base / f"{name}{ending}", base):
                return CommandOutcome(WRONG_INPUT, f"error: {name}{ending}: a link leads out of the folder", False, "")
    except PrismError as error:
        return CommandOutcome(WRONG_INPUT, f"error: {error}", False, "")
    journal = asked.journal_of(name)
    with _ONE_AT_A_TIME, _inside(base), only_below(base):
        if Path(f"{name}{CANCEL}").is_file():  # an executor may have kept the run waiting
            return CommandOutcome(TERMINATED, "", False, journal)
        found = _run(asked, name, journal)
        if found.exit_code == WRONG_INPUT and "--resume" in found.error and not asked.journal and journal:
            return _run(asked, name, "")  # with these options the command cannot resume, and says so at once
        return found


def words_to_run(asked: CheckedWords, journal: str) -> list[str]:
    """The words with which a run is started or goes on."""
    return asked.with_options(*(("--resume", journal) if journal and not asked.journal else ()), "--json")


def _run(asked: CheckedWords, name: str, journal: str) -> CommandOutcome:
    out, said = io.StringIO(), io.StringIO()
    with _Noted(name) as VERBOSITY.progress, redirect_stdout(out), redirect_stderr(said):
        try:
            code = main(words_to_run(asked, journal))
        finally:
            VERBOSITY.progress = None
    report = out.getvalue()
    has_report = bool(report.strip()) and code != TERMINATED
    if has_report:
        write_text(f"{name}{REPORT}", report)
    return CommandOutcome(code, shortened(said.getvalue().strip()), has_report, journal)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """The working folder for a time."""
    before = None
    with suppress(OSError):
        before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        if before is not None:
            os.chdir(before)


class _Noted(AbstractContextManager):
    """Progress that is noted in a file by a thread of its own, and stops the command where a file asks for it.

    What is done last before a long computation is noted too, although nothing calls again for a while.
    """

    def __init__(self, name: str) -> None:
        self._file, self._cancel = f"{name}{PROGRESS}", Path(f"{name}{CANCEL}")
        self._now: tuple[float, str, float, float] | None = None  # share, what, and when and where the stage began
        self._is_stopped, self._is_over = False, threading.Event()
        self._thread = threading.Thread(target=self._note, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()
        with suppress(OSError):  # a folder of this name, a disk that became read-only
            Path(self._file).unlink(missing_ok=True)

    def __call__(self, done: float, what: str = "", /) -> None:
        if self._is_stopped:
            raise Terminated(TERMINATED)
        before = self._now
        goes_on = before is not None and before[1] == what and before[3] <= done
        self._now = (done, what, *(before[2:] if before is not None and goes_on else (time.time(), done)))

    def _note(self) -> None:
        noted = None
        while not self._is_over.wait(EVERY_S):
            self._is_stopped = self._cancel.is_file()
            if (now := self._now) is not None and now != noted:
                done, what, since, start = noted = now
                text = json.dumps({"done": done, "what": what, "at": time.time(), "since": since, "from": start})
                with suppress(OSError):  # a disk that is full now may not be at the end
                    write_text(self._file, text)
