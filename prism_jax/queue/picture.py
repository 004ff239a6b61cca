"""Policies of a queue as a picture: mean and p95 completion times, and each mean over that of first in, first out."""

from __future__ import annotations

from matplotlib.figure import Figure

from ..core.picture import GREY, INDIGO, PURPLE, ROSE, TEAL, hours_or_days, new_figure, style
from .report import QueueReport

COLOURS = (INDIGO, ROSE, TEAL, PURPLE)  # of spreads, in turn
MOST_ROWS = 30  # policies with their estimates


def draw_queue(report: QueueReport) -> Figure:
    """One row per policy and estimate, the best on top; one colour per spread of GPU speeds."""
    cvs = list(dict.fromkeys(row.cv for row in report.rows))[: len(COLOURS)]
    known: dict[str, float] = {}
    for row in report.rows:
        known.setdefault(_name(row.policy, row.estimate), row.over_fifo.median)
    names = sorted(known, key=lambda name: known[name])[:MOST_ROWS][::-1]
    unit, unit_s = hours_or_days(max((row.figures.jct_p95_s for row in report.rows), default=0.0))
    with style():
        card = report.card()
        figure = new_figure((12.0, 2.2 + 0.26 * len(names)), f"{card.title}\n{card.verdict}")
        left, right = figure.subplots(1, 2, sharey=True)
        for cv, colour in zip(cvs, COLOURS, strict=False):
            rows = {_name(row.policy, row.estimate): row for row in report.rows if row.cv == cv}
            for at, name in enumerate(names):
                if (row := rows.get(name)) is None:
                    continue
                label = f"GPUs differ by {100 * cv:.3g}%" if at == 0 else None
                place = at + 0.16 * (cvs.index(cv) - 0.5 * (len(cvs) - 1))
                mean, p95 = row.figures.jct_mean_s / unit_s, row.figures.jct_p95_s / unit_s
                left.plot([mean, p95], [place] * 2, color=colour, linewidth=1.4)
                left.plot(mean, place, "o", color=colour, markersize=4, label=label)
                right.plot([row.over_fifo.p5, row.over_fifo.p95], [place] * 2, color=colour, linewidth=1.4)
                right.plot(row.over_fifo.median, place, "o", color=colour, markersize=4)
        left.set_yticks(range(len(names)), names)
        left.set_xlabel(f"completion time: mean (dot) to p95, {unit}")
        left.set_xlim(left=0.0)
        figure.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=4)
        right.axvline(1.0, color=GREY, linewidth=1.0)
        right.set_xlabel("mean completion time over that of FIFO, 90% interval")
    return figure


def _name(policy: str, estimate: str) -> str:
    return f"{policy}, {estimate}" if estimate else policy
