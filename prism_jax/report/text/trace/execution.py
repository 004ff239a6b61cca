"""What execution traces hold, as lines of plain text."""

from __future__ import annotations

from .... import units
from ...table import Table
from ...types.captured.execution import ExecutionTraceReport, MatchedKernels


def lines(report: ExecutionTraceReport) -> list[str]:
    """What execution traces hold."""
    found = [
        f"{report.name}: execution traces of {report.n_traces:,} of {report.world:,} ranks, {report.n_classes:,} kinds of ranks",
        f"schema {', '.join(report.schemas)}; first rank: {report.n_nodes:,} nodes, {report.n_dependencies:,} data dependencies, "
        f"steps: {report.n_steps:,}",
        f"{units.format_count(report.parameters)} parameters, {report.samples:,} samples per rank and step",
        "",
        *_ops(report),
        *_collectives(report),
        *(line for one in report.kernels for line in _kernels(one)),
    ]
    return found + [f"note: {note}" for note in report.assumptions]


def _ops(report: ExecutionTraceReport) -> list[str]:
    rows = [
        (
            one.kind,
            one.phase,
            f"{one.n_ops:,}",
            units.format_count(one.flops) if one.flops else "",
            units.format_bytes(one.bytes),
            "" if one.measured_s is None else units.format_s(one.measured_s),
        )
        for one in report.ops
    ]
    return Table("last step of the first rank", ("op", "phase", "n", "FLOPs", "bytes", "measured"), rows).lines()


def _collectives(report: ExecutionTraceReport) -> list[str]:
    rows = [
        (one.collective, one.axis, one.phase, f"{one.ranks:,}", f"{one.n:,}", units.format_bytes(one.bytes))
        for one in report.collectives
    ]
    return Table("", ("collective", "group", "phase", "ranks", "n", "bytes"), rows).lines() if rows else []


def _kernels(one: MatchedKernels) -> list[str]:
    process = "" if one.same_process else " (of another process)"
    earlier = f", {units.format_s(one.earlier_s)} of it started before the profile" if one.earlier_s else ""
    where = one.device or "a GPU"
    found = [
        f"{one.profile}{process}: {one.matched:.2%} of kernel time matched; {units.format_s(one.kernel_s)} on {where}{earlier},"
        f" {units.format_s(one.communication_s)} communication"
    ]
    return found + [f"  not in the trace: {name}" for name in one.missing]
