"""Which jobs of a table to measure first: those to which all others are as near as possible in what their steps are made of.

What a measured run says carries over to jobs made of the same parts (`calibration/surrogate.py`). No measured time is seen.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from prism_jax.calibration.calibration import KNOBS
from prism_jax.calibration.surrogate import sensitivities, stack, surrogate_of, surrogate_seconds
from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError
from prism_jax.cost.efficiency import efficiency
from prism_jax.job.job import Job
from prism_jax.validation.calibration_report import SuggestedJob
from prism_jax.validation.job_table import read_job_table

MOST = 2000  # jobs of a table: all pairs of them are held against each other
PASSES = 3  # through those picked: one by one, then each again given the others


def suggest_runs(path: str | Path, n: int) -> list[SuggestedJob]:
    """`n` jobs of a table (CSV; measured times are not needed), in its order.

    Raises:
        DataError: the table cannot be read, is malformed, or has more than `MOST` jobs.
        SpecError: no constants for a job's device.
    """
    runs = read_job_table(path, measured=False)
    if len(runs) > MOST:
        raise DataError(f"{Path(path).name}: {len(runs)} jobs, of which at most {MOST} can be held against each other.")
    made = [_seconds_and_parts(run.job) for run in runs]
    parts = np.stack([own for _, own in made])
    chosen = unalike(parts, n)
    owner = _apart(parts)[:, chosen].argmin(axis=1)
    return [
        SuggestedJob(
            runs[at].id, made[at][0], dict(zip(KNOBS, made[at][1].tolist(), strict=True)), int((owner == k).sum())
        )
        for k, at in enumerate(chosen)
    ]


def unalike(parts: Floats, n: int) -> NDArray[np.intp]:
    """At most `n` rows, in order, of `parts` [row, knob], to which all rows are near: the sum of the distances to the nearest
    is small (medoids, by exchange).
    """
    apart = _apart(parts)
    chosen: list[int] = []
    for at in [*range(min(n, len(parts)))] * PASSES:
        others = chosen[:at] + chosen[at + 1 :]
        near = apart[:, others].min(axis=1) if others else np.full(len(parts), np.inf)
        best = int(np.argmin(np.minimum(near[:, None], apart).sum(axis=0)))
        chosen = [*chosen[:at], best, *chosen[at + 1 :]]
    return np.unique(chosen)


def _apart(parts: Floats) -> Floats:
    """[row, row] distance."""
    square = (parts**2).sum(axis=1)
    return np.sqrt(np.maximum(square[:, None] + square[None] - 2.0 * parts @ parts.T, 0.0))


def _seconds_and_parts(job: Job) -> tuple[float, Floats]:
    eff = efficiency(job.cluster.device.generation)
    rows = stack([surrogate_of(job.model, job.cluster, job.plan, eff)])
    correction = job.efficiency.correction
    return float(surrogate_seconds(rows, correction)[0]), sensitivities(rows, correction)[0]
