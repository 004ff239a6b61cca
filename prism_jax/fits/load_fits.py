"""Applies kept fits to a job: their posterior mean in place of what the job assumes, and the draws behind it.

A file of `prism-jax fit` speaks of variability, of the cost of kernels, collectives and overlap, or of both; one of `prism-jax
calibrate` of the cost model; all are taken. Measured tables (fits of kernels, collectives, overlap) stand in the place of presets
of its device and network; a fit of collectives says something of a job only if the job runs them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from importlib import import_module
from math import isnan
from pathlib import Path
from typing import Any, TypeAlias

from .._inference_loader import inference
from ..calibration.calibration import Calibration
from ..calibration.key import MeasuredLevel, NoLevel
from ..core.errors import DataError, FailedFitError
from ..core.kernels import COLLECTIVES, COMM_AXES
from ..core.processes import Progress, silent
from ..core.read_file import check_input
from ..core.readable import some
from ..cost.efficiency import MeasuredTables
from ..cost.step import step_cost
from ..job.job import Job
from ..job.logged import unlike
from ..system.hardware import Device
from ..system.network_kinds import SERVED_BY, MeasuredCollectives
from ..variability.families import Constant
from ..variability.tree import Variability, overlay


def unused_note(fitted: Variability, job: Job, file: str) -> str | None:
    """Note that nothing of a fit applies to the job; None where something does, or the fit is not of collectives alone.

    Raises:
        PlanError: the plan is impossible.
    """
    measured = measured_collectives(fitted)
    others = set(fitted.classes) - set(COLLECTIVES)
    if others or not measured or fitted.stalls or not isinstance(fitted.step, Constant):
        return None
    run = collectives_of(job)
    if any({name, *SERVED_BY.get(name, ())} & set(measured) for name in run):
        return None
    there = f"the job runs {', '.join(run)}" if run else "the job runs no collective"
    return f"{file}: nothing of this fit applies to the job: the fit is of {', '.join(measured)}, and {there}"


def collectives_of(job: Job) -> list[str]:
    """Collectives that a step of the job takes time for, by name."""
    job.check()
    cost = step_cost(job.model, job.cluster, job.plan, job.efficiency)
    inside = cost.comm_s + cost.hidden_comm_s
    seconds = {axis: float(inside[..., i].sum()) for i, axis in enumerate(COMM_AXES)}
    seconds |= {"pp": float(cost.p2p_s.sum()), "end": float((cost.end_comm_s + cost.end_hidden_comm_s).sum())}
    return sorted({cost.collective_of.get(axis, "all_reduce") for axis, total in seconds.items() if total > 0.0})


OF_TABLES = 1000  # number of the first random key: apart from those of variability


def with_tables(job: Job, fits: Sequence[tuple[str, Any]], *, seed: int = 0, force: bool = False) -> FittedJob:
    """The job with the cost that the fits among `fits` (file, `inference.Fit`) describe; a later one wins over an earlier one.

    Notes: measured steps of the site say more than its tables: with its calibration, tables are left aside, with a note.

    Raises:
        DataError: a fit is of other hardware, or of a model without effect on a step's time.
        FailedFitError: a fit failed its checks and `force` is not set.
    """
    tables: MeasuredTables | None = None
    told: list[str] = []
    for index, (file, fit) in enumerate(fits):
        found = _measured(fit, job, file, inference().random_key(seed, OF_TABLES + index), force)
        if found is None:
            _check_speaks_of_steps(fit, file)
            continue
        if job.effective_calibration.site is not None:
            told.append(f"{file}: its seconds are not used: the steps that the site was calibrated with say more")
            continue
        if found.covers:
            told.append(f"{file}: {', '.join(found.covers)} of {job.cluster.device.name}, as measured")
            tables = found.over(tables)
        told += [f"{file}: {note}" for note in found.notes]
    if tables is None:
        return FittedJob(job, tables=tuple(told))
    told += _served(tables.mean.collectives, job)
    calibration = replace(job.effective_calibration, measured=tables)
    return FittedJob(replace(job, cluster=tables.mean.on(job.cluster), calibration=calibration), tables=tuple(told))


def _served(measured: MeasuredCollectives | None, job: Job) -> list[str]:
    """Sentences on collectives of the job that take their seconds from measurements of another one."""
    if measured is None:
        return []
    found: dict[tuple[str, bool], list[str]] = {}
    for kind in collectives_of(job):
        for across in (False, True):
            by = measured.serving(kind, across)
            if by is not None and by != kind:
                found.setdefault((by, across), []).append(kind)
    return [
        f"{' and '.join(kinds)} {'between nodes' if across else 'in a node'} were not measured: by the {by} of as many bytes"
        for (by, across), kinds in found.items()
    ]


def with_served(fitted: Variability, own: Set[str] = frozenset()) -> Variability:
    """Variability in which a collective that was not measured varies as the one that serves it (`SERVED_BY`).

    Args:
        own: collectives that other fits have measured.
    """
    measured = {name: fitted.classes[name] for name in measured_collectives(fitted)}
    more = {
        name: next(measured[by] for by in others if by in measured)
        for name, others in SERVED_BY.items()
        if name not in measured and name not in own and any(by in measured for by in others)
    }
    return replace(fitted, classes={**fitted.classes, **more}) if more else fitted


def measured_collectives(fitted: Variability) -> list[str]:
    """Collectives that a fit says something of."""
    return [name for name in COLLECTIVES if name in fitted.classes and not fitted.of(name).is_zero]


def _measured(fit: Any, job: Job, file: str, key: Any, force: bool) -> MeasuredTables | None:
    try:
        return fit.measured_cost(job.cluster, job.plan.dtype, N_DRAW, key=key, force=force)
    except DataError as error:
        raise DataError(f"--fit {file}: {error}") from None
    except FailedFitError as error:
        raise FailedFitError(error.why, file) from None


def _check_speaks_of_steps(fit: Any, file: str) -> None:
    if fit.describes_variability:
        return
    threats = fit.model.has("reliability")
    remedy = (
        "Give it to `prism-jax run --reliability`."
        if threats
        else f"`prism-jax fit report {file}` shows what is in it."
    )
    raise DataError(f"--fit {file}: a fit of {fit.model.name}, which has no effect on a step's time. {remedy}")


FitFiles: TypeAlias = Sequence[str | Path]
MOST_TOLD = 3  # differences between two jobs
N_DRAW = 24  # of the posterior of every fit, behind the band


@dataclass(frozen=True)
class LogLevel:
    """The typical step of a job by its own log.

    Attributes:
        file: the fit of the log.
    """

    file: str
    measured: MeasuredLevel


@dataclass(frozen=True)
class FittedJob:
    """A job after fits.

    Attributes:
        job: with the calibration of its site and the variability at the posterior means.
        draws: posterior draws of its variability; empty where no fit speaks of that.
        level: what a fit to the log of this very job says of its typical step; None where there is none. `predict` applies it.
        notes: why a fit to step times gives no level.
        unused: fits of which nothing applies to the job, in words.
        tables: which measured tables the cost of the job is made of, and what they leave to the presets, in words.
    """

    job: Job
    draws: tuple[Variability, ...] = ()
    level: LogLevel | None = None
    notes: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()
    tables: tuple[str, ...] = ()


def load_fits(
    job: Job, fits: FitFiles, *, seed: int = 0, force: bool = False, progress: Progress = silent
) -> FittedJob:
    """The job with what the fits say, one after the other.

    Args:
        fits: files of `prism-jax fit` or `calibrate`.
        seed: of the posterior draws.
        force: use a fit even where its verdict is failed.

    Raises:
        DataError: a file is no fit, or is one of another device or other software; or two calibrate the cost model.
        FailedFitError: a fit failed its checks and `force` is not set.
    """
    calibrated, rest = calibrated_job(job, fits)
    return with_variability(calibrated, rest, seed=seed, force=force, progress=progress)


def calibrated_job(job: Job, fits: FitFiles) -> tuple[Job, list[str]]:
    """The job with the calibration among `fits`, if there is one, and the other files.

    Raises:
        DataError: two calibrations, a damaged one, or one of another device or other software.
    """
    files = [str(file) for file in fits]
    if not files:
        return job, []
    for file in files:
        if os.path.lexists(file):  # the reader says how to make one that is not there
            check_input(file)
    store = _store()
    found = [file for file in files if store.is_calibration(file)]
    if len(found) > 1:
        raise DataError(f"--fit: {found[0]} and {found[1]} both calibrate the cost model. Name one of them.")
    if found:
        job = _on_site(job, store.load(found[0]), found[0])
    return job, [file for file in files if file not in found]


def with_variability(
    job: Job, fits: FitFiles, *, seed: int = 0, force: bool = False, progress: Progress = silent
) -> FittedJob:
    """The job with the cost of measured tables and the variability that the fits describe; see `load_fits`."""
    if not fits:
        return FittedJob(job)
    progress(0.0, "loading fits")
    load = inference().Fit.load
    loaded: list[tuple[str, Any]] = [(str(file), load(str(file))) for file in fits]
    costed = with_tables(job, loaded, seed=seed, force=force)
    varied = _varied(costed.job, [one for one in loaded if one[1].describes_variability], seed, force)
    return replace(varied, tables=costed.tables)


def _varied(job: Job, fits: Sequence[tuple[str, Any]], seed: int, force: bool) -> FittedJob:
    """The job with the variability of fits, each with its file."""
    if not fits:
        return FittedJob(job)
    middle, draws = job.variability, [job.variability] * N_DRAW
    levels: list[LogLevel] = []
    notes: list[str] = []
    unused: list[str] = []
    centres = [_centre(fit, file, force) for file, fit in fits]
    own = {name for centre in centres for name in measured_collectives(centre)}
    for index, ((file, fit), centre) in enumerate(zip(fits, centres, strict=True)):
        middle = overlay(middle, with_served(centre, own))
        unused += [note] if (note := unused_note(centre, job, file)) else []
        found = fit.variability_draws(N_DRAW, key=inference().random_key(seed, index), force=force)
        draws = [overlay(under, with_served(over, own)) for under, over in zip(draws, found, strict=True)]
        found_level = _level_of(fit.measured_level(), file, job)
        levels += [found_level] if isinstance(found_level, LogLevel) else []
        notes += [found_level] if isinstance(found_level, str) else []
    if len(levels) > 1:
        notes.append(f"{' and '.join(one.file for one in levels)} are logs of one job each: no level of a log is used")
    return FittedJob(
        replace(job, variability=middle),
        tuple(draws),
        levels[0] if len(levels) == 1 else None,
        tuple(notes),
        tuple(unused),
    )


def _centre(fit: Any, file: str, force: bool) -> Variability:
    """The variability of the posterior mean."""
    try:
        return fit.to_variability(force=force)
    except FailedFitError as error:
        raise FailedFitError(error.why, file) from None


def _level_of(found: MeasuredLevel | NoLevel | None, file: str, job: Job) -> LogLevel | str | None:
    """Level of the log of this job; or why a fit of step times gives none, in words; None of other fits."""
    if isinstance(found, NoLevel):
        return f"{file}: the level of the log is not used: {found.why}"
    if found is not None and not isnan(found.n_gpus) and found.n_gpus != job.plan.n_devices:
        return (
            f"{file}: the level of the log is not used: it is of {found.n_gpus:,.0f} GPUs, and the job has "
            f"{job.plan.n_devices:,}"
        )
    if found is not None and (apart := unlike(found.job, job)):
        return f"{file}: the level of the log is not used: it is of another job ({some(apart, MOST_TOLD)})"
    return None if found is None else LogLevel(file, found)


def kept_calibration(file: str | Path) -> Calibration:
    """The calibration in a file.

    Raises:
        DataError: there is none, or it is damaged.
    """
    return _store().load(str(file))


def refuse_other_device(calibration: Calibration, device: Device, file: str | Path) -> None:
    """Calibrations of a site speak of one generation of devices only.

    Raises:
        DataError: the device is of another.
    """
    generation = str((calibration.record or {}).get("generation", ""))
    if generation and generation != device.generation:
        raise DataError(f"--fit {file}: calibrated on {generation}, but {device.name} is of {device.generation}.")


def _store() -> Any:
    inference()
    return import_module("inference.cost_model.store")


def _on_site(job: Job, calibration: Calibration, file: str) -> Job:
    """The job with the calibration of its site; its framework is the site's if the job states none."""
    refuse_other_device(calibration, job.cluster.device, file)
    framework = str((calibration.record or {}).get("framework", ""))
    own = job.software.name
    if framework and own and framework != own:
        raise DataError(
            f"--fit {file}: calibrated with {framework}, but the job runs {own}. Calibrate with runs of that."
        )
    return replace(job, calibration=calibration, framework=job.framework or framework)
