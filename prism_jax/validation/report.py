"""Reports predictions against measurements: step times (worst rows first and why, rows without one, sources), peak memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from ..core.page import Block, Card, Note, Table, more
from ..core.report import INLINE, WHERE_KNOWN, Report, RunRecord
from ..core.text_table import percent
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
        of, notes = self.overall, self.notes or ()
        blind = self.record.inputs.get("leave_out")
        left_out = f", each {blind} predicted without its own rows" if blind else ""
        aside = {"with defects": of.n_defect, "without a prediction": of.n_unsupported}
        parts = [f"{n:,} {what}" for what, n in aside.items() if n]
        set_aside = f"; set aside {', '.join(parts)}" if parts else ""
        return Card(
            title=f"Predicted against measured steps: {len(self.rows):,} row{'s' * (len(self.rows) != 1)}",
            verdict=_verdict(of),
            tone="plain" if of.n == 0 else "good" if (of.coverage_90 or 0.0) >= LEAST_COVERED else "unsure",
            facts={"error": _errors(of), "interval": _intervals(of), **_worst(self), **_baseline(self)},
            evidence=f"{of.n:,} row{'s' * (of.n != 1)} of {_counted_sources(self)}{left_out}{set_aside}",
            assumptions=("what a row does not state is left open, as by predict",),
            next_step=f"{'prism-jax calibrate FILE' if blind else '--leave-out source: a blind score'}; {more(notes)}",
        )

    def blocks(self) -> Sequence[Block]:
        n_more = max(0, len(_ranked(self)) - WORST_ROWS)
        return (
            *steps_validation_tables(self),
            *([Note(f"{n_more} more rows; --json has them all")] if n_more else []),
            *(Note(f"note: {note}") for note in self.notes or ()),
        )


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


def _worst(report: StepsValidationReport) -> dict[str, str]:
    ranked = _ranked(report)
    if not ranked:
        return {}
    row = ranked[0]
    return {"worst row": f"{cut(row.id, NAME)}: {percent(row.error or 0.0, sign=True)} ({cut(row.reason, REASON)})"}


def _baseline(report: StepsValidationReport) -> dict[str, str]:
    of = report.overall_baseline
    return (
        {}
        if of is None or of.median_ape is None
        else {"baseline": f"typical utilisation: median {percent(of.median_ape)}"}
    )


def _counted_sources(report: StepsValidationReport) -> str:
    n = len({row.source for row in report.rows if row.error is not None})
    return f"{n:,} source{'s' * (n != 1)}"


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
            peaks = (
                f"{peak.n:,} measured: median error {percent(peak.median_ape)}, bias {percent(peak.bias, sign=True)}"
            )
        return Card(
            title=f"{of.n:,} measured layouts: fits, or runs out of memory",
            verdict=f"{of.accuracy:.0%} are called right; {of.majority_accuracy:.0%} if always the commoner outcome is said.",
            tone="good" if of.accuracy > of.majority_accuracy else "unsure",
            facts={
                "that fit": f"{of.fits_called_fits:,} of {fits:,} called so",
                "that do not": f"{of.oom_called_oom:,} of {oom:,} called so",
                "peak": peaks,
            },
            evidence=f"{of.n:,} layout{'s' * (of.n != 1)} of {len(self.by_model):,} model{'s' * (len(self.by_model) != 1)}",
            next_step="prism-jax check JOB: memory of one job; --details",
        )

    def blocks(self) -> Sequence[Block]:
        return (memory_validation_table(self),)


COLUMNS = (
    ("model", "n", "right", "majority", "fits: right", "fits: wrong", "oom: right", "oom: wrong")
    + ("peaks", "median error", "bias")
)  # fmt: skip


def memory_validation_table(report: MemoryValidationReport) -> Table:
    """One row per model, and all together."""
    groups = [*report.by_model.items(), ("overall", report.overall)]
    return Table("Fits or runs out of memory, by model", COLUMNS, [_cells(*group) for group in groups])


def _cells(name: str, found: MemoryOutcomes) -> list[str]:
    peak = found.peak_bytes
    counts = (found.fits_called_fits, found.fits_called_oom, found.oom_called_oom, found.oom_called_fits)
    known = peak.median_ape is not None and peak.bias is not None
    errors = [f"{peak.median_ape:.1%}", f"{peak.bias:+.1%}"] if known else ["-", "-"]
    return [
        name,
        str(found.n),
        f"{found.accuracy:.1%}",
        f"{found.majority_accuracy:.1%}",
        *map(str, counts),
        str(peak.n),
        *errors,
    ]


WORST_ROWS = 40
FEW_MODELS = 12
NAME, SOURCE, REASON, GROUP = 26, 20, 33, 35  # characters: with numbers, 120 columns
FIGURES = ("n", "defect", "unsup.", "median", "MAPE", "bias", "p90", "in 90%", "width", "score")


def steps_validation_tables(report: StepsValidationReport) -> list[Table]:
    """All tables, in order."""
    by_source = sorted(report.by_source.items(), key=lambda item: -(item[1].median_ape or 0.0))
    overall = [("overall", report.overall), ("with known defects", report.overall_with_defects)]
    if report.overall_baseline is not None:
        overall.append(("typical utilisation (baseline)", report.overall_baseline))
    return [
        *_rows(_ranked(report)),
        *_unsupported(report.rows),
        *_assumed(report.rows),
        Table("By source", ("source", *FIGURES), [_score(*group) for group in by_source]),
        *_models(report),
        Table("Overall", ("rows", *FIGURES), [_score(*group) for group in overall]),
        *_classes(report),
        _sources(report.sources),
    ]


def _classes(report: StepsValidationReport) -> list[Table]:
    """Scores by how much is known near a row, and of its sources."""
    found = [_score(name, one.rows) for name, one in report.by_class.items()]
    sources = [_source(name, one.sources) for name, one in report.by_class.items()]
    title = "By evidence near the row; width: median of high over low; score: of the 90% interval of the logarithm"
    return (
        [Table(title, ("evidence", *FIGURES), found), Table("By evidence, sources", ("evidence", *OF_SOURCES), sources)]
        if found
        else []
    )


def _models(report: StepsValidationReport) -> list[Table]:
    """Scores by model where they are few enough to read."""
    if not 1 < len(report.by_model) <= FEW_MODELS:
        return []
    return [Table("By model", ("model", *FIGURES), [_score(*group) for group in sorted(report.by_model.items())])]


def _sources(found: SourceScore) -> Table:
    """Every source counts once."""
    return Table("By source, each counting once", ("", *OF_SOURCES), [_source("all", found)])


OF_SOURCES = (
    "sources",
    "mean of medians",
    "mean in 90%",
    "score",
    "width ~ error",
    "8 rows or more",
    "below 60% in 90%",
)


def _source(name: str, found: SourceScore) -> list[str]:
    return [
        name,
        str(found.n),
        _percent(found.mean_median_ape),
        _percent(found.mean_coverage_90),
        _number(found.mean_interval_score),
        _number(found.width_follows_error),
        str(found.n_large),
        str(found.n_large_low),
    ]


def _ranked(report: StepsValidationReport) -> list[RowResult]:
    """Rows with a prediction, worst first."""
    return sorted((row for row in report.rows if row.error is not None), key=lambda row: -abs(row.error or 0.0))


def _rows(ranked: Sequence[RowResult]) -> list[Table]:
    if not ranked:
        return []
    has_range = any(row.measured_range is not None for row in ranked)
    columns = ("row", "source", "measured s", "predicted s", "error", "in 90%", "defect or largest part")
    return [
        Table(
            "Rows, worst first; in 90%: whether the measured time lies in its interval",
            (*columns, "in range") if has_range else columns,
            [_row(row, has_range) for row in ranked[:WORST_ROWS]],
        )
    ]


def _unsupported(rows: Sequence[RowResult]) -> list[Table]:
    reasons = Counter(row.unsupported for row in rows if row.unsupported)
    counted = [[str(n), reason] for reason, n in reasons.most_common()]
    return [Table("Rows without a prediction", ("rows", "why"), counted)] if counted else []


def _assumed(rows: Sequence[RowResult]) -> list[Table]:
    """Counts of rows by what was assumed for fields that they do not state."""
    fields = Counter(", ".join(sorted({text.split()[0] for text in row.assumed})) for row in rows if row.assumed)
    counted = [[str(n), names] for names, n in fields.most_common()]
    return [Table("Rows that leave something open, which was assumed", ("rows", "assumed"), counted)] if counted else []


def _row(row: RowResult, has_range: bool) -> list[str]:
    words = {None: "", True: "yes", False: "NO"}
    cells = [
        cut(row.id, NAME),
        cut(row.source, SOURCE),
        f"{row.measured_s:.4g}",
        f"{row.predicted_s:.4g}",
        f"{row.error:+.1%}",
        words[row.inside],
        cut(row.reason, REASON),
    ]
    return [*cells, words[row.in_range]] if has_range else cells


def _score(name: str, score: Score) -> list[str]:
    return [
        cut(name, GROUP),
        str(score.n),
        str(score.n_defect),
        str(score.n_unsupported),
        _percent(score.median_ape),
        _percent(score.mape),
        _percent(score.bias, "+"),
        _percent(score.p90_ape),
        _percent(score.coverage_90),
        _number(score.sharpness.width),
        _number(score.sharpness.interval_score),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _percent(value: float | None, sign: str = "") -> str:
    return "-" if value is None else f"{value:{sign}.1%}"


def cut(text: str, width: int) -> str:
    """Cuts a text to `width` characters, the last of them an ellipsis where something is left out."""
    return text if len(text) <= width else text[: width - 1] + "…"
