"""Does the memory model know which layouts run out of memory? Prints the figures of the README; `--json` for one object.

python experiments/memory_validation/run.py [--data TABLE] [--steps TABLE] [--json]
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from experiments.memory_validation.peak_errors import step_table_peaks
from experiments.step_tables.memory_table import classify_rows
from prism_jax.cost.memory_layouts import ClassifiedLayout, Confusion, MemorySummary
from prism_jax.framework.base import MemoryOptions
from prism_jax.framework.frameworks import NANOTRON

STEPS = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "steps"
FRAGMENTATION_GRID = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3)
MARGINS = (0.0, 0.05, 0.1, 0.15, 0.2)
VARIANTS = {
    "shipped": NANOTRON.memory,
    "gathered inputs kept": replace(NANOTRON.memory, keeps_gathered_inputs=True),
    "fragmentation 0": replace(NANOTRON.memory, fragmentation=0.0),
}


def confusion_record(confusion: Confusion) -> dict[str, float]:
    return {
        "n": confusion.n,
        "accuracy": round(confusion.accuracy, 4),
        "majority_accuracy": round(confusion.majority_accuracy, 4),
        "fits_called_fits": confusion.fits_fits,
        "fits_called_oom": confusion.fits_oom,
        "oom_called_fits": confusion.oom_fits,
        "oom_called_oom": confusion.oom_oom,
    }


def error_record(rows: Sequence[ClassifiedLayout]) -> dict[str, float]:
    """Relative error of the allocator's peak reserved memory over the rows that ran."""
    errors = np.array([row.reserved_error for row in rows if row.reserved_error is not None])
    return {
        "n": len(errors),
        "mean": round(float(errors.mean()), 4),
        "median_abs": round(float(np.median(np.abs(errors))), 4),
        "mean_abs": round(float(np.abs(errors).mean()), 4),
        "p90_abs": round(float(np.quantile(np.abs(errors), 0.9)), 4),
    }


def leave_one_model_out(path: Path) -> dict[str, dict[str, float]]:
    """Fragmentation chosen for the peak memory of the other models, both figures scored on the one left out."""
    grid = {share: classify_rows(path, replace(NANOTRON.memory, fragmentation=share)) for share in FRAGMENTATION_GRID}
    names = list(grid[FRAGMENTATION_GRID[0]].by_model())
    scored = {}
    n_correct = 0
    for left_out in names:
        others = set(names) - {left_out}
        errors = {share: _median_error(summary, others) for share, summary in grid.items()}
        best = min(errors, key=lambda share: errors[share])
        found = grid[best].by_model()[left_out]
        n_correct += found.fits_fits + found.oom_oom
        scored[left_out] = {
            "fragmentation": best,
            "accuracy": round(found.accuracy, 4),
            "median_abs_error": round(_median_error(grid[best], {left_out}), 4),
        }
    scored["overall"] = {"accuracy": round(n_correct / grid[FRAGMENTATION_GRID[0]].overall.n, 4)}
    return scored


def _median_error(summary: MemorySummary, models: Collection[str]) -> float:
    rows = [row for row in summary.rows if row.row.model.name in models]
    return error_record(rows)["median_abs"]


def summary_record(summary: MemorySummary) -> dict[str, Any]:
    by_pp = {"pp = 1": (1, 1), "pp 2-4": (2, 4), "pp > 4": (5, 10**6)}
    return {
        "overall": confusion_record(summary.overall),
        "by_model": {name: confusion_record(found) for name, found in summary.by_model().items()},
        "reserved_error": {
            "overall": error_record(summary.rows),
            **{
                name: error_record([row for row in summary.rows if low <= row.row.plan.pp <= high])
                for name, (low, high) in by_pp.items()
            },
        },
    }


def megatron_record(path: Path) -> dict[str, Any]:
    """Peak allocated memory of the Megatron-LM rows that report it: the model without fragmentation and context."""
    errors = [peak.error for peak in step_table_peaks(path)]
    return {
        "n": len(errors),
        "mean": round(float(np.mean(errors)), 4),
        "median_abs": round(float(np.median(np.abs(errors))), 4),
        "max_abs": round(float(np.max(np.abs(errors))), 4),
        "within_margin": {f"{m:.2f}": round(float(np.mean(np.array(errors) >= -m)), 4) for m in MARGINS},
    }


