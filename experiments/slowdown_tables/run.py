"""How probable slow steps and slow jobs are, from 1,024 to 131,072 GPUs, against the step without variability.

    python -m experiments.slowdown_tables.run [--plot slowdown_tables.png] [--csv FILE] [--check]

Prints a table per job and writes its figures into `expected.json`; with `--check` it compares with that file instead, and exits
with 1 where a figure has moved by more than its tolerance.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from experiments.common import check_or_keep, start
from experiments.slowdown_tables.plot import draw
from experiments.slowdown_tables.tables import SlowdownRow, closed_form_errors, slowdown_row
from prism_jax import load_job

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected.json"
CLOSED_FORM = 1e-3  # largest difference from 1 - (1 - p)^n
TOLERANCES = {"predicted": CLOSED_FORM, "closed form": 1e-4}  # 0.01 for all others
TOLERANCE = 0.01


def all_rows(config: Mapping[str, Any]) -> list[SlowdownRow]:
    """Every job at every size and spread."""
    rows = []
    for name, setting in config["jobs"].items():
        job = load_job(setting["job"], setting["set"])
        print(f"-- {name}: P(step > (1 + d) healthy) | P(job > (1 + d) plan)")
        for n_gpu in config["sizes"]:
            for scale in config["scales"]:
                rows.append(slowdown_row(name, job, n_gpu, scale, config))
                print(_line(rows[-1]), flush=True)
    return rows


def _line(row: SlowdownRow) -> str:
    steps, jobs = (" ".join(f"{p:6.1%}" for p in probs.values()) for probs in (row.step_prob, row.job_prob))
    return f"{row.n_gpu:7,} GPUs, CV x {row.scale:<3g} p95 {row.p95 - 1.0:+6.1%}: {steps} | {jobs}  (error {row.error:.1%})"


def kept(rows: Sequence[SlowdownRow], sizes: Sequence[int], slowdowns: Sequence[float]) -> dict[str, dict[str, float]]:
    """Figures that are compared."""
    return {
        f"{row.job}, {row.n_gpu} GPUs, CV x {row.scale:g}": {
            f"{what} {d:.0%}": round(probs[d], 5)
            for what, probs in (("step", row.step_prob), ("job", row.job_prob))
            for d in slowdowns
        }
        for row in rows
        if row.n_gpu in sizes
    }


def write_csv(rows: Sequence[SlowdownRow], path: str) -> None:
    """Writes one line per job, size, spread and slow-down."""
    with open(path, "w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(("job", "n_gpu", "scale", "healthy_s", "slowdown", "step_prob", "job_prob"))
        for row in rows:
            for d, prob in row.step_prob.items():
                table.writerow((row.job, row.n_gpu, row.scale, row.healthy_s, d, prob, row.job_prob[d]))


def main() -> int:
    start()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--plot", metavar="FILE")
    parser.add_argument("--csv", metavar="FILE")
    parser.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    options = parser.parse_args()
    config = yaml.safe_load((HERE / "config.yaml").read_text())
    exact = closed_form_errors(config["closed_form"], config["seed"], config["closed_form"]["sizes"])
    worst = max(abs(known - predicted) for known, predicted in exact.values())
    print(
        f"one GPU decides: predicted within {worst:.1e} of 1 - (1 - p)^n at {len(exact)} points (bar {CLOSED_FORM:g})"
    )
    rows = all_rows(config)
    found = kept(rows, **config["kept"])
    found |= {name: {"closed form": known, "predicted": predicted} for name, (known, predicted) in exact.items()}
    if options.plot:
        draw(rows, config["shown"], options.plot)
    if options.csv:
        write_csv(rows, options.csv)
    names = {name for figures in found.values() for name in figures}
    tolerances = {**dict.fromkeys(names, TOLERANCE), **TOLERANCES}
    return max(check_or_keep(found, EXPECTED, options.check, tolerances), int(worst > CLOSED_FORM))


if __name__ == "__main__":
    sys.exit(main())
