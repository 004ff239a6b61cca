"""Measured runs of a site from a table of jobs (`prism_jax/io/tables/job_table.py`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from prism_jax.errors import DataError
from prism_jax.io.tables.job_table import MeasuredRun, read_job_table


@dataclass(frozen=True)
class SiteTable:
    """Runs that can be used, and why the others cannot: id -> reason."""

    runs: tuple[MeasuredRun, ...]
    dropped: Mapping[str, str]


def read_site_runs(path: str | Path) -> SiteTable:
    """The runs of a table; those without a time are left out.

    Raises:
        DataError: the file cannot be read, a row is malformed, or no row can be used; names row and field.
    """
    found = read_job_table(path)
    runs = tuple(run for run in found if not math.isnan(run.measured_s))
    if not runs:
        raise DataError(f"{Path(path).name}: no row has a measured time, so there is nothing to calibrate with")
    return SiteTable(runs, {run.id: "no measured time" for run in found if math.isnan(run.measured_s)})
