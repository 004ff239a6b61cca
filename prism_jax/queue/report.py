"""Reports what scheduling policies make of the jobs of a cluster, and what a scheduler gains by knowing distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Table
from ..core.page_text import block_lines
from ..core.report import INLINE, Report, RunRecord
from ..core.text_table import duration
from .compare import QueueRow, Ratio


@dataclass(frozen=True)
class QueueReport(Report):
    """A trace of jobs under several policies.

    Attributes:
        source, group: file, and the group of its jobs; empty for all.
        n_gpus, n_gpus_from: of the cluster, and where that number comes from.
        load: GPU-seconds submitted over those that the cluster has from the first submission to the last.
        span_s: from the first submission to the last.
        variability: whose shape the spread between GPUs has.
        slack: mean time to a deadline beyond the duration, over the duration; None where the trace has deadlines.
        restart_s: time lost when an interrupted job comes back.
        n_seeds: worlds that were drawn.
        rows: by CV, policy and estimate.
    """

    kind: ClassVar[str] = "queue"

    source: str
    group: str
    n_jobs: int
    n_gpus: int
    n_gpus_from: str
    load: float
    span_s: float
    variability: str
    slack: float | None
    restart_s: float
    n_seeds: int
    rows: tuple[QueueRow, ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        of_group = f", group {self.group}" if self.group else ""
        deadlines = (
            "deadlines of the trace" if self.slack is None else f"deadlines drawn, mean slack {self.slack:g} x duration"
        )
        head = [
            f"{self.source}{of_group}: {self.n_jobs:,} jobs in {duration(self.span_s)} on {self.n_gpus:,} GPUs "
            f"({self.n_gpus_from}), load {self.load:.2f}",
            f"GPUs vary like {self.variability}; {deadlines}; restart {duration(self.restart_s)}; estimates from 10% of the "
            f"steps; {self.n_seeds} seeds",
        ]
        tables = [line for cv in dict.fromkeys(row.cv for row in self.rows) for line in _table(self, cv)]
        notes = [f"note: {note}" for note in self.notes]
        return [*head, "", *tables, *_answer(self), "", *notes, f"seed {self.record.seed}; {self.elapsed_s:.1f} s"]


COLUMNS = (
    "policy",
    "estimate",
    "JCT mean",
    "p50",
    "p95",
    "p99",
    "waiting",
    "makespan",
    "on time",
    "over FIFO",
    "over point",
)
ENOUGH = 0.005  # of a ratio: smaller differences are not called one


def _table(report: QueueReport, cv: float) -> list[str]:
    rows = [_cells(row) for row in report.rows if row.cv == cv]
    return block_lines(Table(f"GPUs that differ by a CV of {100 * cv:.3g}%", COLUMNS, rows))


def _cells(row: QueueRow) -> tuple[str, ...]:
    times = (row.figures.jct_mean_s, row.figures.jct_p50_s, row.figures.jct_p95_s, row.figures.jct_p99_s)
    rest = (row.figures.waiting_mean_s, row.figures.makespan_s)
    return (
        row.policy,
        row.estimate or "-",
        *map(duration, (*times, *rest)),
        f"{100 * row.figures.on_time_prob:.1f}%",
        ratio(row.over_fifo),
        ratio(row.over_point) if row.over_point else "-",
    )


def ratio(facts: Ratio) -> str:
    """Median and 90 % interval."""
    return f"{facts.median:.3f} ({facts.p5:.3f} to {facts.p95:.3f})"


def _answer(report: QueueReport) -> list[str]:
    """What a distribution is worth over a point estimate, and durations over none; two lines per spread."""
    found = []
    for cv in dict.fromkeys(row.cv for row in report.rows):
        rows = [row for row in report.rows if row.cv == cv and row.over_point]
        known = [row for row in rows if row.estimate == "mean"]
        told = [row for row in rows if row.estimate != "mean"]
        if known:
            best = min(known, key=lambda row: row.over_fifo.median)
            found.append(
                f"CV {100 * cv:.3g}%: with point estimates, mean JCT {ratio(best.over_fifo)} of FIFO's ({best.policy})"
            )
        if told:
            best = min(told, key=lambda row: row.over_point.median if row.over_point else 1.0)
            found.append(f"CV {100 * cv:.3g}%: with the distribution, {_gain(best)}")
    return found


def _gain(row: QueueRow) -> str:
    facts = row.over_point
    assert facts is not None
    verdict = ", which is no difference" if facts.p5 <= 1.0 <= facts.p95 or abs(facts.median - 1.0) < ENOUGH else ""
    return f"at best {ratio(facts)} of the same policy with point estimates ({row.policy}, {row.estimate}){verdict}"
