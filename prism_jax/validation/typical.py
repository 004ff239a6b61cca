"""The typical step of a measured row: its job under the usual variability of the device, and the median of what that predicts."""

from __future__ import annotations

import jax

from ..calibration.calibration import Calibration
from ..job import Job
from ..simulate.predict import predict
from ..variability.catalog import default_for, preset
from ..variability.tree import Variability
from .rows import MeasuredRow

N_SAMPLES = 256  # the error of a p50 from these is below 0.05 %


def job_of_row(row: MeasuredRow, calibration: Calibration | None = None, *, deterministic: bool = False) -> Job:
    """The job of a supported row; `deterministic`: without variability."""
    model, cluster, plan = row.job
    tree = Variability() if deterministic else preset(default_for(cluster.device))
    return Job(model, cluster, plan, tree, row.id, row.framework, calibration)


def typical_s(job: Job, seed: int = 0) -> float:
    """Median step (p50), seconds."""
    return predict(job, key=jax.random.key(seed), n_samples=N_SAMPLES, pad=True).quantile(0.5)
