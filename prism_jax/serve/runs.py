"""Runs of commands in a folder, each a file: what waits, runs or has ended, and what a person can go on with in a terminal.

A run is `NAME.run`, JSON that is written whole or not at all. Next to it stand `NAME.work`, the journal of commands that resume,
`NAME.json`, the report, and while it runs `NAME.progress`. Nothing else is known of a run, so a server that was killed finds all
of them again, and those that were running go on from their journals. The files are untrusted: of a bounded size, read field by
field, and their words are checked before they are run. One server at a time serves a folder; whoever opens it sees to that.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Self

from ..core.errors import DataError, PrismError, printable, shortened
from ..core.executor import Workers
from ..core.read_file import parse_json, read_text
from ..core.write_file import write_text
from ..shell.streams import TERMINATED
from .lanes import LostWorkerError, Order, QueueLane, lanes_of
from .words import MOST_LETTERS, MOST_WORDS, checked_words
from .worker import CANCEL, PROGRESS, REPORT, RUN, WORK, CommandOutcome, words_to_run

SCHEMA = "prism-jax/run-of-command/1"
WAITING, RUNNING, DONE, FAILED, CANCELLED, INTERRUPTED = STATES = (
    "waiting",
    "running",
    "done",
    "failed",
    "cancelled",
    "interrupted",
)
MOST_WAITING = 16
MOST_LOST = 2  # times that a run whose worker ended is put back
MOST_BYTES = 2**18  # of the file of a run
MOST_ERROR = 20_000  # letters
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")
MOST_SUBJECT = 50  # letters of the job in the name of a run
MOST_SECONDS = 1e11  # 3,000 years; times in files of progress
CLOSE_S = 20.0  # that workers have to end
LOOK_AGAIN_S = 5.0  # between looks for runs that a person put into the folder


@dataclass(frozen=True)
class CommandRun:
    """A run of one command.

    Attributes:
        name: of its files.
        words: of the command, as they are typed after `prism-jax`, paths relative to the folder.
        state: one of `STATES`.
        created, started, ended: UTC, ISO 8601; empty: not yet.
        exit_code: of the command; None: not ended, or its worker was lost.
        error: what the command said on stderr, or why it could not run.
        journal: file that it keeps its work in; empty: none.
        turn: runs that wait are taken in this order.
        n_lost: how often its worker ended in the middle.
        is_stopping: whether it was asked to stop.
        done, what: the share of what is being done, and what that is; of a run that is running.
        seconds_left: until what is being done is done, as fast as so far; None: not known.
    """

    name: str
    words: tuple[str, ...] = ()
    state: str = WAITING
    created: str = ""
    started: str = ""
    ended: str = ""
    exit_code: int | None = None
    error: str = ""
    journal: str = ""
    turn: int = 0
    n_lost: int = 0
    is_stopping: bool = False
    done: float = 0.0
    what: str = ""
    seconds_left: float | None = None

    @property
    def report(self) -> str:
        """Name of the file of its report."""
        return f"{self.name}{REPORT}"


_SAVED = tuple(
    name for name in CommandRun.__dataclass_fields__ if name not in ("name", "done", "what", "seconds_left")
)  # fields in the file of a run


def shell_words(run: CommandRun, folder: Path) -> str:
    """The command line with which a person goes on with a run in a terminal, in the folder.

    Raises:
        DataError: its words are none that the page runs.
    """
    asked = checked_words(run.words, folder)
    line = shlex.join(["prism-jax", *words_to_run(asked, run.journal)])
    return f"{line} > {shlex.quote(run.report)}"


class Runs:
    """The runs of a folder, and the workers that take them in turn; may be used by several threads.

    Args:
        folder: paths in words are relative to it.
        workers: by default one process.
    """

    def __init__(self, folder: str | Path, workers: Workers = Workers()) -> None:
        self.folder, self._workers = Path(os.path.abspath(folder)), workers
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        # runs by name, with the state of the file they were read of
        self._read: dict[str, tuple[tuple[int, ...], CommandRun]] = {}
        self._taken: set[str] = set()
        self._stopping: set[str] = set()  # asked to stop, also where a full disk takes no file that says so
        self._is_closing = False
        self._stack, self._threads = ExitStack(), list[threading.Thread]()

    def start(self) -> Self:
        """Puts back what was running when a server was killed, and starts the workers.

        Raises:
            DataError: the executor cannot be opened.
        """
        for run in self.runs():
            self._clear(run.name)
            if run.state == RUNNING:
                state = CANCELLED if run.is_stopping else WAITING
                self._note(replace(run, state=state, is_stopping=False, ended=_now() if run.is_stopping else ""))
        for lane in self._stack.enter_context(lanes_of(self._workers)):
            self._threads.append(threading.Thread(target=self._serve, args=(lane,), daemon=True))
            self._threads[-1].start()
        return self

    def close(self) -> None:
        """Ends the workers; what is running saves its work, and waits for the next start."""
        with self._changed:
            self._is_closing = True
            for name in self._taken:
                self._ask_to_stop(name)
            self._changed.notify_all()
        until = time.monotonic() + CLOSE_S
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        self._stack.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def submit(self, words: Sequence[str]) -> CommandRun:
        """Puts a command at the end of the queue.

        Raises:
            DataError: as `checked_words`; or the queue is full.
        """
        asked = checked_words(words, self.folder)
        with self._changed:
            turn, name = self._next_turn(), self._free_name(asked.command, asked.subject)
            run = CommandRun(name, asked.words, created=_now(), journal=asked.journal_of(name), turn=turn)
            self._write(run)
            self._changed.notify()
        return run

    def resume(self, name: str) -> CommandRun:
        """Puts a run that was cancelled, was interrupted or failed at the end of the queue; it goes on from its journal.

        Raises:
            DataError: there is no such run, it is done, its words are no longer accepted, or the queue is full.
        """
        with self._changed:
            run = self.run(name)
            if run.state == DONE:
                raise DataError(f"run {name}: is done: {run.report}")
            if run.state not in (WAITING, RUNNING):
                self._check(run)
                run = replace(run, state=WAITING, turn=self._next_turn(), n_lost=0, ended="", error="", exit_code=None)
                self._write(run)
                self._changed.notify()
        return run

    def cancel(self, name: str) -> CommandRun:
        """Takes a run out of the queue, or asks its command to save its work and stop; nothing happens to one that has ended.

        Raises:
            DataError: there is no such run.
        """
        with self._changed:
            run = self.run(name)
            if run.state == RUNNING and name in self._taken:
                run = replace(run, is_stopping=True)
                self._note(run)
                self._ask_to_stop(name)
            elif run.state in (WAITING, RUNNING):
                run = replace(run, state=CANCELLED, ended=_now())
                self._write(run)
        return run

    def runs(self) -> list[CommandRun]:
        """All runs of the folder in the order of their turns; one whose file is damaged is a failed one that says why."""
        names = [entry.name.removesuffix(RUN) for entry in os.scandir(self.folder) if entry.name.endswith(RUN)]
        found = [self._known(name) for name in names if NAME.fullmatch(name)]
        with self._lock:
            for gone in self._read.keys() - set(names):
                del self._read[gone]
        return sorted((run for run in found if run is not None), key=lambda run: (run.turn, run.name))

    def run(self, name: str) -> CommandRun:
        """One run, with how far it is.

        Raises:
            DataError: there is no such run.
        """
        run = self._known(name) if NAME.fullmatch(name) else None
        if run is None:
            raise DataError(f"run {name[:100]!r}: there is none in this folder. It may have been removed.")
        return run

    def shell_words(self, name: str) -> str:
        """As the function `shell_words`."""
        return shell_words(self.run(name), self.folder)

    def _check(self, run: CommandRun) -> None:
        """Refuses words of a file that would be refused in a form.

        Raises:
            DataError: as `checked_words`, with the name of the file.
        """
        try:
            checked_words(run.words, self.folder)
        except PrismError as error:
            raise DataError(f"{run.name}{RUN}: {error}") from None

    def _path(self, name: str, ending: str) -> Path:
        return self.folder / f"{name}{ending}"

    def _known(self, name: str) -> CommandRun | None:
        """The run of a file, read again only where the file has changed; None: there is no file."""
        path = self._path(name, RUN)
        try:
            found = os.lstat(path)
        except OSError:
            return None
        state = _state_of(found)
        with self._lock:
            if not stat.S_ISREG(found.st_mode):  # writing would follow a link
                why = f"{path.name}: not a file but a link, a folder or a device. Remove it."
                return CommandRun(name, state=FAILED, error=why)
            if name not in self._read or self._read[name][0] != state:
                self._read[name] = state, _read_run(path, name)
            run = self._read[name][1]
        return self._with_progress(run) if run.state == RUNNING else run

    def _with_progress(self, run: CommandRun) -> CommandRun:
        """A run with what its worker noted; as it is where that cannot be read."""
        try:
            noted = parse_json(read_text(self._path(run.name, PROGRESS), MOST_BYTES, ""), run.name)
            done, at, since, start = (float(noted[key]) for key in ("done", "at", "since", "from"))
            what = printable(str(noted["what"])[:200])
        except (PrismError, TypeError, KeyError, ValueError, OverflowError):
            return run
        if not 0.0 <= done <= 1.0 or not all(abs(value) < MOST_SECONDS for value in (at, since, start)):
            return run
        left = None
        if done > start and at > since:
            left = max(0.0, (1.0 - done) * (at - since) / (done - start) - (time.time() - at))
        return replace(run, done=done, what=what, seconds_left=None if left is None else min(left, MOST_SECONDS))

    def _write(self, run: CommandRun) -> None:
        saved = {name: value for name, value in asdict(run).items() if name in _SAVED}
        write_text(self._path(run.name, RUN), json.dumps({"schema": SCHEMA, **saved, "report": run.report}, indent=1))

    def _note(self, run: CommandRun) -> None:
        """Writes the file of a run; where that is not possible, what it would say is told until the file changes."""
        try:
            self._write(run)
        except (OSError, PrismError) as error:
            self._tell(run, error)

    def _tell(self, run: CommandRun, error: Exception) -> None:
        """Remembers a run whose file could not be written as if it were, with why."""
        why = f"{run.name}{RUN} cannot be written: {getattr(error, 'strerror', None) or error}"
        with suppress(OSError):
            state = _state_of(os.lstat(self._path(run.name, RUN)))
            self._read[run.name] = state, run if why in run.error else replace(run, error=f"{run.error} {why}".strip())

    def _clear(self, name: str) -> None:
        """Removes what a worker and its server tell each other."""
        for ending in (CANCEL, PROGRESS):
            with suppress(OSError):  # a folder of this name, a disk that is read-only
                self._path(name, ending).unlink(missing_ok=True)

    def _ask_to_stop(self, name: str) -> None:
        self._stopping.add(name)
        with suppress(OSError):  # a full disk: local workers are ended all the same
            os.close(os.open(self._path(name, CANCEL), os.O_WRONLY | os.O_CREAT | os.O_EXCL))  # follows no link

    def _as_known(self, run: CommandRun) -> CommandRun:
        """A run as its file says now; as it was where somebody has removed that."""
        try:
            return self.run(run.name)
        except PrismError:
            return run

    def _next_turn(self) -> int:
        """The turn of one more run.

        Raises:
            DataError: as many wait as may.
        """
        runs = self.runs()
        if sum(run.state == WAITING for run in runs) >= MOST_WAITING:
            raise DataError(
                f"queue: {MOST_WAITING} runs wait, which is the most that may (a queue of {MOST_WAITING}). Cancel one, or wait "
                f"until the next has started."
            )
        return 1 + max((run.turn for run in runs), default=0)

    def _free_name(self, command: str, subject: str) -> str:
        stem = re.sub(r"[^A-Za-z0-9_.-]+", "_", Path(subject).stem)[:MOST_SUBJECT].strip("._-")
        begins = "-".join(word for word in (command.replace(" ", "-"), stem) if word)
        names = (f"{begins}-{number}" for number in count(1))
        endings = (RUN, WORK, REPORT, PROGRESS, CANCEL)
        return next(name for name in names if not any(os.path.lexists(self._path(name, ending)) for ending in endings))

    def _serve(self, lane: QueueLane) -> None:
        """Takes runs in turn until the end."""
        while (run := self._next()) is not None:
            name = run.name
            order = Order(run.words, str(self.folder), name)
            try:
                outcome = lane.run(order, lambda name=name: self._stops(name), lambda: self._is_closing)
            except LostWorkerError as error:
                ended = self._lost(run, str(error))
            except Exception as error:  # the lane goes on with the next run
                why = f"{type(error).__name__}: {error}"[:MOST_ERROR]
                ended = replace(self._as_known(run), state=FAILED, error=why)
            else:
                ended = self._ended(run, outcome)
            with self._changed:
                self._clear(name)
                ended = replace(ended, is_stopping=False, ended="" if ended.state == WAITING else _now())
                self._note(ended)  # a disk that is full, a folder that is gone: found again at the next start
                self._taken.discard(name)
                self._stopping.discard(name)
                self._changed.notify_all()

    def _next(self) -> CommandRun | None:
        """The run whose turn it is, marked as running; None at the end."""
        with self._changed:
            while not self._is_closing:
                with suppress(OSError):  # a folder that is gone: tried again
                    if (run := self._begun()) is not None:
                        return run
                self._changed.wait(LOOK_AGAIN_S)
        return None

    def _begun(self) -> CommandRun | None:
        """The first of those that wait, marked as running; None where none does."""
        waiting = (run for run in self.runs() if run.state == WAITING and run.name not in self._taken)
        if (run := next(waiting, None)) is not None:
            begun = replace(run, state=RUNNING, started=_now(), ended="", error="", exit_code=None)
            try:
                self._write(begun)
            except (OSError, PrismError) as error:  # a disk that is full: tried again, and said until then
                self._tell(run, error)
                return None
            self._taken.add(run.name)
            return begun
        return None

    def _stops(self, name: str) -> bool:
        return self._is_closing or name in self._stopping or self._path(name, CANCEL).is_file()

    def _ended(self, begun: CommandRun, outcome: CommandOutcome) -> CommandRun:
        """A run whose command has ended."""
        known = self._as_known(begun)
        if outcome.exit_code == TERMINATED and not self._unfinished(known):
            return self._lost(begun, "Its worker was terminated")
        run = replace(known, journal=outcome.journal, exit_code=outcome.exit_code, error=outcome.error[:MOST_ERROR])
        if outcome.has_report:
            return replace(run, state=DONE)
        return replace(run, state=self._unfinished(run) or FAILED)

    def _lost(self, begun: CommandRun, why: str) -> CommandRun:
        """A run whose worker has ended; it is put back a few times."""
        run = self._as_known(begun)
        if state := self._unfinished(run):
            return replace(run, state=state)
        n = run.n_lost + 1
        error = f"{why}. It was tried {n} time{'s' * (n > 1)}."
        return replace(run, state=WAITING if n <= MOST_LOST else INTERRUPTED, n_lost=n, error=error)

    def _unfinished(self, run: CommandRun) -> str:
        """The state of a run that was stopped from here; empty: it was not."""
        return CANCELLED if run.is_stopping else WAITING if self._is_closing else ""


def _state_of(found: os.stat_result) -> tuple[int, ...]:
    """Time, size and number of a file, which change when it is written."""
    return found.st_mtime_ns, found.st_size, found.st_ino


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _read_run(path: Path, name: str) -> CommandRun:
    """The run that a file describes; a failed one that says why where the file is damaged."""
    try:
        found = parse_json(read_text(path, MOST_BYTES, "Remove it."), f"{path.name}")
        if not isinstance(found, dict) or found.get("schema") != SCHEMA:
            raise DataError(f"{path.name}: not the file of a run")
        for key, is_right in _CHECKS.items():
            if key not in found or not is_right(found[key]):
                raise DataError(f"{path.name}: {key} is missing or not what it must be")
        saved: dict[str, Any] = {key: found[key] for key in _SAVED}
        return CommandRun(name, **{**saved, "words": tuple(saved["words"])})
    except DataError as error:
        why = shortened(f"{error} Remove the file of this run, and submit it again.")
        return CommandRun(name, state=FAILED, error=why)


def _is_text(most: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, str) and len(value) <= most


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**53


def _are_words(value: Any) -> bool:
    is_list = isinstance(value, list) and len(value) <= MOST_WORDS
    return is_list and all(_is_text(MOST_LETTERS)(word) and word.isprintable() for word in value)


def _is_name(value: Any) -> bool:
    """Whether a value is the name of a file in the folder, which is told to whoever goes on in a terminal."""
    if not _is_text(200)(value):
        return False
    path = Path(value)
    return value.isprintable() and not path.is_absolute() and not any(part[0] in ".-" for part in path.parts)


_CHECKS: dict[str, Callable[[Any], bool]] = {
    "words": _are_words,
    "state": lambda value: value in STATES,
    **dict.fromkeys(("created", "started", "ended"), _is_text(40)),
    "exit_code": lambda value: value is None or _is_count(value),
    "error": _is_text(MOST_ERROR),
    "journal": _is_name,
    **dict.fromkeys(("turn", "n_lost"), _is_count),
    "is_stopping": lambda value: isinstance(value, bool),
}  # field of the file -> whether a value is one
