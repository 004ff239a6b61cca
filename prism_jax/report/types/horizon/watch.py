"""WatchReport: slow phases of a log, and whether to act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ....horizon.remaining.time_left import TimeLeft
from ....horizon.slow_phases.phases import SlowPhase
from ...codec import INLINE, WHERE_KNOWN
from ...report import Report
from ..record import RunRecord
from ..trace import TraceFacts


@dataclass(frozen=True)
class WatchReport(Report):
    """Slow phases of a log: onset, size, rank, and whether to act.

    Attributes:
        restart_cost_s: seconds that a restart takes.
        smallest: smallest change that is looked for, a share of the step.
        normal_s: seconds of a step outside slow phases, at the end of the log.
        spread: robust standard deviation of ordinary steps, a share.
        ar1: correlation of successive ordinary steps.
        phases: in the order of the log.
        faster_steps: steps from which on the job was faster than all before.
        settled_steps: steps after a restart, an evaluation or a checkpoint that were off; they raise no alarm.
        time_left: absent if no remaining steps were asked for.
    """

    kind: ClassVar[str] = "watch"
    picture: ClassVar[str] = "prism_jax.plot.trace.slow_phases:draw"

    info: Annotated[TraceFacts, INLINE]
    restart_cost_s: float
    smallest: float
    normal_s: float
    spread: float
    ar1: float
    phases: tuple[SlowPhase, ...]
    faster_steps: tuple[int, ...]
    settled_steps: tuple[int, ...]
    record: Annotated[RunRecord, INLINE]
    time_left: Annotated[TimeLeft | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        from ...text.horizon.watch import lines

        return lines(self)
