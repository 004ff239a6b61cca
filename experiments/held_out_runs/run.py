"""Is the time of the last 90% of a run told by its first 10% and its configuration?

python experiments/held_out_runs/run.py [--data ../shared/data] [--leave source|group] [--half] [--check] [--ship]

The law of drift (`prism_jax/horizon/remaining`) is fitted to all sources but one, its errors to sources that were left out of
*these* in turn, and every run of the source left out is predicted from its first tenth: nothing of a source is in the law that
predicts it. `--leave group` leaves out a tenth of the groups instead, as if other systems of a source were known. The trivial
prediction beside it: as many independent draws of the first steps, whose spread grows with the root of their number. Writes
`expected.json`; `--check` compares instead and exits with 1 where a figure has moved.
"""

from __future__ import annotations

import argparse
import json
import sys
import zlib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from experiments.common import check
from experiments.held_out_runs.fit import SPANS, Cuts, cuts_of, law_with_errors
from experiments.held_out_runs.runs import HeldOutRun, held_out_runs
from prism_jax.watch.remaining import HORIZON, DriftLaw, time_left

EXPECTED = Path(__file__).with_name("expected.json")
N_FOLD = 10  # of groups


def predicted(runs: list[HeldOutRun], cuts: Cuts, fold: np.ndarray) -> Any:
    """One row per run and span, predicted by the law of the other folds."""
    tables = []
    for name in np.unique(fold):
        law = law_with_errors(cuts.chosen(fold != name))
        tables.append(_rows(runs, cuts.chosen(fold == name), law))
    return pd.concat(tables, ignore_index=True)


def _rows(runs: list[HeldOutRun], cuts: Cuts, law: DriftLaw) -> pd.DataFrame:
    rows = []
    for i, span, n_later in zip(cuts.run, cuts.span, cuts.n_later.astype(int), strict=True):
        run = runs[i]
        left = time_left(run.first_s, np.ones(len(run.first_s), int), int(n_later), law)
        measured = n_later * run.later_s(n_later)
        low, middle, high = (seconds / measured for seconds in (left.p5_s, left.p50_s, left.p95_s))
        iid_low, iid_high = left.independent_p5_s / measured, left.independent_p95_s / measured
        iid_middle = 0.5 * (iid_low + iid_high)
        rows.append(
            {
                "source": run.source,
                "group": run.group,
                "span": span,
                "coverage_90": low <= 1.0 <= high,
                "longer": high < 1.0,
                "shorter": low > 1.0,
                "width": (high - low) / middle,
                "error": abs(middle - 1.0),
                "iid_coverage_90": iid_low <= 1.0 <= iid_high,
                "iid_width": (iid_high - iid_low) / iid_middle,
                "iid_error": abs(iid_middle - 1.0),
            }
        )
    return pd.DataFrame(rows)


def figures(table: Any) -> dict[str, float]:
    """Shares of runs, medians of widths and errors."""
    shares = {name: float(table[name].mean()) for name in ("coverage_90", "shorter", "longer", "iid_coverage_90")}
    medians = {name: float(table[name].median()) for name in ("width", "error", "iid_width", "iid_error")}
    return {"runs": float(len(table)), **shares, **medians}


def summary(table: Any) -> dict[str, dict[str, float]]:
    """All runs, by span, by source."""
    rest = table[table.span == HORIZON]
    found = {"all": figures(rest)}
    found |= {f"next {span:g} x": figures(table[table.span == span]) for span in SPANS[:-1]}
    found |= {str(name): figures(part) for name, part in rest.groupby("source")}
    found["all"]["mean_over_sources"] = float(rest.groupby("source").coverage_90.mean().mean())
    found["all"]["mean_over_groups"] = float(rest.groupby(["source", "group"]).coverage_90.mean().mean())
    return found


def lines(found: dict[str, dict[str, float]]) -> list[str]:
    said = [
        f"{'':<18}{'runs':>6}{'in 90%':>9}{'below':>8}{'above':>8}{'width':>9}{'error':>9} |"
        f"{'iid in 90%':>12}{'width':>9}{'error':>9}"
    ]
    for name, row in found.items():
        said.append(
            f"{name:<18}{row['runs']:>6.0f}{row['coverage_90']:>9.1%}{row['shorter']:>8.1%}{row['longer']:>8.1%}"
            f"{row['width']:>9.2%}{row['error']:>9.2%} |"
            f"{row['iid_coverage_90']:>12.1%}{row['iid_width']:>9.2%}{row['iid_error']:>9.2%}"
        )
    every = found["all"]
    said.append(
        f"mean over sources {every['mean_over_sources']:.1%}, over groups {every['mean_over_groups']:.1%} in the 90% interval"
    )
    return said


def as_toml(law: DriftLaw) -> str:
    """The shipped law, as `watch/presets/drift.toml` holds it."""
    rows = []
    for field in fields(law):
        value = getattr(law, field.name)
        if field.name == "source":
            continue
        said = (
            "[" + ", ".join(f"{x:.4g}" for x in value) + "]"
            if isinstance(value, tuple)
            else f"{value:.4g}"
            if abs(value) < 1e3
            else f"{value:.1f}"
        )
        rows.append(f"{field.name} = {said}")
    return "\n".join(rows)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--leave", choices=("source", "group"), default="source", help="what is left out")
    parser.add_argument("--half", action="store_true", help="the half of the groups that the form was chosen on")
    parser.add_argument("--check", action="store_true", help="compare with expected.json instead of writing it")
    parser.add_argument("--ship", action="store_true", help="print the law of all runs instead, for presets/drift.toml")
    asked = parser.parse_args()
    runs = held_out_runs(asked.data)
    if asked.half:
        runs = [run for run in runs if zlib.crc32(run.group.encode()) % 2 == 0]
    cuts = cuts_of(runs)
    if asked.ship:
        print(as_toml(law_with_errors(cuts)))
        return 0
    in_tenths = np.array(
        [zlib.crc32(f"{s}/{g}".encode()) % N_FOLD for s, g in zip(cuts.source, cuts.group, strict=True)]
    )
    found = summary(predicted(runs, cuts, cuts.source if asked.leave == "source" else in_tenths))
    print("\n".join(lines(found)))
    if asked.check:
        return check(found, EXPECTED)
    if asked.leave == "source" and not asked.half:
        rounded = {name: {key: round(value, 5) for key, value in row.items()} for name, row in found.items()}
        EXPECTED.write_text(json.dumps(rounded, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
