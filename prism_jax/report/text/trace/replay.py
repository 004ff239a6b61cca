"""How well a trace's dependencies explain its steps, as lines of plain text."""

from __future__ import annotations

from ...types.trace import TraceReplayReport
from .shared import headline, notes, step_lines


def lines(report: TraceReplayReport) -> list[str]:
    """How well the dependencies explain the recorded steps."""
    info, replayed = report.info, report.replay
    return [
        *headline(info),
        *step_lines(info),
        "replay of the recorded durations, median absolute error of the step",
        f"  by the rules of the schedule           {replayed.median_abs_error:.3%}",
        f"  with waits inferred from the recording {replayed.with_observed_waits.median_abs_error:.3%}",
        f"  with host gaps as well                 {replayed.with_host_gaps.median_abs_error:.3%}",
        *notes(info),
    ]
