"""Reports predictions against measurements: step times (worst rows first and why, rows without one, sources), peak memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Table, left_out, notes
from ..core.readable import counted, percent
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
from .score import Errors, RowResult, Score, SourceScore, Validation


@dataclass(frozen=True)
class StepsValidationReport(Validation, Report):
    """Predicted against measured step times.

    Attributes:
        notes: what to know of the score, in sentences; absent where there is nothing.
    """

    kind: ClassVar[str] = "steps-validation"
    picture: ClassVar[str] = "prism_jax.validation.picture:draw_accuracy"

    record: Annotated[RunRecord, INLINE]
    notes: Annotated[tuple[str, ...] | None, WHERE_KNOWN] = None

    def card(self) -> Card:
        of = self.overall
        blind = self.record.inputs.get("leave_out")
        left_out = f", each {blind} predicted without its own rows" if blind else ""
        aside = {"with defects": of.n_defect, "without a prediction": of.n_unsupported}
        parts = ", ".join(f"{n:,} {what}" for what, n in aside.items() if n)
        what_next = "prism-jax calibrate FILE" if blind else "--leave-out source: a blind score"
        return Card(
            f"Predicted against measured steps: {counted(len(self.rows), 'row')}",
            _verdict(of),
            "plain" if of.n == 0 else "good" if (of.coverage_90 or 0.0) >= LEAST_COVERED else "unsure",
            facts={
                "error": _errors(of),
                "interval": _intervals(of),
                "worst row": _worst(self),
                "baseline": _baseline(self.overall_baseline),
            },
            evidence=f"{counted(of.n, 'row')} of {_counted_sources(self)}{left_out}{parts and f'; set aside {parts}'}",
            assumptions=("what a row does not state is left open, as by predict",),
            next_step=what_next,
        )

    def blocks(self) -> Sequence[Block]:
        return (*steps_validation_tables(self), *notes(self.notes or ()))


LEAST_COVERED = 0.8  # of rows in their 90% interval, for intervals that are right


def _verdict(of: Score) -> str:
    if of.n == 0 or of.median_ape is None:
        return "No row could be predicted."
    covered = "" if of.coverage_90 is None else f"; {of.coverage_90:.0%} lie in their 90% interval"
    return f"Half of the predictions are off by at most {percent(of.median_ape)}{covered}."


def _errors(of: Score) -> str:
    known = (of.median_ape, of.mape, of.bias, of.p90_ape)
    if any(one is None for one in known):
        return "not known"
    median, mean, bias, p90 = known
    return (
        f"median {_percent(median)}, mean {_percent(mean)}, bias {_percent(bias, '+')}; 9 of 10 within {_percent(p90)}"
    )


def _intervals(of: Score) -> str:
    if of.coverage_90 is None or of.sharpness.width is None:
        return "none: variability was left out"
    return f"{of.coverage_90:.0%} inside; upper over lower end x {of.sharpness.width:.2f} (median)"


def _worst(report: StepsValidationReport) -> str:
    ranked = _ranked(report)
    if not ranked:
        return ""
    row = ranked[0]
    return f"{cut(row.id, NAME)}: {percent(row.error or 0.0, sign=True)} ({cut(row.reason, REASON)})"


def _baseline(of: Score | None) -> str:
    return "" if of is None or of.median_ape is None else f"typical utilisation: median {percent(of.median_ape)}"


def _counted_sources(report: StepsValidationReport) -> str:
    return counted(len({row.source for row in report.rows if row.error is not None}), "source")


@dataclass(frozen=True)
class MemoryOutcomes:
    """Counts of what happened and what was predicted.

    Attributes:
        majority_accuracy: what the commoner outcome alone gets right.
        peak_bytes: errors of the allocator's peak over the rows that ran and report it.
    """

    n: int
    accuracy: float
    majority_accuracy: float
    fits_called_fits: int
    fits_called_oom: int
    oom_called_fits: int
    oom_called_oom: int
    peak_bytes: Errors


@dataclass(frozen=True)
class MemoryValidationReport(Report):
    """Share of layouts that are predicted right (fits or out of memory), and the error of the peak."""

    kind: ClassVar[str] = "memory-validation"

    overall: MemoryOutcomes
    by_model: Mapping[str, MemoryOutcomes]
    record: Annotated[RunRecord, INLINE]

    def card(self) -> Card:
        of, peak = self.overall, self.overall.peak_bytes
        fits, oom = of.fits_called_fits + of.fits_called_oom, of.oom_called_fits + of.oom_called_oom
        peaks = "not measured"
        if peak.median_ape is not None and peak.bias is not None:
            errors = f"median error {percent(peak.median_ape)}, bias {percent(peak.bias, sign=True)}"
            peaks = f"{peak.n:,} measured: {errors}"
        return Card(
            f"{of.n:,} measured layouts: fits, or runs out of memory",
            f"{of.accuracy:.0%} are called right; {of.majority_accuracy:.0%} if always the commoner outcome is said.",
            "good" if of.accuracy > of.majority_accuracy else "unsure",
            facts={
                "that fit": f"{of.fits_called_fits:,} of {fits:,} called so",
                "that do not": f"{of.oom_called_oom:,} of {oom:,} called so",
                "peak": peaks,
            },
            evidence=f"{counted(of.n, 'layout')} of {counted(len(self.by_model), 'model')}",
            next_step="prism-jax check JOB: memory of one job",
        )

    def blocks(self) -> Sequence[Block]:
        groups = [*self.by_model.items(), ("overall", self.overall)]
        return (Table.named("Fits or runs out of memory, by model", "model", groups, OUTCOMES),)


OUTCOMES: dict[str, Callable[[MemoryOutcomes], str]] = {
    "n": lambda found: str(found.n),
    "right": lambda found: f"{found.accuracy:.1%}",
    "majority": lambda found: f"{found.majority_accuracy:.1%}",
    "fits: right": lambda found: str(found.fits_called_fits),
    "fits: wrong": lambda found: str(found.fits_called_oom),
    "oom: right": lambda found: str(found.oom_called_oom),
    "oom: wrong": lambda found: str(found.oom_called_fits),
    "peaks": lambda found: str(found.peak_bytes.n),
    "median error": lambda found: _percent(found.peak_bytes.median_ape),
    "bias": lambda found: _percent(found.peak_bytes.bias, "+"),
}


WORST_ROWS = 40
FEW_MODELS = 12
NAME, SOURCE, REASON, GROUP = 26, 20, 33, 35  # characters: with numbers, 120 columns


def steps_validation_tables(report: StepsValidationReport) -> list[Block]:
    """All tables, in order."""
    by_source = sorted(report.by_source.items(), key=lambda item: -(item[1].median_ape or 0.0))
    overall = {
        "overall": report.overall,
        "with known defects": report.overall_with_defects,
        "typical utilisation (baseline)": report.overall_baseline,
    }
    by_class = [(name, one.rows) for name, one in report.by_class.items()]
    sources = [(name, one.sources) for name, one in report.by_class.items()]
    unpredicted = _counted_texts(row.unsupported for row in report.rows if row.unsupported)
    named = ({text.split()[0] for text in row.assumed} for row in report.rows if row.assumed)
    assumed = _counted_texts(", ".join(sorted(names)) for names in named)
    is_few = 1 < len(report.by_model) <= FEW_MODELS
    worst, n = "Rows, worst first; in 90%: whether the measured time lies in its interval", len(_ranked(report))
    evidence = "By evidence near the row; width: median of high over low; score: of the 90% interval of the logarithm"
    return [
        Table.of(worst, _ranked(report)[:WORST_ROWS], ROWS),
        Table("Rows without a prediction", ("rows", "why"), unpredicted),
        Table("Rows that leave something open, which was assumed", ("rows", "assumed"), assumed),
        _scores("By source", "source", by_source),
        _scores("By model", "model", sorted(report.by_model.items()) if is_few else []),
        _scores("Overall", "rows", [(name, score) for name, score in overall.items() if score is not None]),
        _scores(evidence, "evidence", by_class),
        Table.named("By evidence, sources", "evidence", sources, OF_SOURCES),
        Table.named("By source, each counting once", "", [("all", report.sources)], OF_SOURCES),
        left_out(n, WORST_ROWS, "rows"),
    ]


def _scores(title: str, heading: str, groups: Sequence[tuple[str, Score]]) -> Table:
    """Scores of groups of rows."""
    return Table.named(title, heading, [(cut(name, GROUP), score) for name, score in groups], FIGURES)


def _ranked(report: StepsValidationReport) -> list[RowResult]:
    """Rows with a prediction, worst first."""
    return sorted((row for row in report.rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))


def _counted_texts(texts: Iterable[str]) -> list[tuple[str, str]]:
    return [(str(n), text) for text, n in Counter(texts).most_common()]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1%}"


def cut(text: str, width: int) -> str:
    """Cuts a text to `width` characters, the last of them an ellipsis where something is left out."""
    return text if len(text) <= width else text[: width - 1] + "…"


YES = {None: "", True: "yes", False: "NO"}
ROWS: dict[str, Callable[[RowResult], str]] = {
    "row": lambda row: cut(row.id, NAME),
    "source": lambda row: cut(row.source, SOURCE),
    "measured s": lambda row: f"{row.measured_s:.4g}",
    "predicted s": lambda row: f"{row.predicted_s:.4g}",
    "error": lambda row: f"{row.error:+.1%}",
    "in 90%": lambda row: YES[row.inside],
    "defect or largest part": lambda row: cut(row.reason, REASON),
    "in range": lambda row: YES[row.in_range],
}
FIGURES: dict[str, Callable[[Score], str]] = {
    "n": lambda score: str(score.n),
    "defect": lambda score: str(score.n_defect),
    "unsup.": lambda score: str(score.n_unsupported),
    "median": lambda score: _percent(score.median_ape),
    "MAPE": lambda score: _percent(score.mape),
    "bias": lambda score: _percent(score.bias, "+"),
    "p90": lambda score: _percent(score.p90_ape),
    "in 90%": lambda score: _percent(score.coverage_90),
    "width": lambda score: _number(score.sharpness.width),
    "score": lambda score: _number(score.sharpness.interval_score),
}
OF_SOURCES: dict[str, Callable[[SourceScore], str]] = {
    "sources": lambda found: str(found.n),
    "mean of medians": lambda found: _percent(found.mean_median_ape),
    "mean in 90%": lambda found: _percent(found.mean_coverage_90),
    "score": lambda found: _number(found.mean_interval_score),
    "width ~ error": lambda found: _number(found.width_follows_error),
    "8 rows or more": lambda found: str(found.n_large),
    "below 60% in 90%": lambda found: str(found.n_large_low),
}
