"""Predicts the steps of jobs at hand: typical step and its interval, by the same sums as tables of measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..calibration.open_fields import doubtful
from ..job.job import Job
from .costed import costed, intervals, parts_of, step_times
from .log_report import PredictedStep


def predictions(jobs: Sequence[Job], doubts: Sequence[tuple[str, float]], seed: int) -> list[PredictedStep]:
    """Typical step of every job, and the bounds of 90 % of what would be measured.

    Args:
        doubts: of all of them: what is taken for something without odds, and the standard deviation of the logarithm of the step.

    Raises:
        PrismError: a job cannot be costed.
    """
    if not jobs:
        return []
    more = tuple(doubtful(name, sd) for name, sd in doubts)
    costs = [replace(costed(job), doubts=more) for job in jobs]
    steps, bounds = step_times(costs, seed), intervals(costs, seed)
    return [
        PredictedStep(
            p50_s=float(typical),
            low_s=float(typical * low),
            high_s=float(typical * high),
            parts_s=parts_of(one.job.plan, one.cost, one.prompt_cost, float(free)),
        )
        for one, typical, free, (low, high) in zip(costs, steps.typical_s, steps.noise_free_s, bounds, strict=True)
    ]
