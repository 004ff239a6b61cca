"""ComparisonReport: a few jobs on the same draws, and how probable it is that one beats another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ....study.figures import Figures
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True)
class ComparedJob:
    """One job.

    Attributes:
        label: letter that stands for it.
        name: as it was given.
        figures: what is measured of it.
        relative, relative_error: predicted objective over that of the best job, and its Monte Carlo standard error.
        ratio_low, ratio_high: 90 % interval of that ratio as it would be measured.
        prob_best: that it would be measured to be the best of all.
        is_best, is_tied: best by prediction, and jobs that the draws cannot tell from it.
    """

    label: str
    name: str
    model: str
    device: str
    figures: Figures
    relative: float
    relative_error: float
    ratio_low: float
    ratio_high: float
    prob_best: float
    is_best: bool
    is_tied: bool


@dataclass(frozen=True)
class ComparisonReport(Report):
    """Jobs in the order given.

    Attributes:
        objective, objective_unit: what they are compared by.
        prob_less: a row for each job: probabilities that its objective would be measured to be less than that of each job.
    """

    kind: ClassVar[str] = "comparison"
    picture: ClassVar[str] = "prism_jax.plot.studies.comparison:draw"

    objective: str
    objective_unit: str
    jobs: tuple[ComparedJob, ...]
    prob_less: tuple[tuple[float, ...], ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ...text.studies.comparison import lines

        return lines(self)
