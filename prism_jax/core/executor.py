"""Many independent tasks on an executor: local processes, Dask, MPI, or any `concurrent.futures.Executor` of the caller.

Tasks are values, and each is computed by itself, so that the answers do not depend on which worker computes what, or when. They
are dealt in batches that take about a second, more with many workers, which keeps the cost of dealing them small. An error that
a task raises is raised here; an error of the executor itself means that a worker was lost, and its batch is dealt again, task
by task. A worker whose code or type of CPU is another one could give other digits, and is refused unless this is allowed.
"""

from __future__ import annotations

import os
import pickle
import platform
import socket
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeVar

from .errors import DataError, PrismError
from .kept_work import jax_settings, own_code
from .processes import MOST, Progress, processes, silent, start_jax
from .use_case import Option, OptionGroup

TARGET_S = 1.0  # seconds that a batch takes at least
DEALT_S = 0.02  # and for every worker: dealing a batch costs up to 8 ms, and one process deals them all
CONNECT_S = 10  # seconds that a scheduler has to answer
AHEAD = 2  # batches per worker that are dealt and not done
MOST_LOST = 4  # workers that one task may cost
WORKERS_UNKNOWN = 8  # of an executor that does not say how many it has

Task = TypeVar("Task")
Answer = TypeVar("Answer")


class WorkerKind(NamedTuple):
    """Properties of a process on which the last digits of an answer depend.

    Attributes:
        code: digest of prism-jax, its presets, and the versions of the packages that numbers come from.
        cpu: model of the CPU and its vector instructions.
    """

    code: str
    cpu: str

    def unlike(self, other: WorkerKind) -> str:
        """Returns how the other differs from this; empty where it does not."""
        if self.code != other.code:
            return "has another version of prism-jax, JAX, NumPy or SciPy (`prism-jax doctor` prints them)"
        return "" if self.cpu == other.cpu else f"has another type of CPU ({other.cpu}; here {self.cpu})"


@lru_cache(maxsize=1)
def worker_kind() -> WorkerKind:
    """Returns the kind of this process."""
    return WorkerKind(own_code(), _cpu())


# Prefixes of the flags of instructions that compiled programs may use.
VECTORS = ("sse4", "avx", "fma", "amx", "asimd", "sve")


def _cpu() -> str:
    """The model of the CPU and a digest of its vector instructions."""
    file = Path("/proc/cpuinfo")
    if not file.is_file():
        return f"{platform.machine()} {platform.processor()}".strip()
    said = {}
    for line in file.read_text(encoding="utf-8", errors="replace").partition("\n\n")[0].splitlines():
        name, _, value = line.partition(":")
        said[name.strip().lower()] = value.strip()
    flags = (said.get("flags") or said.get("features") or "").split()
    vectors = sorted(flag for flag in flags if flag.startswith(VECTORS))
    return f"{said.get('model name') or platform.machine()} with {' '.join(vectors) or 'no vector instructions stated'}"


def _of_processes(rest: str, n_task: int) -> AbstractContextManager[Executor]:
    if not rest.isdecimal() or not 1 <= int(rest) <= MOST:
        raise DataError(f"--executor processes:{rest}: the number of processes must be between 1 and {MOST}")
    return processes(min(int(rest), n_task))


