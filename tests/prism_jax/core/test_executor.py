"""Tasks on executors: every answer once and the same everywhere, lost workers, unlike workers, names."""

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import jax
import pytest

from prism_jax.core import executor
from prism_jax.core.errors import DataError, SpecError
from prism_jax.core.executor import MOST_LOST, TARGET_S, Workers, run_tasks, worker_kind
from prism_jax.core.processes import processes, share_of
from tests.support.dask_cluster import dask_cluster

ROOT = Path(__file__).parents[3]


def sine(number: int) -> float:
    """A figure that JAX computes."""
    return float(jax.numpy.sin(jax.numpy.float32(number)))


def lost_once(number: int, *, folder: str) -> int:
    """Ends its process the first time that it is asked about 3."""
    mark = Path(folder) / "lost"
    if number == 3 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return number * number


def always_lost(number: int) -> int:
    """Ends its process at 1."""
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def impossible(number: int) -> int:
    """Refuses 2."""
    if number == 2:
        raise SpecError("two is one too many")
    return number


TASKS = list(range(12))
SINES = [sine(number) for number in TASKS]


def answers(function: Callable[[int], Any], workers: Workers) -> list[Any]:
    """Answers in the order of the tasks, each of which is done once."""
    found = list(run_tasks(function, TASKS, workers))
    assert sorted(number for number, _ in found) == TASKS
    return [answer for _, answer in sorted(found)]


def test_one_process_threads_and_somebody_elses_executor_give_the_same_bits() -> None:
    loky = pytest.importorskip("loky", reason="loky is not installed: pip install 'prism-jax[test]'")
    assert answers(sine, Workers()) == SINES
    with ThreadPoolExecutor(3) as threads:
        assert answers(sine, Workers(executor=threads)) == SINES
        assert threads.submit(sine, 1).result() == SINES[1]  # still open: it is the caller's
    pool = loky.get_reusable_executor(2)
    assert answers(sine, Workers(executor=pool)) == SINES
    pool.shutdown()


def test_local_processes_give_the_same_bits_and_go_on_where_one_is_lost(tmp_path: Path) -> None:
    assert answers(sine, Workers(2)) == answers(sine, Workers(executor="processes:2")) == SINES
    squares = [number * number for number in TASKS]
    assert answers(partial(lost_once, folder=str(tmp_path)), Workers(2)) == squares


def test_dask_gives_the_same_bits_and_goes_on_where_a_worker_is_lost(tmp_path: Path) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'prism-jax[dask]'")
    with dask_cluster(2) as cluster:
        workers = Workers(executor=f"dask://{cluster.address}")
        assert answers(sine, workers) == SINES
        squares = [number * number for number in TASKS]
        assert answers(partial(lost_once, folder=str(tmp_path)), workers) == squares


def test_mpi_gives_the_same_bits(tmp_path: Path) -> None:
    pytest.importorskip("mpi4py", reason="mpi4py is not installed: pip install 'prism-jax[mpi]'")
    beside = Path(sys.executable).with_name("mpirun")
    mpirun = str(beside) if beside.exists() else shutil.which("mpirun")
    if mpirun is None:
        pytest.skip("mpirun is not installed: pip install mpich")
    program = tmp_path / "several.py"
    program.write_text(
        "from tests.prism_jax.core.test_executor import SINES, answers, sine\n"
        "from prism_jax.core.executor import Workers\n"
        "if __name__ == '__main__':\n"
        "    assert answers(sine, Workers(executor='mpi')) == SINES\n"
        "    print('equal')\n"
    )
    command = [mpirun, "-n", "3", sys.executable, "-m", "mpi4py.futures", str(program)]
    run = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False, timeout=240
    )
    assert (run.returncode, run.stdout.split()) == (0, ["equal"]), run.stderr


def test_a_task_that_costs_every_worker_is_named() -> None:
    with pytest.raises(DataError, match=rf"task 2 of 3 was lost {MOST_LOST} times with its worker .* fewer workers"):
        list(run_tasks(always_lost, [0, 1, 2], Workers(2)))


def test_errors_of_tasks_are_raised_as_they_are() -> None:
    with processes(2) as pool, pytest.raises(SpecError, match="two is one too many"):
        list(run_tasks(impossible, TASKS, Workers(executor=pool)))


