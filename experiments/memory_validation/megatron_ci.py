"""Peak memory of Megatron-LM's functional tests against the memory model, and a 90% interval scored on left-out families.

python experiments/memory_validation/megatron_ci.py [--data TABLE] [--steps TABLE] [--layouts TABLE] [--families] [--json]

Once as a job file with the row's plan is predicted, from which the law of the intervals is learnt, and once with what its flags
say beside the plan (dropout, deterministic workspaces, no Transformer Engine). Nothing else is fitted.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from math import exp
from pathlib import Path
from typing import Any

import numpy as np

from experiments.memory_validation.megatron_rows import read_rows
from experiments.memory_validation.peak_errors import (
    Peak,
    by,
    error_record,
    fit_law,
    left_out_coverage,
    megatron_peaks,
    nanotron_peaks,
    step_table_peaks,
)

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data"
KINDS = {False: "dense", True: "experts"}


def law_record(peaks: Sequence[Peak]) -> dict[str, dict[str, float]]:
    """Constants of `PeakLaw`, from all families."""
    laws = {
        KINDS[kind]: fit_law([p for p in peaks if p.has_experts is kind]) for kind in {p.has_experts for p in peaks}
    }
    return {kind: {"median": round(exp(law.location), 3), "log_sd": round(law.scale, 3)} for kind, law in laws.items()}


def group_record(tests: Sequence[Peak], others: Sequence[Peak]) -> dict[str, Any]:
    """Errors of the tests, and of both sources whose law is one."""
    covered = left_out_coverage([*tests, *others])
    groups = by(tests, lambda peak: peak.labels)
    families = by(tests, lambda peak: [peak.family])
    medians = [np.median([abs(peak.error) for peak in own]) for own in families.values()]
    return {
        "overall": error_record(tests, covered),
        "median_of_families": round(float(np.median(medians)), 4),
        "by_label": {label: error_record(own, covered) for label, own in sorted(groups.items())},
        "by_family": {label: error_record(own, covered) for label, own in sorted(families.items())},
        "with_step_table": error_record([*tests, *others], covered),
        "step_table": error_record(others, covered),
        "law": law_record([*tests, *others]),
    }


def study(data: Path, steps: Path, layouts: Path) -> dict[str, Any]:
    """All figures."""
    rows, left_out = read_rows(data)
    others = step_table_peaks(steps)
    nanotron = nanotron_peaks(layouts)
    covered = left_out_coverage(nanotron)
    return {
        "left_out": dict(left_out),
        "megatron": group_record(megatron_peaks(rows, with_flags=False), others),
        "megatron_with_flags": group_record(megatron_peaks(rows, with_flags=True), others),
        "nanotron": {
            "overall": error_record(nanotron, covered),
            "by_family": {
                name: error_record(own, covered) for name, own in by(nanotron, lambda peak: [peak.family]).items()
            },
            "law": law_record(nanotron),
        },
    }


def print_row(name: str, row: dict[str, float]) -> None:
    """One line of a table."""
    print(f"{name:26s} {row['n']:5d} {row['n_families']:3d}  median |error| {row['median_abs']:6.1%}  "
          f"p90 {row['p90_abs']:6.1%}  bias {row['bias']:+6.1%}  "
          f"coverage {row['coverage']:6.1%}, of families {row['coverage_of_families']:6.1%}")  # fmt: skip


def print_tests(tests: dict[str, Any], families: bool) -> None:
    """The tests as a whole, by feature and by family, and the other peaks."""
    print(f"median over families of their median |error| {tests['median_of_families']:.1%}")
    print_row("all", tests["overall"])
    for name in ("by_label", "by_family") if families else ("by_label",):
        for label, row in tests[name].items():
            print_row(label, row)
    print_row("43 peaks on B200", tests["step_table"])
    print_row("both", tests["with_step_table"])
    print("law:", tests["law"])


def print_study(found: dict[str, Any], families: bool) -> None:
    """Tables for a person."""
    print("left out:", ", ".join(f"{n} {reason}" for reason, n in found["left_out"].items()))
    for variant, words in (("megatron", "as job files"), ("megatron_with_flags", "with their flags")):
        print(f"\nMegatron-LM tests {words}: rows, families")
        print_tests(found[variant], families)
    print("\nnanotron, by model")
    print_row("all", found["nanotron"]["overall"])
    for label, row in found["nanotron"]["by_family"].items():
        print_row(label, row)
    print("law:", found["nanotron"]["law"])


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=DATA / "megatron_ci" / "rows.csv.gz")
    parser.add_argument("--steps", type=Path, default=DATA / "steps" / "steps.csv.gz")
    parser.add_argument("--layouts", type=Path, default=DATA / "steps" / "memory_oom.csv.gz")
    parser.add_argument("--families", action="store_true", help="a line for every case family")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = study(arguments.data, arguments.steps, arguments.layouts)
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print_study(found, arguments.families)


if __name__ == "__main__":
    main()
