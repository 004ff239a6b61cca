"""Figures of blind scores by table, by subset, by evidence, and next to Calculon's.

python -m experiments.calibrate_steps.score SCORES.json [--data TABLE ...] [--calculon CSV] [--before SCORES.json]

SCORES.json is what `python -m experiments.score_steps TABLE... --leave-out source --json` printed; subsets are those of the
first table. `--before`: scores of another revision; both are also printed on the rows that both predict and neither sets aside.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median

from experiments.step_tables.table import read_step_rows
from prism_jax.validation.score import ClassScore, MeasuredRow, RowResult, Score, Validation, score, validation_of

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
TABLES = ("steps/steps.csv.gz", "steps2/rows.csv.gz", "steps2/new_sources.csv.gz", "steps3/rows.csv.gz")
CALCULON = DATA / "steps" / "calculon.csv"
NODE = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--data", type=Path, nargs="+", default=[DATA / table for table in TABLES])
    parser.add_argument("--calculon", type=Path, default=CALCULON)
    parser.add_argument("--before", type=Path)
    given = parser.parse_args()
    tables = {path: {row.id: row for row in read_step_rows(path)} for path in given.data}
    of_id = next(iter(tables.values()))
    rows = _rows(given.scores)
    _by_table({f"{path.parent.name}/{path.name}": frozenset(own) for path, own in tables.items()}, rows)
    scored = [row for row in rows if row.error is not None]
    print(f"\n{'subset':46s} {'n':>5s} {'median':>7s} {'MAPE':>7s} {'p90':>7s} {'bias':>7s} {'in 90%':>8s}")
    for name, keep in subsets().items():
        _line(name, score(row for row in scored if row.id in of_id and keep(of_id[row.id])))
    _line("all, rows with known defects too", score(scored, with_defects=True))
    found = validation_of(rows)
    _evidence(found)
    if given.before:
        _next_to_before(rows, _rows(given.before))
    if given.calculon.exists():
        print(next_to_calculon([row for row in scored if not row.defect], given.calculon))


def _rows(scores: Path) -> list[RowResult]:
    return [RowResult(**row) for row in json.loads(scores.read_text())["rows"]]


def _by_table(tables: Mapping[str, frozenset[str]], rows: Sequence[RowResult]) -> None:
    """Each table's rows by themselves, the first ones together, and all: errors by row and by source, and what is not scored."""
    print(f"{'table':34s} {'rows':>5s} {'no job':>6s} {'defect':>6s} {'n':>5s} {'median':>7s} {'p90':>7s} {'sources':>7s} "
          f"{'median':>7s} {'in 90%':>8s} {'score':>6s}")  # fmt: skip
    earlier = frozenset().union(*list(tables.values())[:-1])
    for name, ids in {**tables, "all but the last": earlier, "all": earlier.union(*tables.values())}.items():
        own = [row for row in rows if row.id in ids]
        if any(row.error is not None and not row.defect for row in own):
            _table_line(name, own)


def _table_line(name: str, own: Sequence[RowResult]) -> None:
    found = validation_of(own)
    one, sources = found.overall, found.sources
    defects = sum(bool(row.defect) for row in own)
    print(f"{name:34s} {len(own):5d} {one.n_unsupported / len(own):6.1%} {defects / len(own):6.1%} {one.n:5d} "
          f"{one.median_ape:7.1%} {one.p90_ape:7.1%} {sources.n:7d} {sources.mean_median_ape:7.1%} "
          f"{sources.mean_coverage_90:8.1%} {sources.mean_interval_score:6.3f}")  # fmt: skip


def _next_to_before(rows: Sequence[RowResult], before: Sequence[RowResult]) -> None:
    """Scores of two revisions on the rows that both predict and neither sets aside."""
    scored = [{row.id for row in of if row.error is not None and not row.defect} for of in (rows, before)]
    both = scored[0] & scored[1]
    print()
    for name, of in (("now, rows of both", rows), ("before, rows of both", before)):
        _table_line(name, [row for row in of if row.id in both])


def _evidence(found: Validation) -> None:
    """What is asked of the width of intervals: by how much is known, by row and by source."""
    print(f"\n{'evidence':10s} {'n':>5s} {'width':>6s} {'score':>6s} {'CRPS':>6s} {'in 90%':>8s}   {'sources':>7s} "
          f"{'median':>7s} {'score':>6s} {'in 90%':>8s} {'< 60%':>6s} {'width ~ error':>13s}")  # fmt: skip
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
