"""Predicts every task of a study and reads off its figures, on this process or on several, in the order of the tasks.

A task is whatever `load` makes a job of: options of a command, or a job itself. Every task is measured by itself under the same
seed, so that the table is the same to the last bit however many processes share the work. A journal in an archive keeps what is
done, so that an interrupted study goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import MISSING, astuple, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from ..calibration.band import model_factors
from ..core.arrays import Floats
from ..core.errors import PrismError
from ..core.kept_work import Expected, WorkFile, identity, saved_at_the_end
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
    """Objective, price and draws with which every job of a study is measured.

    Attributes:
        objective: name of the quantity to minimise.
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
    distribution = predict(job, key=asked.seed, n_samples=asked.n_samples)
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
        fits=float(job.fits),
        **_where(where_s),
        **_power(job, where_s, n_tokens),
        **_hidden(program.cost, plan.n_micro_batch, plan.pp),
        money_per_mtoken=times["mean"] * n / S_PER_HOUR / n_tokens * MILLION * price,
        target_prob=np.nan if target is None else target.prob((times | rates)[target.name], factors),
    )


def _objective(job: Job, distribution: StepTimeDistribution, asked: StudyRequest) -> tuple[float, float]:
    """The objective, and its Monte Carlo standard error from independent randomisations."""
    objective = plan_objective(asked.objective, job.plan, job.model.units_per_step(job.plan), asked.price_per_gpu_hour)
    value = float(objective.of(distribution.samples_s))
    if asked.objective.startswith("p") and objective.unit == "s":
        return value, distribution.mc_error(float(f"0.{asked.objective[1:]}"))
    batches = np.asarray([float(objective.of(own)) for own in distribution.batches_s])
    return value, float(batches.std(ddof=1) / np.sqrt(len(batches)))


def _where(seconds: Mapping[str, float]) -> dict[str, float]:
    """Parts of the mean step, under the names of `Figures`."""
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
    """Communication that runs during compute, by axis."""
    by_axis: Floats = np.asarray(cost.hidden_comm_s).sum(axis=(0, 1)) * n_micro_batch / n_stage
    found = {f"hidden_{axis}_s": float(seconds) for axis, seconds in zip(COMM_AXES, by_axis, strict=True)}
    return found | {"hidden_dp_s": found["hidden_dp_s"] + float(np.mean(cost.end_hidden_comm_s))}


MOST_TEXT = 400  # characters kept of why a task has no figures
MOST = 1e30  # of any figure
COLUMNS = tuple(item.name for item in fields(JobFigures))
MAY_BE_UNKNOWN = np.array([item.default is not MISSING for item in fields(JobFigures)])
POSITIVE = (
    "n_devices",
    "value",
    "mean_s",
    "p50_s",
    "model_low",
    "tokens_per_step",
    "tokens_per_s",
    "tokens_per_s_per_gpu",
)


