"""What a trace or log holds, as lines of plain text."""

from __future__ import annotations

from ...types.trace import TraceInfoReport
from .shared import headline, notes, step_lines


def lines(report: TraceInfoReport) -> list[str]:
    """What a trace or log holds."""
    info = report.info
    lines = headline(info) + step_lines(info)
    if info.op_types is not None:
        lines += ["", "ops per replica and step, recorded seconds (waiting included)"]
        for name, facts in info.op_types.items():
            lines.append(
                f"  {name:<28} {facts.ops_per_step:>6,}   median {facts.median_s:.4g} s, longest {facts.max_s:.4g} s"
            )
    return lines + notes(info)
