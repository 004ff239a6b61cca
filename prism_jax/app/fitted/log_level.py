"""A job at the level of its own log: every second of it times measured over predicted typical step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from ...calibration.level import LevelFactor
from ...job import Job
from ...report.types.prediction import LevelFacts
from ...result import StepTimeDistribution
from .load_fits import LogLevel

WITHIN = 2.0  # the factor, either way; a log further off is of another job, or in another unit


@dataclass(frozen=True)
class JobAtLevel:
    """A job with the level of its log.

    Attributes:
        job: unchanged where the log is refused.
        facts: for the report; None where the log is refused.
        note: why it is refused; empty where it is not.
    """

    job: Job
    facts: LevelFacts | None
    note: str = ""

    def with_fleet(self, fleet_sd: float) -> JobAtLevel:
        """The same with what the log leaves open because its GPUs are one draw of the fleet.

        Args:
            fleet_sd: relative standard deviation of the mean step between allocations of GPUs.
        """
        if self.facts is None or self.job.level is None:
            return self
        level = replace(self.job.level, log_sd=float(np.hypot(self.job.level.log_sd, fleet_sd)))
        facts = replace(self.facts, factor_sd=level.factor * level.log_sd)
        return replace(self, job=replace(self.job, level=level), facts=facts)


def at_log_level(job: Job, level: LogLevel, predict: Callable[[Job], StepTimeDistribution]) -> JobAtLevel:
    """The job at the level of its log.

    Args:
        predict: the distribution of the step time of a job.

    Notes: a mean of the log is held against the predicted mean, a median against the median.
    """
    found, measured = predict(job), level.measured
    predicted_s = found.mean_s if measured.is_mean else found.quantile(0.5)
    statistic = "mean" if measured.is_mean else "median"
    factor = measured.step_s / predicted_s
    if not 1.0 / WITHIN < factor < WITHIN:
        note = (
            f"{level.file}: the level of the log is not used: its {statistic} step of {measured.step_s:.4g} s is {factor:.3g} "
            f"times the {predicted_s:.4g} s predicted for this job. Is it a log of this job, in the right unit?"
        )
        return JobAtLevel(job, None, note)
    facts = LevelFacts(
        file=level.file,
        statistic=statistic,
        measured_s=measured.step_s,
        predicted_s=predicted_s,
        factor=factor,
        factor_sd=factor * measured.log_sd,
        n_steps=measured.n_steps,
    )
    return JobAtLevel(replace(job, level=LevelFactor(factor, measured.log_sd)), facts)