def margin_record(rows: Sequence[ClassifiedLayout]) -> dict[str, dict[str, float]]:
    """Share that ran of the layouts a search would offer at a margin: all it calls feasible, and the fullest of them."""
    used = np.array([row.predicted.total_bytes / row.row.cluster.device.hbm_bytes for row in rows])
    ran = np.array([row.row.fitted for row in rows])
    found = {}
    for margin in MARGINS:
        offered, fullest = used <= 1.0 - margin, (used <= 1.0 - margin) & (used > 1.0 - margin - 0.1)
        found[f"{margin:.2f}"] = {
            "n": int(offered.sum()),
            "ran": round(float(ran[offered].mean()), 4),
            "n_fullest": int(fullest.sum()),
            "ran_fullest": round(float(ran[fullest].mean()), 4),
        }
    return found


def study(path: Path, steps: Path) -> dict[str, Any]:
    variants: dict[str, MemoryOptions] = VARIANTS
    return {
        **{name: summary_record(classify_rows(path, options)) for name, options in variants.items()},
        "leave_one_model_out": leave_one_model_out(path),
        "megatron_allocated_error": megatron_record(steps),
        "margin": margin_record(classify_rows(path, NANOTRON.memory).rows),
    }


def print_study(found: dict[str, Any]) -> None:
    for variant in VARIANTS:
        overall, error = found[variant]["overall"], found[variant]["reserved_error"]["overall"]
        print(f"{variant:22s} accuracy {overall['accuracy']:.1%} of {overall['n']} "
              f"(majority {overall['majority_accuracy']:.1%}), peak: median |error| {error['median_abs']:.1%}, "
              f"mean |error| {error['mean_abs']:.1%}, bias {error['mean']:+.1%}")  # fmt: skip
    print("\nshipped, by model: fits called fits / fits called oom / oom called fits / oom called oom")
    for name, row in found["shipped"]["by_model"].items():
        print(f"{name:18s} {row['accuracy']:6.1%} (majority {row['majority_accuracy']:5.1%})  {row['fits_called_fits']:4d} "
              f"{row['fits_called_oom']:4d} {row['oom_called_fits']:4d} {row['oom_called_oom']:4d}")  # fmt: skip
    print("\nshipped, peak reserved memory by pipeline depth")
    for name, row in found["shipped"]["reserved_error"].items():
        print(f"{name:8s} n {row['n']:5d}  median |error| {row['median_abs']:5.1%}  bias {row['mean']:+6.1%}")
    print(
        "\nfragmentation chosen without the model it is scored on: accuracy, median |error| of the peak, chosen value"
    )
    for name, row in found["leave_one_model_out"].items():
        rest = f"{row['median_abs_error']:6.1%}  {row['fragmentation']}" if "fragmentation" in row else ""
        print(f"{name:18s} {row['accuracy']:6.1%}  {rest}")

    row = found["megatron_allocated_error"]
    print(f"\nMegatron-LM on 8 B200, {row['n']} rows: peak allocated, median |error| {row['median_abs']:.1%}, "
          f"bias {row['mean']:+.1%}, largest {row['max_abs']:.1%}")  # fmt: skip
    margins = ", ".join(f"{margin} {share:.1%}" for margin, share in row["within_margin"].items())
    print(f"peaks that exceed the model by no more than a margin: {margins}")
    print("\nshipped, layouts that ran of those a search offers at a margin: all, and those in the last 10% below it")
    for margin, row in found["margin"].items():
        print(f"{margin}  {row['ran']:6.1%} of {row['n']:5d}  {row['ran_fullest']:6.1%} of {row['n_fullest']:4d}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=STEPS / "memory_oom.csv.gz")
    parser.add_argument("--steps", type=Path, default=STEPS / "steps.csv.gz")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    found = study(arguments.data, arguments.steps)
    if arguments.json:
        print(json.dumps(found, indent=1))
    else:
        print_study(found)


if __name__ == "__main__":
    main()
