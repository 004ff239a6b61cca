"""Columns of tables about jobs, one figure each, and tables as Markdown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite

from ....study.figures import Figures
from ....units import format_bytes, format_s
from ...quantity import with_error
from ...table import Table


@dataclass(frozen=True)
class Column:
    """A figure of the table; `is_known` tells whether a job has it."""

    name: str
    text: Callable[[Figures], str]
    is_known: Callable[[Figures], bool] = lambda _: True


COLUMNS = (
    Column("GPUs", lambda own: f"{own.n_devices:,.0f}"),
    Column("p50", lambda own: format_s(own.p50_s)),
    Column("p95", lambda own: "{} ± {} s".format(*with_error(own.p95_s, own.p95_error_s))),
    Column("p99", lambda own: format_s(own.p99_s)),
    Column("90 % model interval", lambda own: f"{own.p50_s * own.model_low:.3g}-{own.p50_s * own.model_high:.3g} s"),
    Column("tokens/s/GPU", lambda own: f"{own.tokens_per_s_per_gpu:,.4g}"),
    Column("MFU", lambda own: f"{100 * own.mfu:.1f}%"),
    Column("memory", lambda own: format_bytes(own.memory_bytes, 3)),
    Column("W/GPU", lambda own: f"{own.gpu_watts:.0f}", lambda own: isfinite(own.gpu_watts)),
    Column("J/token", lambda own: f"{own.joules_per_token:.3g}", lambda own: isfinite(own.joules_per_token)),
    Column("money/Mtoken", lambda own: f"{own.money_per_mtoken:.4g}", lambda own: isfinite(own.money_per_mtoken)),
)


def shown_columns(known: Sequence[Figures]) -> list[Column]:
    """Columns that one job at least has."""
    return [column for column in COLUMNS if any(map(column.is_known, known))]


def markdown_table(table: Table) -> list[str]:
    """A table as Markdown."""
    rule = ["---:" if table.is_numeric(k) else "---" for k in range(len(table.columns))]
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (table.columns, rule, *table.rows)]
    return [f"| {' | '.join(row)} |" for row in cells]
