"""Fleets compared for a job: tokens, days, money; what `prism-jax capacity` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, isfinite, nan
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Annotated

from .._version import __version__
from ..core.errors import ConfigError, DataError, PlanError, SpecError, in_one_line
from ..core.processes import Progress, silent
from ..core.units import seconds_of
from ..core.use_case import UNTIMED_S, Message, Option, OptionGroup, noted, use_case
from ..fits.load_fits import load_fits
from ..horizon.predict_run import ReliabilitySource, count_of, predict_run, threats_of
from ..job.fleet import Fleet, cluster_of, fleets_of, job_on, written_fleet
from ..job.job import Job
from ..job.load_job import JobFile, loaded, source_of
from ..job.write_job import ChosenFrom
from ..result.objective import OBJECTIVES
from ..result.parameters import Applied, DevicePrices, ObjectiveName, Output, Overrides, Samples, SaveDir, Seed
from ..result.prices import Prices, check_prices, checked, price_of
from ..search.figures import SearchedPlan
from ..search.search_plans import search_plans
from ..search.space import PlanSpace
from .scaling_report import CapacityReport, FleetFacts

if TYPE_CHECKING:
    from ..horizon.reliability import Reliability
    from .capacity import Capacities, Span
    from .figures import JobFigures

DAYS, DAY_S = 30.0, 86_400.0
MOST_DAYS = 36_525.0
WORLDS = 1000  # of the run whose exact form gives the goodput


@dataclass(frozen=True)
class FleetOptions(OptionGroup):
    """Work to be done, in days or tokens (30 days if neither is given), and how the best plans of fleets are chosen.

    Attributes:
        days: days that the fleet is available; 30 by default.
        tokens: tokens (samples) to be done: 15.6T, 300B, 1e12.
        deadline_s: deadline for the tokens: 54d, 1300h; its probability is reported, and the fleet is chosen by it.
        space: values per knob of the plan, as in `prism-jax search`.
        objective: quantity by which the best plan of a fleet is chosen.
        price_per_gpu_hour: price of every device, or by the name of the device.
        reliability: failure rates, as in `predict_run`; None: no failures are counted.
    """

    days: Annotated[float | None, Option(metavar="DAYS")] = None
    tokens: Annotated[float | None, Option(metavar="T", parse=count_of)] = None
    deadline_s: Annotated[float | None, Option("--deadline", "TIME", parse=seconds_of)] = None
    space: Annotated[str | Path | PlanSpace | None, Option(metavar="FILE")] = None
    objective: ObjectiveName = "mean"
    price_per_gpu_hour: DevicePrices = None
    reliability: ReliabilitySource = None


@dataclass(frozen=True)
class AppliedDraws(Applied):
    """Fits that apply on all fleets, and the draws.

    Attributes:
        n_samples: replica columns.
        seed: of the draws, which all fleets share.
    """

    n_samples: Samples = None
    seed: Seed = 0


@dataclass(frozen=True)
class _Found:
    """The best plan of a fleet, or why there is none."""

    fleet: Fleet
    job: Job
    plan: SearchedPlan | None = None
    figures: JobFigures | None = None
    goodput: float = 1.0
    problem: str = ""
    assumed: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Made:
    """The fleet and the job that `-o` writes."""

    fleet: Fleet
    job: Job


def write_chosen_job(report: CapacityReport, output: Output = None) -> Message | None:
    """Writes the job on the chosen fleet with its best plan, as YAML that every command takes.

    Args:
        report: of `plan_capacity`.
        output: write the job on the chosen fleet, with its best plan, to FILE, as YAML.

    Raises:
        DataError: the job was not read from a file, or the file cannot be written.
        SpecError: its network has a form that is not written.
    """
    return None if output is None else _write(report, output)


def save_chosen_job(report: CapacityReport, save_dir: SaveDir = None) -> tuple[Message, ...]:
    """Writes the job on the chosen fleet, the report and the arguments of its framework into a folder.

    Args:
        report: of `plan_capacity`.
        save_dir: write the job on the chosen fleet, the report and the arguments of the job's framework to DIR.

    Raises:
        DataError: the job was not read from a file, or a file cannot be written.
    """
    if save_dir is None:
        return ()
    from ..launch.export_job import save_job

    return save_job(save_dir, partial(_write, report), report)


def _write(report: CapacityReport, output: str | Path) -> Message:
    from ..search.study import without_meaning, written_plan  # need JAX

    made: ChosenFrom[_Made] = report.parts
    plan, fleet = made.found.job.plan, made.found.fleet
    comment = f"{fleet.text} for {report.asked} of {report.job}: {report.chosen_by} (prism-jax {__version__})"
    chosen = {**written_plan(plan), "global_batch": plan.global_batch}
    sections = written_fleet(fleet, made.source, made.overrides)
    return made.write(output, chosen, without_meaning(plan), comment, sections)


@use_case(says="searching", then=(write_chosen_job, save_chosen_job))
def plan_capacity(
    job: JobFile,
    fleets: Annotated[Sequence[str], Option("--fleet", "COUNTxNAME", key="fleet", recorded_as=list)],
    *,
    overrides: Overrides = (),
    asked: FleetOptions = FleetOptions(),
    applied: AppliedDraws = AppliedDraws(),
    progress: Progress = silent,
) -> CapacityReport:
    """Plan capacity: what fleets make of a job in tokens, days and money.

    The best plan of every fleet is searched, and what it makes of some days, or how long it takes for some tokens.

    Args:
        job: a Job, a job file, or the name of a shipped example: model, batch, sequence length and framework count.
        fleets: devices of a kind, 512xh200, on the reference design of the device, or a preset cluster, 512xaws-p5; may be
            repeated. A fleet of the job's own device has the job's network.
        overrides: "section.field=value" texts that replace a field of the file.
        asked: days or tokens, plans, prices and failures.
        applied: fits, as in `explain_step`, which apply on all fleets, and draws.
        progress: told what is done.

    Raises:
        ConfigError, DataError, FitError, SpecError: a file or an option is wrong, or no fleet can run the job.

    Example:
        >>> plan_capacity("llama3_405b_8192", ["8192xh200", "6144xb200"], days=30).prob_faster  # doctest: +SKIP
    """
    days, tokens, seed = _check_span(asked.days, asked.tokens), asked.tokens, applied.seed
    deadline_days = _check_deadline(asked.deadline_s, tokens)
    wanted, prices = fleets_of(fleets), checked(asked.price_per_gpu_hour)
    own = load_fits(loaded(job, overrides), applied.fits, seed=seed, force=applied.force).job
    moved = [job_on(own, cluster_of(fleet, own)) for fleet in wanted]
    threats = threats_of(asked.reliability, force=applied.force)
    OBJECTIVES.named(asked.objective)
    check_prices(prices, [one.cluster.device.name for one in moved], asked.objective)
    from .capacity import Span, chosen_fleet  # needs JAX, which mistakes above do not wait for

    span = Span(days, tokens, deadline_days)
    found = []
    for number, (fleet, one) in enumerate(zip(wanted, moved, strict=True)):
        progress(number / len(wanted), f"searching plans of {fleet.text}")
        searched = _best(fleet, one, asked, prices, applied)
        found.append(searched if searched.figures is None else _with_goodput(searched, span, threats, seed))
    made = _capacities(found, prices, span, seed)
    possible = [one for one in found if one.figures is not None]
    best, why = chosen_fleet(made.fleets, [one.job.cluster.n_devices for one in possible], span)
    facts = _facts(found, made)
    report = CapacityReport(
        job=source_of(job),
        model=own.model.name,
        sample_unit=own.model.sample_unit,
        objective=asked.objective,
        days=days,
        tokens=tokens,
        reliability=None if asked.reliability is None else str(asked.reliability),
        fleets=facts,
        prob_faster=made.prob_faster,
        prob_cheaper=made.prob_cheaper,
        notes=_notes(own, found, threats),
        elapsed_s=UNTIMED_S,
        record=noted(days=days),
        deadline_days=deadline_days,
        chosen=[one.label for one in facts if one.capacity is not None][best],
        chosen_by=why,
    )
    parts = _Made(possible[best].fleet, possible[best].job)
    return report.made_of(ChosenFrom(parts, job, tuple(overrides)))


def _capacities(found: Sequence[_Found], prices: Prices, span: Span, seed: int) -> Capacities:
    """Capacities of the fleets that can run the job."""
    from .capacity import capacities
    from .table import paired_factors

    possible = [(one, one.figures) for one in found if one.figures is not None]
    if not possible:
        raise DataError(f"no fleet can run the job; {found[0].fleet.text}: {found[0].problem}")
    return capacities(
        [figures for _, figures in possible],
        [one.goodput for one, _ in possible],
        [price_of(prices, one.job.cluster.device.name) or nan for one, _ in possible],
        paired_factors([one.job for one, _ in possible], seed),
        span,
        seed,
    )


def _notes(job: Job, found: Sequence[_Found], threats: Reliability | None) -> tuple[str, ...]:
    """Notes on what was assumed, and what was not stated."""
    silent_of = ["no failures are counted; state --reliability (`prism-jax show reliability`)"]
    told = (*_batches(job, found), *(text for one in found for text in one.assumed))
    return tuple(dict.fromkeys((*told, *(silent_of if threats is None else []))))


def _batches(job: Job, found: Sequence[_Found]) -> list[str]:
    """Fleets whose batch is not the job's."""
    told = job.plan.global_batch
    others = ((one.fleet, one.job.plan.global_batch) for one in found if one.job.plan.global_batch != told)
    return [
        f"{fleet.text}: batch of {batch:,} instead of {told:,}, which its {fleet.n_devices:,} devices cannot share; state "
        f"--set plan.global_batch=N for another one"
        for fleet, batch in others
    ]


