"""Scores the memory model against a table of layouts that fitted or not, as `prism-jax validate memory` does against jobs.

python -m experiments.score_memory TABLE [--json]

The table has the schema of memory_oom.csv (`experiments/step_tables/memory_table.py`), gzipped or not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from experiments.step_tables.memory_table import classify_rows
from prism_jax.core.errors import PrismError
from prism_jax.validation.validate import memory_report


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", metavar="TABLE")
    parser.add_argument("--json", action="store_true", help="print the whole report as one object")
    given = parser.parse_args(arguments)
    try:
        report = memory_report(classify_rows(given.table), given.table)
    except PrismError as error:
        print(error, file=sys.stderr)
        return 2
    print(report.to_json() if given.json else str(report))
    return 0


if __name__ == "__main__":
    sys.exit(main())
