"""Reports a grid of jobs, each next to the best, and a few jobs compared on the same draws, as text or Markdown tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Annotated, Any, ClassVar

from ..core.page import Block, Card, Note, Table, Tone, notes
from ..core.readable import (
    counted,
    percent as share,
    some,
    time_to,
    time_with_error,
    times_to,
    unit_of_time,
    with_error,
)
from ..core.report import INLINE, Report, RunRecord
from ..core.units import format_bytes, format_s
from ..core.use_case import OUTPUT, Option
from ..explain.types import percent
from .figures import JobFigures
from .table import StudyRow


def _span(low_s: float, high_s: float) -> str:
    """Range with both ends in the unit of the higher one."""
    scale, unit = unit_of_time(high_s)
    return f"{scale * low_s:.3g}-{scale * high_s:.3g} {unit}"


def _where_known(value: Callable[[JobFigures], float], form: str) -> Callable[[JobFigures], str]:
    """Text of a figure that not every job has."""
    return lambda own: format(value(own), form) if isfinite(value(own)) else ""


COLUMNS: dict[str, Callable[[JobFigures], str]] = {
    "GPUs": lambda own: f"{own.n_devices:,.0f}",
    "p50": lambda own: format_s(own.p50_s),
    "p95": lambda own: time_with_error(own.p95_s, own.p95_error_s),
    "p99": lambda own: format_s(own.p99_s),
    "90% model interval": lambda own: _span(own.p50_s * own.model_low, own.p50_s * own.model_high),
    "tokens/s/GPU": lambda own: f"{own.tokens_per_s_per_gpu:,.4g}",
    "MFU": lambda own: f"{100 * own.mfu:.1f}%",
    "memory": lambda own: format_bytes(own.memory_bytes, 3),
    "W/GPU": _where_known(lambda own: own.gpu_watts, ".0f"),
    "J/token": _where_known(lambda own: own.joules_per_token, ".3g"),
    "money/Mtoken": _where_known(lambda own: own.money_per_mtoken, ".4g"),
}


def heading(column: str, sample_unit: str) -> str:
    """The name of a column in the unit of the job's samples: images/s for tokens/s."""
    return column.replace("tokens", sample_unit).replace("token", sample_unit.removesuffix("s"))


def of_figures(columns: Mapping[str, Callable[[JobFigures], str]], sample_unit: str) -> dict[str, Callable[[Any], str]]:
    """Columns of rows with figures, in the unit of the job's samples; empty where a row has none."""

    def column(text: Callable[[JobFigures], str]) -> Callable[[Any], str]:
        return lambda row: "" if row.figures is None else text(row.figures)

    return {heading(name, sample_unit): column(text) for name, text in columns.items()}


def probability_table(title: str, labels: Sequence[str], probs: Sequence[Sequence[float]]) -> Table:
    """Table of the probability that the row is better than the column; none on the diagonal."""
    rows = [
        (own, *("" if own == other else percent(prob) for other, prob in zip(labels, row, strict=True)))
        for own, row in zip(labels, probs, strict=True)
    ]
    return Table(title, ("", *labels), rows)


