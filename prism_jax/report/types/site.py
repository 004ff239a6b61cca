"""SiteReport and SuggestionReport: the cost model calibrated by measured runs of one's own cluster, and which runs to measure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...result.interval import MedianInterval
from ..codec import INLINE, WHERE_KNOWN, Json
from ..report import Report
from .record import RunRecord


@dataclass(frozen=True)
class SiteRun:
    """One measured run, predicted before, after, and with itself left out; errors relative to the measured time."""

    id: str
    measured_s: float
    before_s: float
    after_s: float
    error_before: float
    error_after: float
    error_left_out: float


@dataclass(frozen=True)
class ErrorFacts:
    """Relative errors over the runs; absolute where the name says ape."""

    median_ape: float
    mape: float
    bias: float
    largest: float


@dataclass(frozen=True)
class ErrorsByStage:
    """Errors before and after the calibration, and with each run left out."""

    before: ErrorFacts
    after: ErrorFacts
    leave_one_out: ErrorFacts


@dataclass(frozen=True)
class CurvePoint:
    """Median error on runs that were not seen, over `n_choice` choices of the `n_run` that were."""

    n_run: int
    n_choice: int
    median_ape: float


@dataclass(frozen=True)
class CorrectionFacts:
    """A correction in its own unit, with its 90 % interval; `shift` in standard deviations of what was known before."""

    before: float
    after: float
    p5: float
    p95: float
    shift: float


@dataclass(frozen=True)
class Interval90:
    """90 % interval."""

    p5: float
    p95: float


@dataclass(frozen=True)
class BandByStage:
    """90 % interval of measured over predicted, minus one, before and after the calibration."""

    before: Interval90
    after: Interval90


@dataclass(frozen=True)
class SiteReport(Report):
    """The shipped calibration updated by measured runs, and how the error falls with each.

    Attributes:
        dropped: run -> why it is not used.
        curve: from none of the runs to all but one.
        corrections: knob -> what became of it.
        site_factor: of everything alike.
        record: kept with the calibration.
        notes: what people should know of the logs that runs are from; absent where there are none.
    """

    kind: ClassVar[str] = "site-calibration"

    generation: str
    framework: str
    device: str
    n_run: int
    dropped: Mapping[str, str]
    runs: tuple[SiteRun, ...]
    error: ErrorsByStage
    curve: tuple[CurvePoint, ...]
    corrections: Mapping[str, CorrectionFacts]
    site_factor: MedianInterval
    band: BandByStage
    elapsed_s: float
    record: Mapping[str, Json]
    notes: Annotated[tuple[str, ...] | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        from ..text.site_calibration import lines

        return lines(self)


@dataclass(frozen=True)
class SuggestedJob:
    """A job to measure.

    Attributes:
        noise_free_s: predicted seconds of its step, without variability.
        parts: knob -> share of the step's time that hangs on it.
        stands_for: jobs of the table that are nearer to it than to any other suggested one, itself included.
    """

    id: str
    noise_free_s: float
    parts: Mapping[str, float]
    stands_for: int


@dataclass(frozen=True)
class SuggestionReport(Report):
    """Which jobs of a table to measure first."""

    kind: ClassVar[str] = "suggestion"

    suggested: tuple[SuggestedJob, ...]
    n_job: int
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ..text.suggestion import lines

        return lines(self)
