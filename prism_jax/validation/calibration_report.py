"""Reports the cost model calibrated by measured runs of one's own cluster, and which runs to measure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Annotated, ClassVar

from ..core.page import Bar, Bars, Block, Card, Facts, Note, Table, left_out, notes
from ..core.readable import counted, duration, percent, some
from ..core.report import INLINE, WHERE_KNOWN, Json, Report, RunRecord
from ..core.units import format_s
from ..cost.efficiency import SHARE
from ..result.distribution import MedianInterval


@dataclass(frozen=True)
class SiteRun:
    """One measured run, predicted before, after, and with itself left out; errors relative to the measured time."""

    id: str
    measured_s: float
    before_s: float
    after_s: float
    error_before: float
    error_after: float
    error_left_out: float


@dataclass(frozen=True)
class ErrorFacts:
    """Relative errors over the runs; absolute where the name says ape."""

    median_ape: float
    mape: float
    bias: float
    largest: float


@dataclass(frozen=True)
class ErrorsByStage:
    """Errors before and after the calibration, and with each run left out."""

    before: ErrorFacts
    after: ErrorFacts
    leave_one_out: ErrorFacts


@dataclass(frozen=True)
class CurvePoint:
    """Median error on runs that were not seen, over `n_choice` choices of the `n_run` that were."""

    n_run: int
    n_choice: int
    median_ape: float


@dataclass(frozen=True)
class CorrectionFacts:
    """A correction in its own unit, with its 90% interval; `shift` in standard deviations of what was known before."""

    before: float
    after: float
    p5: float
    p95: float
    shift: float


@dataclass(frozen=True)
class Interval90:
    """90% interval."""

    p5: float
    p95: float


@dataclass(frozen=True)
class BandByStage:
    """90% interval of measured over predicted, minus one, before and after the calibration."""

    before: Interval90
    after: Interval90


@dataclass(frozen=True)
class SiteReport(Report):
    """The shipped calibration updated by measured runs, and how the error falls with each.

    Attributes:
        dropped: run -> why it is not used.
        curve: from none of the runs to all but one.
        corrections: knob -> what became of it.
        site_factor: of everything alike.
        record: kept with the calibration.
        notes: what people should know of the runs and the logs that they are from; absent where there is nothing.
        shipped_stands: runs that are left out are predicted better by what ships, which is kept; absent where they are not.
    """

    kind: ClassVar[str] = "site-calibration"
    picture: ClassVar[str] = "prism_jax.validation.picture:draw_site"

    generation: str
    framework: str
    device: str
    n_run: int
    dropped: Mapping[str, str]
    runs: tuple[SiteRun, ...]
    error: ErrorsByStage
    curve: tuple[CurvePoint, ...]
    corrections: Mapping[str, CorrectionFacts]
    site_factor: MedianInterval
    band: BandByStage
    elapsed_s: float
    record: Mapping[str, Json]
    notes: Annotated[tuple[str, ...] | None, WHERE_KNOWN] = None
    shipped_stands: Annotated[bool | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        n, moved, left = self.n_run, _moves(self), _error_now(self)
        return Card(
            f"{counted(n, 'measured run')} of {self.device or self.generation}, {self._framework}",
            _site_verdict(self),
            "unsure" if self.shipped_stands or left > GOOD_ERROR or left >= self.error.before.median_ape else "good",
            facts={
                "90% interval": f"{_span_of(self.band.before)} around a prediction before, {_span_of(self.band.after)} now",
                "largest change": ": ".join(moved[0]) if moved else "",
                "all together": _site(self.site_factor),
            },
            evidence=f"{counted(n, 'run')}{', each left out in turn' * (n > 1)}, in {duration(self.elapsed_s)}",
            assumptions=("other runs here differ from shipped predictions as these do",),
            next_step="-o FILE keeps it for predict --fit FILE",
        )

    @property
    def _framework(self) -> str:
        return self.framework or "framework not specified"

    @property
    def _notes(self) -> tuple[str, ...]:
        dropped = (f"{name} was not used: {reason}" for name, reason in self.dropped.items())
        return (*dropped, *(self.notes or ()))

    def blocks(self) -> Sequence[Block]:
        ranked = sorted(self.runs, key=lambda run: -abs(run.error_left_out))
        band = {"before": _span_of(self.band.before), "now": _span_of(self.band.after)}
        return (
            Table.of("Measured and predicted steps, worst first", ranked[:MOST_RUNS], RUNS),
            left_out(len(ranked), MOST_RUNS, "runs"),
            _curve(self),
            Note(SHIPPED_STANDS if self.shipped_stands else ""),
            Facts(
                "Largest corrections, relative to other sites with this device and software (90% interval)",
                {**dict(_moves(self)), "common factor of all": _site(self.site_factor)},
            ),
            Facts("90% interval of a measured step around its prediction", band),
            *notes(self._notes),
        )


RUNS: dict[str, Callable[[SiteRun], str]] = {
    "run": lambda run: run.id,
    "measured": lambda run: format_s(run.measured_s),
    "shipped": lambda run: format_s(run.before_s),
    "error before": lambda run: f"{run.error_before:+.1%}",
    "calibrated": lambda run: format_s(run.after_s),
    "error now": lambda run: f"{run.error_after:+.1%}",
    "left out": lambda run: f"{run.error_left_out:+.1%}",
}


def _error_now(report: SiteReport) -> float:
    """Median error after the calibration, on runs that are left out where there are several."""
    found = report.error.leave_one_out if report.n_run > 1 else report.error.after
    return found.median_ape


def _site_verdict(report: SiteReport) -> str:
    before, after = report.error.before.median_ape, _error_now(report)
    if report.shipped_stands:
        return "The shipped calibration stands: it predicts runs that are left out better."
    if report.n_run == 1:
        return f"The error of the run falls from {percent(before)} to {percent(after)}."
    if after >= before:
        return (
            f"The error does NOT fall: {percent(before)} before, {percent(after)} on runs that are left out (median)."
        )
    return f"The median error falls from {percent(before)} to {percent(after)} on runs that are left out."


@dataclass(frozen=True)
class SuggestedJob:
    """A job to measure.

    Attributes:
        noise_free_s: predicted seconds of its step, without variability.
        parts: knob -> share of the step's time that hangs on it.
        stands_for: jobs of the table that are nearer to it than to any other suggested one, itself included.
        log_sd_after: as the report's `log_sd`, once it and those before it are measured.
    """

    id: str
    noise_free_s: float
    parts: Mapping[str, float]
    stands_for: int
    log_sd_after: Annotated[float | None, WHERE_KNOWN] = None


@dataclass(frozen=True)
class SuggestionReport(Report):
    """Jobs of a table to measure first, in that order.

    Attributes:
        log_sd: standard deviation of the logarithm of a step of the jobs asked about before any run.
    """

    kind: ClassVar[str] = "suggestion"

    suggested: tuple[SuggestedJob, ...]
    n_job: int
    record: Annotated[RunRecord, INLINE]
    log_sd: Annotated[float | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        found, n = self.suggested, len(self.suggested)
        after = found[-1].log_sd_after if found else None
        then = "" if after is None else f", {_span(after)} once these are measured"
        return Card(
            f"Which of {self.n_job:,} jobs to measure first",
            f"Measure {counted(n, 'job')} first, in this order: {some([one.id for one in found], MOST_NAMED)}.",
            facts={
                "represent": f"{sum(one.stands_for for one in found):,} of {self.n_job:,} jobs",
                "90% interval": self._now and f"{self._now} now{then}",
            },
            evidence=f"predicted parts of the steps of {self.n_job:,} jobs, no measured times",
            next_step="prism-jax calibrate RUNS, with their measured times",
        )

    @property
    def _now(self) -> str:
        """Width of the interval before any run."""
        return f"upper over lower end {_span(self.log_sd)}" if self.log_sd else ""

    def blocks(self) -> Sequence[Block]:
        title = f"Measure these {len(self.suggested)} of {self.n_job} jobs first, in this order"
        return (Table.of(title, self.suggested, SUGGESTED), Facts("", {"interval now": self._now}))


SUGGESTED: dict[str, Callable[[SuggestedJob], str]] = {
    "job": lambda one: one.id,
    "step time": lambda one: format_s(one.noise_free_s),
    "represents": lambda one: f"{one.stands_for:,}",
    "interval then": lambda one: _span(one.log_sd_after),
    "largest components": lambda one: _parts(one.parts),
}
MOST_NAMED = 4


def _span(log_sd: float | None) -> str:
    """Upper over lower end of a normal 90% interval."""
    return "" if log_sd is None else f"x {exp(2.0 * 1.645 * log_sd):.2f}"


GOOD_ERROR = 0.15  # median, of a calibration that is called good
SHIPPED_STANDS = (
    "runs left out are predicted better by the shipped calibration: it stands, also in the file that is written"
)
MOST_RUNS = 20  # that are listed, worst first
MOST_MOVES = 5
SMALLEST_SHIFT = 0.2  # of a correction, in standard deviations of what was known before
SMALLEST_CHANGE = 0.01  # relative
WORDS = {
    "gemm": "matrix products",
    "attention": "attention kernels",
    "memory": "memory-bound kernels",
    "fp8": "matrix products in fp8",
    "expert": "layers with experts",
    "host": "starting kernels on the host",
    "scale_up": "transfers inside a node",
    "network": "network transfers",
    "scale_up_call_s": "wait per collective inside a node",
    "network_call_s": "wait per collective over the network",
    "optimizer": "optimizer",
    "micro_batch_s": "idle time per micro-batch",
    "step_s": "idle time per step",
    "network_step_s": "idle time per step and doubling of the nodes",
}


def _curve(report: SiteReport) -> Bars:
    points = report.curve
    largest = max((point.median_ape for point in points), default=0.0) or 1.0
    errors = ((str(one.n_run or "shipped"), one.median_ape) for one in points)
    bars = [Bar(used, percent(error), error / largest) for used, error in errors]
    return Bars("Median error on held-out runs, by number of runs used", bars)


def _moves(report: SiteReport) -> list[tuple[str, str]]:
    """Corrections that moved most, against the population of this device and software."""
    told = [(abs(found.shift), _move(knob, found)) for knob, found in report.corrections.items() if _moved(knob, found)]
    return [words for _, words in sorted(told, key=lambda item: -item[0])[:MOST_MOVES]]


def _site(found: MedianInterval) -> str:
    return f"{_slower(found.median)} ({_slower(found.p5)} to {_slower(found.p95)})"


def _moved(knob: str, found: CorrectionFacts) -> bool:
    """Whether it moved by more than noise, and so that it shows."""
    change = found.after - found.before if knob == SHARE else found.after / found.before - 1.0
    return abs(found.shift) >= SMALLEST_SHIFT and abs(change) >= SMALLEST_CHANGE


def _move(knob: str, found: CorrectionFacts) -> tuple[str, str]:
    if knob == SHARE:
        share = f"{found.after:.0%} instead of {found.before:.0%} ({found.p5:.0%} to {found.p95:.0%})"
        return "compute that hides data-parallel communication", share
    ratio, low, high = (getattr(found, name) / found.before for name in ("after", "p5", "p95"))
    return WORDS[knob], f"{_slower(ratio)} ({_slower(low)} to {_slower(high)})"


def _slower(ratio: float) -> str:
    """Ratio in words: "20% slower", "8% faster", "2.3 times as long"."""
    if not 2.0 / 3.0 <= ratio <= 1.5:
        return f"{ratio:.2g} times as long"
    return f"{abs(ratio - 1.0):.0%} {'slower' if ratio >= 1.0 else 'faster'}"


def _span_of(of: Interval90) -> str:
    return f"{of.p5:+.0%} to {of.p95:+.0%}"


MOST_PARTS = 3  # that are named per job


def _parts(parts: Mapping[str, float]) -> str:
    largest = sorted((knob for knob in parts if knob in WORDS), key=lambda knob: -parts[knob])[:MOST_PARTS]
    return ", ".join(f"{WORDS[knob]} {parts[knob]:.0%}" for knob in largest if parts[knob] >= 0.01)