def _of_dask(rest: str, _n_task: int) -> AbstractContextManager[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise DataError("--executor dask: Dask is not installed. Install it: pip install 'prism-jax[dask]'") from None
    address = rest.removeprefix("//")
    if not address:
        raise DataError("--executor dask: it has no address of a scheduler. Give dask://HOST:PORT.")

    @contextmanager
    def connected() -> Iterator[Executor]:
        try:
            client = Client(address, timeout=CONNECT_S, set_as_default=False)
        except (OSError, TimeoutError, ValueError) as error:
            raise DataError(
                f"--executor dask://{address}: no scheduler answers there ({error or 'no answer in time'}). "
                f"Start one: `dask scheduler`, and workers: `dask worker HOST:PORT --nthreads 1`."
            ) from None
        with client, client.get_executor(pure=False) as pool:
            yield pool

    return connected()


def _of_mpi(rest: str, _n_task: int) -> AbstractContextManager[Executor]:
    if rest:
        raise DataError(f"--executor mpi:{rest}: the number of processes is that of `mpirun -n`. Give --executor mpi.")
    try:
        from mpi4py.futures import MPIPoolExecutor
    except (ImportError, RuntimeError) as error:
        raise DataError(
            f"--executor mpi: mpi4py does not start ({error}). Install it: pip install 'prism-jax[mpi]', and run "
            f"`mpirun -n 3 python -m mpi4py.futures -m prism_jax ...`: one manager and two workers."
        ) from None
    return MPIPoolExecutor()


Opener = Callable[[str, int], AbstractContextManager[Executor]]  # of what follows the name, and of n tasks
EXECUTORS: Mapping[str, Opener] = {"processes": _of_processes, "dask": _of_dask, "mpi": _of_mpi}


def _check_name(option: str, name: Any) -> None:
    if isinstance(name, str) and name.partition(":")[0] not in EXECUTORS:
        raise DataError(f"{option}: {name!r} is unknown. Give processes:N, dask://HOST:PORT or mpi.")


@dataclass(frozen=True)
class Workers(OptionGroup):
    """Processes that share the work; the answer is the same to the last bit.

    Attributes:
        n_workers: processes on this host, short for --executor processes:N.
        executor: name of the executor: processes:N, dask://HOST:PORT or mpi.
        unlike_workers: accept workers with another version or type of CPU; the last digits may differ.
    """

    n_workers: Annotated[int | None, Option("--workers", "N", least=1, most=MOST, key=None)] = None
    executor: Annotated[str | Executor | None, Option("--executor", "NAME", key=None, check=_check_name)] = None
    unlike_workers: Annotated[bool, Option("--unlike-workers", key=None)] = False

    def or_all(self) -> Workers:
        """Returns the same with all processors of this host where nothing was chosen."""
        chosen = self.executor is not None or self.n_workers is not None
        return self if chosen else Workers(n_workers=min(os.cpu_count() or 1, MOST))

    @property
    def is_alone(self) -> bool:
        """Whether this process does all the work."""
        return self.executor in (None, "processes:1") and self.n_workers in (None, 1)

    def check(self) -> None:
        """Refuses executors that do not exist.

        Raises:
            DataError: an unknown name, a number of processes that no host has, or both options.
        """
        if self.executor is not None and self.n_workers is not None:
            raise DataError("--workers and --executor: --workers N is short for --executor processes:N. Give one.")
        if self.n_workers is not None and not 1 <= self.n_workers <= MOST:
            raise DataError(f"--workers: {self.n_workers}, but it must be between 1 and {MOST}")
        _check_name("--executor", self.executor)

    def opened(self, n_task: int) -> AbstractContextManager[Executor]:
        """Opens the executor; one that the caller made stays open.

        Args:
            n_task: more processes than tasks are not started.

        Raises:
            DataError: it cannot be reached or is not installed.
        """
        self.check()
        if isinstance(self.executor, Executor):
            return nullcontext(self.executor)
        kind, _, rest = (self.executor or f"processes:{self.n_workers or 1}").partition(":")
        return EXECUTORS[kind](rest, n_task)


ALONE = Workers()


def run_tasks(
    function: Callable[[Task], Answer], tasks: Sequence[Task], workers: Workers = ALONE
) -> Iterator[tuple[int, Answer]]:
    """Yields the position and the answer of every task, as they are done.

    Args:
        function: of one task; with it and the answer picklable where there are workers.
        tasks: values; none depends on another.

    Raises:
        DataError: a worker is of another kind, or too many were lost.

    Notes:
        A script that starts processes needs `if __name__ == "__main__":` around its work.
    """
    workers.check()
    if workers.is_alone or not tasks or (len(tasks) == 1 and workers.executor is None):
        yield from ((number, function(task)) for number, task in enumerate(tasks))
        return
    dealer = _Dealer(function, tasks, workers)
    with dealer:
        yield from dealer.answers()


def answers_in_order(
    function: Callable[[Task], Answer],
    tasks: Sequence[Task],
    workers: Workers = ALONE,
    progress: Progress = silent,
    what: Callable[[Task], str] | None = None,
) -> list[Answer]:
    """Computes every task, as `run_tasks` does, and returns the answers in the order of the tasks.

    Args:
        progress: called after every task with the share that is done.
        what: text for it on a task that is done; None: it needs none.

    Raises:
        DataError: as `run_tasks`.
    """
    found: dict[int, Answer] = {}
    for number, answer in run_tasks(function, tasks, workers):
        found[number] = answer
        progress(len(found) / len(tasks), *(() if what is None else (what(tasks[number]),)))
    return [found[number] for number in range(len(tasks))]


class _Dealer(ExitStack):
    """Deals the tasks of one call in batches."""

    def __init__(self, function: Callable[[Any], Any], tasks: Sequence[Any], workers: Workers) -> None:
        super().__init__()
        self._function, self._tasks, self._workers = function, tasks, workers
        self._left = deque(range(len(tasks)))
        self._running: dict[Future, list[int]] = {}
        self._lost: Counter[int] = Counter()
        self._seconds, self._n_done, self._failures = 0.0, 0, 0
        self._kind = None if workers.unlike_workers else worker_kind()
        self._settings = jax_settings()
        self._open()

    def _open(self) -> None:
        self._pool = self.enter_context(self._workers.opened(len(self._tasks)))
        self.callback(self._cancel)
        self._n_worker = number_of_workers(self._pool)

    def _cancel(self) -> None:
        for future in self._running:
            future.cancel()

    def answers(self) -> Iterator[tuple[int, Any]]:
        """Yields positions and answers."""
        while self._left or self._running:
            self._deal()
            done, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in done:
                yield from self._taken(future)

    def _deal(self) -> None:
        """Submits batches until every worker has one in hand and one ahead."""
        while self._left and len(self._running) < AHEAD * self._n_worker:
            batch = [self._left.popleft() for _ in range(self._length())]
            try:
                future = self._pool.submit(
                    _batch, self._function, [self._tasks[number] for number in batch], self._kind, self._settings
                )
            except Exception as error:
                self._lose(batch, error)
            else:
                self._running[future] = batch

    def _length(self) -> int:
        """Tasks of the next batch: single ones until their seconds are known, where one was lost, and at the end."""
        if not self._n_done or self._lost[self._left[0]]:
            return 1
        target_s = max(TARGET_S, DEALT_S * self._n_worker)
        wanted = target_s / max(self._seconds / self._n_done, 1e-9)
        return max(1, int(min(wanted, len(self._left) / (AHEAD * self._n_worker))))

    def _taken(self, future: Future) -> Iterator[tuple[int, Any]]:
        """Yields the answers of a batch that is done; that of a lost worker is dealt again."""
        batch = self._running.pop(future, None)
        if batch is None:  # of a pool that broke
            return
        try:
            answer = future.result()
        except Exception as error:  # of the executor: those of tasks are part of the answer
            self._lose(batch, error)
            return
        if isinstance(answer, _Refused):
            raise DataError(
                f"the worker on {answer.host} {answer.why}: its last digits could differ from those of the others. "
                f"Use workers of one kind, or allow it: --unlike-workers."
            )
        self._failures = 0
        self._seconds, self._n_done = self._seconds + answer.seconds, self._n_done + len(batch)
        for number, found in zip(batch, answer.answers, strict=True):
            if isinstance(found, _Failed):
                raise found.error
            yield number, found

    def _lose(self, batch: list[int], error: BaseException) -> None:
        """Puts the tasks of a lost worker back, in front; a pool that broke is opened anew.

        Raises:
            DataError: one task was lost too often, or the executor fails at once.
        """
        self._lost.update(batch)
        self._failures += 1
        most = max(batch, key=lambda number: self._lost[number])
        if self._lost[most] >= MOST_LOST or self._failures > MOST_LOST * self._n_worker * AHEAD:
            text, kind = " ".join(str(error).split())[:300], type(error).__name__
            ended = isinstance(error, BrokenExecutor) or kind == "KilledWorker"  # the latter of Dask
            raise DataError(
                f"task {most + 1} of {len(self._tasks)} was lost {self._lost[most]} times with its worker "
                f"({kind}{': ' if text else ''}{text}). "
                + ("A worker that runs out of memory ends so: use fewer workers, or fewer samples. " if ended else "")
                + "With --resume, what is done is kept."
            ) from error
        self._left.extendleft(reversed(batch))
        own = not isinstance(self._workers.executor, Executor)
        if own and getattr(self._pool, "_broken", False):
            for other in self._running.values():
                self._left.extendleft(reversed(other))
            self._running.clear()
            self.close()
            self._open()


def number_of_workers(pool: Executor) -> int:
    """Workers of an executor, as the known kinds state them."""
    client = getattr(pool, "_client", None)
    if client is not None and hasattr(client, "scheduler_info"):
        return max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
    for name in ("num_workers", "_max_workers", "max_workers"):
        number = getattr(pool, name, None)
        if isinstance(number, int) and number > 0:
            return number
    return WORKERS_UNKNOWN


class _Refused(NamedTuple):
    host: str
    why: str


class _Failed(NamedTuple):
    """An error of a task."""

    error: Exception


class _Answers(NamedTuple):
    seconds: float
    answers: list[Any]


_ONE_AT_A_TIME = threading.Lock()  # workers of some executors are threads, and models are traced in one at a time


def _batch(
    function: Callable[[Any], Any], tasks: Sequence[Any], kind: WorkerKind | None, settings: Mapping[str, Any]
) -> _Answers | _Refused:
    """Answers of some tasks; what a worker does."""
    if kind is not None and (why := kind.unlike(worker_kind())):
        return _Refused(socket.gethostname(), why)
    with _ONE_AT_A_TIME:
        start_jax()
        _set(settings)
        start = time.perf_counter()
        answers = []
        for task in tasks:
            answers.append(_answer(function, task))
            if isinstance(answers[-1], _Failed):  # which ends the work
                answers += [answers[-1]] * (len(tasks) - len(answers))
                break
        return _Answers(time.perf_counter() - start, answers)


def _answer(function: Callable[[Any], Any], task: Any) -> Any:
    try:
        return function(task)
    except Exception as error:
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            kind = PrismError if isinstance(error, PrismError) else RuntimeError
            return _Failed(kind(f"{error}" if kind is PrismError else f"{type(error).__name__}: {error}"))
        return _Failed(error)


def _set(settings: Mapping[str, Any]) -> None:
    """Sets the options of JAX that digits depend on as they are in the process that deals."""
    config = getattr(sys.modules.get("jax"), "config", None)
    for name, value in settings.items():
        if config is None:  # JAX reads the variable when it is imported
            os.environ[name.upper()] = str(value)
        elif getattr(config, name, value) != value:
            config.update(name, value)
