"""Kernels model against the nearest measured shape: whole shapes, GPUs and sources left out of the open GEMM and attention data.

python experiments/variability_study/score_kernels.py [--data ../shared/data] [--what shapes gpu source]

About 10 minutes on one core. Errors are |predicted / measured - 1| of kernel times. "nearest" is the nearest measured shape of
the same op, dtype and GPU (of the same op and dtype where the GPU was left out; mean of ties), "median" their median.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from inference.engine.program import Settings
from inference.fitting.fit import posterior
from inference.kernels.model import Kernels

MODEL = Kernels()
N_BLOCK = 5
SHAPE = ["m", "n", "k", "groups", "seq_len", "n_head", "n_kv_head", "head_dim"]
FIGURES = ["mape", "mape_nearest", "mape_median", "median_ape", "median_ape_nearest", "extrapolated", "coverage_90"]


def read(folder: Path) -> pd.DataFrame:
    """Both tables with canonical names and seconds, and a block of shapes for every row."""
    gemm = pd.read_csv(folder / "kernels" / "gemm.csv.gz", low_memory=False).rename(
        columns={"fraction_of_peak": "efficiency"}
    )
    gemm["duration_s"] = gemm["time_us"] * 1e-6
    renamed = {"heads": "n_head", "kv_heads": "n_kv_head", "qk_head_dim": "head_dim"}
    attention = pd.read_csv(folder / "kernels" / "attention.csv").rename(columns=renamed)
    table = pd.concat([gemm, attention], ignore_index=True).rename(columns={"source_repo": "source"})
    shape, _ = pd.factorize(table[SHAPE].fillna(0).astype(str).agg("|".join, axis=1))
    table["shapes"] = np.random.default_rng(0).integers(0, N_BLOCK, shape.max() + 1)[shape].astype(str)
    return table


def scores(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """One row per group of `column`, each fitted without it."""
    out = []
    for seed, group in enumerate(sorted(table[column].unique())):
        left_out = table[column] == group
        data = MODEL.prepare(table.loc[~left_out])
        draws = posterior(MODEL, data, "map", jax.random.key(seed), settings=Settings(n_approximate_draw=200)).draws
        flat = {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}
        for score in MODEL.score(data, flat, table.loc[left_out], column, jax.random.key(100 + seed)):
            out.append({"group": score.group, "coverage_90": score.coverage_90, **score.extra})
            print(".", end="", flush=True)
    return pd.DataFrame(out)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--what", nargs="+", choices=["shapes", "gpu", "source"], default=["shapes", "gpu", "source"])
    args = parser.parse_args()
    table = read(args.data)
    for column in args.what:
        found = scores(table, column)
        weight = found["n_rows"] / found["n_rows"].sum()
        print(f"\n{column} left out\n{found.round(4).to_string(index=False)}")
        print("all rows     ", {name: round(float((weight * found[name]).to_numpy().sum()), 4) for name in FIGURES})
        print("median group ", found[FIGURES].median().round(4).to_dict(), flush=True)


if __name__ == "__main__":
    main()
