"""Reports which GPUs detectors call slow: factor, interval, and whether for good or in turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Table, Tone, notes
from ..core.report import INLINE, Report, RunRecord
from .slow_gpus import GpuSlowdown

MOST_ROWS = 50
PATTERNS = {
    "usual": "as usual",
    "persistent": "slow for good",
    "rotating": "slow in turn",
    "once": "slow in the only report",
}


@dataclass(frozen=True)
class SlowdownsReport(Report):
    """Slowdowns of GPUs or nodes that detectors have measured.

    Attributes:
        files: that were read.
        detectors: that wrote them, in the same order; a log may hold reports of several.
        gpus: slowest first.
        n_reports: reports in the files (logging intervals, scrapes, runs).
        is_partial: whether reports list extremes alone, so that other GPUs count as usual.
        written: the table of slowdowns; null where none was written.
    """

    kind: ClassVar[str] = "slowdowns"

    files: tuple[str, ...]
    detectors: tuple[str, ...]
    gpus: tuple[GpuSlowdown, ...]
    n_reports: int
    is_partial: bool
    written: str | None
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    @property
    def slow(self) -> tuple[GpuSlowdown, ...]:
        """GPUs that are slow for good or in the only report, slowest first."""
        return tuple(gpu for gpu in self.gpus if gpu.pattern in ("persistent", "once"))

    @property
    def rotating(self) -> tuple[GpuSlowdown, ...]:
        """GPUs that are slow in fewer than half of the reports."""
        return tuple(gpu for gpu in self.gpus if gpu.pattern == "rotating")

    def card(self) -> Card:
        verdict, tone = self._verdict
        facts = {gpu.name: _factor(gpu) for gpu in self.slow[:3]} or {
            "slowest": f"{self.gpus[0].name}: {_factor(self.gpus[0])}"
        }
        if self.rotating:
            facts["slow in turn"] = f"{len(self.rotating):,} of {len(self.gpus):,}"
        named = ", ".join(dict.fromkeys(self.detectors))
        n_readings = sum(gpu.n_readings for gpu in self.gpus)
        usual = "GPUs that are not listed are as usual" if self.is_partial else "the median GPU is as usual"
        table = self.written or "gpus.csv"
        what = f"prism-jax predict JOB --slowdowns {table}" if self.slow else "nothing to replace"
        return Card(
            title=", ".join(self.files[:2]) + (", ..." if len(self.files) > 2 else ""),
            verdict=verdict,
            tone=tone,
            facts=facts,
            evidence=f"{self.n_reports:,} report{'s' * (self.n_reports > 1)} of {named}, {n_readings:,} readings",
            assumptions=(usual,),
            next_step=what,
        )

    @property
    def _verdict(self) -> tuple[str, Tone]:
        listed = f"{len(self.gpus):,} {'listed GPUs' if self.is_partial else 'GPUs or nodes'}"
        if self.slow:
            worst = self.slow[0]
            verb = "is" if len(self.slow) == 1 else "are"
            return f"{len(self.slow):,} of {listed} {verb} slow, {worst.name} by {worst.factor - 1.0:.1%}.", "bad"
        if self.rotating:
            return f"No GPU is slow for good: {len(self.rotating):,} of {listed} are slow in turn.", "unsure"
        return f"None of {listed} is slow.", "good"

    def blocks(self) -> Sequence[Block]:
        shown = [gpu for gpu in self.gpus if gpu.pattern != "usual"] or list(self.gpus[:5])
        rows = [
            (
                gpu.name,
                f"{gpu.factor:.3f}",
                f"{gpu.low:.3f} to {gpu.high:.3f}",
                f"{gpu.slow_share:.0%}",
                f"{gpu.slow_factor:.3f}",
                f"{gpu.n_readings:,}",
                PATTERNS[gpu.pattern],
            )
            for gpu in shown[:MOST_ROWS]
        ]
        cut = f"; {len(shown) - MOST_ROWS:,} more in the JSON" if len(shown) > MOST_ROWS else ""
        columns = ("GPU", "factor", "95%", "slow in", "then", "readings", "pattern")
        return (Table(f"Slow GPUs{cut}", columns, rows), *notes(self.notes))


def _factor(gpu: GpuSlowdown) -> str:
    return f"{gpu.factor:.3f} (95%: {gpu.low:.3f} to {gpu.high:.3f}), {PATTERNS[gpu.pattern]}"
