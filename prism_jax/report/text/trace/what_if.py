"""Who slowed a recorded job down, as lines of plain text."""

from __future__ import annotations

from collections.abc import Mapping

from ....recorded.score import Quantiles
from ...quantity import bar
from ...types.trace_prediction import WhatIfReport
from .shared import BAR_WIDTH, FAR, SMALLEST_SHARE, headline, notes, warnings

MOST = 8  # lines of a ranking


def lines(report: WhatIfReport) -> list[str]:
    """Who slowed the job down, and what a change would bring."""
    lines = [
        *headline(report.info),
        f"slowdown S = {report.slowdown:.5f}: without host gaps the mean step takes {report.recorded_s:.4g} s, "
        f"without stragglers {report.ideal_s:.4g} s",
        *_replayed(report),
        _blame(report),
        "",
        *_ranking("slowdown by op type", report.by_op_type, ""),
        *_ranking("slowdown by stage", report.by_stage, "stage "),
        *_ranking("slowdown by rank", report.by_rank, "rank "),
        "",
        "critical path of the recorded steps",
    ]
    shares = [(n, v) for n, v in report.criticality.by_op_type.items() if v >= SMALLEST_SHARE][:MOST]
    lines += [f"  {value:>6.1%}  {bar(value, BAR_WIDTH)} {name}" for name, value in shares]
    return lines + ["", *_changes(report.changes), *warnings(report.doubts), *notes(report.info)]


def _replayed(report: WhatIfReport) -> list[str]:
    """A warning where replay by the rules is far from what was recorded."""
    mean_s, job = report.info.step_s.mean, report.info.job
    if job is None or abs(report.recorded_s / mean_s - 1.0) < FAR:
        return []
    n_absent = job.shape.dp * job.shape.pp - job.n_recorded_workers
    why = "the rules of the schedule explain these steps poorly (`trace replay`)"
    if n_absent > 0:
        why = f"it includes the wait for {n_absent:,} workers that were not recorded"
    return [f"  the recorded mean is {mean_s:.4g} s: {why}, so treat these figures with care"]


def _blame(report: WhatIfReport) -> str:
    if report.worst_workers_share is None or report.last_stage_share is None:
        return "  nothing is lost to stragglers"
    ranks = report.worst_ranks
    named = ", ".join(map(str, ranks[:MOST])) + (", ..." if len(ranks) > MOST else "")
    who = f"worker (rank {named}) accounts" if len(ranks) == 1 else f"{len(ranks):,} workers (ranks {named}) account"
    return f"  the worst {who} for {report.worst_workers_share:.1%} of the loss, the last stage for {report.last_stage_share:.1%}"


def _ranking(title: str, values: Mapping[str, float], prefix: str) -> list[str]:
    shown = list(values.items())[:MOST]
    more = f", {len(values) - len(shown)} more" if len(values) > len(shown) else ""
    return [
        title,
        *(f"  {value:.4f}  {prefix}{name}" for name, value in shown),
        *([f"  ...{more[1:]}"] if more else []),
    ]


def _changes(changes: Mapping[str, Quantiles]) -> list[str]:
    (now, base), *others = changes.items()
    lines = [f"unrecorded steps {now}: p50 {base.p50:.4g} s, p95 {base.p95:.4g} s, p99 {base.p99:.4g} s"]
    for what, times in others:
        pairs = [(name, getattr(times, name), getattr(base, name)) for name in ("p50", "p95", "p99")]
        parts = ", ".join(f"{name} {time_s:.4g} s ({time_s / base_s - 1:+.1%})" for name, time_s, base_s in pairs)
        lines.append(f"  {what}: {parts}")
    return lines
