"""Measured runs of one site as its calibration wants them, and what is known of a site before any run of its own.

A run is a job and the seconds its step took: the outline of the job, and what that leaves out. All runs of a site share a device
generation and a training framework; kernels and whatever else a calibration has levels for are those of each run. A site deviates
from the mean of these as much as that mean is uncertain, and by itself: a normal law of its knobs, from the population's draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism_jax.calibration.calibration import KNOBS, Calibration
from prism_jax.calibration.key import CalibrationKey, workload_of
from prism_jax.calibration.surrogate import (
    StepSurrogate,
    alike,
    parts_of_outline,
    sensitivities,
    stack,
    surrogate_seconds,
)
from prism_jax.core.arrays import Floats
from prism_jax.core.content import content_hash
from prism_jax.core.errors import DataError
from prism_jax.core.processes import Progress, silent
from prism_jax.core.registry import did_you_mean
from prism_jax.cost.efficiency import SHARE, CostCorrection
from prism_jax.framework.base import Framework
from prism_jax.framework.frameworks import FRAMEWORKS
from prism_jax.framework.software import Software
from prism_jax.validation.costed import costed, step_times
from prism_jax.validation.job_table import MeasuredRun, read_job_table

# Standard deviation of a site's own deviation, on the link's scale: how much set-ups of one device and one framework differ.
# Assumed, not tuned on scores.
SITE_DEVIATION: Mapping[str, float] = {
    "gemm": 0.03,  # the same libraries, other versions and clocks
    "attention": 0.15,  # which kernel of its generation runs
    "memory": 0.1,  # how much is fused
    "fp8": 0.05,  # recipes of scaling, casts in products or apart
    "expert": 0.15,  # dispatcher and balance of the experts
    "host": 0.2,  # CPU and version of Python
    "scale_up": 0.15,  # NVLink generations and PCIe under one name
    "network": 0.25,  # topology, routing, other tenants
    "scale_up_call_s": 0.6,  # how far apart ranks arrive
    "network_call_s": 0.6,
    "overlap_window": 0.8,  # buckets, streams and prefetch are settings
    "optimizer": 0.2,  # fused or not
    "micro_batch_s": 0.7,  # data loader and logging are settings
    "step_s": 0.7,
    "network_step_s": 0.7,
}
SEEDS = 8  # of the fresh draws that members never seen deviate by, in the covariance
EDGE = 1e-9  # of a share, from 0 and 1
MISFITS, ALIKE = 3.0, 0.9  # how far apart runs are of two softwares, and how alike they are: judgements, not fitted
SMALLEST_MISFIT = 1e-3  # of a calibration that knows none


@dataclass(frozen=True)
class SitePrior:
    """Knowledge of a site before any run of its own.

    Attributes:
        mean: [knob] on the link's scale.
        factor: [knob, knob] lower triangular root of the covariance, the site's own deviation included.
        site_sd: of the log factor of the site.
        misfit, misfit_sd: median over sites of the scale of a configuration's own log factor, and the standard deviation of
            that scale's logarithm.
        expert_misfit: how much wider it is for models with experts.
        apart: [kind, knob] what the software of each kind of run adds to the mean.
    """

    mean: Floats
    factor: Floats
    site_sd: float
    misfit: float
    misfit_sd: float
    expert_misfit: float
    apart: Floats


def site_prior(calibration: Calibration, runs: SiteRuns) -> SitePrior:
    """Normal law of the knobs of a site of the device and framework of its runs."""
    setting = runs.setting
    mean = on_link(calibration.correction(setting))
    drawn = [on_link(calibration.corrections(setting, seed)) for seed in range(SEEDS)]
    covariance = np.cov(np.concatenate(drawn), rowvar=False)
    own = np.array([SITE_DEVIATION[knob] for knob in KNOBS])
    return SitePrior(
        mean=mean,
        factor=np.linalg.cholesky(covariance + np.diag(own**2)).astype(float),
        site_sd=float(np.median(calibration.site_sd)),
        misfit=max(float(np.median(calibration.misfit)), SMALLEST_MISFIT),
        misfit_sd=float(np.median(calibration.misfit_sd)),
        expert_misfit=calibration.expert_misfit,
        apart=np.stack([on_link(calibration.correction(kind)) for kind in runs.kinds]) - mean,
    )


def on_link(correction: CostCorrection) -> Floats:
    """[knob] or [draw, knob] on the link's scale: logarithms, and the logit of a share."""
    values = {knob: np.asarray(getattr(correction, knob), dtype=float) for knob in KNOBS}
    share = np.clip(values[SHARE], EDGE, 1.0 - EDGE)
    return np.stack([np.log(share / (1.0 - share)) if k == SHARE else np.log(v) for k, v in values.items()], axis=-1)


