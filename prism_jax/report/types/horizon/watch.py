"""WatchReport: slow phases of a log, and whether to act."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from ...codec import INLINE, WHERE_KNOWN
from ...report import Report
from ..record import RunRecord
from ..trace import TraceFacts


@dataclass(frozen=True)
class SlowRankFacts:
    """The worker whose own work grew most.

    Attributes:
        rank: global rank.
        size: growth of its compute, a share.
        others_size: median growth of the other workers.
    """

    rank: int
    size: float
    others_size: float


@dataclass(frozen=True)
class SlowPhaseFacts:
    """Steps that lasted longer than those before.

    Attributes:
        onset_step: first slow step.
        told_step: step at which the phase was certain.
        end_step: first step that is as before; None while the phase lasts.
        size: by how much its steps are longer, a share.
        normal_s, slow_s: median seconds of a step before and in the phase.
        lost_s: seconds that the phase has cost.
        prob: probability of a change when it was told.
        verdict: act, wait or over.
        act_step: step at which the loss reached the cost of a restart; None if it did not.
        wait_steps: further steps until it will, as slow as now; None if it did, or the phase is over.
        slow_rank: absent if the log has no ranks.
    """

    onset_step: int
    told_step: int
    end_step: int | None
    size: float
    normal_s: float
    slow_s: float
    lost_s: float
    prob: float
    verdict: str
    act_step: int | None
    wait_steps: int | None
    slow_rank: Annotated[SlowRankFacts | None, WHERE_KNOWN] = None


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
    """

    kind: ClassVar[str] = "watch"
    renderer: ClassVar[str] = "horizon.watch"

    info: Annotated[TraceFacts, INLINE]
    restart_cost_s: float
    smallest: float
    normal_s: float
    spread: float
    ar1: float
    phases: tuple[SlowPhaseFacts, ...]
    faster_steps: tuple[int, ...]
    settled_steps: tuple[int, ...]
    record: Annotated[RunRecord, INLINE]
