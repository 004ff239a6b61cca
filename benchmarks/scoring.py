"""Scores measured steps in one process: rows a second, with variability and without.

    python -m benchmarks.scoring TABLE [--every N]

TABLE is one that `experiments.score_steps` reads, `steps.csv.gz` for instance; every N-th row is taken. Seconds are user seconds
of the process, which starts JAX before. Each way runs twice: first, and with the pipelines that the first has laid out.
"""

from __future__ import annotations

import argparse
import resource

from experiments.step_tables.table import read_step_rows
from prism_jax.core.processes import start_jax
from prism_jax.validation.validate import score_step_rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table")
    parser.add_argument("--every", type=int, default=13, metavar="N")
    given = parser.parse_args()
    start_jax()
    rows = read_step_rows(given.table)[:: given.every]
    for run in ("first", "again"):
        for deterministic in (True, False):
            before = resource.getrusage(resource.RUSAGE_SELF).ru_utime
            score_step_rows(rows, [given.table], deterministic=deterministic)
            took_s = resource.getrusage(resource.RUSAGE_SELF).ru_utime - before
            way = "without variability" if deterministic else "typical steps"
            print(f"{run}, {way}: {len(rows)} rows in {took_s:.1f} s: {len(rows) / took_s:.0f} rows/s")


if __name__ == "__main__":
    main()
