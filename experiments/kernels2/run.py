# pyright: reportArgumentType=false
"""Kernels and whole models on GPUs that were left out. See README.md.

python -m experiments.kernels2.run [gemm conv vector models] [--data ../shared/data] [--seed 0]
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.kernels2 import left_out, models, tables

ROOT = Path(__file__).resolve().parents[2]


def report_kernels(rows: pd.DataFrame, part: str) -> None:
    """Median error by GPU and over all rows, beside three rooflines."""
    found = pd.DataFrame({"gpu": rows.gpu, "covered": rows.duration_s.between(rows.low_s, rows.high_s)})
    for name in ("predicted", "roofline", "flops", "bytes"):
        found[name] = np.abs(rows[f"{name}_s"] / rows.duration_s - 1.0)
    by = found.groupby("gpu")
    table = by[["predicted", "roofline", "flops", "bytes"]].median().assign(coverage_90=by.covered.mean(), n=by.size())
    whole = found[["predicted", "roofline", "flops", "bytes"]].median()
    print(f"\n== {part}: median error of each GPU, left out\n{table.round(3).to_string()}")
    print(f"all rows: {whole.round(3).to_dict()}, coverage {found.covered.mean():.3f}", flush=True)


def report_models(rows: pd.DataFrame) -> None:
    """Mean error of ours and of each peer on the rows that the peer covers, and ours by GPU."""
    ours = np.abs(rows.predicted_ms / rows.measured_e2e_ms - 1.0)
    print("\n== whole models, GPU left out: mean error on the rows that the peer covers")
    for peer in models.PEERS:
        covered = rows[f"pred_{peer}_ms"].notna()
        theirs = np.abs(rows[f"pred_{peer}_ms"] / rows.measured_e2e_ms - 1.0)[covered]
        print(f"{peer:10s} {theirs.mean():.4f}   ours {ours[covered].mean():.4f}   rows {int(covered.sum())}")
    mode = rows["mode"].where(rows.variant.isin(["", "fusion"]), rows.variant)
    ratio = (rows.predicted_ms / rows.measured_e2e_ms).groupby([rows.gpu, mode]).agg(["mean", "std", "size"])
    print(f"predicted over measured\n{ratio.round(3).to_string()}", flush=True)


def main() -> None:
    """Prints one table per part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*tables.PARTS, "models", []], help="default: all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    for part in args.parts or (*tables.PARTS, "models"):
        if part == "models":
            report_models(models.scores(args.data, args.seed))
        else:
            report_kernels(left_out.scores(args.data, part, args.seed), part)


if __name__ == "__main__":
    main()
