"""Reports recorded steps run again as calls of the host, work on two streams, and meetings of all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.report import INLINE, Report, RunRecord
from ..core.units import format_s


@dataclass(frozen=True)
class RankSteps:
    """One rank; seconds.

    Attributes:
        step_s, traversed_s: the recorded step until its work is done, and the same by traversal; means over the steps.
        error: of the latter, relative.
        waited_s: in collectives, for the rank that comes last.
        device_work_s: all work on the device, without waiting, as if nothing overlapped.
        naive_sum_s: host and device one after another.
    """

    name: str
    step_s: float
    traversed_s: float
    error: float
    waited_s: float
    device_work_s: float
    naive_sum_s: float


@dataclass(frozen=True)
class HostOverhead:
    """One kind of overhead over all operators.

    Attributes:
        mean_s: without outliers.
        n: values.
        share: of the host's time in the step.
    """

    about: str
    mean_s: float
    n: int
    share: float


@dataclass(frozen=True)
class HostReport(Report):
    """Ranks in the order of the files.

    Attributes:
        n_step: recorded steps, which are run again one after another.
        device_alone_s: the step if hosts took no time and all ranks started together.
        host_alone_s: the step if devices took no time, from the start of the first rank.
        host_bound: whether the latter is longer.
        overheads: T1 to T5.
    """

    kind: ClassVar[str] = "host"

    n_step: int
    ranks: tuple[RankSteps, ...]
    device_alone_s: float
    host_alone_s: float
    host_bound: bool
    overheads: Mapping[str, HostOverhead]
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]

    def lines(self) -> list[str]:
        width = max(len(_HEAD[0]), *(len(one.name) for one in self.ranks))
        lines = [
            "milliseconds of the step of every rank" + (f", mean of {self.n_step}" if self.n_step > 1 else ""),
            f"  {_HEAD[0]:<{width}}" + "".join(f"{name:>13}" for name in _HEAD[1:]),
        ]
        for one in self.ranks:
            values = (one.step_s, one.traversed_s, one.waited_s, one.device_work_s, one.naive_sum_s)
            step, traversed, *others = (f"{1e3 * value:>13.3f}" for value in values)
            lines.append(f"  {one.name:<{width}}{step}{traversed}{one.error:>+13.2%}" + "".join(others))
        lines += ["", "host overheads (mean without outliers; share of the host's time)"]
        for name, one in self.overheads.items():
            lines.append(f"  {name}  {1e6 * one.mean_s:>9.1f} us  {one.n:>7,} times  {one.share:>6.1%}   {one.about}")
        lines += ["", _verdict(self)]
        return lines + [f"note: {note}" for note in self.notes]


_HEAD = ("rank", "step", "traversed", "error", "waiting", "device work", "naive sum")


def _verdict(report: HostReport) -> str:
    alone = f"alone the host takes {format_s(report.host_alone_s, 3)}, the device {format_s(report.device_alone_s, 3)}"
    if report.host_bound:
        return f"The host decides: {alone}. CUDA graphs, larger batches or fewer, fused operators help, not a faster device."
    return f"The device decides: {alone}."
