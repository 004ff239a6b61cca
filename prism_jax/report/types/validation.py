"""StepsValidationReport and MemoryValidationReport: predictions against measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from ..codec import INLINE
from ..report import Report
from .record import RunRecord


@dataclass(frozen=True)
class ScoreFacts:
    """Errors of a group of rows: relative, absolute where the name says ape. None where there is no row.

    Attributes:
        n: rows that the other figures are over.
        n_unsupported: rows without a prediction.
        n_defect: rows with a prediction and a known defect.
        coverage_90: share of rows whose measured time lies in its 90 % interval.
    """

    n: int
    n_unsupported: int
    n_defect: int
    median_ape: float | None
    mape: float | None
    bias: float | None
    p90_ape: float | None
    coverage_90: float | None


@dataclass(frozen=True)
class SourcesFacts:
    """How sources fare, each counting once; None where there is no source.

    Attributes:
        n: sources with a row to score.
        mean_median_ape: mean over sources of the median absolute error of their rows.
        mean_coverage_90: mean over sources of the share of rows inside their interval.
        n_large, n_large_low: sources of 8 rows or more, and those of them with less than 60 % inside.
    """

    n: int
    mean_median_ape: float | None
    mean_coverage_90: float | None
    n_large: int
    n_large_low: int


@dataclass(frozen=True)
class RowFacts:
    """One row's outcome; what follows `measured_s` is None or empty where the row is unsupported.

    Attributes:
        predicted_s: p50 of the predicted step, or the step without variability.
        error: predicted / measured - 1.
        low_s, high_s: bounds of the central 90 % of what would be measured.
        inside: whether the measured time lies between them.
        measured_range, in_range: seconds, where the source gives a range, and whether the prediction lies in it.
        group: the group that was left out when the calibration of this row was fitted.
        mfu: model-FLOP utilisation that was measured, 0-1.
        baseline_error: of a prediction from the other groups' typical utilisation alone.
        parts_s: seconds of the noise-free step by cause.
        defect, unsupported, reason: in words; empty if there is nothing to say.
        assumed: what the row does not state and was taken for, one text each.
        software: what it states of its kernels, field by field.
    """

    id: str
    source: str
    measured_s: float | None
    predicted_s: float | None
    error: float | None
    low_s: float | None
    high_s: float | None
    inside: bool | None
    measured_range: tuple[float, float] | None
    in_range: bool | None
    group: str
    device: str
    model: str
    framework: str
    n_devices: int | None
    mfu: float | None
    baseline_error: float | None
    parts_s: Mapping[str, float]
    defect: str
    unsupported: str
    assumed: tuple[str, ...] = ()
    software: Mapping[str, str] = field(default_factory=dict)

    @property
    def reason(self) -> str:
        """What there is to say about the error in a few words: a defect, why there is no prediction, else the largest part."""
        if self.unsupported or self.defect:
            return self.unsupported or self.defect
        whole_s = sum(self.parts_s.values())
        largest = max(self.parts_s, key=lambda name: self.parts_s[name], default="")
        return f"{largest} {self.parts_s[largest] / whole_s:.0%}" if whole_s else ""


@dataclass(frozen=True)
class StepsValidationReport(Report):
    """Predicted against measured step times.

    Attributes:
        overall, by_source, by_model, sources: over rows without a known defect; rows without a prediction have no model.
        overall_with_defects: over all rows that have a prediction.
        overall_baseline: what the other groups' typical utilisation says; None where no group was left out.
        rows: in the order of the table.
    """

    kind: ClassVar[str] = "steps-validation"
    picture: ClassVar[str] = "prism_jax.plot.accuracy:draw"

    overall: ScoreFacts
    overall_with_defects: ScoreFacts
    overall_baseline: ScoreFacts | None
    by_source: Mapping[str, ScoreFacts]
    by_model: Mapping[str, ScoreFacts]
    sources: SourcesFacts
    rows: tuple[RowFacts, ...]
    record: Annotated[RunRecord, INLINE]


@dataclass(frozen=True)
class PeakErrors:
    """Relative errors of the allocator's peak over the rows that ran and report it; None where none does."""

    n: int
    median_ape: float | None
    mape: float | None
    bias: float | None
    p90_ape: float | None


@dataclass(frozen=True)
class OutcomeFacts:
    """Counts of what happened and what was predicted; `majority_accuracy`: what the commoner outcome alone gets right."""

    n: int
    accuracy: float
    majority_accuracy: float
    fits_called_fits: int
    fits_called_oom: int
    oom_called_fits: int
    oom_called_oom: int
    peak_bytes: PeakErrors


@dataclass(frozen=True)
class MemoryValidationReport(Report):
    """Which layouts are called right, fits or out of memory, and the error of the peak."""

    kind: ClassVar[str] = "memory-validation"

    overall: OutcomeFacts
    by_model: Mapping[str, OutcomeFacts]
    record: Annotated[RunRecord, INLINE]
