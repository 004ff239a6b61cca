"""StudyReport and SizesReport: what a search over plans has found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...search.figures import CandidateFacts, GainEstimate, SearchedPlan, SizeFacts
from ..codec import INLINE
from ..report import Report
from .record import RunRecord

PlanFacts = SearchedPlan  # the name by which the report of clouds takes it


@dataclass(frozen=True)
class SearchedJob:
    """The job whose plan was searched."""

    name: str
    model: str
    cluster: str
    device: str
    n_devices: int
    hbm_bytes: float
    sample_unit: str


@dataclass(frozen=True)
class StudyReport(Report):
    """The best plans of a search, how sure that is, and what the best one gains.

    Attributes:
        top: best first.
        unlike: best first; the best of each combination of degrees, schedule, recomputation and sharding.
        front_memory: plans that no other beats in both the objective and memory.
        n_simulated: plans whose step was simulated; `n_raced`: plans scored on their tail.
        infeasible: reason -> number of plans.
    """

    kind: ClassVar[str] = "study"
    picture: ClassVar[str] = "prism_jax.plot.study:draw"

    job: SearchedJob
    objective: str
    objective_unit: str
    method: str
    best: CandidateFacts
    top: tuple[CandidateFacts, ...]
    unlike: tuple[CandidateFacts, ...]
    gain: GainEstimate | None
    front_memory: tuple[CandidateFacts, ...]
    n_plans: int
    n_feasible: int
    n_simulated: int
    n_raced: int
    infeasible: Mapping[str, int]
    elapsed_s: float
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ..text.study import lines

        return lines(self)


@dataclass(frozen=True)
class SizesReport(Report):
    """Best plan of every cluster size.

    Attributes:
        front: numbers of devices that no other size beats in time, devices, energy and cost.
    """

    kind: ClassVar[str] = "sizes"

    job: SearchedJob
    objective: str
    objective_unit: str
    sizes: tuple[SizeFacts, ...]
    front: tuple[int, ...]
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ..text.sizes import lines

        return lines(self)
