"""`prism-jax validate memory FILE`: which layouts are called right, fits or out of memory, and the error of the peak."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..options import Json
from ..output import print_json, print_table

if TYPE_CHECKING:
    from ...io.tables.memory_table import Confusion, MemorySummary

Table = Annotated[
    str,
    typer.Argument(
        metavar="FILE", help="CSV in the schema of memory_oom.csv: one layout per line, Success or OOM; .gz too."
    ),
]


COLUMNS = (
    ("model", "n", "right", "majority", "fits: right", "fits: wrong", "oom: right", "oom: wrong")
    + ("peaks", "median error", "bias")
)  # fmt: skip


def memory(file: Table, json: Json = False) -> None:
    """Predict which layouts run out of memory and how much the others need, and compare with what was measured."""
    from ...io.tables.memory_table import classify_rows
    from ...io.write import run_record

    summary = classify_rows(file)
    if json:
        print_json({**_record(summary), **run_record({"file": file}, 0)})
        return
    names = list(summary.by_model())
    groups = [(name, summary.of_model(name)) for name in names] + [("overall", summary)]
    print_table(
        "fits or runs out of memory, by model",
        COLUMNS,
        [_cells(*group) for group in groups],
    )


def _cells(name: str, summary: MemorySummary) -> list[str]:
    found, peak = summary.overall, _peak(summary)
    counts = (found.fits_fits, found.fits_oom, found.oom_oom, found.oom_fits)
    errors = ["-", "-"] if not peak["n"] else [f"{peak['median_ape']:.1%}", f"{peak['bias']:+.1%}"]
    return [
        name,
        str(found.n),
        f"{found.accuracy:.1%}",
        f"{found.majority_accuracy:.1%}",
        *map(str, counts),
        str(peak["n"]),
        *errors,
    ]


def _record(summary: MemorySummary) -> dict[str, Any]:
    def both(part: MemorySummary) -> dict[str, Any]:
        return {**_outcomes(part.overall), "peak_bytes": _peak(part)}

    return {"overall": both(summary), "by_model": {name: both(summary.of_model(name)) for name in summary.by_model()}}


def _outcomes(found: Confusion) -> dict[str, Any]:
    """Counts of what happened and what was predicted; `majority_accuracy`: what the commoner outcome alone gets right."""
    return {
        "n": found.n,
        "accuracy": found.accuracy,
        "majority_accuracy": found.majority_accuracy,
        "fits_called_fits": found.fits_fits,
        "fits_called_oom": found.fits_oom,
        "oom_called_fits": found.oom_fits,
        "oom_called_oom": found.oom_oom,
    }


def _peak(summary: MemorySummary) -> dict[str, Any]:
    """Relative errors of the allocator's peak over the rows that ran and report it; None where none does."""
    import numpy as np

    errors = np.array(summary.reserved_errors())
    if not errors.size:
        return {"n": 0, "median_ape": None, "mape": None, "bias": None, "p90_ape": None}
    size = np.abs(errors)
    return {
        "n": errors.size,
        "median_ape": float(np.median(size)),
        "mape": float(size.mean()),
        "bias": float(errors.mean()),
        "p90_ape": float(np.quantile(size, 0.9)),
    }
