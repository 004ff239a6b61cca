"""What was measured near a job, and how wide intervals must be for it: `prism_jax/calibration/presets/evidence.json`.

python -m experiments.calibrate_steps.evidence SCORES.json TABLE... [--out JSON] [--rescore JSON]

SCORES.json is what `python -m experiments.score_steps TABLE... --leave-out source --json` printed for the same tables. Of it come
cells of rows with their errors, and the law of widths (`experiments/calibrate_steps/widths.py`), once for all sources and once
without each, which blind scores of that source use. `--rescore` writes the same scores under the new law.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from experiments.calibrate_steps.widths import Widths, rescored, width_law_of, widths_of
from experiments.step_tables.table import read_step_rows
from prism_jax.calibration.evidence import Cell, cell_of
from prism_jax.calibration.key import workload_of
from prism_jax.core.write_file import write_text
from prism_jax.validation.score import MeasuredRow

PRESET = Path(__file__).resolve().parents[2] / "prism_jax" / "calibration" / "presets" / "evidence.json"
Scored = list[tuple[MeasuredRow, Mapping[str, Any]]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path)
    parser.add_argument("tables", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=PRESET)
    parser.add_argument("--rescore", type=Path)
    given = parser.parse_args()
    plain = json.loads(given.scores.read_text())
    by_id = {(row["source"], row["id"]): row for row in plain["rows"] if row["error"] is not None}
    read = [row for table in given.tables for row in read_step_rows(table)]
    scored = [(row, by_id[row.source, row.id]) for row in read if (row.source, row.id) in by_id and not row.defect]
    sources = sorted({row.source for row, _ in scored})
    rows = widths_of([pair for pair in scored if not workload_of(pair[0].job[0])])  # others have widths of their own
    law = width_law_of(rows)
    made = {
        "made_by": "experiments/calibrate_steps/evidence.py",
        "sources": sources,
        "cells": cells_of(scored, sources),
        "width": {"all": law(""), "without": {source: law(source) for source in sources}},
    }
    write_text(given.out, json.dumps(made, separators=(",", ":")) + "\n")
    print(f"wrote {len(made['cells'])} cells of {len(scored):,} rows of {len(sources)} sources to {given.out}")
    print("usual, by reason, unsaid:", made["width"]["all"])
    if given.rescore:
        write_text(
            given.rescore, json.dumps(plain | {"rows": _rescored(plain["rows"], rows, made["width"]["without"])})
        )


def _rescored(plain: Sequence[dict[str, Any]], rows: Widths, laws: Mapping[str, list[float]]) -> list[dict[str, Any]]:
    """All rows as they were, those that are scored with other intervals."""
    moved = rescored(rows, laws)
    return [row | moved.get((row["source"], row["id"]), {}) for row in plain]


def cells_of(scored: Scored, sources: Sequence[str]) -> list[dict[str, Any]]:
    """Cells with rows, errors and coverage of every source that has some there."""
    cells: dict[Cell, dict[str, list[tuple[float, bool]]]] = defaultdict(lambda: defaultdict(list))
    for row, own in scored:
        cells[cell_of(*row.job, row.framework)][row.source].append((abs(own["error"]), bool(own["inside"])))
    return [
        {
            "cell": list(cell),
            "sources": [sources.index(source) for source in by_source],
            "rows": [len(rows) for rows in by_source.values()],
            "errors": [round(median(error for error, _ in rows), 3) for rows in by_source.values()],
            "inside": [round(sum(inside for _, inside in rows) / len(rows), 2) for rows in by_source.values()],
        }
        for cell, by_source in sorted(cells.items())
    ]


if __name__ == "__main__":
    main()
