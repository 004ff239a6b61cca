"""Figures of blind scores by subset, from what `python -m experiments.score_steps TABLE --leave-out source --json` printed.

python experiments/calibrate_steps/score.py SCORES.json [--data TABLE]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

from experiments.step_tables.table import read_step_rows
from prism_jax.validation.score import MeasuredRow, RowResult, Score, score

STEPS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "steps" / "steps.csv.gz"
NODE = 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--data", type=Path, default=STEPS)
    given = parser.parse_args()
    of_id = {row.id: row for row in read_step_rows(given.data)}
    rows = [RowResult(**row) for row in json.loads(given.scores.read_text())["rows"]]
    scored = [row for row in rows if row.error is not None]
    print(f"{'subset':46s} {'n':>5s} {'median':>7s} {'MAPE':>7s} {'p90':>7s} {'bias':>7s} {'in 90 %':>8s}")
    for name, keep in subsets().items():
        _line(name, score(row for row in scored if keep(of_id[row.id])))
    _line("all, rows with known defects too", score(scored, with_defects=True))


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
