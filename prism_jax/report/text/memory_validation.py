"""Predicted against measured peak memory as text."""

from __future__ import annotations

from ..table import Table
from ..types.validation import MemoryOutcomes, MemoryValidationReport

COLUMNS = (
    ("model", "n", "right", "majority", "fits: right", "fits: wrong", "oom: right", "oom: wrong")
    + ("peaks", "median error", "bias")
)  # fmt: skip


def lines(report: MemoryValidationReport) -> list[str]:
    """The report, line by line."""
    return table(report).lines()


def table(report: MemoryValidationReport) -> Table:
    """One row per model, and all together."""
    groups = [*report.by_model.items(), ("overall", report.overall)]
    return Table("fits or runs out of memory, by model", COLUMNS, [_cells(*group) for group in groups])


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