def _check_span(days: float | None, tokens: float | None) -> float | None:
    """The days that are asked for; None where tokens are."""
    if days is not None and tokens is not None:
        raise DataError("--days and --tokens: both say how much is to be done. Keep one.")
    if tokens is not None:
        if not 0.0 < tokens < float("inf"):
            raise DataError(f"--tokens: {tokens:g}, but it must be finite and above 0")
        return None
    days = DAYS if days is None else days
    if not 0.0 < days <= MOST_DAYS:
        raise DataError(f"--days: {days:g}, but it must be above 0 and at most {MOST_DAYS:,.0f}")
    return days


def _check_deadline(deadline_s: float | None, tokens: float | None) -> float | None:
    """The deadline in days."""
    if deadline_s is None:
        return None
    if tokens is None:
        raise DataError("--deadline: says by when tokens are to be done, but not how many. Add --tokens 2T.")
    if not 0.0 < deadline_s <= MOST_DAYS * DAY_S:
        raise DataError(f"--deadline: {deadline_s:g} s, but it must be above 0 and at most {MOST_DAYS:,.0f} days")
    return deadline_s / DAY_S


def _best(fleet: Fleet, job: Job, asked: FleetOptions, prices: Prices, draws: AppliedDraws) -> _Found:
    """The best plan of a fleet with its figures."""
    from .run_grid import DEFAULT_SAMPLES, StudyRequest, figures_of

    price = price_of(prices, job.cluster.device.name)
    try:
        common = {"space": asked.space, "objective": asked.objective, "price_per_gpu_hour": price}
        report = search_plans(job, **common, top=1, seed=draws.seed)
        best = replace(job, plan=report.parts.found.best.plan)
        request = StudyRequest("mean", price, None, draws.n_samples or DEFAULT_SAMPLES, draws.seed)
        return _Found(fleet, best, report.best.plan, figures_of(best, request))
    except ConfigError:  # of the space: of no fleet
        raise
    except (PlanError, SpecError) as error:
        return _Found(fleet, job, problem=in_one_line(error))


