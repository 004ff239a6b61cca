"""Searching plans: the one with the smallest tail, or the best one of every cluster size; what `prism-jax search` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core.files import check_target
from .._version import __version__
from ..errors import DataError
from ..io.job.write.job_with_plan import job_with_plan
from ..io.space import read_space
from ..io.write import run_record, write_text
from ..job import Job
from ..objective import Objective, plan_objective
from ..progress import Progress, silent
from ..report.codec import from_plain
from ..report.types.record import RunRecord
from ..report.types.study import SearchedJob, SizesReport, StudyReport
from ..search.figures import CandidateFacts
from ..search.plans.space import PlanSpace, default_space
from ..start_jax import keep_programs
from ..workload.notes import workload_notes
from .fitted.load_fits import FitFiles, FittedJob, calibrated_job, with_variability
from .jobs import JobSource, loaded, source_of

if TYPE_CHECKING:
    from ..plot.figure import Figure
    from ..search.study import Candidate, Study

METHODS = ("exhaustive", "gradient")
FRONT = ("value_s", "n_devices", "energy_j", "cost")


@dataclass(frozen=True)
class SearchRun:
    """A search with the study that its report is made of."""

    report: StudyReport
    study: Study
    source: JobSource
    overrides: tuple[str, ...] = ()

    def write_job(self, path: str | Path) -> None:
        """Writes the job with the best plan, as YAML that every command takes.

        Raises:
            DataError: the job was not read from a file, or the file cannot be written.
        """
        if isinstance(self.source, Job):
            raise DataError(f"{path}: the job was not read from a file, so that it cannot be written as one.")
        from ..search.study import without_meaning, written_plan  # need JAX

        best = self.study.best
        comment = (
            f"The best of {self.report.n_plans:,} plans of {self.report.job.name} by {self.report.objective}: "
            f"p50 {best.p50_s:.5g} s, p95 {best.p95_s:.5g} s (prism-jax {__version__})"
        )
        chosen, dropped = written_plan(best.plan), without_meaning(best.plan)
        write_text(path, job_with_plan(self.source, self.overrides, chosen, dropped, comment))

    def figure(self) -> Figure:
        """Plans by objective and memory."""
        from ..plot import plot_study  # here, so that searches without a picture do not pay for it

        return plot_study(self.study, self.report.job.name, len(self.report.top))


def search_plans(job: JobSource, **options: Any) -> StudyReport:
    """The plans with the least objective; arguments as those of `run_search`.

    Example:
        >>> search_plans("llama3_405b_16384", objective="p99").best.plan.tp  # doctest: +SKIP
    """
    return run_search(job, **options).report


def run_search(
    job: JobSource,
    *,
    overrides: Sequence[str] = (),
    fits: FitFiles = (),
    force: bool = False,
    space: str | Path | PlanSpace | None = None,
    objective: str | Objective = "p95",
    price_per_gpu_hour: float | None = None,
    method: str = "exhaustive",
    any_framework: bool = False,
    memory_margin: float | None = None,
    top: int = 10,
    resume: str | Path | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> SearchRun:
    """Searches the plan that minimises the tail of the step time.

    Args:
        job, overrides, fits, force, seed, progress: as in `run_prediction`.
        space: values per knob, or a YAML or TOML file of them; `default_space(job)` if not given.
        objective: what is to be small: a name that `prism-jax show objectives` lists, or an `Objective`.
        price_per_gpu_hour: for objectives in money.
        method: "exhaustive", or "gradient" for spaces too large to enumerate.
        any_framework: plans that the job's framework does not have, too, and overlap as a knob (`default_space`).
        memory_margin: share of a device's memory that a plan leaves free; None: what the framework needs.
        top: how many plans are to be told apart.
        resume: file that remembers what has been found; an interrupted search with the same file goes on where it stopped.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.
        PlanError: no plan is feasible.
    """
    keep_programs()
    check_method(method, resume)
    _check_margin(memory_margin)
    price = price_per_gpu_hour
    fitted, values = _asked(job, overrides, fits, force, space, any_framework, seed, progress, objective, price)
    own = fitted.job
    common: dict[str, Any] = {"objective": objective, "price_per_gpu_hour": price, "memory_margin": memory_margin}
    common |= {"seed": seed, "top": top, "posterior": fitted.draws}
    study = _study(own, values, method, resume, progress, **common)
    inputs = {
        "job": source_of(job),
        "set": list(overrides),
        "space": space,
        "objective": objective if isinstance(objective, str) else objective.name,
        "method": method,
        "any_framework": any_framework,
        "memory_margin": memory_margin,
        "fit": list(fits),
    }
    notes = (*workload_notes(own.model, own.plan), *study.notes, *fitted.tables, *_of_level(fitted))
    return SearchRun(_report(study, top, notes, run_record(inputs, seed)), study, job, tuple(overrides))


def search_sizes(
    job: JobSource,
    n_devices: Sequence[int],
    *,
    overrides: Sequence[str] = (),
    fits: FitFiles = (),
    force: bool = False,
    space: str | Path | PlanSpace | None = None,
    any_framework: bool = False,
    memory_margin: float | None = None,
    price_per_hour: float = 0.0,
    objective: str | Objective = "p95",
    seed: int = 0,
    progress: Progress = silent,
) -> SizesReport:
    """The best plan of every cluster size, with its time, energy and cost per step; the batch stays.

    Args:
        n_devices: sizes of the cluster.
        price_per_hour: of one device.
        job, overrides, fits, force, space, any_framework, memory_margin, objective, seed, progress: as in `run_search`.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.
        PlanError: a size has no feasible plan.

    Example:
        >>> search_sizes("llama3_405b_16384", [8192, 16384], price_per_hour=2.5).front  # doctest: +SKIP
    """
    keep_programs()
    _check_margin(memory_margin)
    price = price_per_hour or None
    fitted, values = _asked(job, overrides, fits, force, space, any_framework, seed, progress, objective, price)
    own = fitted.job
    given = None if space is None else values
    progress(0.0, "loading JAX")
    from ..search.sizes import best_sizes, search_sizes as search  # needs JAX, which mistakes above do not wait for

    sizes = search(
        own,
        n_devices,
        given,
        any_framework=any_framework,
        price_per_hour=price_per_hour,
        objective=objective,
        seed=seed,
        memory_margin=memory_margin,
        progress=progress,
    )
    inputs = {
        "job": source_of(job),
        "set": list(overrides),
        "gpus": list(n_devices),
        "space": space,
        "price": price_per_hour,
        "objective": objective if isinstance(objective, str) else objective.name,
    }
    return SizesReport(
        job=_facts(own),
        objective=sizes[0].study.objective.name,
        objective_unit=sizes[0].study.objective.unit,
        sizes=tuple(size.facts() for size in sizes),
        front=tuple(size.n_devices for size in best_sizes(sizes, *FRONT)),
        record=from_plain(RunRecord, run_record(inputs, seed)),
    )


def _report(study: Study, top: int, notes: tuple[str, ...], record: Mapping[str, Any]) -> StudyReport:
    def facts(candidates: Sequence[Candidate]) -> tuple[CandidateFacts, ...]:
        return tuple(candidate.beside(study.job.plan) for candidate in candidates)

    return StudyReport(
        job=_facts(study.job),
        objective=study.objective.name,
        objective_unit=study.objective.unit,
        method=study.method,
        best=study.best.beside(study.job.plan),
        top=facts(study.top(top)),
        unlike=facts(study.unlike(top)),
        gain=study.promise,
        front_memory=facts(study.front("memory_bytes")),
        n_plans=study.screen.n_plans,
        n_feasible=study.screen.n_feasible,
        n_simulated=int(np.isfinite(study.screen.step_s).sum()),
        n_raced=study.n_raced,
        infeasible=study.screen.reasons,
        elapsed_s=study.elapsed_s,
        notes=notes,
        record=from_plain(RunRecord, record),
    )


def check_method(method: str, resume: str | Path | None = None) -> None:
    """Whether there is such a method and it can resume, asked before anything is read.

    Raises:
        DataError: no such method, or one that cannot resume; a file that cannot be written.
    """
    if resume is not None:
        check_target(resume)
    if method not in METHODS:
        raise DataError(f"--method: {method!r} is unknown; known are {' and '.join(METHODS)}")
    if resume is not None and method == "gradient":
        raise DataError(
            "--resume: a gradient search is too short to be resumed. Leave it out, or use --method exhaustive."
        )


def _asked(
    job: JobSource,
    overrides: Sequence[str],
    fits: FitFiles,
    force: bool,
    space: str | Path | PlanSpace | None,
    any_framework: bool,
    seed: int,
    progress: Progress,
    objective: str | Objective,
    price_per_gpu_hour: float | None,
) -> tuple[FittedJob, PlanSpace]:
    """The job after its fits, and the space; an unknown objective is refused."""
    own, rest = calibrated_job(loaded(job, overrides), fits)
    plan_objective(objective, own.plan, price_per_gpu_hour)
    values = _space(space, own, any_framework)
    return with_variability(own, rest, seed=seed, force=force, progress=progress), values


def _of_level(fitted: FittedJob) -> list[str]:
    """That the level of a log is not used here."""
    if fitted.level is None:
        return []
    return [f"{fitted.level.file}: a search does not use the level of the log, which is of one plan"]


def _space(space: str | Path | PlanSpace | None, job: Job, any_framework: bool) -> PlanSpace:
    if isinstance(space, PlanSpace):
        return space
    default = default_space(job, any_framework=any_framework)
    return default if space is None else read_space(str(space), default)


def _check_margin(memory_margin: float | None) -> None:
    if memory_margin is not None and not 0.0 <= memory_margin < 1.0:
        raise DataError(
            f"--memory-margin: {memory_margin:g} is no share of a device's memory. Give a number from 0 up to 1."
        )


def _study(
    job: Job, space: PlanSpace, method: str, journal: str | Path | None, progress: Progress, **common: Any
) -> Study:
    progress(0.0, "loading JAX")
    if method == "gradient":
        from ..search.gradient.search import gradient_search  # needs JAX, which mistakes do not wait for

        return gradient_search(job, space, progress=progress, **common)
    from ..search.exhaustive import search

    return search(job, space, journal=journal, progress=progress, **common)


def _facts(job: Job) -> SearchedJob:
    device = job.cluster.device
    return SearchedJob(
        job.name,
        job.model.name,
        job.cluster.name,
        device.name,
        job.cluster.n_devices,
        device.hbm_bytes,
        job.model.sample_unit,
    )
