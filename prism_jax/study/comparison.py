"""Comparison: a few jobs on the same draws, each beside the best, with the probability that one beats another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..job import Job
from .figures import Figures
from .paired import paired_factors, paired_values, prob_least, prob_less, ratio_bands
from .table import StudyTable, study_table


@dataclass(frozen=True)
class Comparison:
    """Jobs in the order given.

    Attributes:
        table: figures and predicted ratios, by axis `JOB`.
        ratios: [job] 90 % interval of what would be measured of a job over that of the best by prediction.
        prob_less: [job, other] probability that a job's objective would be measured to be less than that of the other.
        prob_best: [job] that it would be measured to be the least of all.
    """

    table: StudyTable
    ratios: tuple[tuple[float, float], ...]
    prob_less: tuple[tuple[float, ...], ...]
    prob_best: tuple[float, ...]


JOB = "job"


def compared(
    names: Sequence[str], jobs: Sequence[Job], figures: Sequence[Figures], objective: str, unit: str, seed: int = 0
) -> Comparison:
    """Jobs compared by an objective.

    Args:
        figures: of the jobs; their `value` is the objective in its `unit`.

    Raises:
        DataError: the jobs are calibrated in different ways.
    """
    settings = [{JOB: name} for name in names]
    table = study_table([JOB], settings, figures, [""] * len(jobs), objective, unit)
    predicted = [row.relative for row in table.rows]
    errors = [row.relative * own.value_error / own.value for row, own in zip(table.rows, figures, strict=True)]
    measured = paired_values(predicted, errors, paired_factors(jobs, seed), seed)
    base = next(k for k, row in enumerate(table.rows) if row.is_best)
    return Comparison(
        table,
        tuple((low, high) for low, high in ratio_bands(measured, base).tolist()),
        tuple(map(tuple, prob_less(measured).tolist())),
        tuple(prob_least(measured).tolist()),
    )
