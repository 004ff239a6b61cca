"""Predicts the steps of single jobs: typical step and its interval, by the same sums as tables of measured rows."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import exp, log

from ..calibration.open_fields import doubtful
from ..core.errors import PrismError
from ..job.job import Job
from .costed import costed, ends_of, intervals, parts_of, step_times
from .log_causes import Possibility, with_software
from .log_report import PredictedStep


def predictions(jobs: Sequence[Job], doubts: Sequence[tuple[str, float]], seed: int) -> list[PredictedStep]:
    """Typical step of every job, and the bounds of 90% of what would be measured.

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
            ends_s=ends_of(one.cost),
        )
        for one, typical, free, (low, high) in zip(costs, steps.typical_s, steps.noise_free_s, bounds, strict=True)
    ]


def either(
    job: Job, others: Sequence[tuple[str, object]], doubts: Sequence[tuple[str, float]], seed: int
) -> PredictedStep:
    """The step of a job that is as assumed or has one of some choices of its software, as likely either way.

    Args:
        others: fields of the software and their other values.

    Raises:
        PrismError: the job cannot be costed.
    """
    found = predictions([job, *(with_software(job, name, value) for name, value in others)], doubts, seed)
    middle = exp(sum(log(one.p50_s) for one in found) / len(found))
    low_s, high_s = min(one.low_s for one in found), max(one.high_s for one in found)
    return replace(found[0], p50_s=middle, low_s=low_s, high_s=high_s)


def predictions_of(
    others: Sequence[Possibility], doubts: Sequence[tuple[str, float]], seed: int
) -> dict[str, PredictedStep]:
    """Steps of jobs that are possible, by what they are; those that cannot be costed are none."""
    found: dict[str, PredictedStep] = {}
    for one in others:
        with suppress(PrismError):
            [found[one.text]] = predictions([one.job], doubts, seed)
    return found
