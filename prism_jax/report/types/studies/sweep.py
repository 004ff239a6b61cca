"""SweepReport: a grid of jobs, what each takes, and which is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import nan
from typing import Annotated, ClassVar

from ...._core.content import ByContent
from ....study.figures import Figures
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True, eq=False)
class SweepRow(ByContent):
    """One job of the grid.

    Attributes:
        settings: field -> value along the axes.
        figures: None where the job is impossible.
        problem: why; empty if it is possible.
        relative, relative_error: objective over that of the best row, and its Monte Carlo standard error.
        is_best, is_tied: the best row, and rows that the draws cannot tell from it.
    """

    settings: Mapping[str, str]
    figures: Figures | None
    problem: str
    relative: float = nan
    relative_error: float = nan
    is_best: bool = False
    is_tied: bool = False


@dataclass(frozen=True)
class SweepReport(Report):
    """All jobs of a grid, in its order.

    Attributes:
        axes: fields that vary.
        objective, objective_unit: what the rows are compared by.
    """

    kind: ClassVar[str] = "sweep"
    picture: ClassVar[str] = "prism_jax.plot.studies.sweep:draw"
    renderer: ClassVar[str] = "studies.sweep"

    job: str
    axes: tuple[str, ...]
    objective: str
    objective_unit: str
    rows: tuple[SweepRow, ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
