"""StepsValidationReport and MemoryValidationReport: predictions against measurements."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...validation.score import Errors, Validation
from ..codec import INLINE
from ..report import Report
from .record import RunRecord


@dataclass(frozen=True)
class StepsValidationReport(Validation, Report):
    """Predicted against measured step times."""

    kind: ClassVar[str] = "steps-validation"
    picture: ClassVar[str] = "prism_jax.plot.accuracy:draw"

    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ..text.steps_validation import lines

        return lines(self)


@dataclass(frozen=True)
class MemoryOutcomes:
    """Counts of what happened and what was predicted.

    Attributes:
        majority_accuracy: what the commoner outcome alone gets right.
        peak_bytes: errors of the allocator's peak over the rows that ran and report it.
    """

    n: int
    accuracy: float
    majority_accuracy: float
    fits_called_fits: int
    fits_called_oom: int
    oom_called_fits: int
    oom_called_oom: int
    peak_bytes: Errors


@dataclass(frozen=True)
class MemoryValidationReport(Report):
    """Which layouts are called right, fits or out of memory, and the error of the peak."""

    kind: ClassVar[str] = "memory-validation"

    overall: MemoryOutcomes
    by_model: Mapping[str, MemoryOutcomes]
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        from ..text.memory_validation import lines

        return lines(self)
