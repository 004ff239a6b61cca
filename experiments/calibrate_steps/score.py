"""Figures of blind scores by subset, by evidence, and next to Calculon's.

python -m experiments.calibrate_steps.score SCORES.json [--data TABLE] [--calculon CSV] [--before SCORES.json]

SCORES.json is what `python -m experiments.score_steps TABLE... --leave-out source --json` printed.
`--before`: of another revision; mean interval scores by source are printed over its.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, median

from experiments.step_tables.table import read_step_rows
from prism_jax.validation.score import ClassScore, MeasuredRow, RowResult, Score, Validation, score, validation_of

STEPS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "steps" / "steps.csv.gz"
CALCULON = STEPS.parent / "calculon.csv"
NODE = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--data", type=Path, default=STEPS)
    parser.add_argument("--calculon", type=Path, default=CALCULON)
    parser.add_argument("--before", type=Path)
    given = parser.parse_args()
    of_id = {row.id: row for row in read_step_rows(given.data)}
    rows = _rows(given.scores)
    scored = [row for row in rows if row.error is not None]
    print(f"{'subset':46s} {'n':>5s} {'median':>7s} {'MAPE':>7s} {'p90':>7s} {'bias':>7s} {'in 90 %':>8s}")
    for name, keep in subsets().items():
        _line(name, score(row for row in scored if row.id in of_id and keep(of_id[row.id])))
    _line("all, rows with known defects too", score(scored, with_defects=True))
    found = validation_of(rows)
    _evidence(found)
    if given.before:
        before = validation_of(_rows(given.before)).sources.mean_interval_score
        print(f"interval score, mean by source: {found.sources.mean_interval_score:.3f}, before {before:.3f}")
    if given.calculon.exists():
        print(next_to_calculon([row for row in scored if not row.defect], given.calculon))


def _rows(scores: Path) -> list[RowResult]:
    return [RowResult(**row) for row in json.loads(scores.read_text())["rows"]]


def _evidence(found: Validation) -> None:
    """What is asked of the width of intervals: by how much is known, by row and by source."""
    print(f"\n{'evidence':10s} {'n':>5s} {'width':>6s} {'score':>6s} {'CRPS':>6s} {'in 90 %':>8s}   {'sources':>7s} "
          f"{'median':>7s} {'score':>6s} {'in 90 %':>8s} {'< 60 %':>6s} {'width ~ error':>13s}")  # fmt: skip
    for name, one in {"all": ClassScore(found.overall, found.sources), **found.by_class}.items():
        rows, sources = one.rows, one.sources
        correlation = sources.width_follows_error
        print(f"{name:10s} {rows.n:5d} {rows.sharpness.width:6.2f} {rows.sharpness.interval_score:6.2f} "
              f"{rows.sharpness.crps:6.3f} {rows.coverage_90:8.1%}   {sources.n:7d} {sources.mean_median_ape:7.1%} "
              f"{sources.mean_interval_score:6.2f} {sources.mean_coverage_90:8.1%} {sources.n_large_low:6d} "
              f"{correlation if correlation is None else round(correlation, 2)!s:>13}")  # fmt: skip


def next_to_calculon(rows: Sequence[RowResult], table: Path) -> str:
    """Median errors on the rows that Calculon can express, by row and by source, ours over its.

    Args:
        table: CSV with id, source, measured_s, calculon_s; no row of it is printed.
    """
    with table.open(newline="") as file:
        its = {
            (row["source"], row["id"]): float(row["calculon_s"]) for row in csv.DictReader(file) if row["calculon_s"]
        }
    both: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        theirs = its.get((row.source, row.id))
        if theirs is not None and row.error is not None and row.measured_s:
            both.setdefault(row.source, []).append((abs(row.error), abs(theirs / row.measured_s - 1.0)))
    if not both:
        return "no row that Calculon can express"
    every = [pair for own in both.values() for pair in own]
    by_row = [median(pair[k] for pair in every) for k in (0, 1)]
    by_source = [mean(median(pair[k] for pair in own) for own in both.values()) for k in (0, 1)]
    return (
        f"on {len(every):,} rows of {len(both)} sources that Calculon can express: by row {by_row[0]:.1%}, Calculon "
        f"{by_row[1]:.1%}, ratio {by_row[0] / by_row[1]:.2f}; by source {by_source[0]:.1%}, {by_source[1]:.1%}, "
        f"{by_source[0] / by_source[1]:.2f}"
    )


def subsets() -> dict[str, Callable[[MeasuredRow], bool]]:
    return {
        "all": lambda row: True,
        "vTrain, several nodes": lambda row: "vTrain" in row.source and row.job[2].n_devices > NODE,
        "vTrain, one node": lambda row: "vTrain" in row.source and row.job[2].n_devices <= NODE,
        "the A100 rows of 2104.04473 and 2205.05198": lambda row: (
            "2104.04473" in row.source or "2205.05198" in row.source
        ),
        "dense": lambda row: not row.job[0].has_experts,
        "mixture of experts": lambda row: row.job[0].has_experts,
        "one node": lambda row: row.job[2].n_devices <= NODE,
        "64 devices and more": lambda row: row.job[2].n_devices >= 64,
    }


def _line(name: str, found: Score) -> None:
    figures = (found.median_ape, found.mape, found.p90_ape, found.bias, found.coverage_90)
    print(f"{name:46s} {found.n:5d} " + " ".join(" " * 6 + "-" if x is None else f"{x:7.1%}" for x in figures))


if __name__ == "__main__":
    main()
