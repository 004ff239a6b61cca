"""Searches the plan with the smallest tail, or the best one of every cluster size: the use case of `prism-jax search`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from ..core.errors import DataError
from ..core.processes import Progress, keep_programs, silent
from ..core.readable import short_numbers
from ..core.together import Together, process_number, together
from ..core.use_case import UNRECORDED, Option, OptionGroup, use_case
from ..core.write_file import check_target
from ..fits.load_fits import FittedJob, calibrated_job, with_variability
from ..horizon.predict_run import CheckpointOptions, hours_of, seconds_of
from ..job.job import Job
from ..job.load_job import JobFile, loaded
from ..job.rules import independent_work_notes, workload_notes
from ..job.write_job import ChosenFrom
from ..result.objective import Objective, plan_objective
from ..result.parameters import SLOWDOWNS, Applied, JobChanges, ObjectiveChoice, Output, Seed
from ..slowdowns.slowdowns_file import SlowdownTable, read_slowdowns
from .figures import CandidateFacts, ScreenedPlans
from .report import SearchedJob, SizesReport, StudyReport, TuneReport
from .space import PlanSpace, default_space
from .space_file import read_space
from .write_plans import save_best_jobs, write_best_job

if TYPE_CHECKING:
    from .evaluate import ScreeningResult
    from .study import Candidate, Study

METHODS = ("exhaustive", "local")
FORMERLY = {"gradient": "local"}  # what a method was called before
METHOD = "Search method: exhaustive, or local (random plans, then neighbours of the fastest) for spaces too large to enumerate."
PRICE = "Price per GPU-hour, used for objectives in money and with --gpus to report the cost per step."
FRONT = ("value_s", "n_devices", "energy_j", "cost")


@dataclass(frozen=True)
class Searched(OptionGroup):
    """Plans that are compared, and the objective.

    Attributes:
        space: YAML or TOML: lists of values per knob, e.g. tp: [1, 2, 4, 8]; by default `default_space(job)`.
        any_framework: consider plans that the job's framework does not have, and overlap as a knob.
        memory_margin: share of a device's memory that a plan leaves free, by framework if not given.
    """

    space: Annotated[str | Path | PlanSpace | None, Option(metavar="FILE")] = None
    objective: ObjectiveChoice = "p95"
    any_framework: bool = False
    memory_margin: Annotated[float | None, Option(metavar="SHARE")] = None


@dataclass(frozen=True)
class Method(Together):
    """Method of the search.

    Attributes:
        processes: as in `Together`.
        method: exhaustive, or local (random plans and their neighbours) for spaces too large to enumerate; `FORMERLY` holds.
        top: number of best plans to report.
        resume: checkpoint the search to FILE and resume from it.
    """

    method: Annotated[str, Option(help=METHOD)] = "exhaustive"
    top: Annotated[int, Option("--top", "N", key=None, least=1, most=1000)] = 10
    resume: Annotated[str | Path | None, Option("--resume", "FILE", key=None)] = None


@use_case(then=(write_best_job, save_best_jobs))
def search_plans(
    job: JobFile,
    *,
    changes: JobChanges = JobChanges(),
    searched: Searched = Searched(),
    how: Method = Method(),
    applied: Applied = Applied(),
    price_per_gpu_hour: Annotated[float | None, Option("--price", "PRICE", key=None, least=0.0, help=PRICE)] = None,
    seed: Seed = 0,
    progress: Progress = silent,
) -> StudyReport:
    """Search for the parallel plan that minimises the tail of the step time.

    Args:
        job: a Job, a job file, or the name of a shipped example.
        changes: fields of the file to replace.
        searched: plans and objective.
        how: how plans are searched.
        applied: fits, as in `explain_step`.
        price_per_gpu_hour: for objectives in money.
        seed: same seed, same answer.
        progress: told what is being done.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.
        PlanError: no plan is feasible.

    Example:
        >>> search_plans("llama3_405b_16384", objective="p99").best.plan.tp  # doctest: +SKIP
    """
    keep_programs()
    if how.processes is not None and how.method != "exhaustive":
        raise DataError("--processes: shares an exhaustive search. Leave it out, or use --method exhaustive.")
    with together(how.processes):
        return _searched(job, changes, searched, how, applied, price_per_gpu_hour or None, seed, progress)


def _searched(
    job: JobFile,
    changes: JobChanges,
    searched: Searched,
    how: Method,
    applied: Applied,
    price: float | None,
    seed: int,
    progress: Progress,
) -> StudyReport:
    """Arguments as those of `search_plans`, whose processes have met."""
    check_method(how.method, how.resume if process_number() == 0 else None)
    fitted, values = _asked(loaded(job, changes.texts_for(job)), searched, applied, price, seed, progress)
    own = fitted.job
    progress(0.0, "loading JAX")
    from .exhaustive import SearchAim, search as exhaustive  # needs JAX, which mistakes above do not wait for

    aim = SearchAim(searched.objective, price, seed, how.top, fitted.draws, searched.memory_margin)
    if how.method != "exhaustive":
        from .local_search import local_search

        study = local_search(own, values, aim=aim, progress=progress)
    else:
        study = exhaustive(own, values, aim=aim, journal=how.resume, progress=progress)
    of_job = (*workload_notes(own.model, own.plan), *independent_work_notes(own.plan))
    notes = (*of_job, *study.notes, *fitted.tables, *_of_level(fitted))
    return _report(study, how.top, notes).made_of(ChosenFrom(study, job, tuple(changes.texts_for(job))))


@use_case(unrecorded=("any_framework", "memory_margin", "fit"))
def search_sizes(
    job: JobFile,
    n_devices: Annotated[Sequence[int], Option("--gpus", "N", key="gpus", recorded_as=list, least=1)],
    *,
    changes: JobChanges = JobChanges(),
    searched: Searched = Searched(),
    applied: Applied = Applied(),
    price_per_hour: Annotated[float, Option("--price", "PRICE", key="price", least=0.0)] = 0.0,
    seed: Seed = 0,
    progress: Progress = silent,
) -> SizesReport:
    """Search the best plan of every cluster size, with its time, energy and cost per step; the batch stays.

    Args:
        job, changes, searched, applied, seed, progress: as in `search_plans`.
        n_devices: sizes of the cluster.
        price_per_hour: of one device.

    Raises:
        ConfigError, DataError, FitError: a file or an option is wrong.
        PlanError: a size has no feasible plan.

    Example:
        >>> search_sizes("llama3_405b_16384", [8192, 16384], price_per_hour=2.5).front  # doctest: +SKIP
    """
    keep_programs()
    fitted, values = _asked(
        loaded(job, changes.texts_for(job)), searched, applied, price_per_hour or None, seed, progress
    )
    own = fitted.job
    given = None if searched.space is None else values
    progress(0.0, "loading JAX")
    from .exhaustive import best_sizes, search_sizes as search  # needs JAX, which mistakes above do not wait for

    sizes = search(
        own,
        n_devices,
        given,
        any_framework=searched.any_framework,
        price_per_hour=price_per_hour,
        objective=searched.objective,
        seed=seed,
        memory_margin=searched.memory_margin,
        progress=progress,
    )
    return SizesReport(
        job=_facts(own),
        objective=sizes[0].study.objective.name,
        objective_unit=sizes[0].study.objective.unit,
        sizes=tuple(size.facts() for size in sizes),
        front=tuple(size.n_devices for size in best_sizes(sizes, *FRONT)),
        record=UNRECORDED,
    )


def _tuned(
    own: Job,
    objective: str | Objective,
    tuned: Continuous,
    saves: CheckpointOptions,
    applied: Applied,
    seed: int,
    progress: Progress,
) -> TuneReport:
    """Continuous fields of a job under its fits."""
    p = quantile_of(objective)
    fleet = tuned.fleet(own)
    own, rest = calibrated_job(own, applied.fits)
    fitted = with_variability(own, rest, seed=seed, force=applied.force, progress=progress)
    progress(0.0, "loading JAX")
    from .tune import tune  # needs JAX, which mistakes above do not wait for
    from .tuned_fields import TuneLimits, usual_checkpoint

    made = saves.stated()
    if saves.interval_s is not None:
        made = replace(made or usual_checkpoint(fitted.job), interval_s=saves.interval_s)
    limits = TuneLimits(tuned.tier_price or {}, tuned.power_watts, tuned.mtbf_h, made, slowdowns=fleet.factors)
    if tuned.restart_s is not None:
        limits = replace(limits, restart_s=tuned.restart_s)
    found = tune(fitted.job, tuned.continuous, p=p, limits=limits, seed=seed, progress=progress)
    notes = (*found.notes, *fleet.notes, *fitted.tables, *_of_level(fitted))
    return replace(found, notes=notes, record=UNRECORDED)


def quantile_of(objective: str | Objective) -> float:
    """Probability of an objective that is a quantile: .95 of "p95".

    Raises:
        DataError: it is none.
    """
    name = objective if isinstance(objective, str) else objective.name
    try:
        return float(name.removeprefix("p")) / 100.0
    except ValueError:
        raise DataError(f"--continuous: minimises a quantile, not {name}. Take --objective p50, p95 or p99.") from None


def _report(study: Study, top: int, notes: tuple[str, ...]) -> StudyReport:
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
        record=UNRECORDED,
        screened=_screened(study.screen),
    )


IN_SIGHT, MOST_SCREENED = 1.4, 300  # times the fastest plan, and number of plans, that a picture shows


def _screened(screen: ScreeningResult) -> ScreenedPlans:
    """Plans evenly spaced in the order of their step times."""
    order = screen.order()
    near = order[screen.step_s[order] <= IN_SIGHT * screen.step_s[order[:1]]]
    rows = near[np.unique(np.linspace(0, len(near) - 1, MOST_SCREENED).astype(int))] if len(near) else near
    return ScreenedPlans(*(short_numbers(of[rows], 5) for of in (screen.memory_bytes, screen.step_s)))


def check_method(method: str, resume: str | Path | None = None) -> None:
    """Whether there is such a method and it can resume, asked before anything is read.

    Raises:
        DataError: no such method, or one that cannot resume; a file that cannot be written.
    """
    if resume is not None:
        check_target(resume)
    if FORMERLY.get(method, method) not in METHODS:
        raise DataError(f"--method: {method!r} is unknown; known are {' and '.join(METHODS)}")
    if resume is not None and method != "exhaustive":
        raise DataError(
            "--resume: a local search is too short to be resumed. Leave it out, or use --method exhaustive."
        )


def _asked(
    own: Job, searched: Searched, applied: Applied, price_per_gpu_hour: float | None, seed: int, progress: Progress
) -> tuple[FittedJob, PlanSpace]:
    """The job after its fits, and the space; an unknown objective is refused."""
    _check_margin(searched.memory_margin)
    own, rest = calibrated_job(own, applied.fits)
    plan_objective(searched.objective, own.plan, own.model.units_per_step(own.plan), price_per_gpu_hour)
    values = _space(searched.space, own, searched.any_framework)
    return with_variability(own, rest, seed=seed, force=applied.force, progress=progress), values


def _of_level(fitted: FittedJob) -> list[str]:
    """Returns the note that a search ignores the measured level of the log."""
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


@dataclass(frozen=True)
class SearchRun(OptionGroup):
    """Options of a search of one cluster size or of several, in addition to plans and fits.

    Attributes:
        price: of a GPU-hour.
        output: write the job with the best plan to FILE, as YAML (only when one size is searched).
        plot: write a picture (.png, .pdf, .svg).
    """

    price: Annotated[float, Option("--price", "PRICE", least=0.0, help=PRICE)] = 0.0
    seed: Seed = 0
    output: Output = None
    plot: str | None = None


def tier_prices_of(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Reads prices of tiers: {"nvlink": 2.0} of ["nvlink=2"].

    Raises:
        DataError: a text is not that, or a tier is given twice.
    """
    found: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            price = float(number) if name else np.nan
        except ValueError:
            price = np.nan
        if not 0.0 < price < np.inf:
            raise DataError(
                f"{option}: {text[:80]!r}, but it must be TIER=PRICE with a price above 0, such as nvlink=2"
            )
        if name in found:
            raise DataError(f"{option}: {name} has two prices. Give one.")
        found[name] = price
    return found


