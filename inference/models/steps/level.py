"""One configuration by itself: how long its steps take, which is the level of the job it logs, and its steps replicated."""

from __future__ import annotations

import jax
import numpy as np
from scipy.special import ndtr, ndtri, stdtrit

from prism_jax.calibration.level import MeasuredLevel, NoLevel

from ...engine.checks import Checks
from ...model import Draws
from .conditional import Query
from .data import POOL, StepsData
from .predict import autocorrelation, level_law, new_run, shapes
from .shape import quantile

N_REPLICATED = 200  # runs


def measured_level(data: StepsData, draws: Draws) -> MeasuredLevel | NoLevel:
    """The typical step of the one configuration that was fitted, as the level of a job.

    Notes: its logarithm is off by the sampling error of a median of autocorrelated steps, and by what another run of the job
        would differ by (Student-t, as wide as a normal law that has its 90 % interval).
    """
    if len(data.units) > 1:
        return NoLevel(f"it holds {len(data.units)} configurations, and which of them the job is cannot be told")
    if not np.isfinite(data.step_s[0]):
        return NoLevel("its rows are not the times of single steps")
    asked = measured_unit(data)
    shape = shapes(data, data.value[0])
    low, high = quantile(shape, ndtr(np.array([-1.0, 1.0])))
    r, n = autocorrelation(data, asked), float(data.n_points[0] * data.n_runs[0])
    median_sd = np.sqrt(0.5 * np.pi / n * (1.0 + r) / (1.0 - r)) * 0.5 * (high - low)
    scale, freedom = level_law(data, draws, asked)
    run_sd = float(scale[0] * stdtrit(freedom[0], 0.95) / ndtri(0.95))
    return MeasuredLevel(
        step_s=float(data.step_s[0]),
        is_mean=bool(data.is_mean[0]),
        log_sd=float(np.hypot(median_sd, run_sd)),
        n_steps=int(data.n_run_steps[0] * data.n_runs[0]),
        n_runs=int(data.n_runs[0]),
        n_gpus=float(data.n_gpus[0]),
    )


def replicate(data: StepsData, draws: Draws, key: jax.Array) -> Checks | None:
    """Quantiles of the logged steps against those of new runs of the one configuration that was fitted; None for several."""
    if len(data.units) > 1:
        return None
    drawn = new_run(data, draws, n_steps=POOL.size, key=key, n_draw=N_REPLICATED, asked=measured_unit(data))
    return Checks(data.pool[0], drawn, "step time over the median of its run")


def measured_unit(data: StepsData) -> Query:
    """The first configuration that was fitted."""
    return Query(data.codes[[0]], data.log2_gpus[[0]], np.array([0]), data.kind[[0]])
