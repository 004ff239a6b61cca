"""The calibration that the package ships: fitted to the measured steps of the shared data, written to the cost presets.

python experiments/calibrate_steps/run.py [--data TABLE ...] [--out JSON_OR_NC] [--draws N] [--without TEXT ...]
python experiments/calibrate_steps/run.py --workloads-only          # what is kept of transformers stays as it is

Rows of other kinds of model (`--workloads`) decide the level of the workload alone (`inference/cost_model/calibrate.py`).
`--without` leaves sources out whose name holds a text; an `--out` that ends in .npz is what `prism-jax predict --fit`
and `python -m experiments.score_steps --fit` read.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import jax

from experiments.calibrate_steps.workloads import with_workloads
from experiments.step_tables.table import read_step_rows
from inference.cost_model.calibrate import Calibrator, row_data, thinned_rows, usable
from inference.cost_model.store import save
from prism_jax.calibration.calibration import Calibration, shipped
from prism_jax.calibration.key import workload_of
from prism_jax.core.write_file import run_record, write_text
from prism_jax.validation.score import MeasuredRow

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[1] / ".." / "shared" / "data"
NAMES = ("steps/steps.csv.gz", "steps2/rows.csv.gz", "steps2/new_sources.csv.gz", "steps3/rows.csv.gz")
TABLES = [DATA / name for name in NAMES]
WORKLOADS = [DATA / "steps/steps_nonllm.csv.gz"]
PRESET = HERE.parents[1] / "prism_jax" / "calibration" / "presets" / "calibration.json"
DRAWS = 96
SEED = 0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", default=TABLES)
    parser.add_argument("--workloads", type=Path, nargs="*", default=WORKLOADS)
    parser.add_argument("--workloads-only", action="store_true")
    parser.add_argument("--out", type=Path, default=PRESET)
    parser.add_argument("--draws", type=int, default=DRAWS)
    parser.add_argument("--without", nargs="*", default=[])
    given = parser.parse_args()
    started = time.perf_counter()
    if given.workloads_only:
        made = shipped()
    else:
        made = of_transformers(given.data, given.without, given.draws)
        print(f"transformers after {time.perf_counter() - started:.0f} s")
    if given.workloads:
        others = rows_of([*given.data, *given.workloads], given.without)
        made = with_workloads(made, others, key=jax.random.key(SEED))
    if given.out.suffix == ".npz":
        save(made, given.out)
    else:
        write_text(given.out, json.dumps(made.as_dict(), separators=(",", ":")) + "\n")
    print(f"wrote {given.out} after {time.perf_counter() - started:.0f} s")


def rows_of(tables: Sequence[Path], without: Sequence[str]) -> list[MeasuredRow]:
    """Usable rows of all tables."""
    read = [row for table in tables for row in read_step_rows(table)]
    return [row for row in usable(read) if not any(text in row.source for text in without)]


def of_transformers(tables: Sequence[Path], without: Sequence[str], draws: int) -> Calibration:
    """The calibration without what is known of other kinds of model."""
    rows = [row for row in rows_of(tables, without) if not workload_of(row.job[0])]
    kept = thinned_rows(rows)
    data = row_data(kept)
    print(f"{len(kept)} of {len(rows)} rows")
    record = {
        "rows": len(rows),
        "sources": dict(sorted(Counter(row.source for row in rows).items())),
        "made_by": "experiments/calibrate_steps/run.py",
        **{name: run_record({}, SEED)[name] for name in ("seed", "versions")},
    }
    return Calibrator(data).fit(data, key=jax.random.key(SEED), n_draw=draws, record=record)


if __name__ == "__main__":
    main()
