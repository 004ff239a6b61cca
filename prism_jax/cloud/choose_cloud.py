"""Chooses instances, their number and spot or on demand for a job: the use case of `prism-jax cloud`.

Fits of start-up and of saves say the time of a restart and what a checkpoint costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import date
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from .._inference_loader import inference
from ..core.errors import DataError, FailedFitError, Problem, SpecError
from ..core.executor import Workers
from ..core.processes import Progress, keep_programs, silent
from ..core.registry import did_you_mean
from ..core.units import seconds_of
from ..core.use_case import NOT_TYPED, Option, OptionGroup, noted, use_case
from ..fits.load_fits import calibrated_job
from ..horizon.checkpoint import Checkpoint, checkpoint_bytes
from ..horizon.predict_run import Interval, ReliabilitySource, WorkOptions, threats_of
from ..job.job import Job
from ..job.load_job import JobFile, loaded
from ..result.parameters import Fits, Overrides, Seed
from ..tables.column_map import ColumnMap
from .availability import Availability
from .offers import Offer, merged, read_catalogues, shipped_catalogue
from .report import CloudReport
from .requirements import CloudRequirements, CloudState, read_cloud_state

if TYPE_CHECKING:
    from .chosen import CloudRequest

N_NODES = 8  # machines that are asked for together: a restart waits for the last of them
JOB_START_S = 120.0  # processes, communicators, compilation; where no --restart says it
SAVES, STARTUP = "saves", "startup"


@dataclass(frozen=True)
class SmallLaws:
    """Start-up time and checkpoint as fits give them.

    Attributes:
        start_up_s: until the last of `N_NODES` machines runs, on average; None: no fit says it.
        checkpoint: None: no fit says it.
        notes: on the fits they come from.
    """

    start_up_s: float | None = None
    checkpoint: Checkpoint | None = None
    notes: tuple[str, ...] = ()


def small_laws(job: Job, files: Sequence[str], *, seed: int = 0, force: bool = False) -> SmallLaws:
    """Reads the files of `prism-jax fit` that are no calibration.

    Raises:
        DataError: a file is no fit, one of something else, or there are two of one kind.
        FailedFitError: a fit failed its checks and `force` is not set.
    """
    found = SmallLaws()
    kinds: dict[str, str] = {}
    for file in files:
        fit = inference().Fit.load(file)
        kind = fit.model.name
        if kind not in (STARTUP, SAVES):
            raise DataError(
                f"--fit {file}: a fit of {kind}, but a choice of cloud takes fits of startup and saves. Leave it out."
            )
        if kind in kinds:
            raise DataError(f"--fit: {kinds[kind]} and {file} are both fits of {kind}. Name one of them.")
        kinds[kind] = file
        try:
            found = _with_start_up(found, fit, seed, force) if kind == STARTUP else _with_saves(found, fit, job, force)
        except FailedFitError as error:
            raise FailedFitError(error.why, file) from None
    return found


def _with_start_up(found: SmallLaws, fit: Any, seed: int, force: bool) -> SmallLaws:
    """The slower of the tiers that were measured."""
    rng = np.random.default_rng(seed)
    laws = [fit.law(tier, force=force) for tier in fit.data.tiers]
    seconds = [float(law.last_of(N_NODES, rng).mean()) for law in laws]
    at = int(np.argmax(seconds))
    note = f"machines start in {seconds[at]:.0f} s, the last of {N_NODES}: {laws[at].source}"
    return replace(found, start_up_s=seconds[at], notes=(*found.notes, note))


def _with_saves(found: SmallLaws, fit: Any, job: Job, force: bool) -> SmallLaws:
    law, n_bytes = fit.law(force=force), checkpoint_bytes(job)
    made = law.checkpoint(n_bytes)
    beyond = n_bytes > law.most_bytes
    far = f"; the largest that was measured is {law.most_bytes / 1e9:.3g} GB: its rate is taken on" if beyond else ""
    note = f"a checkpoint takes {made.blocking_s:.3g} s: {made.source}{far}"
    return replace(found, checkpoint=made, notes=(*found.notes, note))


SPOT = ("auto", "never", "only")
RESTART_S = 300.0
MOST_GPUS = 65_536
DEFAULT_GPUS = 128
DEFAULT_LAW = "weibull"
PRICES = (("a catalogue of prices", "prism_jax.cloud.offers:NAMES"),)
WITH_SHIPPED = "Add the shipped prices of instances that --catalog does not list."


@dataclass(frozen=True)
class Goal(WorkOptions):
    """Amount of work, in steps or tokens of the whole job, and its deadline and budget.

    Attributes:
        deadline_s: deadline from the start of the job: 10d, 200h.
        budget_usd: budget for the whole job.
        prob: required probability of meeting deadline and budget.
    """

    deadline_s: Annotated[float | None, Option("--deadline", "TIME", parse=seconds_of)] = None
    budget_usd: Annotated[float | None, Option("--budget", "USD")] = None
    prob: Annotated[float, Option(metavar="SHARE")] = 0.95


@dataclass(frozen=True)
class Market(OptionGroup):
    """Instances, places and strategies that may be rented.

    Attributes:
        regions: regions, zones or clouds, with commas; may be repeated; all by default.
        spot: use of spot instances: auto, never or only.
        policies: on-demand and spot strategies: on_demand, spot, spot_with_fallback, mixture; may be repeated; all by default.
        catalogues: CSV of instances and prices instead of the shipped ones; may be repeated: later rows replace earlier ones.
        columns: which column of a catalogue is which field, where its name does not say it.
        availability: law of spot capacity: a name, or a fit of revocations.
        most_gpus: largest number of GPUs to rent; default: those of the job, at least 128.
        mix: allow two kinds of instances in one job (on demand), which meet in the gradient exchange.
        today: for the age of prices.
    """

    heading = "Market"
    regions: Annotated[Sequence[str], Option("--regions", "NAMES", recorded_as=list)] = ()
    spot: Annotated[str, Option("--spot", "auto|never|only")] = "auto"
    policies: Annotated[Sequence[str], Option("--policy", "NAME")] = ()
    catalogues: Annotated[Sequence[str | Path], Option("--catalog", "FILE", columns=PRICES)] = ()
    columns: ColumnMap = None
    only_catalogues: Annotated[bool, Option("--with-shipped", help=WITH_SHIPPED)] = True
    availability: Annotated[str | Availability, Option("--availability", "NAME|FIT")] = DEFAULT_LAW
    most_gpus: Annotated[int | None, Option("--most-gpus", "N")] = None
    mix: bool = False
    today: Annotated[date | None, NOT_TYPED] = None

    def inputs(self) -> dict[str, Any]:
        """Returns the regions for the run record; other fields are recorded by the run, as they are used."""
        return {"regions": list(self.regions)}


@dataclass(frozen=True)
class Interruptions(OptionGroup):
    """Interruptions of the job, checkpoints and restarts.

    Attributes:
        checkpoint: its times; None: by size and network.
        restart_s: time to restart once nodes are available, before the checkpoint is loaded, e.g. 5min; with a fit of
            start-up, from running machines on, and two minutes by default.
    """

    heading = "Failures and restarts"
    reliability: ReliabilitySource = None
    checkpoint: Annotated[Checkpoint | None, NOT_TYPED] = None
    interval_s: Interval = None
    restart_s: Annotated[float | None, Option("--restart", "TIME", parse=seconds_of)] = None

    def inputs(self) -> dict[str, Any]:
        """Returns nothing for the run record: fields are recorded by the run, as they are used."""
        return {}


@dataclass(frozen=True)
class CloudRun(OptionGroup):
    """State of a running job, fits, and settings of the simulation.

    Attributes:
        resume: JSON of the work done and money spent by a running job; the rest is planned anew.
        fits: files of `prism-jax calibrate`, or of `fit startup` and `fit saves`, to apply.
        n_worlds: simulated worlds.
        seed: of the simulation.
    """

    resume: Annotated[str | Path | CloudState | None, Option("--resume", "FILE", key=None)] = None
    fits: Fits = ()
    n_worlds: Annotated[int, Option("--worlds", "N", key=None)] = 10_000
    seed: Seed = 0


@use_case(unrecorded=("tokens",))
def choose_cloud(
    job: JobFile,
    *,
    overrides: Overrides = (),
    goal: Goal = Goal(),
    market: Market = Market(),
    interruptions: Interruptions = Interruptions(),
    run: CloudRun = CloudRun(),
    workers: Workers = Workers(),
    progress: Progress = silent,
) -> CloudReport:
    """Choose which instances to rent, how many, and spot or not, for a deadline and a budget.

    Args:
        job: a Job, a job file, or the name of a shipped example: model, batch, sequence length and framework count.
        overrides: "section.field=value" texts that replace fields of a file.
        goal: steps or tokens, deadline and budget of the whole job.
        market: instances that can be rented.
        interruptions: failures in addition to the loss of spot nodes, and times of checkpoints and restarts.
        run: state to go on from, fits, simulated worlds and seed.
        workers: processes that simulate candidates.
        progress: told what is being done.

    Raises:
        ConfigError, DataError, FitError, SpecError: a file or an argument is wrong, or no offer can run the job.

    Example:
        >>> choose_cloud("llama2_7b_fsdp_64", n_steps=50_000, deadline_s=10 * 86_400.0).best  # doctest: +SKIP
    """
    from ..horizon.run import steps_of

    keep_programs()
    _check(goal.deadline_s, goal.budget_usd, market.spot, market.most_gpus)
    state = read_cloud_state(run.resume) if isinstance(run.resume, (str, Path)) else run.resume
    every, notes = _offers(market)
    offers = in_regions(every, market.regions)
    own, rest = calibrated_job(loaded(job, overrides), run.fits)
    threats = threats_of(interruptions.reliability)
    n_steps = steps_of(own, goal.n_steps, goal.n_tokens)
    from .chosen import CloudRequest, chosen

    small, stated_s = small_laws(own, rest, seed=run.seed), interruptions.restart_s
    wish = CloudRequirements(
        *_left(n_steps, goal.deadline_s, goal.budget_usd, state),
        prob=goal.prob,
        restart_s=_restart_s(stated_s, small),
        interval_s=interruptions.interval_s,
        n_worlds=run.n_worlds,
        seed=run.seed,
    )
    asked = CloudRequest(
        offers,
        wish,
        spot=market.spot,
        policies=tuple(market.policies),
        availability=market.availability,
        reliability=threats,
        checkpoint=interruptions.checkpoint or small.checkpoint,
        restart_assumed=stated_s is None,
        most_gpus=market.most_gpus or max(own.plan.n_devices, DEFAULT_GPUS),
        mix=market.mix,
        state=state,
        today=market.today or date.today(),
        catalogue=tuple(map(str, market.catalogues)) or ("what ships with prism-jax",),
        told=(*small.notes, *notes),
        workers=workers,
    )
    return chosen(own, asked, noted(steps=n_steps, **_inputs(asked)), progress)


def _restart_s(stated_s: float | None, small: SmallLaws) -> float:
    """Start of the machines, where a fit says it, and of the job."""
    if small.start_up_s is None:
        return RESTART_S if stated_s is None else stated_s
    return small.start_up_s + (JOB_START_S if stated_s is None else stated_s)


def _offers(market: Market) -> tuple[tuple[Offer, ...], tuple[str, ...]]:
    if not market.catalogues:
        return shipped_catalogue(), ()
    read, notes = read_catalogues(market.catalogues, market.columns)
    return (read if market.only_catalogues else merged(read, over=shipped_catalogue())), notes


def in_regions(offers: Sequence[Offer], regions: Sequence[str]) -> tuple[Offer, ...]:
    """Offers of some regions, zones or clouds.

    Raises:
        DataError: one that the catalogue does not name, or none is left.
    """
    if not regions:
        return tuple(offers)
    wanted = {name.strip().lower() for text in regions for name in text.split(",")}
    known = {name.lower() for offer in offers for name in (offer.cloud, offer.region, offer.zone) if name}
    for name in sorted(wanted):
        if name not in known:
            raise DataError(
                f"--regions: the catalogue has no region, zone or cloud {name[:60]!r}{did_you_mean(name, sorted(known))}"
            )
    return tuple(o for o in offers if {o.cloud.lower(), o.region.lower(), o.zone.lower()} & wanted)


def _check(deadline_s: float | None, budget_usd: float | None, spot: str, most_gpus: int | None) -> None:
    for name, value in (("deadline", deadline_s), ("budget", budget_usd)):
        if value is not None and not 0.0 < value < inf:
            raise SpecError.of(Problem(name, f"{value:g}, but it must be finite and above 0"))
    if spot not in SPOT:
        raise DataError(f"--spot: {spot[:60]!r}, but it must be {', '.join(SPOT)}")
    if most_gpus is not None and not 1 <= most_gpus <= MOST_GPUS:
        raise DataError(f"--most-gpus: {most_gpus:,}, but it must be between 1 and {MOST_GPUS:,}")


def _left(
    n_steps: int, deadline_s: float | None, budget_usd: float | None, state: CloudState | None
) -> tuple[int, float, float]:
    """Steps, time and money that are left."""
    time_s, money = deadline_s or inf, budget_usd or inf
    if state is None:
        return n_steps, time_s, money
    done = state.done
    if done.steps_done >= n_steps:
        raise DataError(f"--resume: {done.steps_done:,} of {n_steps:,} steps are done: nothing is left")
    if done.elapsed_s >= time_s:
        raise DataError(
            f"--resume: {done.elapsed_s / 86400.0:.3g} days have passed, but the deadline is at {time_s / 86400.0:.3g} days "
            "after the start. State a later --deadline."
        )
    if done.spent_usd >= money:
        raise DataError(f"--resume: {done.spent_usd:,.0f} of {money:,.0f} USD are spent. State a larger --budget.")
    return n_steps - done.steps_done, time_s - done.elapsed_s, money - done.spent_usd


def _inputs(asked: CloudRequest) -> dict[str, Any]:
    """Returns the inputs that a run record keeps."""
    wish, threats = asked.wish, asked.reliability
    return {
        "prob": wish.prob,
        "spot": asked.spot,
        "policies": asked.policies,
        "catalogue": asked.catalogue,
        "n_worlds": wish.n_worlds,
        "most_gpus": asked.most_gpus,
        "mix": asked.mix,
        "restart_s": wish.restart_s,
        "interval_s": wish.interval_s,
        "reliability": threats.name if threats else None,
    }
