"""Workers of the queue: each lane runs one command at a time, in a process of its own or on an executor.

A local worker that does not stop by itself is terminated, and then killed; its lane has a new one for the next run, and no other
lane notices.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, wait
from contextlib import ExitStack, contextmanager
from typing import NamedTuple, Protocol

from ..core.executor import Workers, number_of_workers, worker_kind
from ..core.processes import processes
from .worker import CommandOutcome, run_words

TICK_S = 0.1  # between two looks at whether a run is to stop
ASKED_S, TERMINATED_S = 3.0, 10.0  # seconds for a worker to stop by itself, and then after SIGTERM
GIVEN_UP_S = 30.0  # seconds after which nobody waits any more for a worker of an executor that is to stop
MOST_LANES = 16


class LostWorkerError(Exception):
    """A worker that ended in the middle of a run; the text says how."""


class Order(NamedTuple):
    """Command for a lane.

    Attributes:
        words, folder, name: as `run_words` takes them.
    """

    words: tuple[str, ...]
    folder: str
    name: str


class QueueLane(Protocol):
    """Runs one command at a time."""

    def run(self, order: Order, stops: Callable[[], bool], at_once: Callable[[], bool], /) -> CommandOutcome:
        """Runs a command until it ends.

        Args:
            stops: whether it is to stop; the file that asks it to is there by then.
            at_once: whether it is not given the time to stop by itself.

        Raises:
            LostWorkerError: its worker ended first.
        """
        ...

    def close(self) -> None:
        """Ends its process."""
        ...


@contextmanager
def lanes_of(workers: Workers) -> Iterator[list[QueueLane]]:
    """Opens the lanes of the chosen workers: one for each process, or worker of an executor.

    Raises:
        DataError: the executor is unknown, cannot be reached or is not installed.
    """
    workers.check()
    kind, _, rest = workers.executor.partition(":") if isinstance(workers.executor, str) else ("", "", "")
    with ExitStack() as stack:
        if workers.executor is None or kind == "processes":
            n = workers.n_workers or (int(rest) if rest.isdecimal() else 1)
            n = min(n, MOST_LANES)
            lanes: list[QueueLane] = [_LocalLane(number, n) for number in range(n)]
        else:
            pool = stack.enter_context(workers.opened(MOST_LANES))
            n = min(number_of_workers(pool), MOST_LANES)
            lanes = [_SharedLane(pool, workers.unlike_workers) for _ in range(n)]
        for lane in lanes:
            stack.callback(lane.close)
        yield lanes


class _LocalLane:
    """A process of its own, started with the first run.

    Args:
        number, of: of this lane among all, which share the processors.
    """

    def __init__(self, number: int, of: int) -> None:
        self._number, self._of = number, of
        self._stack, self._pool, self._pid = ExitStack(), None, 0

    def run(self, order: Order, stops: Callable[[], bool], at_once: Callable[[], bool], /) -> CommandOutcome:
        """As `QueueLane.run`."""
        try:
            if self._pool is None:
                self._pool = self._stack.enter_context(processes(1, self._number, self._of))
                self._pid = self._pool.submit(os.getpid).result()
            future = self._pool.submit(run_words, *order)
            self._watch(future, stops, at_once)
            return future.result()
        except BrokenExecutor as error:
            self.close()
            raise LostWorkerError("Its worker ended: it was killed, or ran out of memory") from error

    def _watch(self, future: Future, stops: Callable[[], bool], at_once: Callable[[], bool]) -> None:
        """Waits until a run is done; one that is to stop and does not is made to."""
        due: list[tuple[float, int]] = []
        while not wait([future], TICK_S).done:
            if not due and stops():
                start = time.monotonic() + (0.0 if at_once() else ASKED_S)
                due = [(start, signal.SIGTERM), (start + TERMINATED_S, getattr(signal, "SIGKILL", signal.SIGTERM))]
            if due and time.monotonic() >= due[0][0]:
                os.kill(self._pid, due[0][1])
                due = due[1:] or [(float("inf"), 0)]

    def close(self) -> None:
        """As `QueueLane.close`."""
        self._stack.close()
        self._pool = None


class _SharedLane:
    """A turn on an executor, whose workers cannot be ended from here."""

    def __init__(self, pool: Executor, any_kind: bool) -> None:
        self._pool, self._kind = pool, None if any_kind else worker_kind()

    def run(self, order: Order, stops: Callable[[], bool], _: Callable[[], bool], /) -> CommandOutcome:
        """As `QueueLane.run`."""
        try:
            future = self._pool.submit(run_words, *order, self._kind)
            left_s = GIVEN_UP_S
            while not wait([future], TICK_S).done and left_s > 0.0:
                left_s -= TICK_S if stops() else 0.0
            return future.result(0.0)
        except Exception as error:
            raise LostWorkerError(f"Its worker was lost ({type(error).__name__}: {error})"[:300]) from error

    def close(self) -> None:
        """As `QueueLane.close`."""
