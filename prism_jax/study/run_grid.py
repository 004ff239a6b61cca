"""Predicts every task of a study and reads off its figures, on this process or on several, in the order of the tasks.

A task is whatever `load` makes a job of: options of a command, or a job itself. Every task is measured by itself under the same
seed, so that the table is the same to the last bit however many processes share the work. A journal in an archive keeps what is
done, so that an interrupted study goes on where it stopped.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import jax
import numpy as np

from .._version import __version__
from ..calibration.band import model_factors
from ..core.archive import opened, write_archive
from ..core.arrays import Floats
from ..core.content import content_hash
from ..core.errors import DataError, PrismError
from ..core.kernels import COMM_AXES
from ..core.processes import Progress, check_workers, processes, silent
from ..cost.step import StepCost
from ..explain.explain import breakdown, power_phases
from ..job.job import Job
from ..result.distribution import StepTimeDistribution
from ..result.objective import MILLION, S_PER_HOUR, plan_objective
from ..simulate.predict import predict
from ..simulate.program import lower
from ..system.hardware import hfu, mfu
from ..system.power import step_power
from .figures import JobFigures, Target

BAND = (0.05, 0.95)  # of the model
DEFAULT_SAMPLES = 2048


@dataclass(frozen=True)
class StudyRequest:
    """What is measured of every job of a study, and how.

    Attributes:
        objective: name of what is to be small.
        price_per_gpu_hour: None where money is not asked for.
        target: None where there is none.
        n_samples: replica columns; every job sees the same draws.
    """

    objective: str = "p95"
    price_per_gpu_hour: float | None = None
    target: Target | None = None
    n_samples: int = DEFAULT_SAMPLES
    seed: int = 0


def figures_of(job: Job, asked: StudyRequest) -> JobFigures:
    """Figures of one job.

    Raises:
        PlanError, SpecError, DataError: the job is impossible, or cannot answer what is asked.
    """
    job.check()
    distribution = predict(job, key=jax.random.key(asked.seed), n_samples=asked.n_samples)
    program, plan = lower(job), job.plan
    factors = model_factors(
        job.model, job.cluster, plan, job.effective_calibration, job.framework, asked.seed, job.open_fields
    )
    times = {"mean": distribution.mean_s} | {f"p{p}": distribution.quantile(p / 100) for p in (50, 95, 99)}
    n_tokens, n = float(job.model.units_per_step(plan)), plan.n_devices
    rates = {
        "tokens_per_s": n_tokens / times["p50"],
        "tokens_per_s_per_gpu": n_tokens / times["p50"] / n,
        "mfu": mfu(program.cost.model_flops, times["p50"], job.cluster, n, plan.dtype),
    }
    value, error = _objective(job, distribution, asked)
    price = np.nan if asked.price_per_gpu_hour is None else asked.price_per_gpu_hour
    low, high = np.quantile(factors, BAND)
    memory, target, where_s = job.memory, asked.target, breakdown(program, distribution)
    return JobFigures(
        n_devices=float(n),
        value=value,
        value_error=error,
        **{f"{name}_s": seconds for name, seconds in times.items()},
        **{f"p{p}_error_s": distribution.mc_error(p / 100) for p in (50, 95, 99)},
        model_low=float(low),
        model_high=float(high),
        tokens_per_step=n_tokens,
        **rates,
        hfu=hfu(program.cost.hardware_flops, times["p50"], job.cluster, n, plan.dtype),
        memory_bytes=float(memory.total_bytes),
        fits=float(memory.fits),
        **_where(where_s),
        **_power(job, where_s, n_tokens),
        **_hidden(program.cost, plan.n_micro_batch, plan.pp),
        money_per_mtoken=times["mean"] * n / S_PER_HOUR / n_tokens * MILLION * price,
        target_prob=np.nan if target is None else target.prob((times | rates)[target.name], factors),
    )


def _objective(job: Job, distribution: StepTimeDistribution, asked: StudyRequest) -> tuple[float, float]:
    """The objective, and its Monte Carlo standard error from independent randomisations."""
    objective = plan_objective(asked.objective, job.plan, asked.price_per_gpu_hour)
    value = float(objective.of(distribution.samples_s))
    if asked.objective.startswith("p") and objective.unit == "s":
        return value, distribution.mc_error(float(f"0.{asked.objective[1:]}"))
    batches = np.asarray([float(objective.of(own)) for own in distribution.batches_s])
    return value, float(batches.std(ddof=1) / np.sqrt(len(batches)))


def _where(seconds: Mapping[str, float]) -> dict[str, float]:
    """Where the mean step goes, under the names of `Figures`."""
    comm = {f"exposed_{axis}_s": seconds[f"{axis}_comm"] for axis in (*COMM_AXES, "pp")}
    rest = {"waiting_s": seconds["waiting_for_stragglers"]}
    return comm | rest | {f"{name}_s": seconds[name] for name in ("compute", "bubble", "stalls")}


def _power(job: Job, where_s: Mapping[str, float], n_tokens: float) -> dict[str, float]:
    """Mean watts of a GPU, and joules of all GPUs per token; nothing of devices whose power no law is known of."""
    found = step_power(power_phases(job, where_s), job.cluster.device)
    if found is None:
        return {}
    return {
        "gpu_watts": float(found.watts),
        "joules_per_token": float(found.joules) * job.plan.n_devices / n_tokens,
    }


def _hidden(cost: StepCost, n_micro_batch: int, n_stage: int) -> dict[str, float]:
    """Communication that runs beside compute, by axis."""
    by_axis: Floats = np.asarray(cost.hidden_comm_s).sum(axis=(0, 1)) * n_micro_batch / n_stage
    found = {f"hidden_{axis}_s": float(seconds) for axis, seconds in zip(COMM_AXES, by_axis, strict=True)}
    return found | {"hidden_dp_s": found["hidden_dp_s"] + float(np.mean(cost.end_hidden_comm_s))}


KIND = "study"
REMEDY = "Give another file, or remove it to start over."
SAVE_EVERY_S = 10.0
MAX_BYTES = 1 << 30
MOST_TEXT = 400  # characters kept of why a task has no figures


class StudyJournal:
    """Rows of numbers by the position of their task, or why a task has none.

    Args:
        path: None: in memory only.
        fingerprint: of the tasks and of what is measured; a file of another study is refused.
        n_tasks, n_columns: of the study.

    Raises:
        DataError: the file is damaged, or that of another study.
    """

    def __init__(self, path: Path | None, fingerprint: str, n_tasks: int, n_columns: int) -> None:
        self._path, self._fingerprint = path, fingerprint
        self.rows = np.full((n_tasks, n_columns), np.nan)
        self.problems = np.full(n_tasks, "", dtype=f"U{MOST_TEXT}")
        self.done = np.zeros(n_tasks, dtype=bool)
        if path is not None and path.exists():
            self._load(path)
        self._saved_at = time.monotonic()

    def put(self, task: int, row: np.ndarray | None, problem: str = "") -> None:
        """Keeps what has become of a task, on disk too if some time has passed."""
        if row is not None:
            self.rows[task] = row
        self.problems[task] = problem[:MOST_TEXT]
        self.done[task] = True
        if time.monotonic() - self._saved_at > SAVE_EVERY_S:
            self.save()

    def save(self) -> None:
        """Writes the file, whole or not at all."""
        if self._path is not None:
            arrays = {"rows": self.rows, "problems": self.problems, "done": self.done}
            write_archive(self._path, KIND, {"fingerprint": self._fingerprint}, arrays)
        self._saved_at = time.monotonic()

    def _load(self, path: Path) -> None:
        with opened(path, KIND, REMEDY, MAX_BYTES) as archive:
            if archive.about.get("fingerprint") != self._fingerprint:
                raise DataError(f"{path}: the file of another study (job, grid, options or version differ). {REMEDY}")
            for name in ("rows", "problems", "done"):
                own, header = getattr(self, name), archive.headers.get(name)
                if header is None or (header.shape, header.kind) != (own.shape, own.dtype.kind):
                    raise DataError(f"{path}: {name} is missing or of another form. {REMEDY}")
                setattr(self, name, archive.load(name).astype(own.dtype))


Task = TypeVar("Task")
COLUMNS = tuple(item.name for item in fields(JobFigures))


@dataclass(frozen=True)
class MeasuredTask(Generic[Task]):
    """What has become of a task.

    Attributes:
        figures: None where the job is impossible.
        problem: why.
    """

    task: Task
    figures: JobFigures | None
    problem: str = ""


def run_study(
    tasks: Sequence[Task],
    load: Callable[[Task], Job],
    asked: StudyRequest,
    *,
    identity: object = (),
    resume: Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> list[MeasuredTask[Task]]:
    """Measures every task.

    Args:
        tasks: picklable; with `load`, a function that a module defines, the whole of a job.
        identity: what else decides the answer, such as the content of files (`content_hash` takes it).
        resume: file that remembers what is done; the same study with the same file goes on where it stopped.
        n_workers: processes on this host.

    Raises:
        DataError: the file is that of another study, or `n_workers` is out of range.

    Notes:
        A job that is impossible is a row with its reason; the others go on.
    """
    check_workers(n_workers)
    fingerprint = content_hash(__version__, COLUMNS, asked, list(tasks), identity)
    journal = StudyJournal(resume, fingerprint, len(tasks), len(COLUMNS))
    left = [number for number in range(len(tasks)) if not journal.done[number]]
    one = partial(_measured, load=load, asked=asked)
    for done, (number, row, problem) in enumerate(_results(one, tasks, left, n_workers), len(tasks) - len(left) + 1):
        journal.put(number, row, problem)
        progress(done / len(tasks), "jobs")
    if left:
        journal.save()
    return [_row(task, journal, number) for number, task in enumerate(tasks)]


def _results(
    one: Callable[[Task], tuple[np.ndarray | None, str]], tasks: Sequence[Task], left: Sequence[int], n_workers: int
) -> Iterator[tuple[int, np.ndarray | None, str]]:
    """What becomes of the tasks that are left, as they are done."""
    if n_workers == 1 or len(left) < 2:
        yield from ((number, *one(tasks[number])) for number in left)
        return
    with processes(min(n_workers, len(left))) as pool:
        waiting = {pool.submit(one, tasks[number]): number for number in left}
        for future in as_completed(waiting):
            yield (waiting[future], *future.result())


def _measured(task: Task, *, load: Callable[[Task], Job], asked: StudyRequest) -> tuple[np.ndarray | None, str]:
    try:
        return np.array(astuple(figures_of(load(task), asked)), dtype=np.float64), ""
    except PrismError as error:
        return None, " ".join(str(error).split())


def _row(task: Task, journal: StudyJournal, number: int) -> MeasuredTask[Task]:
    problem = str(journal.problems[number])
    if problem:
        return MeasuredTask(task, None, problem)
    return MeasuredTask(task, JobFigures(*map(float, journal.rows[number])))
