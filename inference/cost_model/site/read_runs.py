"""Measured runs of a site from a CSV: rows of a steps table, or rows that name a job file.

A steps table has the schema of `steps.csv` (columns id, source, gpu, num_gpus, measured_step_time_s; model, tp, pp, ...); one
with a column `job` that of `prism_jax/io/job_table.py`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from prism_jax.errors import DataError
from prism_jax.io.tables.job_table import MeasuredRun, is_job_table, read_job_table
from prism_jax.io.tables.packed import read_packed_text
from prism_jax.io.tables.steps.table import StepRow, step_rows_of
from prism_jax.validation.costed import job_of_row

from ..step_rows import usable

WHAT = "a table of measured steps in CSV"


@dataclass(frozen=True)
class SiteTable:
    """Runs that can be used, and why the others cannot: id -> reason."""

    runs: tuple[MeasuredRun, ...]
    dropped: Mapping[str, str]


def read_site_runs(path: str | Path) -> SiteTable:
    """The runs of a table.

    Raises:
        DataError: the file cannot be read, a row is malformed, or no row can be used; names row and field.
        ConfigError: what a row says of its job is wrong.
    """
    file = Path(path)
    text = read_packed_text(file, WHAT)
    found = SiteTable(read_job_table(file, text), {}) if is_job_table(text) else _rows(step_rows_of(text, file.name))
    if not found.runs:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in list(found.dropped.items())[:3])
        raise DataError(f"{file.name}: no row can be used ({reasons})")
    return found


def _rows(rows: Sequence[StepRow]) -> SiteTable:
    kept = usable(rows)
    used = {id(row) for row in kept}
    lost = [row for row in rows if id(row) not in used]
    return SiteTable(
        tuple(MeasuredRun(row.id, job_of_row(row), row.measured_s or math.nan) for row in kept),
        {row.id: row.unsupported or row.defect or "no measured time" for row in lost},
    )
