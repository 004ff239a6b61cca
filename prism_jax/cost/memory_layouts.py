"""Layouts of training jobs that fitted or ran out of memory, compared with predictions of the memory model."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload
from .memory import MemoryBreakdown


@dataclass(frozen=True)
class MeasuredLayout:
    """One layout and its outcome."""

    id: str
    model: Workload
    plan: ParallelPlan
    cluster: Cluster
    fitted: bool
    peak_reserved_bytes: float | None  # by the caching allocator, without context and communicators


@dataclass(frozen=True)
class ClassifiedLayout:
    """A row with its prediction."""

    row: MeasuredLayout
    predicted: MemoryBreakdown

    @property
    def correct(self) -> bool:
        """Whether prediction and measurement agree on fits or out of memory."""
        return self.predicted.fits == self.row.fitted

    @property
    def reserved_error(self) -> float | None:
        """Relative error of the allocator's peak, over the stage the model finds worst."""
        if self.row.peak_reserved_bytes is None:
            return None
        return self.predicted.worst.allocator_bytes / self.row.peak_reserved_bytes - 1.0


@dataclass(frozen=True)
class Confusion:
    """Counts of (fitted or not) x (predicted to fit or not)."""

    fits_fits: int = 0
    fits_oom: int = 0
    oom_fits: int = 0
    oom_oom: int = 0

    @classmethod
    def of(cls, rows: Iterable[ClassifiedLayout]) -> Confusion:
        """The counts of classified rows."""
        counts = {(fitted, fits): 0 for fitted in (True, False) for fits in (True, False)}
        for item in rows:
            counts[item.row.fitted, item.predicted.fits] += 1
        return cls(counts[True, True], counts[True, False], counts[False, True], counts[False, False])

    @property
    def n(self) -> int:
        """Number of layouts."""
        return self.fits_fits + self.fits_oom + self.oom_fits + self.oom_oom

    @property
    def accuracy(self) -> float:
        """Share of rows classified right, 0 to 1."""
        return (self.fits_fits + self.oom_oom) / self.n

    @property
    def majority_accuracy(self) -> float:
        """Accuracy of always predicting the more frequent outcome, 0 to 1."""
        fitted = self.fits_fits + self.fits_oom
        return max(fitted, self.n - fitted) / self.n


@dataclass(frozen=True)
class MemorySummary:
    """All classified rows, overall and by model."""

    rows: tuple[ClassifiedLayout, ...]

    @property
    def overall(self) -> Confusion:
        """The counts of all rows."""
        return Confusion.of(self.rows)

    def by_model(self) -> dict[str, Confusion]:
        """The counts by name of the model."""
        names = sorted({item.row.model.name for item in self.rows})
        return {name: self.of_model(name).overall for name in names}

    def of_model(self, name: str) -> MemorySummary:
        """The rows of one model."""
        return MemorySummary(tuple(item for item in self.rows if item.row.model.name == name))

    def reserved_errors(self) -> list[float]:
        """Relative errors of the peak reserved memory over the rows that report it."""
        return [item.reserved_error for item in self.rows if item.reserved_error is not None]
