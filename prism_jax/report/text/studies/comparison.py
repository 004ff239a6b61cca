"""A few jobs compared, as lines of plain text or as Markdown tables."""

from __future__ import annotations

from ....explain.words import percent
from ...quantity import with_error
from ...table import Table
from ...types.studies.comparison import ComparedJob, ComparisonReport
from .columns import markdown_table, shown_columns


def lines(report: ComparisonReport) -> list[str]:
    """The report, line by line."""
    legend = "* best   = not told apart from it by these draws   ! does not fit into memory   ± Monte Carlo error"
    return [
        *_jobs(report).lines(),
        legend,
        *_matrix(report).lines(),
        *(f"note: {note}" for note in report.notes),
        f"seed {report.record.seed}; {report.elapsed_s:.1f} s",
    ]


def markdown(report: ComparisonReport) -> list[str]:
    """Both tables as Markdown."""
    return [*markdown_table(_jobs(report)), "", *markdown_table(_matrix(report))]


def _jobs(report: ComparisonReport) -> Table:
    shown = shown_columns([job.figures for job in report.jobs])
    head = ("", "job", "device", *(column.name for column in shown), "relative", "90 % as measured", "P(best)")
    rows = []
    for job in report.jobs:
        cells = (column.text(job.figures) for column in shown)
        ratio = "1" if job.is_best else f"{job.ratio_low:.2f}-{job.ratio_high:.2f}"
        rows.append((_label(job), job.name, job.device, *cells, _relative(job), ratio, percent(job.prob_best)))
    return Table(f"{len(report.jobs)} jobs on the same draws, by {report.objective}", head, rows)


def _matrix(report: ComparisonReport) -> Table:
    labels = [job.label for job in report.jobs]
    rows = [
        (own, *("" if own == other else percent(prob) for other, prob in zip(labels, probs, strict=True)))
        for own, probs in zip(labels, report.prob_less, strict=True)
    ]
    title = "Probability that the job of the row would be measured better than that of the column, errors they share counted once"
    return Table(title, ("", *labels), rows)


def _label(job: ComparedJob) -> str:
    return job.label + ("*" if job.is_best else "=" if job.is_tied else "") + ("" if job.figures.fits else "!")


def _relative(job: ComparedJob) -> str:
    return "1.00" if job.is_best else "{} ± {}".format(*with_error(job.relative, job.relative_error))