@dataclass(frozen=True)
class Continuous(OptionGroup):
    """Continuous fields that are tuned by gradients, for the job's own plan, in the place of a search over plans.

    Attributes:
        continuous: tune this field instead: bandwidth, power, layers, share or checkpoint; repeat the option for several at once.
        tier_price: cost of the bandwidth of a tier relative to that of other tiers, for bandwidth; 1 by default; may be repeated.
        power_watts: average power budget per GPU, for power; by default 80% of the device's limit.
        slowdowns: measured slowdowns of GPUs, for share, and for power by node: a CSV file as for `predict`.
        mtbf_h: mean time between interruptions of the job, for checkpoint, e.g. 3h.
        restart_s: time from an interruption to the start of loading, for checkpoint, e.g. 10min; by default 11 minutes.
    """

    heading = "Continuous fields"
    continuous: Annotated[Sequence[str], Option("--continuous", "FIELD", recorded_as=list)] = ()
    tier_price: Annotated[
        Mapping[str, float] | None, Option("--tier-price", "TIER=PRICE", parse=tier_prices_of, is_repeated=True)
    ] = None
    power_watts: Annotated[float | None, Option("--power-budget", "WATTS")] = None
    slowdowns: Annotated[
        str | Path | Mapping[str, Mapping[int, float]] | None, Option(metavar="FILE", columns=SLOWDOWNS)
    ] = None
    mtbf_h: Annotated[float | None, Option("--mtbf", "TIME", parse=hours_of)] = None
    restart_s: Annotated[float | None, Option("--restart", "TIME", parse=seconds_of)] = None

    def check(self, saves: CheckpointOptions) -> None:
        """Refuses options of a field that is not tuned.

        Raises:
            DataError: the option, and the fields that it goes with.
        """
        for option, is_given, fields in (
            ("--tier-price", bool(self.tier_price), ("bandwidth",)),
            ("--power-budget", self.power_watts is not None, ("power",)),
            ("--slowdowns", self.slowdowns is not None, ("share", "power", "layers", "bandwidth", "checkpoint")),
            ("--mtbf", self.mtbf_h is not None, ("checkpoint",)),
            ("--restart", self.restart_s is not None, ("checkpoint",)),
            ("--checkpoint, --checkpoint-write, --checkpoint-behind, --load", saves != type(saves)(), ("checkpoint",)),
        ):
            if is_given and not set(fields) & set(self.continuous):
                raise DataError(f"{option}: goes with --continuous {' or '.join(fields)}. Add that, or leave it out.")

    def fleet(self, job: Job) -> SlowdownTable:
        """Measured slowdowns of GPUs; none where none are given."""
        if isinstance(self.slowdowns, str | Path):
            return read_slowdowns(self.slowdowns, job.plan.n_devices, job.cluster.node_size)
        return SlowdownTable(self.slowdowns or {})