@dataclass(frozen=True)
class SiteRuns(StepSurrogate):
    """Stacked outlines [run], and per run:

    Attributes:
        log_measured: logarithm of the measured seconds.
        left_out: logarithm of the predicted median step over the outline's: stragglers, and what only the graph knows.
        has_experts: 1 where the model has experts.
        weight: 1, or 0 for rows that only fill up a shape.
        kind: which of `kinds` it is of.
        setting: of the site: what all runs share; what they differ in is left open.
        kinds: settings of the runs, each once.
    """

    log_measured: Floats
    left_out: Floats
    has_experts: Floats
    weight: Floats
    kind: NDArray[np.intp]
    setting: CalibrationKey
    kinds: tuple[CalibrationKey, ...]

    @property
    def n_run(self) -> int:
        """Number of measured runs."""
        return len(self.log_measured)


def two_softwares(calibration: Calibration, runs: SiteRuns) -> tuple[int, int, float] | None:
    """Two runs made of the same parts that no configuration's own deviation explains: which, and the seconds of the second over
    those of the first, both over what is predicted. The pair that is farthest apart; None: there is none.
    """
    correction = run_corrections(calibration, runs)
    left = runs.log_measured - runs.left_out - np.log(surrogate_seconds(runs, correction))
    misfit = np.median(calibration.misfit) * np.where(runs.has_experts > 0.0, calibration.expert_misfit, 1.0)
    apart = np.abs(left[:, None] - left) / np.maximum(np.hypot(misfit[:, None], misfit), SMALLEST_MISFIT)
    parts = sensitivities(runs, correction)
    apart = np.where(alike(parts, parts) >= ALIKE, apart, 0.0)
    first, second = np.unravel_index(int(apart.argmax()), apart.shape)
    if apart[first, second] <= MISFITS:
        return None
    return int(first), int(second), float(np.exp(left[second] - left[first]))


def run_corrections(calibration: Calibration, runs: SiteRuns) -> CostCorrection:
    """Corrections of the runs, every field [run]: of each run's own software."""
    each = [calibration.correction(kind) for kind in runs.kinds]
    own: dict[str, Any] = {knob: np.array([getattr(one, knob) for one in each])[runs.kind] for knob in KNOBS}
    return CostCorrection(**own)


def kinds_of(settings: Sequence[CalibrationKey]) -> dict[str, Any]:
    """`setting`, `kinds` and `kind` of runs of these settings."""
    kinds = tuple(dict.fromkeys(settings))
    kind = np.array([kinds.index(one) for one in settings], dtype=np.intp)
    blank = CalibrationKey._field_defaults
    shared = kinds[0]._replace(**{name: blank[name] for name in blank if len({getattr(x, name) for x in kinds}) > 1})
    of_all = [each.software for each in kinds]
    same = {
        item.name: getattr(of_all[0], item.name)
        for item in fields(Software)
        if len({getattr(one, item.name) for one in of_all}) == 1
    }
    return {"setting": shared._replace(software=Software(**same)), "kinds": kinds, "kind": kind}


def site_runs(
    runs: Sequence[MeasuredRun],
    calibration: Calibration,
    framework: str = "",
    left_out: Floats | None = None,
    progress: Progress = silent,
) -> SiteRuns:
    """Outlines of runs of one site.

    Args:
        calibration: what predictions use so far.
        framework: of all runs; empty for what the jobs say.
        left_out: [run] as in `SiteRuns`, if it is known; else every job is simulated.
        progress: called with the share that is done.

    Raises:
        DataError: no runs, or runs of two device generations, frameworks or kinds of model.
    """
    if not runs:
        raise DataError("no runs to calibrate with. Give at least one measured step; three to five tell much.")
    _only(runs, lambda run: run.job.cluster.device.generation, "device generations")
    _only(runs, lambda run: workload_of(run.job.model) or "transformer", "kinds of model")
    _only([run for run in runs if run.version], lambda run: run.version, "versions or methods")
    software = _framework(runs, framework)
    # The runs decide all that their jobs leave unsaid: nothing is open at a site.
    of_site = replace(calibration, site=np.zeros(calibration.n_draw)) if calibration.site is None else calibration
    told = [replace(run.job, framework=software, calibration=of_site) for run in runs]
    jobs = [costed(job) for job in told]
    made = SiteRuns(
        **parts_of_outline(stack([one.outline for one in jobs])),
        log_measured=np.log([run.measured_s for run in runs]),
        left_out=np.zeros(len(runs)) if left_out is None else left_out,
        has_experts=np.array([float(run.job.model.has_experts) for run in runs]),
        weight=np.ones(len(runs)),
        **kinds_of([one.setting._replace(device=one.job.cluster.device.name, likeness_sd=0.0) for one in jobs]),
    )
    if left_out is not None:
        return made
    seconds = np.asarray(surrogate_seconds(made, run_corrections(calibration, made)))
    return replace(made, left_out=np.log(step_times(jobs, progress=progress).typical_s / seconds))


