"""Reports the cost model calibrated by measured runs of one's own cluster, and which runs to measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import exp
from typing import Annotated, ClassVar

from ..core.report import INLINE, WHERE_KNOWN, Json, Report, RunRecord
from ..core.text_table import bar
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
    """A correction in its own unit, with its 90 % interval; `shift` in standard deviations of what was known before."""

    before: float
    after: float
    p5: float
    p95: float
    shift: float


@dataclass(frozen=True)
class Interval90:
    """90 % interval."""

    p5: float
    p95: float


@dataclass(frozen=True)
class BandByStage:
    """90 % interval of measured over predicted, minus one, before and after the calibration."""

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

    def lines(self) -> list[str]:
        framework = self.framework or "framework not specified"
        device = self.device or self.generation
        n = self.n_run
        return [
            f"{n} run{'s' if n > 1 else ''} of {device}, {framework}, calibrated in {self.elapsed_s:.1f} s",
            *(f"note: {name} was not used: {reason}" for name, reason in self.dropped.items()),
            "",
            *_runs(self.runs),
            "",
            *_curve(self),
            *([SHIPPED_STANDS] if self.shipped_stands else []),
            "",
            *_moves(self),
            "",
            *_band(self.band),
            *(f"note: {note}" for note in self.notes or ()),
        ]


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
    """Which jobs of a table to measure first, in that order.

    Attributes:
        log_sd: standard deviation of the logarithm of a step of the jobs asked about before any run.
    """

    kind: ClassVar[str] = "suggestion"

    suggested: tuple[SuggestedJob, ...]
    n_job: int
    record: Annotated[RunRecord, INLINE]
    log_sd: Annotated[float | None, WHERE_KNOWN] = None

    def lines(self) -> list[str]:
        found = self.suggested
        width = max(3, *(len(one.id) for one in found))
        return [
            f"measure these {len(found)} of {self.n_job} jobs first, in this order",
            f"90 % interval of a job, upper over lower end: {_span(self.log_sd)} now; then as below",
            "",
            f"{'job':<{width}}   step time  represents  then   largest components",
            *(
                f"{one.id:<{width}}  {format_s(one.noise_free_s):>10}  {one.stands_for:>10}  {_span(one.log_sd_after)}"
                f"  {_parts(one.parts)}"
                for one in found
            ),
        ]


def _span(log_sd: float | None) -> str:
    """Upper over lower end of a normal 90 % interval."""
    return "" if log_sd is None else f"x {exp(2.0 * 1.645 * log_sd):.2f}"


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


def _runs(runs: Sequence[SiteRun]) -> Iterator[str]:
    ranked = sorted(runs, key=lambda run: -abs(run.error_left_out))[:MOST_RUNS]
    width = max(3, *(len(run.id) for run in ranked))
    yield f"{'run':<{width}}  measured s  shipped  error  calibrated   error  left out"
    for run in ranked:
        yield (
            f"{run.id:<{width}}  {run.measured_s:>10.4g}  {run.before_s:>7.4g} {run.error_before:>+6.1%}"
            f"  {run.after_s:>10.4g} {run.error_after:>+7.1%}   {run.error_left_out:>+7.1%}"
        )
    if len(runs) > len(ranked):
        yield f"{len(runs) - len(ranked)} more runs; --json has them all"


def _curve(report: SiteReport) -> Iterator[str]:
    points = report.curve
    largest = max(point.median_ape for point in points) or 1.0
    yield "median error on held-out runs, by number of runs used"
    for point in points:
        note = "  shipped calibration, all runs" if point.n_run == 0 else ""
        error = point.median_ape
        yield f"  {point.n_run:>4} {error:>7.2%}  {bar(error / largest)}{note}".rstrip()
    errors = report.error
    yield (
        f"  all runs: median {errors.before.median_ape:.2%} before, {errors.after.median_ape:.2%} after, "
        f"{errors.leave_one_out.median_ape:.2%} with each run left out in turn"
    )


def _moves(report: SiteReport) -> Iterator[str]:
    """Corrections that moved most, against the population of this device and software."""
    told = [(abs(found.shift), _move(knob, found)) for knob, found in report.corrections.items() if _moved(knob, found)]
    told.sort(key=lambda item: -item[0])
    yield "largest corrections, relative to other sites with this device and software (90 % interval)"
    yield from (f"  {text}" for _, text in told[:MOST_MOVES])
    site = report.site_factor
    yield f"  common factor of all components: {_slower(site.median)} ({_slower(site.p5)} to {_slower(site.p95)})"


def _moved(knob: str, found: CorrectionFacts) -> bool:
    """Whether it moved by more than noise, and so that it shows."""
    change = found.after - found.before if knob == SHARE else found.after / found.before - 1.0
    return abs(found.shift) >= SMALLEST_SHIFT and abs(change) >= SMALLEST_CHANGE


def _move(knob: str, found: CorrectionFacts) -> str:
    if knob == SHARE:
        return (
            f"share of compute that hides data-parallel communication: {found.after:.0%} instead of {found.before:.0%} "
            f"({found.p5:.0%} to {found.p95:.0%})"
        )
    ratio, low, high = (getattr(found, name) / found.before for name in ("after", "p5", "p95"))
    return f"{WORDS[knob]}: {_slower(ratio)} ({_slower(low)} to {_slower(high)})"


def _slower(ratio: float) -> str:
    """As "20 % slower", "8 % faster", "2.3 times as long"."""
    if not 2.0 / 3.0 <= ratio <= 1.5:
        return f"{ratio:.2g} times as long"
    return f"{abs(ratio - 1.0):.0%} {'slower' if ratio >= 1.0 else 'faster'}"


def _band(band: BandByStage) -> Iterator[str]:
    before, after = (f"{of.p5:+.1%} to {of.p95:+.1%}" for of in (band.before, band.after))
    yield f"90 % interval of a measured step around its prediction: {before} before, {after} now"


MOST_PARTS = 3  # that are named per job


def _parts(parts: Mapping[str, float]) -> str:
    largest = sorted((knob for knob in parts if knob in WORDS), key=lambda knob: -parts[knob])[:MOST_PARTS]
    return ", ".join(f"{WORDS[knob]} {parts[knob]:.0%}" for knob in largest if parts[knob] >= 0.01)