@use_case(then=(write_best_job, save_best_jobs))
def search(
    job: JobFile,
    *,
    gpus: Annotated[Sequence[int], Option("--gpus", "N", least=1)] = (),
    changes: JobChanges = JobChanges(),
    searched: Searched = Searched(),
    how: Method = Method(),
    applied: Applied = Applied(),
    tuned: Continuous = Continuous(),
    saves: CheckpointOptions = CheckpointOptions(),
    run: SearchRun = SearchRun(),
    progress: Progress = silent,
) -> StudyReport | SizesReport | TuneReport:
    """Search for the parallel plan that minimises the tail of the step time, or for that of every cluster size.

    Args:
        job, changes, searched, how, applied, progress: as in `search_plans`.
        gpus: search this cluster size instead; repeat the option to compare sizes.
        tuned: continuous fields, whose values for the job's own plan are sought instead.
        saves: times of checkpoints, where their interval is tuned; the interval is the start.
        run: price, seed, and options of a search of one size.
    """
    tuned.check(saves)
    if tuned.continuous:
        if gpus or how.resume or run.output or how.processes or searched.space is not None:
            raise DataError(
                "--continuous: cannot be combined with --gpus, --output, --processes, --resume and --space. Remove these options."
            )
        own = loaded(job, changes.texts_for(job))
        return _tuned(own, searched.objective, tuned, saves, applied, run.seed, progress)
    common: dict[str, Any] = {"changes": changes, "searched": searched, "applied": applied}
    common |= {"seed": run.seed, "progress": progress}
    if not gpus:
        return search_plans(job, how=how, price_per_gpu_hour=run.price or None, **common)
    if how.resume or run.output or how.method != "exhaustive" or how.processes:
        check_method(how.method, how.resume)
        raise DataError(
            "--gpus: cannot be combined with --output, --processes, --resume and --method. Remove these options."
        )
    return search_sizes(job, gpus, price_per_hour=run.price, **common)