def one_order(runs: Sequence[MeasuredRun]) -> NDArray[np.intp]:
    """Returns the order of runs by what jobs consist of and how long they took, not by their places in a table."""
    keys = [(content_hash(run.job.model, run.job.cluster, run.job.plan), run.measured_s) for run in runs]
    return np.array(sorted(range(len(runs)), key=keys.__getitem__), dtype=np.intp)


def some_of(runs: SiteRuns, chosen: NDArray[np.intp]) -> SiteRuns:
    """The chosen runs."""
    arrays = {item.name: getattr(runs, item.name) for item in fields(runs)}
    return replace(runs, **{name: value[chosen] for name, value in arrays.items() if isinstance(value, np.ndarray)})


def only(runs: SiteRuns, chosen: NDArray[np.intp]) -> SiteRuns:
    """All runs, with weight on the chosen ones alone: the same shape, so that what is compiled for one choice serves all."""
    weight = np.zeros(runs.n_run)
    weight[chosen] = 1.0
    return replace(runs, weight=weight)


def _framework(runs: Sequence[MeasuredRun], given: str) -> str | Framework:
    if given:
        if given not in FRAMEWORKS:
            raise DataError(f"framework {given!r} is unknown{did_you_mean(given, FRAMEWORKS.names)}")
        return given
    stated = [run for run in runs if run.job.framework]
    if not stated:
        return ""
    _only(stated, lambda run: run.job.software.name, "frameworks")
    return stated[0].job.framework


_REMEDIES = {"frameworks": ", or name the one of all by --framework.", "versions or methods": ": --only '{}'."}


def _only(runs: Sequence[MeasuredRun], of: Callable[[MeasuredRun], str], what: str) -> None:
    """Refuses runs that do not share it.

    Raises:
        DataError: names two that differ.
    """
    other = next((run for run in runs if of(run) != of(runs[0])), None)
    if other is not None:
        first = of(runs[0])
        raise DataError(
            f"the runs are of two {what}: {first} ({runs[0].id}) and {of(other)} ({other.id}). Calibrate each by itself"
            + _REMEDIES.get(what, ".").format(first)
        )


@dataclass(frozen=True)
class SiteTable:
    """Runs that can be used, and why the others cannot: id -> reason."""

    runs: tuple[MeasuredRun, ...]
    dropped: Mapping[str, str]


def of_version(rows: Sequence[MeasuredRun], version: str, path: str | Path) -> list[MeasuredRun]:
    """Rows of a table that are of one version or method; all if none is named.

    Raises:
        DataError: no row is.
    """
    found = [row for row in rows if not version or row.version == version]
    if version and not found:
        known = sorted({row.version for row in rows if row.version})
        words = did_you_mean(version, known) if known else "; none is stated in a column version or method"
        raise DataError(f"--only {version}: no row of {Path(path).name} is of it{words}")
    return found


def read_site_runs(path: str | Path, version: str = "") -> SiteTable:
    """The runs of a table, all or those of one version or method; those without a time are left out.

    Raises:
        DataError: the file cannot be read, a row is malformed, or no row can be used; names row and field.
    """
    found = read_job_table(path)
    own = of_version(found, version, path)
    kept = {run.id for run in own}
    other = {run.id: run.version or "not stated" for run in found if run.id not in kept}
    dropped = {name: f"of another version or method, {stated}" for name, stated in other.items()}
    dropped |= {run.id: "no measured time" for run in found if math.isnan(run.measured_s)}
    runs = tuple(run for run in own if run.id not in dropped)
    if not runs:
        raise DataError(f"{Path(path).name}: no row has a measured time, so there is nothing to calibrate with")
    return SiteTable(runs, dropped)
