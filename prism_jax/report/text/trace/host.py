"""Recorded steps as calls of the host and work on two streams, as lines of plain text."""

from __future__ import annotations

from ....units import format_s
from ...types.host import HostReport

_HEAD = ("rank", "step", "traversed", "error", "waiting", "device work", "naive sum")


def lines(report: HostReport) -> list[str]:
    """A row for each rank, T1 to T5, and what decides."""
    width = max(len(_HEAD[0]), *(len(one.name) for one in report.ranks))
    lines = [
        "milliseconds of the step of every rank" + (f", mean of {report.n_step}" if report.n_step > 1 else ""),
        f"  {_HEAD[0]:<{width}}" + "".join(f"{name:>13}" for name in _HEAD[1:]),
    ]
    for one in report.ranks:
        values = (one.step_s, one.traversed_s, one.waited_s, one.device_work_s, one.naive_sum_s)
        step, traversed, *others = (f"{1e3 * value:>13.3f}" for value in values)
        lines.append(f"  {one.name:<{width}}{step}{traversed}{one.error:>+13.2%}" + "".join(others))
    lines += ["", "host overheads (mean without outliers; share of the host's time)"]
    for name, one in report.overheads.items():
        lines.append(f"  {name}  {1e6 * one.mean_s:>9.1f} us  {one.n:>7,} times  {one.share:>6.1%}   {one.about}")
    lines += ["", _verdict(report)]
    return lines + [f"note: {note}" for note in report.notes]


def _verdict(report: HostReport) -> str:
    alone = f"alone the host takes {format_s(report.host_alone_s, 3)}, the device {format_s(report.device_alone_s, 3)}"
    if report.host_bound:
        return f"The host decides: {alone}. CUDA graphs, larger batches or fewer, fused operators help, not a faster device."
    return f"The device decides: {alone}."
