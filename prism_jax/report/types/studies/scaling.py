"""ScalingReport: throughput, exposed communication, energy and money of a job from small clusters to large ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import nan
from typing import Annotated, ClassVar

from ....study.onset import PassOnset
from ....study.scaling import SizeRow
from ...codec import INLINE
from ...report import Report
from ..record import RunRecord


@dataclass(frozen=True)
class TargetFacts:
    """The smallest size that meets a target.

    Attributes:
        n_devices: None if no size meets it more likely than not.
        prob: that this size meets it, given what the cost model does not know.
    """

    target: str
    n_devices: int | None
    prob: float


@dataclass(frozen=True)
class ScalingReport(Report):
    """A job on several numbers of GPUs.

    Attributes:
        mode: weak (batch grows with the GPUs) or strong (batch stays).
        stop_size: first size whose marginal return is below `threshold`; None if there is none.
        onset_step: GPUs at which data-parallel communication shows with 5 % of a step without variability; knee: first of the
            sizes at which it does in the simulation.
    """

    kind: ClassVar[str] = "scaling"
    picture: ClassVar[str] = "prism_jax.plot.studies.scaling:draw"

    job: str
    mode: str
    objective: str
    threshold: float
    rows: tuple[SizeRow, ...]
    stop_size: int | None
    onsets: tuple[PassOnset, ...]
    knee: int | None
    target: TargetFacts | None
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
    onset_step: float = nan

    def lines(self) -> list[str]:
        from ...text.studies.scaling import lines

        return lines(self)
