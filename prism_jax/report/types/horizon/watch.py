"""WatchReport: slow phases of a log, and whether to act."""

from __future__ import annotations

from collections.abc import Mapping
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
class TimeLeftFacts:
    """Seconds of the steps to come; interruptions and evaluations are not in it.

    Attributes:
        n_steps: steps to come.
        p5_s, p50_s, p95_s: quantiles.
        variance_shares: what the interval is made of: drift (of a run's level), steps (their scatter), stalls, change (between
            the halves of the log); sums to one.
        independent_p5_s, independent_p95_s: if steps were independent draws, which is too narrow.
        law: where the drift is from.
    """

    n_steps: int
    p5_s: float
    p50_s: float
    p95_s: float
    variance_shares: Mapping[str, float]
    independent_p5_s: float
    independent_p95_s: float
    law: str


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
    time_left: Annotated[TimeLeftFacts | None, WHERE_KNOWN] = None
