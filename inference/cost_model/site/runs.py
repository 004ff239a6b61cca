"""Measured runs of one site, as the user calibration wants them: the outline of every job, and what it leaves out.

A run is a job and the seconds its step took. All runs of a site share a device generation and a training framework.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from prism_jax._core.content import content_hash
from prism_jax._typing import Floats
from prism_jax.calibration.calibration import Calibration
from prism_jax.calibration.key import CalibrationKey, workload_of
from prism_jax.calibration.surrogate import StepSurrogate, stack, surrogate_seconds
from prism_jax.errors import DataError
from prism_jax.framework import FRAMEWORKS, Framework
from prism_jax.hints import did_you_mean
from prism_jax.io.tables.job_table import MeasuredRun
from prism_jax.progress import Progress, silent
from prism_jax.validation.costed import costed
from prism_jax.validation.typical import step_times


@dataclass(frozen=True)
class SiteRuns(StepSurrogate):
    """Stacked outlines [run], and per run:

    Attributes:
        log_measured: logarithm of the measured seconds.
        left_out: logarithm of the predicted median step over the outline's: stragglers, and what only the graph knows.
        has_experts: 1 where the model has experts.
        weight: 1, or 0 for rows that only fill up a shape.
        setting: of all runs; without a device where there are several of one generation.
    """

    log_measured: Floats
    left_out: Floats
    has_experts: Floats
    weight: Floats
    setting: CalibrationKey

    @property
    def n_run(self) -> int:
        """Number of measured runs."""
        return len(self.log_measured)


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
    generation = _only(runs, lambda run: run.job.cluster.device.generation, "device generations")
    _only(runs, lambda run: workload_of(run.job.model) or "transformer", "kinds of model")
    devices = {run.job.cluster.device.name for run in runs}
    software = _framework(runs, framework)
    own = software if isinstance(software, str) else software.name
    # The runs decide all that their jobs leave unsaid: nothing is open at a site.
    of_site = replace(calibration, site=np.zeros(calibration.n_draw)) if calibration.site is None else calibration
    told = [replace(run.job, framework=software, calibration=of_site) for run in runs]
    device = devices.pop() if len(devices) == 1 else ""
    setting = CalibrationKey(
        generation, own, device, software=told[0].plan.software, workload=workload_of(told[0].model)
    )
    jobs = [costed(job) for job in told]
    outlines = stack([one.outline for one in jobs])
    if left_out is None:
        correction = calibration.correction(setting)
        seconds = np.asarray(surrogate_seconds(outlines, correction))
        left_out = np.log(step_times(jobs, progress=progress).typical_s / seconds)
    return SiteRuns(
        **{item.name: getattr(outlines, item.name) for item in fields(StepSurrogate)},
        log_measured=np.log([run.measured_s for run in runs]),
        left_out=left_out,
        has_experts=np.array([float(run.job.model.has_experts) for run in runs]),
        weight=np.ones(len(runs)),
        setting=setting,
    )


def one_order(runs: Sequence[MeasuredRun]) -> NDArray[np.intp]:
    """Which run comes first, second, ...: by what jobs consist of and how long they took, not by their places in a table."""
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


def _only(runs: Sequence[MeasuredRun], of: Callable[[MeasuredRun], str], what: str) -> str:
    """What all runs share.

    Raises:
        DataError: they do not; names two that differ.
    """
    first = of(runs[0])
    other = next((run for run in runs if of(run) != first), None)
    if other is not None:
        raise DataError(
            f"the runs are of two {what}: {first} ({runs[0].id}) and {of(other)} ({other.id}). Calibrate each by itself"
            + (", or name the one of all by --framework." if what == "frameworks" else ".")
        )
    return first
