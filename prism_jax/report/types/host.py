"""HostReport: recorded steps run again as calls of the host, work on two streams, and meetings of all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..codec import INLINE
from ..report import Report
from .record import RunRecord


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
        from ..text.trace.host import lines

        return lines(self)
