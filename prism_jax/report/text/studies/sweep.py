"""A grid of jobs as lines of plain text, or as a Markdown table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from ....study.figures import Figures
from ....units import format_bytes, format_s
from ...quantity import with_error
from ...table import Table
from ...types.studies.sweep import SweepReport, SweepRow

MOST_REASONS = 4  # of impossible jobs that are told
SIZE = "cluster.n_devices"


def lines(report: SweepReport) -> list[str]:
    """The report, line by line."""
    best = next((row for row in report.rows if row.is_best), None)
    told = [f"best by {report.objective}: {_words(report, best)}"] if best else []
    notes = [*_reasons(report), *(f"note: {note}" for note in report.notes)]
    legend = "* best   = not told apart from it by these draws   ! does not fit into memory   ± Monte Carlo error"
    return [*_table(report).lines(), legend, *told, *notes, f"seed {report.record.seed}; {report.elapsed_s:.1f} s"]


def markdown(report: SweepReport) -> list[str]:
    """The table alone, as Markdown."""
    table = _table(report)
    rule = ["---:" if table.is_numeric(k) else "---" for k in range(len(table.columns))]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (table.columns, rule, *table.rows)]
    return [f"| {' | '.join(row)} |" for row in cells]


def _table(report: SweepReport) -> Table:
    known = [row.figures for row in report.rows if row.figures is not None]
    shown = [column for column in COLUMNS if any(column.is_known(own) for own in known)]
    shown = [column for column in shown if column.name != "GPUs" or SIZE not in report.axes]
    columns = ("", *map(short, report.axes), *(column.name for column in shown), "relative")
    title = f"{report.job}: {len(report.rows):,} jobs, by {report.objective}"
    return Table(title, columns, [_cells(row, shown, report.axes) for row in report.rows])


@dataclass(frozen=True)
class _Column:
    """A figure of the table; `is_known` tells whether a job has it."""

    name: str
    text: Callable[[Figures], str]
    is_known: Callable[[Figures], bool] = lambda _: True


COLUMNS = (
    _Column("GPUs", lambda own: f"{own.n_devices:,.0f}"),
    _Column("p50", lambda own: format_s(own.p50_s)),
    _Column("p95", lambda own: "{} ± {} s".format(*with_error(own.p95_s, own.p95_error_s))),
    _Column("p99", lambda own: format_s(own.p99_s)),
    _Column("90 % model interval", lambda own: f"{own.p50_s * own.model_low:.3g}-{own.p50_s * own.model_high:.3g} s"),
    _Column("tokens/s/GPU", lambda own: f"{own.tokens_per_s_per_gpu:,.4g}"),
    _Column("MFU", lambda own: f"{100 * own.mfu:.1f}%"),
    _Column("memory", lambda own: format_bytes(own.memory_bytes, 3)),
    _Column("W/GPU", lambda own: f"{own.gpu_watts:.0f}", lambda own: isfinite(own.gpu_watts)),
    _Column("J/token", lambda own: f"{own.joules_per_token:.3g}", lambda own: isfinite(own.joules_per_token)),
    _Column("money/Mtoken", lambda own: f"{own.money_per_mtoken:.4g}", lambda own: isfinite(own.money_per_mtoken)),
)


def _cells(row: SweepRow, shown: Sequence[_Column], axes: Sequence[str]) -> tuple[str, ...]:
    own, labels = row.figures, tuple(row.settings.get(axis, "") for axis in axes)
    if own is None:
        return ("", *labels, *("" for _ in shown), "impossible")
    mark = "*" if row.is_best else "=" if row.is_tied else ""
    ratio, error = with_error(row.relative, row.relative_error)
    relative = "1.00" if row.is_best else f"{ratio} ± {error}"
    return (mark + ("" if own.fits else "!"), *labels, *(column.text(own) for column in shown), relative)


def _reasons(report: SweepReport) -> list[str]:
    """Why jobs are impossible: each reason once, with the first job that has it."""
    first = {row.problem: row for row in reversed(report.rows) if row.problem}
    told = [f"impossible: {_words(report, row)}: {reason}" for reason, row in list(first.items())[::-1]]
    more = [f"and {len(told) - MOST_REASONS} more reasons (--json has all)"] if len(told) > MOST_REASONS else []
    return [*told[:MOST_REASONS], *more]


def short(field: str) -> str:
    """The last word of a field: tp of plan.tp."""
    return field.rsplit(".", 1)[-1]


def _words(report: SweepReport, row: SweepRow) -> str:
    return ", ".join(f"{short(axis)} {row.settings[axis]}" for axis in report.axes) or report.job