def markdown_table(table: Table) -> list[str]:
    """A table as Markdown."""
    rule = ["---:" if table.is_numeric(k) else "---" for k in range(len(table.columns))]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (table.columns, rule, *table.rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


LEGEND = "* best; = not distinguishable from it by these draws; ! does not fit into memory; ± Monte Carlo error"
SAME_DRAWS = "all jobs on the same draws (± Monte Carlo); 90%: model error"
SAME_OPEN = "what the job file leaves open is alike in all of them"


def figure_facts(own: JobFigures, sample_unit: str) -> dict[str, str]:
    """Step time with its model interval, and speed, of one job of a study."""
    low_s, high_s = own.p50_s * own.model_low, own.p50_s * own.model_high
    width_s = high_s - low_s
    median = time_to(own.p50_s, max(0.1 * width_s, 1e-4 * own.p50_s))
    band = f" (90%: {times_to((low_s, high_s), 0.1 * width_s)})" if width_s > 0.0 else ""
    memory = "" if own.fits else "; does not fit into memory"
    digits = 0 if own.tokens_per_s_per_gpu >= 1e3 else 1
    return {
        "step time": f"median {median}{band}; p95 {time_with_error(own.p95_s, own.p95_error_s)}",
        "speed": f"{own.tokens_per_s_per_gpu:,.{digits}f} {sample_unit}/s per GPU, MFU {100 * own.mfu:.1f}%{memory}",
    }


@dataclass(frozen=True)
class SweepReport(Report):
    """All jobs of a grid, in its order.

    Attributes:
        axes: fields that vary.
        objective, objective_unit: what the rows are compared by.
        sample_unit: what is meant where figures say tokens.
        shard: "I of N" where the rows are every N-th of the grid alone; empty: they are all.
    """

    kind: ClassVar[str] = "sweep"
    picture: ClassVar[str] = "prism_jax.study.picture:draw_sweep"

    job: str
    axes: tuple[str, ...]
    objective: str
    objective_unit: str
    rows: tuple[StudyRow, ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
    sample_unit: str = "tokens"
    shard: str = ""

    def card(self) -> Card:
        best, tied = self.best, sum(row.is_tied for row in self.rows)
        return Card(
            _title(self),
            *_sweep_verdict(self, best, tied),
            facts=_sweep_facts(self, best) | {"impossible": _impossible(self)},
            evidence=SAME_DRAWS,
            assumptions=(SAME_OPEN,),
            next_step=f"prism-jax predict {self.job}{_sets(best)}",
        )

    def blocks(self) -> Sequence[Block]:
        return [_table(self), Note(LEGEND), *reasons(self.rows, lambda row: _words(self, row)), *notes(self.notes)]

    @property
    def best(self) -> StudyRow | None:
        """The best row; None where no job is possible."""
        return next((row for row in self.rows if row.is_best), None)

    def markdown(self) -> list[str]:
        """Returns the table alone, as Markdown."""
        return markdown_table(_table(self))


def _title(report: SweepReport) -> str:
    part = f" of shard {report.shard} alone" if report.shard else ""
    return f"{report.job}: {counted(len(report.rows), 'job')}{part}, by {report.objective}"


MOST_REASONS = 4  # of impossible jobs that are told
SIZE = "cluster.n_devices"


def _sweep_verdict(report: SweepReport, best: StudyRow | None, tied: int) -> tuple[str, Tone]:
    if best is None or best.figures is None:
        return "No job is possible.", "bad"
    if not best.figures.fits:
        return f"No job fits into memory; the fastest is {_words(report, best)}.", "bad"
    others = f"; {counted(tied, 'other')} within the error of these draws" if tied else ""
    return f"Best: {_words(report, best)}{others}.", "unsure" if tied else "plain"


def _sweep_facts(report: SweepReport, best: StudyRow | None) -> dict[str, str]:
    """The best job, the second and the worst."""
    if best is None or best.figures is None:
        return {}
    others = sorted((row for row in report.rows if row.figures and not row.is_best), key=lambda row: row.relative)
    shown = {"second": others[:1], "worst": others[1:][-1:]}
    behind = {name: f"{_words(report, row)}: {_behind(row)}" for name, rows in shown.items() for row in rows}
    return {**figure_facts(best.figures, report.sample_unit), **behind}


def _behind(row: StudyRow) -> str:
    """Distance from the best, with the Monte Carlo error."""
    behind, error = with_error(100.0 * (row.relative - 1.0), 100.0 * row.relative_error)
    return f"{behind}% behind (± {error}%)"


def _sets(best: StudyRow | None) -> str:
    return "".join(f" --set {field}={value}" for field, value in best.settings.items()) if best else ""


def _table(report: SweepReport) -> Table:
    def relative(row: StudyRow) -> str:
        return "impossible" if row.figures is None else _ratio_words(row)

    places = {id(row): f"{at}{mark(row)}" for at, row in enumerate(report.rows, 1)}
    figures = {name: text for name, text in COLUMNS.items() if name != "GPUs" or SIZE not in report.axes}
    columns = {
        "": lambda row: places[id(row)],
        **{short(axis): lambda row, axis=axis: row.settings.get(axis, "") for axis in report.axes},
        **of_figures(figures, report.sample_unit),
        "relative": relative,
    }
    return Table.of(_title(report), report.rows, columns)


def mark(one: StudyRow | ComparedJob) -> str:
    """Signs behind the name of a job: the best, not distinguishable from it, does not fit."""
    if one.figures is None:
        return ""
    return ("*" if one.is_best else "=" if one.is_tied else "") + ("" if one.figures.fits else "!")


def _ratio_words(one: StudyRow | ComparedJob) -> str:
    """The objective over that of the best job, with its Monte Carlo error."""
    return "1.00" if one.is_best else "{} ± {}".format(*with_error(one.relative, one.relative_error))


def _impossible(report: SweepReport) -> str:
    """Counts the jobs that are impossible, and names some; empty where none is."""
    rows = [_words(report, row) for row in report.rows if row.problem]
    return f"{len(rows):,} of {len(report.rows):,}: {some(rows, MOST_SHOWN, '; ')}" if rows else ""


def reasons(rows: Sequence[Any], name: Callable[[Any], str]) -> list[Note]:
    """Why jobs are impossible: each reason once, with the first job that has it."""
    first = {row.problem: row for row in reversed(rows) if row.problem}
    told = [Note(f"impossible: {name(row)}: {reason}") for reason, row in reversed(first.items())]
    n_more = len(told) - MOST_REASONS
    return [*told[:MOST_REASONS], Note(f"and {n_more} more reasons (--json has all)" if n_more > 0 else "")]


def short(field: str) -> str:
    """The last word of a field: tp of plan.tp."""
    return field.rsplit(".", 1)[-1]


def _words(report: SweepReport, row: StudyRow) -> str:
    return ", ".join(f"{short(axis)} {row.settings[axis]}" for axis in report.axes) or report.job


@dataclass(frozen=True)
class ComparedJob:
    """One job.

    Attributes:
        label: letter that stands for it.
        name: as it was given.
        figures: what is measured of it.
        relative, relative_error: predicted objective over that of the best job, and its Monte Carlo standard error.
        ratio_low, ratio_high: 90% interval of that ratio as it would be measured.
        prob_best: that it would be measured to be the best of all.
        is_best, is_tied: best by prediction, and jobs that the draws cannot tell from it.
    """

    label: str
    name: str
    model: str
    device: str
    figures: JobFigures
    relative: float
    relative_error: float
    ratio_low: float
    ratio_high: float
    prob_best: float
    is_best: bool
    is_tied: bool


@dataclass(frozen=True)
class ComparisonReport(Report):
    """Jobs in the order given.

    Attributes:
        objective, objective_unit: what they are compared by.
        prob_less: a row for each job: probabilities that its objective would be measured to be less than that of each job.
        sample_unit: what is meant where figures say tokens; samples where jobs differ in it.
    """

    kind: ClassVar[str] = "comparison"
    picture: ClassVar[str] = "prism_jax.study.picture:draw_comparison"

    objective: str
    objective_unit: str
    jobs: tuple[ComparedJob, ...]
    prob_less: tuple[tuple[float, ...], ...]
    notes: tuple[str, ...]
    elapsed_s: float
    record: Annotated[RunRecord, INLINE]
    sample_unit: str = "tokens"

    def card(self) -> Card:
        best = next(job for job in self.jobs if job.is_best)
        ranked = sorted(self.jobs, key=lambda job: (not job.is_best, job.relative))
        rest = len(ranked) - MOST_SHOWN
        shown = {job.label: f"{shortened_name(job.name)}: {_ratio(job)}" for job in ranked[:MOST_SHOWN]}
        return Card(
            f"{len(self.jobs)} jobs on the same draws, by {self.objective}",
            *_comparison_verdict(self, best),
            facts={**shown, "others": f"{rest} behind these" if rest > 0 else ""},
            evidence="same draws; +%: behind the best (90% as measured)",
            assumptions=self.notes[:1] or ("errors of the cost model that the jobs share cancel",),
            next_step=f"prism-jax predict {best.name}",
        )

    def blocks(self) -> Sequence[Block]:
        return [_jobs(self), Note(LEGEND), _matrix(self), *notes(self.notes)]

    def markdown(self) -> list[str]:
        """Returns both tables as Markdown."""
        return [*markdown_table(_jobs(self)), "", *markdown_table(_matrix(self))]


MOST_SHOWN = 3  # jobs on the first screen, and impossible ones of a sweep
LONGEST_NAME = 20
SURE = 0.9  # probability that the best job would be measured as the best


def _comparison_verdict(report: ComparisonReport, best: ComparedJob) -> tuple[str, Tone]:
    chance = percent(best.prob_best)
    if not best.figures.fits:
        return f"No job fits into memory; {best.label} ({best.name}) would be the best.", "bad"
    named = f"{best.label} ({shortened_name(best.name)})"
    if tied := [job.label for job in report.jobs if job.is_tied]:
        return f"{named} and {', '.join(tied)} cannot be told apart by these draws.", "unsure"
    tone: Tone = "good" if best.prob_best >= SURE else "unsure"
    return f"{named} is the best; it would be measured so with probability {chance}.", tone


def _ratio(job: ComparedJob) -> str:
    """The p95, MFU, and how far behind the best it would be measured."""
    own = job.figures
    text = f"p95 {time_to(own.p95_s, max(own.p95_error_s, 1e-3 * own.p95_s))}, MFU {100 * own.mfu:.0f}%"
    if not job.is_best:
        behind, low, high = (share(one - 1.0, sign=True) for one in (job.relative, job.ratio_low, job.ratio_high))
        text += f"; {behind} ({low} to {high})"
    return text if own.fits else f"{text}; does not fit"


def shortened_name(name: str) -> str:
    """The end of a long name, which is where names of files differ."""
    return name if len(name) <= LONGEST_NAME else f"…{name[1 - LONGEST_NAME :]}"


def markdown_table_or_none(
    report: SweepReport | ComparisonReport,
    markdown: Annotated[bool, Option(heading=OUTPUT, help="Print the table as Markdown.")] = False,
) -> list[str] | None:
    """Table that `sweep` and `compare` print in the place of the report."""
    return report.markdown() if markdown else None


def _jobs(report: ComparisonReport) -> Table:
    columns = {
        "": lambda job: f"{job.label}{mark(job)}",
        "job": lambda job: job.name,
        "device": lambda job: job.device,
        **of_figures(COLUMNS, report.sample_unit),
        "relative": _ratio_words,
        "90% as measured": lambda job: "1" if job.is_best else f"{job.ratio_low:.2f}-{job.ratio_high:.2f}",
        "P(best)": lambda job: percent(job.prob_best),
    }
    return Table.of(f"{len(report.jobs)} jobs on the same draws, by {report.objective}", report.jobs, columns)


def _matrix(report: ComparisonReport) -> Table:
    title = "Probability that the job of the row would be measured better than that of the column"
    return probability_table(title, [job.label for job in report.jobs], report.prob_less)
