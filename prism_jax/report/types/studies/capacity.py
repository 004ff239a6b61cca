"""CapacityReport: what fleets make of a job: tokens, days, money, energy, and how probable it is that one is better."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Annotated, ClassVar

from ...._core.content import ByContent
from ....search.figures import SearchedPlan
from ....study.figures import Figures
from ....study.fleets.capacity import Capacity
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True, eq=False)
class FleetFacts(ByContent):
    """One fleet.

    Attributes:
        label: letter that stands for it.
        fleet: as it was given.
        plan, figures, capacity: the best plan; None where no plan is possible; `problem` says why.
        prob_fastest, prob_cheapest: that it has the most tokens per day, or the least money per token, of all fleets.
    """

    label: str
    fleet: str
    cluster: str
    device: str
    n_devices: int
    plan: SearchedPlan | None
    figures: Figures | None
    capacity: Capacity | None
    problem: str
    prob_fastest: float
    prob_cheapest: float = nan


@dataclass(frozen=True)
class CapacityReport(Report):
    """Fleets in the order given.

    Attributes:
        days, tokens: what is asked; the other is None.
        reliability: of which failures the goodput knows; None: of none.
        prob_faster, prob_cheaper: a row for each fleet that can run the job: probabilities that it does more tokens per day, or
            takes less money per token, than each of them; the latter is empty without prices.
    """

    kind: ClassVar[str] = "capacity"

    job: str
    model: str
    sample_unit: str
    objective: str
    days: float | None
    tokens: float | None
    reliability: str | None
    fleets: tuple[FleetFacts, ...]
    prob_faster: tuple[tuple[float, ...], ...]
    prob_cheaper: tuple[tuple[float, ...], ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ...text.studies.capacity import lines

        return lines(self)
