"""The calibration that the package ships: fitted to the measured steps of the shared data, written to the cost presets.

python experiments/calibrate_steps/run.py [--data TABLE ...] [--out JSON_OR_NC] [--draws N] [--without TEXT ...]

`--without` leaves sources out whose name holds a text; an `--out` that ends in .npz is what `prism-jax validate steps --fit` and
`predict --fit` read.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path

import jax

from inference.cost_model.calibrate import calibrate
from inference.cost_model.step_folds import thinned_rows
from inference.cost_model.step_rows import row_data, usable
from inference.cost_model.store import save
from prism_jax.io.tables.steps.table import read_step_rows
from prism_jax.io.write import run_record, write_text

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / ".." / "shared" / "data"
TABLES = [DATA / name for name in ("steps/steps.csv.gz", "steps2/rows.csv.gz", "steps2/new_sources.csv.gz")]
PRESET = HERE.parents[1] / "prism_jax" / "calibration" / "presets" / "calibration.json"
DRAWS = 96
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=TABLES)
    parser.add_argument("--out", type=Path, default=PRESET)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    started = time.perf_counter()
    read = [row for table in given.data for row in read_step_rows(table)]
    rows = [row for row in usable(read) if not any(text in row.source for text in given.without)]
    kept = thinned_rows(rows)
    data = row_data(kept)
    print(f"{len(kept)} of {len(rows)} rows, outlines and stragglers after {time.perf_counter() - started:.0f} s")
    record = {
        "rows": len(rows),
        "sources": dict(sorted(Counter(row.source for row in rows).items())),
        "made_by": "experiments/calibrate_steps/run.py",
        **{name: run_record({}, SEED)[name] for name in ("seed", "versions")},
    }
    made = calibrate(data, key=jax.random.key(SEED), n_draw=given.draws, record=record)
    if given.out.suffix == ".npz":
        save(made, given.out)
    else:
        write_text(given.out, json.dumps(made.as_dict(), separators=(",", ":")) + "\n")
    print(f"wrote {given.out} after {time.perf_counter() - started:.0f} s")


if __name__ == "__main__":
    main()
