"""Prediction of 20 jobs x 20 settings on several executors: are the tables equal to the last bit, and what does dealing cost?

python -m benchmarks.executors [--modes alone processes dask killed mpi loky] [--samples 2048] [--tasks 400]

Every worker has one processor, its threads too. `killed` is Dask with two workers of which one is killed every 20 s. Printed of
each: whether the table is that of the first mode, seconds, the overhead (workers x wall over the sum of the seconds of tasks,
less 1), and how often a task was done. `mpi` needs `mpirun`; `loky` is an executor of somebody else.

python -m benchmarks.executors --ratios [DATA]  # seconds of one worker over those of two: a sweep of 64, 400 rows of validate
python -m benchmarks.executors --constants     # seconds and bytes that docs/beyond_one_machine.md computes with
"""

from __future__ import annotations

import argparse
import os
import pickle
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import astuple, dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread

import numpy as np

from prism_jax.core.executor import Workers, run_tasks
from prism_jax.core.processes import processes, start_jax
from prism_jax.study.sweep_jobs import JobTask, load_task
from tests.support.dask_cluster import dask_cluster

JOBS = ("llama2_7b_fsdp_64", "gpt3_175b_1024", "llama3_405b_16384", "deepseek_v3_2048", "llama3_405b_8192")
N_JOB, N_SETTING, N_WORKER = 20, 20, 2
KILL_EVERY_S, MOST_KILLS = 20.0, 10


@dataclass(frozen=True)
class Timed:
    """Figures of a task, or why it has none, and its seconds."""

    figures: tuple[float, ...]
    problem: str
    seconds: float
    process: int


def measured(task: JobTask, *, n_samples: int) -> Timed:
    """Measures one task."""
    from prism_jax.core.errors import PrismError
    from prism_jax.study.run_grid import StudyRequest, figures_of

    start, figures, problem = time.perf_counter(), (), ""
    try:
        figures = astuple(figures_of(load_task(task), StudyRequest(n_samples=n_samples)))
    except PrismError as error:
        problem = str(error)
    return Timed(figures, problem, time.perf_counter() - start, os.getpid())


def tasks(n: int) -> list[JobTask]:
    """Jobs and settings: five shipped jobs under four kinds of variability, each with 20 lengths of sequences."""
    jobs = product(JOBS, ("h100-default", "b200-default", "mi300x-default", "v100-longhorn"))
    lengths = [1024 + 256 * number for number in range(N_SETTING)]
    pairs = product(list(jobs)[:N_JOB], lengths)
    return [JobTask(name, (f"variability={own}", f"plan.seq_len={length}")) for (name, own), length in pairs][:n]


@contextmanager
def killer(pids: Callable[[], Sequence[int]], times: list[float]) -> Iterator[None]:
    """Kills one worker now and then inside the block."""
    stop, chance = Event(), random.Random(0)

    def run() -> None:
        while len(times) < MOST_KILLS and not stop.wait(KILL_EVERY_S):
            if found := pids():
                os.kill(chance.choice(found), 9)
                times.append(time.monotonic())

    thread = Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@contextmanager
def opened(mode: str, kills: list[float]) -> Iterator[Workers]:
    """Opens the executor of a mode."""
    if mode == "alone":
        yield Workers()
    elif mode == "processes":
        with processes(N_WORKER) as pool:
            yield Workers(executor=pool)
    elif mode in ("dask", "killed"):
        with dask_cluster(N_WORKER) as cluster:
            workers = Workers(executor=f"dask://{cluster.address}")
            if mode == "dask":
                yield workers
            else:
                with killer(cluster.worker_pids, kills):
                    yield workers
    elif mode == "mpi":
        yield Workers(executor="mpi")
    elif mode == "loky":
        from loky import get_reusable_executor

        pool: Executor = get_reusable_executor(N_WORKER)
        yield Workers(executor=pool)
        pool.shutdown()
    else:
        raise SystemExit(f"--modes: {mode} is unknown")


