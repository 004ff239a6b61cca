"""Reports a training log against what its own head predicts: the verdict on every run, and what lies behind it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Group, Note, Tone, notes
from ..core.readable import percent, some
from ..core.report import INLINE, WHERE_KNOWN, Json, Report, RunRecord
from ..core.units import format_s
from ..trace.step_log import StepPoints

INSIDE, OUTSIDE, SICK, NO_JOB, NO_STEPS = "inside", "outside", "sick", "no job", "no steps"
MOST_ASSUMED = 6
NETWORK = "network: "
SMALL = 0.01  # change of the step that is not worth a word


@dataclass(frozen=True)
class MeasuredSteps:
    """Measured steps of a run.

    Attributes:
        n, n_left_out: entries of the log that the figures are over, and those before them.
        first_step, last_step: numbers of the steps.
        median_s, p95_s: of the entries, seconds.
        per_entry: steps that an entry is the mean of.
    """

    n: int
    n_left_out: int
    first_step: int
    last_step: int
    median_s: float
    p95_s: float
    per_entry: int = 1


@dataclass(frozen=True)
class PredictedStep:
    """Prediction from the head of a log.

    Attributes:
        p50_s: typical step, seconds.
        low_s, high_s: 90% of what would be measured lies between them.
        parts_s: seconds of the noise-free step by cause.
        ends_s: seconds after its last backward pass: exchange of gradients and parameters that nothing hides, and optimizer.
    """

    p50_s: float
    low_s: float
    high_s: float
    parts_s: Mapping[str, float] = field(default_factory=dict)
    ends_s: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Assumption:
    """Assumption about a field that the head does not state.

    Attributes:
        text: what is assumed.
        change: of the step under its other values, relative, smallest and largest; empty: not known.
        at_half_s, at_twice_s: of a network: the predicted step at half and at twice its bandwidth between nodes, seconds.
    """

    text: str
    change: tuple[float, ...] = ()
    at_half_s: Annotated[float | None, WHERE_KNOWN] = None
    at_twice_s: Annotated[float | None, WHERE_KNOWN] = None

    @property
    def matters(self) -> bool:
        """Whether it is worth a word: networks always are."""
        return not self.change or max(map(abs, self.change)) >= SMALL or self.text.startswith(NETWORK)

    @property
    def words(self) -> str:
        """The assumption, and by how much it matters."""
        if not self.change:
            return self.text
        if self.text.startswith(NETWORK) and self.at_half_s is not None and self.at_twice_s is not None:
            return f"{self.text} (p50 {format_s(self.at_half_s)} at half, {format_s(self.at_twice_s)} at twice its bandwidth)"
        ends = sorted({f"{one:+.0%}" for one in (min(self.change), max(self.change))}, key=lambda one: float(one[:-1]))
        return f"{self.text} ({' to '.join(ends)})"


@dataclass(frozen=True)
class StepCause:
    """Cause that would explain what was measured.

    Attributes:
        text: what it is.
        step_s: the step with it, seconds.
        explains: whether the measured step lies in the interval with it.
    """

    text: str
    step_s: float
    explains: bool

    @property
    def likely(self) -> str:
        """How likely it is to be the cause, in words."""
        return "likely cause" if self.explains else "at most"


@dataclass(frozen=True)
class TimedPart:
    """A part of the step that the log times.

    Attributes:
        name: of the part.
        measured_s: median over steps of its slowest rank.
        predicted_s: of the typical step.
    """

    name: str
    measured_s: float
    predicted_s: float


@dataclass(frozen=True)
class LogRun:
    """One run of a log.

    Attributes:
        first_line, last_line: in the log.
        trainer: who wrote it.
        verdict: inside or outside of the interval; sick: outside, and nothing explains it; no job, or no steps.
        reason: why there is no job, or no steps; empty if there are.
        measured, predicted: None where there is none.
        compared_s: seconds that the prediction is held against, where the measured step is more than one of training.
        causes: at most two, the likeliest first, of a run outside.
        assumed: assumptions on what the head does not state, the most important first.
        timed: parts of the step that the log times, in the order in which they run.
        not_modelled: arguments with an effect that no field describes.
        notes: other things to be known.
        job: fields of a job file, by path.
        read_from: where each of them is from.
        printed: what the log prints of the run besides its steps.
    """

    first_line: int
    last_line: int
    trainer: str
    verdict: str
    reason: str = ""
    measured: Annotated[MeasuredSteps | None, WHERE_KNOWN] = None
    predicted: Annotated[PredictedStep | None, WHERE_KNOWN] = None
    compared_s: Annotated[float | None, WHERE_KNOWN] = None
    causes: tuple[StepCause, ...] = ()
    assumed: tuple[Assumption, ...] = ()
    timed: tuple[TimedPart, ...] = ()
    not_modelled: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    job: Mapping[str, Json] = field(default_factory=dict)
    read_from: Mapping[str, str] = field(default_factory=dict)
    printed: Mapping[str, Json] = field(default_factory=dict)

    @property
    def facts(self) -> dict[str, str]:
        """Measured, predicted and assumed values, and causes that would explain the difference."""
        return {
            "measured": self.measured_words,
            "predicted": self.predicted_words,
            **{one.likely: f"{one.text}: {format_s(one.step_s)}" for one in self.causes},
            "where": self._where() if self.timed else "",
        }

    @property
    def sentence(self) -> str:
        """Whether measured and predicted agree."""
        if self.measured is None or self.predicted is None:
            return f"Nothing to compare: {self.reason or 'no steps'}."
        error = self.predicted.p50_s / (self.compared_s or self.measured.median_s) - 1.0
        off = f"predicted {percent(abs(error))} {'longer' if error > 0.0 else 'shorter'} than measured"
        if self.verdict == SICK:
            return f"SICK: {off}, and nothing that the head leaves open explains it."
        return f"{'As expected' if self.verdict == INSIDE else 'OUTSIDE of the 90% interval'}: {off}."

    @property
    def measured_words(self) -> str:
        """The median step and which steps it is of, or why there is none."""
        found = self.measured
        if found is None:
            return f"nothing: {self.reason}"
        of = f"means of {found.per_entry} steps" if found.per_entry > 1 else "steps"
        which = f"{found.n:,} {of}, {found.first_step:,} to {found.last_step:,}" if found.n > 1 else "one entry"
        return f"{format_s(found.median_s)} per step (median of {which}; p95 {format_s(found.p95_s)})"

    @property
    def predicted_words(self) -> str:
        """The typical step with its interval, or why there is none."""
        found = self.predicted
        if found is None:
            return f"nothing: {self.reason}" if self.measured is not None else "nothing to compare with"
        text = f"{format_s(found.p50_s)} (90%: {format_s(found.low_s)} to {format_s(found.high_s)})"
        if self.measured is None:
            return text
        seconds = self.compared_s or self.measured.median_s
        what = f" of the {format_s(seconds)} of one update of the actor" if self.compared_s else ""
        return f"{text}: {self.verdict}, {found.p50_s / seconds - 1.0:+.0%}{what}"

    @property
    def assumed_words(self) -> str:
        """Assumptions that matter, in words."""
        shown = [one.words for one in self.assumed if one.matters]
        return some(shown, MOST_ASSUMED, "; ") or "nothing that matters"

    def blocks(self) -> list[Block]:
        """All that is said of the run."""
        sick = "sick: nothing that the head leaves open explains this." if self.verdict == SICK else ""
        unknown = f"not modelled: {', '.join(self.not_modelled)}" if self.not_modelled else ""
        facts = Facts("", {**self.facts, "assumed": self.assumed_words})
        return [facts, Note(sick, "bad"), Note(unknown), *notes(self.notes)]

    def _where(self) -> str:
        """The parts, and which of them holds most of the difference."""
        apart = [one.measured_s - one.predicted_s for one in self.timed]
        whole, most = sum(apart), max(range(len(apart)), key=lambda at: abs(apart[at]))
        texts = [f"{one.name} {format_s(one.measured_s)}, predicted {format_s(one.predicted_s)}" for one in self.timed]
        if whole and apart[most] / whole > 0.5:
            texts[most] += f" ({min(apart[most] / whole, 1.0):.0%} of the difference)"
        return "; ".join(texts)


@dataclass(frozen=True)
class LogValidationReport(Report):
    """A training log against what its own head predicts.

    Attributes:
        points: [run] its steps, for pictures; absent in reports of versions before 0.2.
    """

    kind: ClassVar[str] = "log-validation"
    picture: ClassVar[str] = "prism_jax.validation.picture:draw_log"

    runs: tuple[LogRun, ...]
    record: Annotated[RunRecord, INLINE]
    points: Annotated[tuple[StepPoints | None, ...] | None, WHERE_KNOWN] = None

    @property
    def fails(self) -> bool:
        """Whether a run is outside of its interval, or sick."""
        return any(run.verdict in (OUTSIDE, SICK) for run in self.runs)

    def card(self) -> Card:
        file = self.record.inputs.get("file")
        n_steps = sum(run.measured.n for run in self.runs if run.measured is not None)
        if len(self.runs) == 1:
            run = self.runs[0]
            title, verdict, facts = f"{run.trainer}, {_lines_words(run)}", run.sentence, run.facts
        else:
            n_inside = sum(run.verdict == INSIDE for run in self.runs)
            title, verdict = (
                f"{len(self.runs)} runs",
                f"{n_inside} of {len(self.runs)} runs are as their heads predict.",
            )
            by_verdict = sorted(enumerate(self.runs, 1), key=lambda item: ORDER.index(item[1].verdict))
            facts = {f"run {number}": run.sentence for number, run in by_verdict[:MOST_RUNS]}
        assumed = tuple(one.words for run in self.runs for one in run.assumed if one.matters and len(self.runs) == 1)
        return Card(
            f"{file}: {title}",
            verdict,
            self._tone,
            facts=facts,
            evidence=f"{n_steps:,} entries of the log; the job is read from its head",
            assumptions=assumed[:MOST_ON_CARD],
            next_step=self._next,
        )

    @property
    def _tone(self) -> Tone:
        verdicts = {run.verdict for run in self.runs}
        if SICK in verdicts:
            return "bad"
        return "good" if verdicts == {INSIDE} else "unsure"

    @property
    def _next(self) -> str:
        if any(run.verdict == SICK for run in self.runs):
            return "look at the machine before calibrating"
        return "prism-jax calibrate --log LOG"

    def blocks(self) -> Sequence[Block]:
        if len(self.runs) == 1:
            return self.runs[0].blocks()
        n = len(self.runs)
        return [
            Group(f"Run {at} of {n}, {_lines_words(run)}", run.blocks()) for at, run in enumerate(self.runs, start=1)
        ]


ORDER = (SICK, OUTSIDE, NO_JOB, NO_STEPS, INSIDE)
MOST_ON_CARD, MOST_RUNS = 2, 5


def _lines_words(run: LogRun) -> str:
    return f"lines {run.first_line:,} to {run.last_line:,}"
