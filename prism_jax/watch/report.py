"""Reports the slow phases of a log, and whether to act."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Table, Tone, notes
from ..core.readable import counted, duration, percent, some, time_to, within
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
from ..core.units import format_s
from ..recorded.report import TraceFacts, recorded_words, recording_blocks, recording_title
from ..trace.step_log import StepPoints
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
        points: steps for pictures; absent in reports of versions before 0.2.
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
    points: Annotated[StepPoints | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        last = self.phases[-1] if self.phases else None
        return Card(
            recording_title(self.info),
            *self.verdict,
            facts={
                "usual step": f"{time_to(self.normal_s, self.spread * self.normal_s)}, spread {percent(self.spread)}",
                "slow phase": "" if last is None else _size(last),
                "lost": "" if last is None else _loss(last, self.restart_cost_s),
                "cause": "" if last is None else _cause(last),
                "left": "" if self.time_left is None else _left(self.time_left),
            },
            evidence=recorded_words(self.info),
            assumptions=(f"the first {self.record.inputs['learn']} steps were as usual",),
            next_step=self._next,
        )

    @property
    def verdict(self) -> tuple[str, Tone]:
        """Whether to act, as a sentence, and its tone."""
        cost = duration(self.restart_cost_s)
        if not self.phases:
            return f"No slow phase: no lasting change of {self.smallest:.0%} or more.", "good"
        last = self.phases[-1]
        slow = f"steps are {percent(last.size)} slower since step {last.onset_step:,}"
        if last.verdict == "act":
            return f"ACT: {slow}, which has cost more than a restart.", "bad"
        if last.verdict == "wait":
            return f"WAIT: {slow}; a restart ({cost}) would cost more so far.", "unsure"
        return f"No slow phase now: the last one ended at step {last.end_step:,}.", "good"

    @property
    def _next(self) -> str:
        last = self.phases[-1] if self.phases else None
        if last is None or last.verdict == "over":
            return "prism-jax trace predict: their spread"
        if last.verdict == "wait":
            return f"act if it lasts {counted(last.wait_steps or 0, 'more step')}"
        return "restart on other nodes"

    @property
    def _remarks(self) -> tuple[str, ...]:
        faster = f"steps are faster than before from step {_named(self.faster_steps)} on"
        settled = (
            f"{counted(len(self.settled_steps), 'step')} after a restart, an evaluation or a checkpoint off by a few "
            f"percent (step {_named(self.settled_steps)}): compilation and caches, no alarm"
        )
        told = {faster: self.faster_steps, settled: self.settled_steps}
        return tuple(text for text, steps in told.items() if steps)

    def blocks(self) -> Sequence[Block]:
        usual = {
            "usual step": f"{format_s(self.normal_s)}, spread {self.spread:.2%}",
            "successive steps": f"correlation {self.ar1:.2f}",
            "restart": f"costs {duration(self.restart_cost_s)}",
        }
        return (
            Table.of("Slow phases", self.phases, PHASES),
            Facts("Usual steps", usual),
            Facts("Time left", {} if self.time_left is None else _time_left(self.time_left)),
            *recording_blocks(self.info),
            *notes((*self._remarks, *self.info.notes)),
        )


MOST_NAMED = 5  # steps in a line
LEAST_SHARE = 0.01  # of the variance that is named
VARIANCES = {
    "drift": "drift of a run's level",
    "steps": "scatter of steps",
    "stalls": "stalls that may go on or not",
    "change": "a change within the log",
}
CLEARLY = 2.0  # times the growth of the others, from which a worker is blamed


def _size(phase: DetectedPhase) -> str:
    since = f"since step {phase.onset_step:,}"
    until = since if phase.end_step is None else f"from step {phase.onset_step:,} to {phase.end_step:,}"
    return f"{phase.size:+.1%}, {format_s(phase.normal_s)} -> {format_s(phase.slow_s)}, {until}"


def _loss(phase: DetectedPhase, cost_s: float) -> str:
    """Cost of a phase against that of a restart, in words."""
    cost = f"a restart ({duration(cost_s)})"
    reached = "less than" if phase.act_step is None else f"since step {phase.act_step:,} more than"
    return f"{duration(phase.lost_s)}, {reached} {cost}"


def _cause(phase: DetectedPhase) -> str:
    slow = phase.slow_rank
    if slow is None:
        return ""
    if slow.size > 0 and slow.size > CLEARLY * slow.others_size:
        return f"rank {slow.rank}: its compute grew by {slow.size:.1%}, that of the others by {slow.others_size:.1%}"
    return f"no single rank: compute of the worst, {slow.rank}, {slow.size:+.1%}, of the others {slow.others_size:+.1%}"


PHASES: dict[str, Callable[[DetectedPhase], str]] = {
    "from step": lambda phase: f"{phase.onset_step:,}",
    "to": lambda phase: "lasts" if phase.end_step is None else f"{phase.end_step:,}",
    "step time": lambda phase: f"{format_s(phase.normal_s)} -> {format_s(phase.slow_s)} ({phase.size:+.1%})",
    "detected at step": lambda phase: f"{phase.told_step:,} ({phase.prob:.0%})",
    "lost": lambda phase: format_s(phase.lost_s),
    "verdict": lambda phase: phase.verdict + ("" if phase.act_step is None else _acted(phase.act_step)),
    "rank": _cause,
}


def _acted(step: int) -> str:
    return f"; cost a restart by step {step:,}"


def _left(left: TimeLeft) -> str:
    middle, interval = duration(left.p50_s), within((left.p5_s, left.p95_s), duration)
    return f"{counted(left.n_steps, 'step')} take {middle} {interval}"


def _time_left(left: TimeLeft) -> dict[str, str]:
    shares = sorted(left.variance_shares.items(), key=lambda item: -item[1])
    half = 0.5 * (left.independent_p95_s - left.independent_p5_s)
    return {
        "time": _left(left),
        "interval": f"{left.p5_s / left.p50_s - 1.0:+.2%} to {left.p95_s / left.p50_s - 1.0:+.2%} of the median",
        "made of": ", ".join(f"{VARIANCES[name]} {share:.0%}" for name, share in shares if share >= LEAST_SHARE),
        "independent steps": f"would say only ±{half / left.p50_s:.2%}",
        "not counted": "interruptions and evaluations",
    }


def _named(steps: Sequence[int]) -> str:
    return some([f"{step:,}" for step in steps], MOST_NAMED)
