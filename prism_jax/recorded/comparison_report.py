"""Reports whether a change helped: the steps of runs B against those of runs A."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Facts, Table, Tone
from ..core.readable import percent
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
from ..core.units import format_s
from .paired_runs import ChangeOfRatio, RatioInterval
from .report import note_blocks


@dataclass(frozen=True)
class TraceComparisonReport(Report):
    """Recorded steps of runs B against those of runs A.

    Attributes:
        a, b: files of either side.
        n_steps_a, n_steps_b: recorded steps of either side.
        n_paired: steps that are compared with those of the same number; 0 where the runs share few.
        typical: of the typical step, on which the verdict rests.
        p50, p95: of these quantiles.
        ratios: name -> ratio of that part of the step, where both sides have it.
        change: step from which the ratio is another; null where it is the same throughout.
        run_spread: sd of the level of a run that intervals hold, a share.
        threshold: share by which B must be slower to fail.
        result: slower, faster or same: what is beyond noise.
        is_failed: whether B is slower by more than the threshold, beyond noise; the exit code is 1.
        points: first step of blocks of paired steps, and the ratio there.
    """

    kind: ClassVar[str] = "trace-comparison"
    picture: ClassVar[str] = "prism_jax.recorded.picture:draw_comparison"

    a: tuple[str, ...]
    b: tuple[str, ...]
    n_steps_a: int
    n_steps_b: int
    n_paired: int
    typical: RatioInterval
    p50: RatioInterval
    p95: RatioInterval
    ratios: dict[str, RatioInterval]
    change: ChangeOfRatio | None
    run_spread: float
    threshold: float
    result: str
    is_failed: bool
    notes: tuple[str, ...]
    record: Annotated[RunRecord, INLINE]
    points: Annotated[tuple[tuple[int, float], ...] | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        verdict, tone = self.verdict
        since = {} if self.change is None else {"changes at": _change_words(self.change)}
        paired = f"{self.n_paired:,} paired steps" if self.n_paired else "steps not paired"
        return Card(
            title=f"{', '.join(self.a)} -> {', '.join(self.b)}",
            verdict=verdict,
            tone=tone,
            facts={"typical": _words(self.typical), **since, "p50": _words(self.p50), "p95": _words(self.p95)},
            evidence=f"{self.n_steps_a:,} and {self.n_steps_b:,} recorded steps, {paired}",
            assumptions=(f"the level of runs of one program has a spread of {self.run_spread:.2%}",),
            next_step=self._next,
        )

    @property
    def verdict(self) -> tuple[str, Tone]:
        """Whether the change helped, as a sentence, and its tone."""
        shift = abs(self.typical.ratio - 1.0)
        if self.result == "same":
            tail = f"; p95 {percent(self.p95.ratio - 1.0, sign=True)}" if self.p95.is_beyond_noise else ""
            return f"No difference of typical steps beyond run-to-run noise{tail}.", "unsure"
        if self.typical.is_beyond_noise:
            since = "" if self.change is None else f", and the ratio changes at step {self.change.step:,}"
            return f"B is {self.result} by {percent(shift)}, beyond run-to-run noise{since}.", self._tone
        assert self.change is not None
        size = percent(abs(self.change.ratio - 1.0))
        return f"B is {self.result} by {size} from step {self.change.step:,} on, beyond noise.", self._tone

    @property
    def _tone(self) -> Tone:
        return "bad" if self.result == "slower" else "good"

    @property
    def _next(self) -> str:
        if self.result == "same" and self.n_runs == 2:
            return "give several runs of A and of B (--against)"
        return "prism-jax trace info FILE: what was recorded"

    @property
    def n_runs(self) -> int:
        """Runs of both sides."""
        return len(self.a) + len(self.b)

    def blocks(self) -> Sequence[Block]:
        rows = {"typical step": self.typical, "p50": self.p50, "p95": self.p95, **self.ratios}
        table = [
            (name, format_s(one.a_s), format_s(one.b_s), *_percents(one), "beyond noise" if one.is_beyond_noise else "")
            for name, one in rows.items()
        ]
        change = [] if self.change is None else [Facts("Change within the runs", {"from": _change_words(self.change)})]
        columns = ("", "A", "B", "B over A", "95%", "")
        return (Table("Steps", columns, table), *change, *note_blocks(self.notes))


def _percents(one: RatioInterval | ChangeOfRatio) -> tuple[str, str]:
    """The ratio and its interval."""
    low, middle, high = (percent(value - 1.0, sign=True) for value in (one.low, one.ratio, one.high))
    return middle, f"{low} to {high}"


def _words(one: RatioInterval) -> str:
    return "{} -> {}, {} (95%: {})".format(format_s(one.a_s), format_s(one.b_s), *_percents(one))


def _change_words(change: ChangeOfRatio) -> str:
    return "step {:,}: {} (95%: {})".format(change.step, *_percents(change))
