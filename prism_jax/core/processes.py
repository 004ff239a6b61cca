"""Processes and progress: compiled programs of JAX kept between runs, one device per core, workers, how far work is."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, runtime_checkable

from .errors import DataError

if TYPE_CHECKING:
    from concurrent.futures import ProcessPoolExecutor

CACHE_VARIABLE = "PRISM_JAX_CACHE"
OPTIONS = {  # JAX reads these variables when it is imported, and these options ever after
    "JAX_COMPILATION_CACHE_DIR": "jax_compilation_cache_dir",
    "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "jax_persistent_cache_min_compile_time_secs",
    "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "jax_persistent_cache_min_entry_size_bytes",
}


# Variables of the environment with the number of this process and of all, by whoever starts several. Those of MPI stand first:
# `mpirun` inside an allocation of Slurm leaves the variables of Slurm as they are, the same in all its processes.
COUNTED_BY = (
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_NTASKS"),
)

_CACHE_FAULT = "Error (reading|writing) persistent compilation cache entry"


def start_jax() -> None:
    """Sets the number of devices and keeps compiled programs, unless the user has set these.

    May be called with JAX imported; the number of devices is fixed by the first computation.
    """
    # exported for training; a machine without such a GPU computes by itself
    if os.environ.get("JAX_PLATFORMS") == "cuda":
        os.environ["JAX_PLATFORMS"] = "cuda,cpu"
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_force_host_platform_device_count" not in flags:
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        os.environ["XLA_FLAGS"] = f"{flags} --xla_force_host_platform_device_count={cores}".strip()
    _keep_programs()


def keep_programs() -> None:
    """Keeps compiled programs in `cache_folder`, unless the user has said where; called before JAX is needed.

    Raises:
        DataError: there is too little memory for JAX.
    """
    check_memory()
    _keep_programs()


# bytes of addresses: JAX starts with 2.0e9 and not with 1.5e9; the threads of a fit with 4e9, not 3e9
TO_START, TO_FIT = 2e9, 4e9


def check_memory(least_bytes: float = TO_START) -> None:
    """Refuses to begin under a limit of memory in which libraries end the process, in their own words.

    Raises:
        DataError: the limit on this process, and the remedy.
    """
    try:
        import resource
    except ImportError:  # Windows
        return
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= limit < least_bytes:
        raise DataError(
            f"out of memory: this process may use {limit / 1e9:.2g} GB of addresses (ulimit -v), but JAX and its threads need "
            f"{least_bytes / 1e9:g} GB. Raise the limit: ulimit -v {math.ceil(least_bytes / 1024)}, or unlimited."
        )


def _keep_programs() -> None:
    # One per program; the answer is the same without the cache.
    warnings.filterwarnings("ignore", _CACHE_FAULT, UserWarning)
    folder = cache_folder()
    defaults = (str(folder), 0, -1)  # all are kept: loading one is faster than compiling it
    jax = sys.modules.get("jax")
    for (variable, option), value in zip(OPTIONS.items(), defaults, strict=True):
        if variable not in os.environ and (value != str(folder) or _is_own(folder)):
            os.environ[variable] = str(value)
            if jax is not None:
                jax.config.update(option, value)


def cache_folder() -> Path:
    """Folder for compiled programs: in the user's own cache folder, since compiled code is run as it is found."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get(CACHE_VARIABLE) or Path(base) / "prism-jax" / "jax")


