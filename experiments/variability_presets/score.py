# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""How well the stalls of a fit predict p95/p50 and p99/p50 of systems the fit has not seen, beside one constant for all.

python experiments/variability_presets/score.py [--data ../shared/data] [--rivals]

`--rivals` also scores stalls in proportion to the GPUs, a fitted exponent, and one fit for each GPU family (some minutes).
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.variability_presets.stalls import EXPONENT, FLOOR, QUANTILES, bucket, bulk_of, fit_stalls, implied
from experiments.variability_presets.temporal import configurations, step_series

ROOT = Path(__file__).resolve().parents[2]
BUCKET_NAMES = ("<= 8", "9-64", "65-512", "513-2048", "2049-4096", "> 4096")


def machine(series: pd.DataFrame) -> pd.Series:
    """Submitter and physical cluster: NVIDIA's entries are called `<cluster>_n<nodes>...`; eos and eos-dfw count as one."""
    cluster = series.system.str.split(r"_n(?:gpu)?\d", regex=True).str[0].str.replace("eos-dfw", "eos")
    return series.submitter + "/" + cluster


def left_out(
    series: pd.DataFrame, group: pd.Series, shared: bool = True, exponent: float | None = EXPONENT
) -> pd.DataFrame:
    """Configurations with p95/p50 and p99/p50 predicted by a fit to all other groups, and by constants (medians of the others).

    Args:
        shared: one fit for both GPU families, or one for each where the others have any of it.
    """
    rows = []
    for name in group.unique():
        kept, out = series[group != name], configurations(series[group == name])
        for family, table in out.groupby("family"):
            own = kept[kept.family == family]
            basis = kept if shared or own.empty else own
            stalls = fit_stalls(basis, exponent)
            values = implied(table.gpus.to_numpy(float), bulk_of(kept)[str(family)], stalls)
            others = configurations(kept)
            for u in (0.95, 0.99):
                table[f"model{u:g}"] = values[:, QUANTILES.index(u)]
                table[f"constant{u:g}"] = float(others[f"q{u:g}"].median())
            rows.append(table)
    return pd.concat(rows, ignore_index=True)


def log_error(table: pd.DataFrame, prediction: str, u: float) -> pd.Series:
    """Absolute logarithm of predicted over measured excess, floor added."""
    return np.log((table[f"{prediction}{u:g}"] + FLOOR) / (table[f"q{u:g}"] + FLOOR)).abs()


def measured_table(series: pd.DataFrame) -> pd.DataFrame:
    """By family and bucket of GPU counts: numbers of systems and runs; medians over configurations of what was measured."""
    table = configurations(series)
    groups = table.groupby(["family", _names(table)], observed=True)
    columns = ["bulk", "q0.95", "q0.99", "spikes", "spike_size", "large"]
    summary: pd.DataFrame = groups.agg({"system": "nunique", "runs": "sum"} | dict.fromkeys(columns, "median"))
    return summary


def prediction_table(left: pd.DataFrame) -> pd.DataFrame:
    """By family and bucket, medians over configurations: measured, predicted with the group left out, constant."""
    columns = [f"{what}{u:g}" for u in (0.95, 0.99) for what in ("q", "model", "constant")]
    return pd.DataFrame(left.groupby(["family", _names(left)], observed=True)[columns].median())


def _names(table: pd.DataFrame) -> pd.Series:
    codes = pd.Categorical.from_codes(bucket(table.gpus), categories=list(BUCKET_NAMES), ordered=True)
    return pd.Series(codes, index=table.index, name="GPUs")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    parser.add_argument("--rivals", action="store_true")
    args = parser.parse_args()
    series = step_series(args.data)
    print("Measured: shares of the median step\n", measured_table(series).round(4).to_string(), sep="")
    rivals = {"shipped": (True, EXPONENT)}
    if args.rivals:
        rivals |= {"in proportion to GPUs": (True, 1.0), "exponent fitted": (True, None)}
        rivals |= {"by family": (False, EXPONENT), "by family, exponent fitted": (False, None)}
    for group_name, group in (("system", series.submitter + "/" + series.system), ("machine", machine(series))):
        for name, (shared, exponent) in rivals.items():
            left = left_out(series, group, shared, exponent)
            if name == "shipped":
                print(f"\nEach {group_name} left out\n", prediction_table(left).round(4).to_string(), sep="")
            errors = {p: [log_error(left, p, u).mean() for u in (0.95, 0.99)] for p in ("model", "constant")}
            text = "; ".join(f"{p} p95 {e[0]:.3f}, p99 {e[1]:.3f}" for p, e in errors.items())
            print(f"{group_name} left out, {name}: mean |ln(predicted / measured)| of {text}")


if __name__ == "__main__":
    main()
