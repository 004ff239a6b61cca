"""Reports what scheduling policies make of the jobs of a cluster, and what a scheduler gains by knowing distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Note, Table, notes
from ..core.readable import counted, duration, percent
from ..core.report import INLINE, Report, RunRecord
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
    picture: ClassVar[str] = "prism_jax.queue.picture:draw_queue"

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

    def card(self) -> Card:
        best, own = self.best, self.rows[0].figures
        verdict = f"No policy has a clearly shorter mean completion time than FIFO (load {self.load:.2f})."
        if best is not None and best.over_fifo.p95 < 1.0:
            less = percent(1.0 - best.over_fifo.median)
            verdict = f"{_name(best)} shortens the mean completion time by {less} against FIFO."
        alone = f"{duration(own.jct_mean_s)} to completion; 1 in 20 jobs at least {duration(own.jct_p95_s)}"
        gpus = () if self.n_gpus_from == "stated" else (f"{self.n_gpus:,} GPUs ({self.n_gpus_from})",)
        return Card(
            f"{self.source}{self._group}: {self.n_jobs:,} jobs on {self.n_gpus:,} GPUs, load {self.load:.2f}",
            verdict,
            facts={
                "mean time": alone if best is None else f"{ratio(best.over_fifo)} of FIFO's",
                "distributions": _distribution(self.rows),
            },
            evidence=f"{self.n_jobs:,} jobs in {duration(self.span_s)}, {counted(self.n_seeds, 'draw')} of GPU speeds",
            assumptions=(*gpus, self._deadlines),
            next_step="--policy, --cv: other policies and spreads",
        )

    @property
    def best(self) -> QueueRow | None:
        """The row with the shortest mean completion time against FIFO; None where FIFO is all there is."""
        return min((row for row in self.rows if row.policy != FIFO), key=lambda row: row.over_fifo.median, default=None)

    @property
    def _group(self) -> str:
        return f", group {self.group}" if self.group else ""

    @property
    def _deadlines(self) -> str:
        if self.slack is None:
            return "deadlines of the trace"
        return f"deadlines drawn, mean slack {self.slack:g} x duration"

    def blocks(self) -> Sequence[Block]:
        setting = {
            "jobs": f"{self.n_jobs:,} in {duration(self.span_s)}",
            "GPUs": f"{self.n_gpus:,} ({self.n_gpus_from}), load {self.load:.2f}",
            "variability": f"GPUs vary like {self.variability}",
            "deadlines": self._deadlines,
            "restart": duration(self.restart_s),
            "estimates": "from 10% of the steps",
        }
        return (
            *(_table(self, cv) for cv in dict.fromkeys(row.cv for row in self.rows)),
            Facts("What knowing distributions is worth", _answer(self)),
            Facts("Setting", setting),
            *notes(self.notes),
            Note(f"seed {self.record.seed}; {duration(self.elapsed_s)}"),
        )


FIFO = "fifo"


def _name(row: QueueRow) -> str:
    return f"{row.policy} ({row.estimate} estimates)" if row.estimate else row.policy


def _distribution(rows: Sequence[QueueRow]) -> str:
    """Gain by estimates beyond a point, at the largest spread of GPUs."""
    told = [row for row in rows if row.over_point and row.estimate != "mean"]
    cv = max((row.cv for row in told), default=0.0)
    return _gain(_best([row for row in told if row.cv == cv])) if told else ""


def _best(rows: Sequence[QueueRow]) -> QueueRow:
    """The row with the largest gain over point estimates."""
    return min(rows, key=lambda row: row.over_point.median if row.over_point else 1.0)


COLUMNS: dict[str, Callable[[QueueRow], str]] = {
    "policy": lambda row: row.policy,
    "estimate": lambda row: row.estimate or "-",
    "JCT mean": lambda row: duration(row.figures.jct_mean_s),
    "p50": lambda row: duration(row.figures.jct_p50_s),
    "p95": lambda row: duration(row.figures.jct_p95_s),
    "p99": lambda row: duration(row.figures.jct_p99_s),
    "waiting": lambda row: duration(row.figures.waiting_mean_s),
    "makespan": lambda row: duration(row.figures.makespan_s),
    "on time": lambda row: f"{100 * row.figures.on_time_prob:.1f}%",
    "over FIFO": lambda row: ratio(row.over_fifo),
    "over point": lambda row: ratio(row.over_point) if row.over_point else "-",
}
ENOUGH = 0.005  # of a ratio: smaller differences are not called one


def _table(report: QueueReport, cv: float) -> Table:
    rows = [row for row in report.rows if row.cv == cv]
    return Table.of(f"GPUs that differ by a CV of {100 * cv:.3g}%", rows, COLUMNS)


def ratio(facts: Ratio) -> str:
    """Median and 90% interval."""
    return f"{facts.median:.3f} ({facts.p5:.3f} to {facts.p95:.3f})"


def _answer(report: QueueReport) -> dict[str, str]:
    """Gain by a distribution over a point estimate, and durations over none; two per spread."""
    found = {}
    for cv in dict.fromkeys(row.cv for row in report.rows):
        rows, name = [row for row in report.rows if row.cv == cv and row.over_point], f"CV {100 * cv:.3g}%"
        known = [row for row in rows if row.estimate == "mean"]
        told = [row for row in rows if row.estimate != "mean"]
        if known:
            best = min(known, key=lambda row: row.over_fifo.median)
            found[f"{name}, point estimates"] = f"mean JCT {ratio(best.over_fifo)} of FIFO's ({best.policy})"
        if told:
            found[f"{name}, distributions"] = _gain(_best(told))
    return found


def _gain(row: QueueRow) -> str:
    facts = row.over_point
    assert facts is not None
    verdict = ": no difference" if facts.p5 <= 1.0 <= facts.p95 or abs(facts.median - 1.0) < ENOUGH else ""
    return f"at best {ratio(facts)} of point estimates ({row.policy}, {row.estimate}){verdict}"