def _is_own(folder: Path) -> bool:
    """Whether the user alone may write there, once it is made. Our own folder is closed to others; no other is changed."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.stat()
        if not hasattr(os, "getuid"):  # Windows: folders of a user are closed to others
            return True
        if found.st_uid == os.getuid() and found.st_mode & 0o022 and not os.environ.get(CACHE_VARIABLE):
            folder.chmod(found.st_mode & 0o755)
            found = folder.stat()
    except OSError:
        return False
    return found.st_uid == os.getuid() and not found.st_mode & 0o022


@dataclass
class SharedPart:
    """The part of this process in work that several processes share (`core/together.py`).

    Attributes:
        number: among them; the first, 0, answers.
        has_failed: the work has failed here.
    """

    number: int = 0
    has_failed: bool = False


OWN_PART = SharedPart()


def is_silent() -> bool:
    """Whether another process answers in place of this one, after work that was done together."""
    return OWN_PART.number > 0


def end_if_failed(code: int) -> None:
    """Ends this process where its work with others has failed: JAX would wait for them, and abort."""
    if OWN_PART.has_failed:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(code)


MOST = 256


@contextmanager
def processes(n_workers: int, first: int = 0, of: int | None = None) -> Iterator[ProcessPoolExecutor]:
    """A pool whose functions and arguments are pickled; where the caller fails or is interrupted, its processes end at once.

    Every process has its share of the processors that this one may use: threads of XLA and BLAS do not wait for one another.

    Args:
        first, of: number of the first process, and of all, where several pools share the processors.

    Notes:
        The processes start from nothing: a fork of one that has started JAX may hang. A script that asks for more than one needs
        `if __name__ == "__main__":` around its work.
    """
    import multiprocessing  # here, as below: most commands need no pool
    from concurrent.futures import ProcessPoolExecutor

    others = {process.pid for process in multiprocessing.active_children()}
    context = multiprocessing.get_context("spawn")
    arguments = (context.Value("i", first), n_workers if of is None else of)
    with (
        terminated_by_an_exception(),
        ProcessPoolExecutor(n_workers, context, initializer=_start, initargs=arguments) as pool,
    ):
        try:
            with _interrupts_held():  # which the processes inherit: a Ctrl-C is for the one that waits for them
                for _ in range(n_workers):
                    pool.submit(int)
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            own = [process for process in multiprocessing.active_children() if process.pid not in others]
            for process in own:
                process.terminate()
            for process in own:
                process.join(1.0)
            raise


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """A Ctrl-C inside the block arrives behind it."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Terminated(SystemExit):
    """SIGTERM, with the exit code that the shell expects."""


@contextmanager
def terminated_by_an_exception() -> Iterator[None]:
    """SIGTERM inside the block raises `Terminated`, so that work is saved and processes end; nothing changes elsewhere."""

    def leave(number: int, _frame: object) -> NoReturn:
        raise Terminated(128 + number)

    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
    ):
        yield
        return
    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _start(n_started: Any, n_workers: int) -> None:
    """JAX as on the command line, on a share of the processors; a process whose parent was killed ends, too."""
    with n_started.get_lock():
        number, n_started.value = n_started.value, n_started.value + 1
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, share_of(sorted(os.sched_getaffinity(0)), number, n_workers))
    start_jax()
    threading.Thread(target=_end_with_parent, daemon=True).start()


def share_of(cores: Sequence[int], number: int, n_workers: int) -> Sequence[int]:
    """The processors of worker `number` of `n_workers`: equal parts, or one each in turn where there are fewer processors."""
    if n_workers >= len(cores):
        return [cores[number % len(cores)]]
    number %= n_workers
    return cores[number * len(cores) // n_workers : (number + 1) * len(cores) // n_workers]


def _end_with_parent() -> None:
    import multiprocessing

    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@runtime_checkable  # the type checker of the tests asks
class Progress(Protocol):
    """Called now and then while something runs."""

    def __call__(self, done: float, what: str = "", /) -> None:
        """Takes the share that is done, 0-1, and what is being done; an empty text where only one thing is done."""
        ...


def silent(_done: float, _what: str = "", /) -> None:
    """Progress that nobody watches."""


def part_of(progress: Progress, start: float, end: float) -> Progress:
    """Progress of a part of the work: its shares 0-1 are reported as shares from `start` to `end` of the whole."""

    def report(done: float, what: str = "", /) -> None:
        progress(start + (end - start) * done, *((what,) if what else ()))

    return report


def part(progress: Progress, what: str) -> Progress:
    """`progress` for one kind of work, which need not say what it is."""
    return lambda done, own="", /: progress(done, own or what)