def run(mode: str, given: argparse.Namespace) -> tuple[list[Timed], str]:
    """Measures all tasks in a mode; and what is printed of it."""
    own, kills, found, twice = tasks(given.tasks), [], {}, 0
    one = partial(measured, n_samples=given.samples)
    with opened(mode, kills) as workers:
        list(run_tasks(one, own[:: max(1, len(own) // (8 * N_WORKER))], workers))  # programs are compiled
        start = time.perf_counter()
        for number, answer in run_tasks(one, own, workers):
            twice += number in found
            found[number] = answer
        wall_s = time.perf_counter() - start
    n_worker = 1 if mode == "alone" else N_WORKER
    done = [found[number] for number in range(len(own)) if number in found]
    busy_s = sum(one.seconds for one in done)
    text = (
        f"{mode:10} {len(done)} of {len(own)} done, {twice} twice, {len({one.process for one in done})} processes, "
        f"{len(kills)} killed; wall {wall_s:.1f} s, mean task {busy_s / len(done):.3f} s, "
        f"overhead {100 * (n_worker * wall_s / busy_s - 1):.1f} %"
    )
    return done, text


def mpi(given: argparse.Namespace) -> int:
    """Starts this file under MPI, one manager and the workers; its own process is the manager there."""
    command = [shutil.which("mpirun") or str(Path(sys.executable).with_name("mpirun")), "-n", str(N_WORKER + 1)]
    command += [sys.executable, "-m", "mpi4py.futures", "-m", "benchmarks.executors", "--inside", given.keep]
    command += ["--modes", "mpi", "--samples", str(given.samples), "--tasks", str(given.tasks)]
    return subprocess.run(command, check=False).returncode


def kept(done: Sequence[Timed], file: Path) -> None:
    """Keeps the table of a mode."""
    width = max(len(one.figures) for one in done)
    rows = [one.figures or (np.nan,) * width for one in done]
    np.savez(file, rows=np.array(rows, dtype=float), problems=np.array([one.problem for one in done]))


def equal(first: Path, second: Path) -> bool:
    """Whether two tables are the same, bit by bit."""
    with np.load(first) as a, np.load(second) as b:
        return a["rows"].tobytes() == b["rows"].tobytes() and a["problems"].tolist() == b["problems"].tolist()


def ratios(data: Path) -> None:
    """Prints how much faster two local processes are than one, each on one processor, with programs compiled."""
    from experiments.step_tables.table import read_step_rows
    from prism_jax.study.run_grid import StudyRequest, run_study
    from prism_jax.validation.steps import validate_steps

    own, cores = tasks(400)[::6][:64], sorted(os.sched_getaffinity(0))
    rows = [row for row in read_step_rows(data / "steps" / "steps.csv.gz") if row.model is not None and row.measured_s][
        :400
    ]
    work: dict[str, Callable[[Workers], object]] = {
        "sweep of 64": lambda workers: run_study(own, load_task, StudyRequest(), workers=workers),
        f"validate of {len(rows)} rows": lambda workers: validate_steps(rows, workers=workers),
    }
    for name, do in work.items():
        seconds = {}
        for n in (1, 2):
            os.sched_setaffinity(0, cores[:n])
            with processes(n) as pool:
                workers = Workers(executor=pool)
                do(workers)
                start = time.perf_counter()
                do(workers)
                seconds[n] = time.perf_counter() - start
        print(
            f"{name}: {seconds[1]:.1f} s, {seconds[2]:.1f} s with two: {seconds[1] / seconds[2]:.2f} times as fast",
            flush=True,
        )


N_EMPTY = 1000


def nothing(number: int) -> int:
    """Does nothing."""
    return number


def constants() -> None:
    """Prints what dealing, keeping and reading a task costs; tasks that do nothing are dealt one by one."""
    from prism_jax.core import executor
    from prism_jax.study.journal import COLUMNS, StudyJournal
    from prism_jax.study.run_grid import StudyRequest, run_study

    executor.TARGET_S = executor.DEALT_S = 0.0
    for mode in ("processes", "dask"):
        with opened(mode, []) as workers:
            list(run_tasks(nothing, range(50), workers))
            start, cpu = time.perf_counter(), time.process_time()
            list(run_tasks(nothing, range(N_EMPTY), workers))
            wall_s, cpu_s = time.perf_counter() - start, time.process_time() - cpu
        own = f"{1e3 * cpu_s / N_EMPTY:.2f} ms of the manager's processor"
        print(f"{mode}: {1e3 * wall_s / N_EMPTY:.2f} ms a batch, {own}")
    task, request = tasks(1)[0], StudyRequest(n_samples=64)
    row = measured(task, n_samples=64)
    print(
        f"a task is {len(pickle.dumps(task))} bytes, its answer {len(pickle.dumps(row.figures))} bytes; {len(COLUMNS)} figures"
    )
    start = time.perf_counter()
    for one in tasks(20):
        load_task(one)
    print(f"loading a job: {1e3 * (time.perf_counter() - start) / 20:.1f} ms")
    with TemporaryDirectory() as folder:
        file = Path(folder) / "study.npz"
        run_study(tasks(1), load_task, request, resume=file)
        for n in (10_000, 100_000):
            journal = StudyJournal(None, "", n)
            journal.rows[:], journal.jobs[:] = 1.0, "0" * 32
            journal._file._path = file
            start = time.perf_counter()
            journal.save()
            print(f"keeping {n:,} rows: {time.perf_counter() - start:.2f} s, {file.stat().st_size / n:.0f} bytes a row")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--modes", nargs="+", default=["alone", "processes", "dask", "killed", "mpi", "loky"])
    parser.add_argument("--samples", type=int, default=2048)
    parser.add_argument("--tasks", type=int, default=N_JOB * N_SETTING)
    parser.add_argument("--inside", default="", help=argparse.SUPPRESS)
    parser.add_argument("--ratios", nargs="?", type=Path, const=Path("../shared/data"))
    parser.add_argument("--constants", action="store_true")
    given = parser.parse_args()
    if given.constants or given.ratios:
        constants() if given.constants else ratios(given.ratios)
        return 0
    if hasattr(os, "sched_setaffinity") and given.modes[0] in ("alone", "mpi"):
        start_jax()
    with TemporaryDirectory() as folder:
        given.keep = given.inside or folder
        files = []
        for mode in given.modes:
            file = Path(given.keep) / f"{mode}.npz"
            if mode == "mpi" and not given.inside:
                if mpi(given):
                    return 1
            else:
                done, text = run(mode, given)
                kept(done, file)
                print(text, flush=True)
            files.append(file)
        if given.inside:
            return 0
        same = [equal(files[0], file) for file in files]
        for mode, own in zip(given.modes[1:], same[1:], strict=True):
            print(f"{mode}: table {'equal' if own else 'NOT equal'} to that of {given.modes[0]}, bit by bit")
        return 0 if all(same) else 1


if __name__ == "__main__":
    raise SystemExit(main())
