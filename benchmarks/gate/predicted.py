"""Predictions of the gate's jobs, and the file they are compared with: median step and 90% interval, seconds, five digits."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

from prism_jax.core.write_file import write_text
from prism_jax.validation.costed import costed, intervals, step_times

from .jobs import GateJob

EXPECTED = Path(__file__).resolve().parent / "expected.csv"


@dataclass(frozen=True)
class Predicted:
    """Median step and the bounds of what would be measured, seconds."""

    p50_s: float
    low_s: float
    high_s: float


NAMES = tuple(item.name for item in fields(Predicted))


def predictions(jobs: Sequence[GateJob]) -> dict[str, Predicted]:
    """Name of a job -> its prediction."""
    costs = [costed(one.job) for one in jobs]
    p50_s = step_times(costs).typical_s
    bounds_s = intervals(costs) * p50_s[:, None]
    return {
        one.job.name: Predicted(float(typical), float(low), float(high))
        for one, typical, (low, high) in zip(jobs, p50_s, bounds_s, strict=True)
    }


def write(found: Mapping[str, Predicted], path: Path = EXPECTED) -> None:
    """Writes predictions, sorted by name."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(("id", *NAMES))
    table.writerows((name, *(f"{value:.5g}" for value in astuple(found[name]))) for name in sorted(found))
    write_text(path, text.getvalue())


def read(path: Path = EXPECTED) -> dict[str, Predicted]:
    """Predictions that `write` wrote."""
    with path.open(encoding="utf-8", newline="") as file:
        return {row["id"]: Predicted(*(float(row[name]) for name in NAMES)) for row in csv.DictReader(file)}
