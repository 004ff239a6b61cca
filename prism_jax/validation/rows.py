"""What a comparison with measurements needs of a row, and what it finds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..errors import DataError
from ..plan.plan import ParallelPlan
from ..software.usual import Odds
from ..system.hardware import Cluster
from ..workload.base import Workload


@dataclass(frozen=True)
class MeasuredRow:
    """One measured configuration.

    Attributes:
        id, source: of the row and of the publication or system it was measured on.
        measured_s: seconds per step; None where unknown.
        measured_range: shortest and longest step in seconds, where a source gives a range.
        unsupported: why model, cluster and plan are missing; empty if they are not.
        defect: what is known to be wrong with the row, in words; empty if nothing is.
        framework: training software, a name in `framework.FRAMEWORKS`; empty if unknown.
        open_plan: fields of the plan that nothing states, with the odds of what they may be; the plan holds the likeliest.
        assumed: what the row does not state and is taken for; empty for a row that states its job.
    """

    id: str
    source: str
    measured_s: float | None
    measured_range: tuple[float, float] | None = None
    model: Workload | None = None
    cluster: Cluster | None = None
    plan: ParallelPlan | None = None
    unsupported: str = ""
    defect: str = ""
    framework: str = ""
    open_plan: tuple[tuple[str, Odds], ...] = ()
    assumed: tuple[object, ...] = ()

    @property
    def job(self) -> tuple[Workload, Cluster, ParallelPlan]:
        """Model, cluster and plan of a supported row.

        Raises:
            DataError: the row is unsupported.
        """
        if self.model is None or self.cluster is None or self.plan is None:
            raise DataError(f"row {self.id} cannot be simulated: {self.unsupported}")
        return self.model, self.cluster, self.plan


@dataclass(frozen=True)
class RowResult:
    """One row's outcome; what follows `measured_s` is None or empty where the row is unsupported.

    Attributes:
        predicted_s: p50 of the predicted step, or the step without variability, seconds.
        error: predicted / measured - 1.
        low_s, high_s: bounds of the central 90 % of what would be measured, seconds.
        inside: whether the measured time lies between them.
        measured_range, in_range: where the source gives a range, and whether the prediction lies in it.
        group: the group that was left out when the calibration of this row was fitted; empty if none was.
        device, model, framework: names.
        n_devices: of the job.
        mfu: model-FLOP utilisation that was measured, 0-1.
        baseline_error: the same as `error` of a prediction from the other groups' typical utilisation alone.
        parts_s: seconds of the noise-free step by cause; see `validation.parts`.
        defect, unsupported: in words; empty if there is nothing to say.
        assumed: what the row does not state and was taken for, one text each.
        software: what it states of its kernels, field by field.
    """

    id: str
    source: str
    measured_s: float | None
    predicted_s: float | None = None
    error: float | None = None
    low_s: float | None = None
    high_s: float | None = None
    inside: bool | None = None
    measured_range: tuple[float, float] | None = None
    in_range: bool | None = None
    group: str = ""
    device: str = ""
    model: str = ""
    framework: str = ""
    n_devices: int | None = None
    mfu: float | None = None
    baseline_error: float | None = None
    parts_s: Mapping[str, float] = field(default_factory=dict)
    defect: str = ""
    unsupported: str = ""
    assumed: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)

    @property
    def dominant(self) -> str:
        """Part that takes longest; empty if nothing was predicted."""
        return max(self.parts_s, key=lambda name: self.parts_s[name], default="")

    @property
    def reason(self) -> str:
        """What there is to say about the error in a few words: a defect, why there is no prediction, else the largest part."""
        if self.unsupported or self.defect:
            return self.unsupported or self.defect
        whole = sum(self.parts_s.values())
        return f"{self.dominant} {self.parts_s[self.dominant] / whole:.0%}" if whole else ""