class Direct(Executor):
    """Computes at once, as a worker of another kind would, and counts batches.

    Args:
        kind: changes the kind that the worker compares itself with.
        seconds: that a task is said to take.
    """

    def __init__(self, kind: Callable[[Any], Any] = lambda kind: kind, seconds: float | None = None) -> None:
        self.kind, self.seconds, self.sizes = kind, seconds, []

    def submit(self, function: Callable[..., Any], /, *given: Any, **_: Any) -> Future:  # type: ignore[override]
        """Computes a batch."""
        own, tasks, kind, settings = given
        self.sizes.append(len(tasks))
        answer = function(own, tasks, kind and self.kind(kind), settings)
        done: Future = Future()
        if self.seconds is not None:
            answer = answer._replace(seconds=self.seconds * len(tasks))
        done.set_result(answer)
        return done


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (
            lambda kind: kind._replace(cpu="Other CPU with avx9"),
            r"another type of CPU \(.*\).*allow it: --unlike-workers",
        ),
        (lambda kind: kind._replace(code="0"), "another version of prism-jax, JAX, NumPy or SciPy"),
    ],
)
def test_unlike_workers_are_refused_unless_allowed(kind: Callable[[Any], Any], text: str) -> None:
    with pytest.raises(DataError, match=text):
        list(run_tasks(sine, TASKS, Workers(executor=Direct(kind))))
    assert answers(sine, Workers(executor=Direct(kind), unlike_workers=True)) == SINES


def test_the_kind_of_a_process_is_that_of_another_on_the_same_host() -> None:
    with processes(1) as pool:
        assert pool.submit(worker_kind).result() == worker_kind()


def test_batches_take_about_the_same_time_and_are_short_at_the_end() -> None:
    quick, slow = Direct(seconds=TARGET_S / 100), Direct(seconds=TARGET_S * 3)
    assert len(list(run_tasks(float, list(range(5000)), Workers(executor=quick)))) == 5000
    assert max(quick.sizes) <= 100
    assert quick.sizes[-1] == 1
    assert len(quick.sizes) < 5000 / 20
    list(run_tasks(float, TASKS, Workers(executor=slow)))
    assert set(slow.sizes) == {1}


def test_options_of_jax_reach_the_workers() -> None:
    with jax.enable_x64(True), processes(1) as pool:
        found = list(run_tasks(precision, [0, 1], Workers(executor=pool)))
    assert sorted(found) == [(0, "float64"), (1, "float64")]


def precision(_: int) -> str:
    """Type of JAX's numbers in a worker."""
    return str(jax.numpy.zeros(1, dtype=float).dtype)


def test_workers_share_all_processors() -> None:
    for n_core in range(1, 9):
        for n_worker in range(1, 12):
            shares = [list(share_of(range(n_core), number, n_worker)) for number in range(n_worker)]
            assert all(shares)
            assert {core for share in shares for core in share} == set(range(min(n_core, max(n_core, n_worker))))
            if n_worker <= n_core:
                assert sum(map(len, shares)) == n_core
                assert max(map(len, shares)) - min(map(len, shares)) <= 1


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        (Workers(executor="slurm"), r"'slurm' is unknown. Give processes:N, dask://HOST:PORT or mpi"),
        (Workers(executor="processes:0"), "between 1 and 256"),
        (Workers(executor="processes:many"), "between 1 and 256"),
        (Workers(executor="processes:1000"), "between 1 and 256"),
        (Workers(2, executor="mpi"), "--workers N is short for --executor processes:N. Give one"),
        (Workers(0), "--workers: 0, but it must be between 1 and 256"),
        (Workers(executor="dask:"), "Give dask://HOST:PORT"),
        (Workers(executor="mpi:4"), "that of `mpirun -n`"),
    ],
)
def test_executors_that_do_not_exist_are_refused(workers: Workers, text: str) -> None:
    with pytest.raises(DataError, match=text):
        list(run_tasks(sine, TASKS, workers))


def test_nothing_of_an_extra_is_imported_without_asking() -> None:
    program = (
        "import sys, prism_jax.core.executor; print([n for n in ('dask', 'distributed', 'mpi4py') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert run.stdout.strip() == "[]"


def test_a_scheduler_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed: pip install 'prism-jax[dask]'")
    monkeypatch.setattr(executor, "CONNECT_S", 1)
    with pytest.raises(DataError, match=r"dask://127.0.0.1:9: no scheduler answers there"):
        list(run_tasks(sine, TASKS, Workers(executor="dask://127.0.0.1:9")))
