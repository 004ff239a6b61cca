"""A calibration by measured runs as lines of plain text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ...cost.correction import SHARE
from ..quantity import bar
from ..types.site import BandByStage, CorrectionFacts, SiteReport, SiteRun

BAR_WIDTH = 24
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


def lines(report: SiteReport) -> list[str]:
    """Runs, the error by number of runs, what moved, and the band that is left."""
    framework = report.framework or "framework not specified"
    device = report.device or report.generation
    n = report.n_run
    return [
        f"{n} run{'s' if n > 1 else ''} of {device}, {framework}, calibrated in {report.elapsed_s:.1f} s",
        *(f"note: {name} was not used: {reason}" for name, reason in report.dropped.items()),
        "",
        *_runs(report.runs),
        "",
        *_curve(report),
        "",
        *_moves(report),
        "",
        *_band(report.band),
        *(f"note: {note}" for note in report.notes or ()),
    ]


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
        yield f"  {point.n_run:>4} {error:>7.2%}  {bar(error / largest, BAR_WIDTH)}{note}".rstrip()
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
            f"share of compute beside which data-parallel communication hides: {found.after:.0%} instead of {found.before:.0%} "
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
