"""Cells of measured rows and how far off they were in a blind score, for `prism_jax/calibration/presets/evidence.json`.

python experiments/calibrate_steps/evidence.py SCORES.json TABLE... [--out JSON]

SCORES.json is what `python -m experiments.score_steps TABLE... --leave-out source --json` printed for the same tables.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path
from statistics import median

from experiments.step_tables.table import read_step_rows
from prism_jax.calibration.evidence import Cell, cell_of
from prism_jax.core.write_file import write_text

PRESET = Path(__file__).resolve().parents[2] / "prism_jax" / "calibration" / "presets" / "evidence.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scores", type=Path)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=PRESET)
    given = parser.parse_args()
    scored = {row["id"]: row for row in json.loads(given.scores.read_text())["rows"] if row["error"] is not None}
    cells: dict[Cell, dict[str, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
    for table in given.tables:
        for row in read_step_rows(table):
            own = scored.get(row.id)
            if own is not None and not row.defect:
                cells[cell_of(*row.job, row.framework)][row.source].append((abs(own["error"]), bool(own["inside"])))
    plain = [
        {
            "cell": list(cell),
            "rows": [len(rows) for rows in by_source.values()],
            "errors": [round(median(error for error, _ in rows), 3) for rows in by_source.values()],
            "inside": [round(sum(inside for _, inside in rows) / len(rows), 2) for rows in by_source.values()],
        }
        for cell, by_source in sorted(cells.items())
    ]
    text = json.dumps({"made_by": "experiments/calibrate_steps/evidence.py", "cells": plain}, separators=(",", ":"))
    write_text(given.out, text + "\n")
    print(f"wrote {len(plain)} cells of {len(scored):,} rows to {given.out}")


if __name__ == "__main__":
    main()
