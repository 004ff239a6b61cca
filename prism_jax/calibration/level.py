"""The level of a job as its own log shows it: a factor between the steps that were measured and those that are predicted.

A log of this very job says how long its steps take far better than a cost model does. The factor scales every second of the job,
so that the typical predicted step is the typical measured one; how steps scatter around it is left as predicted.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class MeasuredLevel:
    """What a log of one configuration says of its typical step.

    Attributes:
        step_s: typical step, seconds.
        is_mean: it is the mean of a step (logs of intervals over several steps), not the median.
        log_sd: standard deviation of its logarithm: of the steps that were sampled, and of one run against the next.
        n_steps, n_runs: logged.
        n_gpus: NaN where the log does not say.
    """

    step_s: float
    is_mean: bool
    log_sd: float
    n_steps: int
    n_runs: int
    n_gpus: float = np.nan


@dataclass(frozen=True)
class NoLevel:
    """Why a fit of step times says nothing of the level of a job."""

    why: str


@dataclass(frozen=True)
class LevelFactor:
    """Measured over predicted typical step.

    Attributes:
        factor: of every second of the job.
        log_sd: standard deviation of its logarithm.
    """

    factor: float
    log_sd: float

    def quantile(self, score: float) -> float:
        """Of the typical step over its estimate, at a normal score."""
        return float(np.exp(score * self.log_sd))
