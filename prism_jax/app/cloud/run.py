"""Choosing what to rent for a job: instances, how many, spot or not; what `prism-jax cloud` does."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...cloud.offers import Offer
from ...errors import DataError, Problem, SpecError
from ...hints import did_you_mean
from ...horizon.checkpoint import Checkpoint
from ...horizon.reliability import Reliability
from ...io.cloud_state import CloudState, read_cloud_state
from ...io.tables.cloud_catalogue import merged, read_catalogue, shipped_catalogue
from ...io.write import run_record
from ...progress import Progress, silent
from ...report.types.horizon.cloud import CloudReport
from ...start_jax import keep_programs
from ..fitted.load_fits import FitFiles, calibrated_job
from ..horizon.run import threats_of
from ..jobs import JobSource, loaded, source_of
from .small_laws import JOB_START_S, SmallLaws, small_laws

if TYPE_CHECKING:
    from ...cloud.availability.base import Availability
    from ...plot.figure import Figure
    from .asked import Asked, Chosen

SPOT = ("auto", "never", "only")
RESTART_S = 300.0
MOST_GPUS = 65_536
DEFAULT_GPUS = 128
DEFAULT_LAW = "weibull"


@dataclass(frozen=True)
class CloudRun:
    """A choice with what its report was made of."""

    report: CloudReport
    chosen: Chosen

    def figure(self) -> Figure:
        """Time and money of all that was simulated, the front, and the promise of the best."""
        from ...plot.cloud import plot_choice  # here, so that runs without a picture do not pay for it

        return plot_choice(self.chosen.choice, self.chosen.wish, self.report.job)


def choose_cloud(job: JobSource, **options: object) -> CloudReport:
    """What to rent for a job; arguments as those of `run_cloud`.

    Example:
        >>> choose_cloud("llama2_7b_fsdp_64", n_steps=50_000, deadline_s=10 * 86_400.0).best  # doctest: +SKIP
    """
    return run_cloud(job, **options).report  # type: ignore[arg-type]


def run_cloud(
    job: JobSource,
    *,
    n_steps: int | None = None,
    n_tokens: float | None = None,
    overrides: Sequence[str] = (),
    deadline_s: float | None = None,
    budget_usd: float | None = None,
    prob: float = 0.95,
    regions: Sequence[str] = (),
    spot: str = "auto",
    policies: Sequence[str] = (),
    catalogues: Sequence[str | Path] = (),
    only_catalogues: bool = True,
    availability: str | Availability = DEFAULT_LAW,
    reliability: Reliability | str | Path | None = None,
    checkpoint: Checkpoint | None = None,
    interval_s: float | None = None,
    restart_s: float | None = None,
    most_gpus: int | None = None,
    mix: bool = False,
    resume: str | Path | CloudState | None = None,
    fits: FitFiles = (),
    n_worlds: int = 10_000,
    seed: int = 0,
    today: date | None = None,
    progress: Progress = silent,
) -> CloudRun:
    """Chooses instances, their number, the parallel plan and the policy.

    Args:
        job: a Job, a job file, or the name of a shipped example: model, batch, sequence length and framework count.
        n_steps, n_tokens: of the whole job; one of both.
        overrides: "section.field=value" texts that replace fields of a file.
        deadline_s, budget_usd: of the whole job; None: none.
        prob: with which both are to be kept.
        regions: names of regions, zones or clouds; all if none is given.
        spot: "auto", "never" or "only".
        policies: names of `POLICIES` that may be chosen; all that `spot` allows if none is given.
        catalogues: CSV files; a row of a later one replaces those of the same instance and place in earlier ones. None: the
            list prices that ship.
        only_catalogues: False: what ships counts beneath the files.
        availability: law of spot capacity, its name, or the file of a fit of revocations (.npz).
        reliability: what interrupts the job besides the loss of spot nodes, as in `run_horizon`.
        checkpoint: what it costs; None: by size and network. interval_s: between checkpoints; None: the best.
        restart_s: from nodes at hand to the first new step, without the load; None: five minutes. Where a fit of start-up says
            when machines run, from there on; None: two minutes.
        most_gpus: that may be rented; None: those of the job, at least 128.
        mix: whether two kinds of instances may meet in the gradient exchange.
        resume: state of a job that runs already: a file, or what it says.
        fits: files of `prism-jax calibrate`, or of `fit startup` and `fit saves`, to apply.
        n_worlds, seed: of the simulation.
        today: for the age of prices.
        progress: told what is being done.

    Raises:
        ConfigError, DataError, FitError, SpecError: a file or an argument is wrong, or no offer can run the job.
    """
    from ...horizon.run import steps_of

    keep_programs()
    _check(deadline_s, budget_usd, spot, most_gpus)
    state = read_cloud_state(resume) if isinstance(resume, (str, Path)) else resume
    offers = in_regions(_offers(catalogues, only_catalogues), regions)
    own, rest = calibrated_job(loaded(job, overrides), fits)
    threats = threats_of(reliability)
    n_steps = steps_of(own, n_steps, n_tokens)
    from .asked import Asked
    from .chosen import chosen  # needs JAX, which mistakes above do not wait for

    small = small_laws(own, rest, seed=seed)
    checkpoint = checkpoint or small.checkpoint
    terms: dict[str, Any] = {"prob": prob, "spot": spot, "policies": tuple(policies), "availability": availability}
    terms |= {"checkpoint": checkpoint, "interval_s": interval_s, "mix": mix, "n_worlds": n_worlds, "seed": seed}
    terms |= {"restart_s": _restart_s(restart_s, small), "restart_assumed": restart_s is None, "told": small.notes}
    terms |= {"most_gpus": most_gpus or max(own.plan.n_devices, DEFAULT_GPUS), "today": today or date.today()}
    terms |= {"catalogue": tuple(map(str, catalogues)) or ("what ships with prism-jax",)}
    left = _left(n_steps, deadline_s, budget_usd, state)
    asked = Asked(offers, *left, reliability=threats, state=state, **terms)
    inputs = {"job": source_of(job), "set": list(overrides), "steps": n_steps, "deadline_s": deadline_s}
    inputs |= {"budget_usd": budget_usd, "regions": list(regions), "fit": list(fits)} | _inputs(asked)
    return CloudRun(*chosen(own, asked, run_record(inputs, seed), progress))


def _restart_s(stated_s: float | None, small: SmallLaws) -> float:
    """Start of the machines, where a fit says it, and of the job."""
    if small.start_up_s is None:
        return RESTART_S if stated_s is None else stated_s
    return small.start_up_s + (JOB_START_S if stated_s is None else stated_s)


def _offers(catalogues: Sequence[str | Path], only: bool) -> tuple[Offer, ...]:
    if not catalogues:
        return shipped_catalogue()
    read = read_catalogue(catalogues)
    return read if only else merged(read, over=shipped_catalogue())


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


def _inputs(asked: Asked) -> dict[str, Any]:
    """What a record keeps of what was asked."""
    names = ("prob", "spot", "policies", "catalogue", "n_worlds", "most_gpus", "mix", "restart_s", "interval_s")
    threats = asked.reliability
    return {name: getattr(asked, name) for name in names} | {"reliability": threats.name if threats else None}
