"""Reports the slow phases of a log, and whether to act."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
from ..core.text_table import duration
from ..core.units import format_s
from ..recorded.report import TraceFacts, counted, headline, notes, step_lines
from .phases import DetectedPhase
from .remaining import TimeLeft


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
    picture: ClassVar[str] = "prism_jax.watch.picture:draw_slow_phases"

    info: Annotated[TraceFacts, INLINE]
    restart_cost_s: float
    smallest: float
    normal_s: float
    spread: float
    ar1: float
    phases: tuple[DetectedPhase, ...]
    faster_steps: tuple[int, ...]
    settled_steps: tuple[int, ...]
    record: Annotated[RunRecord, INLINE]
    time_left: Annotated[TimeLeft | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        found = [*headline(self.info), *step_lines(self.info)]
        found.append(
            f"ordinary steps {format_s(self.normal_s)}, spread {self.spread:.2%}, correlation from step to step {self.ar1:.2f}"
        )
        found.append("")
        if not self.phases:
            found.append(f"no slow phase: no lasting change of {self.smallest:.0%} or more")
        for phase in self.phases:
            found += _phase(phase, self.restart_cost_s)
        if self.faster_steps:
            found.append(f"note: steps are faster than before from step {_named(self.faster_steps)} on")
        if self.settled_steps:
            found.append(
                f"note: {counted(len(self.settled_steps), 'step')} after a restart, an evaluation or a checkpoint off by a few "
                f"percent (step {_named(self.settled_steps)}): compilation and caches, no alarm"
            )
        if self.time_left is not None:
            found += _time_left(self.time_left)
        return found + notes(self.info)


MOST_NAMED = 5  # steps in a line
LEAST_SHARE = 0.01  # of the variance that is named
VARIANCES = {
    "drift": "drift of a run's level",
    "steps": "scatter of steps",
    "stalls": "stalls that may go on or not",
    "change": "a change within the log",
}
CLEARLY = 2.0  # times the growth of the others, from which a worker is blamed


def _time_left(left: TimeLeft) -> Iterator[str]:
    yield ""
    yield (
        f"left: {counted(left.n_steps, 'step')} take p50 {duration(left.p50_s)}, p5 {duration(left.p5_s)}, "
        f"p95 {duration(left.p95_s)} ({left.p5_s / left.p50_s - 1.0:+.2%}, {left.p95_s / left.p50_s - 1.0:+.2%}); "
        "interruptions and evaluations are not in it"
    )
    shares = sorted(left.variance_shares.items(), key=lambda item: -item[1])
    named = ", ".join(f"{VARIANCES[name]} {share:.0%}" for name, share in shares if share >= LEAST_SHARE)
    half = 0.5 * (left.independent_p95_s - left.independent_p5_s)
    yield f"  the interval is made of {named}; independent steps would say only +-{half / left.p50_s:.2%}"


def _phase(phase: DetectedPhase, cost_s: float) -> Iterator[str]:
    until = "lasts" if phase.end_step is None else f"ended at step {phase.end_step:,}"
    yield (
        f"slow from step {phase.onset_step:,} on: +{phase.size:.1%}, {format_s(phase.normal_s)} -> {format_s(phase.slow_s)} "
        f"(detected at step {phase.told_step:,}, probability {phase.prob:.0%}; {until})"
    )
    if (slow := phase.slow_rank) is not None:
        others = f"of the others by {slow.others_size:.1%}"
        if slow.size > 0 and slow.size > CLEARLY * slow.others_size:
            yield f"  rank {slow.rank}: its compute grew by {slow.size:.1%}, that {others}"
        else:
            yield f"  no single rank: compute of the worst, rank {slow.rank}, grew by {slow.size:.1%}, {others}"
    yield f"  lost {format_s(phase.lost_s)}; {_verdict(phase, cost_s)}"


def _verdict(phase: DetectedPhase, cost_s: float) -> str:
    cost = f"a restart ({format_s(cost_s)})"
    if phase.verdict == "act":
        return f"ACT: since step {phase.act_step:,} the loss is more than {cost}"
    if phase.verdict == "wait":
        return f"WAIT: less than {cost}; act if it lasts {counted(phase.wait_steps or 0, 'more step')}"
    past = "" if phase.act_step is None else f"; it had cost more than {cost} from step {phase.act_step:,} on"
    return f"over{past}"


def _named(steps: tuple[int, ...]) -> str:
    return ", ".join(f"{step:,}" for step in steps[:MOST_NAMED]) + (", ..." if len(steps) > MOST_NAMED else "")
