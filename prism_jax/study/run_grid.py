"""Predicts every task of a study and reads off its figures, here or on the workers of an executor, in the order of the tasks.

A task is whatever `load` makes a job of: options of a command, or a job itself. Every task is measured by itself under the same
seed, so that the table is the same to the last bit whatever workers share the tasks. A journal keeps what is done, so that an
interrupted study goes on where it stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np

from ..calibration.band import model_factors
from ..core.arrays import Floats
from ..core.errors import PrismError, in_one_line
from ..core.executor import ALONE, Workers, run_tasks
from ..core.kept_work import identity, saved_at_the_end
from ..core.kernels import COMM_AXES
from ..core.processes import Progress, silent
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
from .journal import COLUMNS, WHOLE, StudyJournal, StudyShard

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
    shard: StudyShard = WHOLE,
    workers: Workers = ALONE,
    progress: Progress = silent,
) -> list[MeasuredTask[Task]]:
    """Measures every task of a shard.

    Args:
        tasks: of the whole study, picklable; with `load`, a function that a module defines, the whole of a job.
        resume: file, or folder with a file of every shard, that remembers what is done; the same study goes on where it stopped.
        shard: the tasks to measure and to return; all by default.
        workers: processes that share the tasks.

    Raises:
        DataError: the file is that of another study, or workers fail.

    Notes:
        A job that is impossible is a row with its reason; the others go on.
    """
    own = shard.positions(len(tasks))
    journal = StudyJournal(resume, "" if resume is None else identity(COLUMNS, asked, len(tasks)), len(tasks), shard)
    left = journal.left(own, lambda number: _loaded(tasks[number], load)[0])
    one = partial(_measured, load=load, asked=asked)
    with saved_at_the_end(journal.save if left else lambda: None):
        for done, (place, found) in enumerate(
            run_tasks(one, [tasks[number] for number in left], workers), len(own) - len(left) + 1
        ):
            journal.put(left[place], *found)
            progress(done / len(own), "jobs")
    return [_row(tasks[number], journal, number) for number in own]


Row = tuple[str, np.ndarray | None, str]  # content of a job; its figures, or why there are none


def _loaded(task: Task, load: Callable[[Task], Job]) -> tuple[Job | None, str]:
    """The job of a task, or why there is none."""
    try:
        return load(task), ""
    except PrismError as error:
        return None, in_one_line(error)


def _measured(task: Task, *, load: Callable[[Task], Job], asked: StudyRequest) -> Row:
    job, problem = _loaded(task, load)
    if job is None:
        return "", None, problem  # of no job: tried again by the next run
    try:
        return job.content, np.array(astuple(figures_of(job, asked)), dtype=np.float64), ""
    except PrismError as error:
        return job.content, None, in_one_line(error)


def _row(task: Task, journal: StudyJournal, number: int) -> MeasuredTask[Task]:
    problem = str(journal.problems[number])
    if problem:
        return MeasuredTask(task, None, problem)
    return MeasuredTask(task, JobFigures(*map(float, journal.rows[number])))