class StudyJournal:
    """Rows of figures by the position of their task, or why a task has none, each with the content of the job that it is of.

    Args:
        path: None: in memory only.
        own: `identity` of what is measured.
        n_tasks: of the study.

    Raises:
        DataError: the file is damaged, or that of another study.
    """

    def __init__(self, path: Path | None, own: str, n_tasks: int) -> None:
        self._file = WorkFile(path, "study", own)
        self.rows = np.full((n_tasks, len(COLUMNS)), np.nan)
        self.problems = np.full(n_tasks, "", dtype=f"U{MOST_TEXT}")
        self.jobs = np.full(n_tasks, "", dtype="U32")  # empty: not done
        least = np.array([0.0 if name not in POSITIVE else 1.0 / MOST for name in COLUMNS])
        least[COLUMNS.index("waiting_s")] = -MOST  # a difference of two times
        schema = {
            "tasks/rows": Expected("f", self.rows.shape, least, MOST, may_be_nan=True),
            "tasks/problems": Expected("U", self.problems.shape),
            "tasks/jobs": Expected("U", self.jobs.shape),
        }
        if (found := self._file.read(lambda _: schema)) is not None:
            self.rows, self.problems, self.jobs = (
                found[name].astype(own.dtype)
                for name, own in zip(schema, (self.rows, self.problems, self.jobs), strict=True)
            )
            self._check()

    def _check(self) -> None:
        """Whether every task that is done has a reason or figures in order, and no other has."""
        has_row, unknown = (self.jobs != "") & (self.problems == ""), np.isnan(self.rows)
        low, middle, high, fits = (
            self.rows[has_row, COLUMNS.index(name)] for name in ("p50_s", "p95_s", "p99_s", "fits")
        )
        if (unknown & ~MAY_BE_UNKNOWN)[has_row].any() or not unknown[~has_row].all():
            raise self._file.refused("figures are missing or too many")
        if not ((low <= middle) & (middle <= high) & np.isin(fits, (0.0, 1.0))).all():
            raise self._file.refused("figures contradict each other")

    def left(self, job_of: Callable[[int], Job | None]) -> list[int]:
        """Positions of the tasks that are not done.

        Args:
            job_of: position of a task -> its job as it is now; None where it cannot be loaded.

        Raises:
            DataError: a task that is done is now of another job, or its figures are.
        """
        for number in np.flatnonzero(self.jobs != ""):
            job = job_of(int(number))
            if job is None or job.content != self.jobs[number]:
                raise self._file.of_another()
            if self.problems[number] == "" and self.rows[number, COLUMNS.index("n_devices")] != job.plan.n_devices:
                raise self._file.refused("figures are of another number of GPUs")
        return [int(number) for number in np.flatnonzero(self.jobs == "")]

    def put(self, task: int, job: str, row: np.ndarray | None, problem: str) -> None:
        """Keeps what has become of a task, on disk too if some time has passed."""
        if row is not None:
            self.rows[task] = row
        self.problems[task], self.jobs[task] = problem[:MOST_TEXT], job
        if self._file.is_due:
            self.save()

    def save(self) -> None:
        """Writes the file, if there is one to write."""
        self._file.save({"tasks/rows": self.rows, "tasks/problems": self.problems, "tasks/jobs": self.jobs})


Task = TypeVar("Task")


@dataclass(frozen=True)
class MeasuredTask(Generic[Task]):
    """Outcome of a task.

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
    resume: Path | None = None,
    n_workers: int = 1,
    progress: Progress = silent,
) -> list[MeasuredTask[Task]]:
    """Measures every task.

    Args:
        tasks: picklable; with `load`, a function that a module defines, the whole of a job.
        resume: file that remembers what is done; the same study with the same file goes on where it stopped.
        n_workers: processes on this host.

    Raises:
        DataError: the file is that of another study, or `n_workers` is out of range.

    Notes:
        A job that is impossible is a row with its reason; the others go on.
    """
    check_workers(n_workers)
    journal = StudyJournal(resume, "" if resume is None else identity(COLUMNS, asked, len(tasks)), len(tasks))
    left = journal.left(lambda number: _loaded(tasks[number], load)[0])
    one = partial(_measured, load=load, asked=asked)
    with saved_at_the_end(journal.save if left else lambda: None):
        for done, (number, found) in enumerate(_results(one, tasks, left, n_workers), len(tasks) - len(left) + 1):
            journal.put(number, *found)
            progress(done / len(tasks), "jobs")
    return [_row(task, journal, number) for number, task in enumerate(tasks)]


Row = tuple[str, np.ndarray | None, str]  # content of a job; its figures, or why there are none


def _results(
    one: Callable[[Task], Row], tasks: Sequence[Task], left: Sequence[int], n_workers: int
) -> Iterator[tuple[int, Row]]:
    """Yields the outcomes of the tasks that are left, as they are done."""
    if n_workers == 1 or len(left) < 2:
        yield from ((number, one(tasks[number])) for number in left)
        return
    with processes(min(n_workers, len(left))) as pool:
        waiting = {pool.submit(one, tasks[number]): number for number in left}
        for future in as_completed(waiting):
            yield waiting[future], future.result()


def _loaded(task: Task, load: Callable[[Task], Job]) -> tuple[Job | None, str]:
    """The job of a task, or why there is none."""
    try:
        return load(task), ""
    except PrismError as error:
        return None, " ".join(str(error).split())


def _measured(task: Task, *, load: Callable[[Task], Job], asked: StudyRequest) -> Row:
    job, problem = _loaded(task, load)
    if job is None:
        return "", None, problem  # of no job: tried again by the next run
    try:
        return job.content, np.array(astuple(figures_of(job, asked)), dtype=np.float64), ""
    except PrismError as error:
        return job.content, None, " ".join(str(error).split())


def _row(task: Task, journal: StudyJournal, number: int) -> MeasuredTask[Task]:
    problem = str(journal.problems[number])
    if problem:
        return MeasuredTask(task, None, problem)
    return MeasuredTask(task, JobFigures(*map(float, journal.rows[number])))
