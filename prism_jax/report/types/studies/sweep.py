"""SweepReport: a grid of jobs, what each takes, and which is best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ....study.table import StudyRow
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True)
class SweepReport(Report):
    """All jobs of a grid, in its order.

    Attributes:
        axes: fields that vary.
        objective, objective_unit: what the rows are compared by.
    """

    kind: ClassVar[str] = "sweep"
    picture: ClassVar[str] = "prism_jax.plot.studies.sweep:draw"

    job: str
    axes: tuple[str, ...]
    objective: str
    objective_unit: str
    rows: tuple[StudyRow, ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ...text.studies.sweep import lines

        return lines(self)