def _with_goodput(found: _Found, span: Span, threats: Reliability | None, seed: int) -> _Found:
    """Result with the share of the time that goes into steps, by the exact form; impossible where failures leave none."""
    if threats is None or found.figures is None:
        return found
    own, step_s = found.figures, found.figures.mean_s
    n_steps = (span.days or 0.0) * DAY_S / step_s if span.tokens is None else span.tokens / own.tokens_per_step
    asked = {"n_steps": max(ceil(n_steps), 1), "reliability": threats, "n_worlds": WORLDS, "seed": seed}
    try:
        made = predict_run(found.job, **asked)
    except SpecError as error:
        return _Found(found.fleet, found.job, problem=in_one_line(error))
    run = made.parts
    share = float(run.n_steps * run.steps.mean_s / run.expected_s())
    return replace(found, goodput=share if isfinite(share) else nan, assumed=made.assumed)


def _facts(found: Sequence[_Found], made: Capacities) -> tuple[FleetFacts, ...]:
    told, at = [], 0
    for label, one in zip(ascii_uppercase, found, strict=False):
        cluster = one.job.cluster
        possible = one.figures is not None
        told.append(
            FleetFacts(
                label=label,
                fleet=one.fleet.text,
                cluster=cluster.name,
                device=cluster.device.name,
                n_devices=cluster.n_devices,
                plan=one.plan,
                figures=one.figures,
                capacity=made.fleets[at] if possible else None,
                prob_fastest=made.prob_fastest[at] if possible else 0.0,
                prob_cheapest=made.prob_cheapest[at] if possible and made.prob_cheapest else nan,
                problem=one.problem,
                curve=made.curves[at] if possible else None,
            )
        )
        at += possible
    return tuple(told)
