"""Scores predictions against a table of published steps, as `prism-jax validate steps` does against a table of jobs.

python -m experiments.score_steps TABLE... [--leave-out source|gpu|model|framework|scale] [--fit FILE] [--deterministic] [--json]

Tables have the schema of reference_rows.json, of steps.csv or of results of MLPerf Training (`experiments/step_tables`), gzipped
or not. Report, text and JSON are those of the command.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.step_tables.table import read_step_rows
from prism_jax.core.errors import PrismError
from prism_jax.core.executor import Workers
from prism_jax.core.processes import start_jax
from prism_jax.validation.picture import plot_accuracy
from prism_jax.validation.report import StepsValidationReport
from prism_jax.validation.validate import WAYS, score_step_rows


def score_steps(*tables: str | Path, **options: Any) -> StepsValidationReport:
    """Predicts the typical step of every row that can be simulated, and scores it; options as those of `score_step_rows`.

    Raises:
        DataError: a table or the calibration cannot be read, or options contradict each other.
    """
    return score_step_rows([row for table in tables for row in read_step_rows(table)], tables, **options)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="+", metavar="TABLE")
    parser.add_argument(
        "--leave-out", choices=WAYS, help="predict every such group by a calibration fitted to the rest"
    )
    parser.add_argument("--fit", metavar="FILE", help="predict with a calibration of `prism-jax calibrate`")
    parser.add_argument("--deterministic", action="store_true", help="leave variability out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes that predict")
    parser.add_argument("--plot", type=Path, help="picture of predicted against measured steps")
    parser.add_argument("--json", action="store_true", help="print the whole report as one object")
    given = parser.parse_args(arguments)
    start_jax()  # as the command does, so that figures are the same to the last digit
    try:
        report = score_steps(
            *given.tables,
            leave_out=given.leave_out,
            fit=given.fit,
            deterministic=given.deterministic,
            seed=given.seed,
            workers=Workers(given.workers),
        )
    except PrismError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.to_json() if given.json else str(report))
    if given.plot:
        plot_accuracy(report.rows).savefig(given.plot)
    return 0


if __name__ == "__main__":
    sys.exit(main())
