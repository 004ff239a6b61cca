"""Overlap model against "no slowdown" on the open A100 data: every kernel left out in turn, and rows of known kernels left out.

python experiments/variability_study/score_overlap.py [--data ../shared/data] [--quick]    # 20 minutes of one core; quick: 10

Times under overlap are predicted from times alone; the error is |predicted / measured - 1| over the rows with overlap. The file's
`ground_truth` is the time alone and its `duration` the time under overlap, both in nanoseconds: its own `slowdown` column is
(duration / ground_truth - 1) / overlap_ratio to 3e-14.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import jax
import numpy as np
import pandas as pd
from numpyro.infer import MCMC, NUTS, init_to_value

from inference.overlap import OverlapModel
from inference.overlap_data import COUNTERS, OverlapData

MODEL = OverlapModel()
N_BLOCK = 5  # of rows, for known kernels


def read(folder: Path) -> pd.DataFrame:
    """The table with canonical names and seconds."""
    raw = pd.read_csv(folder / "kernels" / "overlap_slowdown_a100.csv")
    table = raw.rename(columns={column.aliases[0]: column.name for column in COUNTERS})
    table["kernel"], table["template"] = raw["kShortName"], raw["kDemangledName"]
    table["duration_s"], table["overlapped_s"] = raw["ground_truth"] * 1e-9, raw["duration"] * 1e-9
    stated = (table["overlapped_s"] / table["duration_s"] - 1.0) / raw["overlap_ratio"].where(
        raw["overlap_ratio"] > 0.0
    )
    assert np.nanmax(np.abs(stated - raw["slowdown"])) < 1e-9
    return table


def posterior(data: OverlapData, seed: int, n: int) -> dict[str, np.ndarray]:
    """NUTS, one chain of `n` + `n`."""
    kernel = NUTS(MODEL.program, init_strategy=init_to_value(values=MODEL.start(data)))
    chain = MCMC(kernel, num_warmup=n, num_samples=n, progress_bar=False)
    chain.run(jax.random.key(seed), data)
    return {name: np.asarray(values) for name, values in chain.get_samples().items()}


def scores(table: pd.DataFrame, groups: pd.Series, column: str, n: int) -> pd.DataFrame:
    """One row per group of `groups` with overlap, each fitted without it."""
    out = []
    for seed, group in enumerate(sorted(set(groups[table.overlap_ratio > 0.0]))):
        left_out = groups == group
        data = MODEL.prepare(table.loc[~left_out].drop(columns="template"))
        draws = posterior(data, seed, n)
        found = MODEL.score(
            data, draws, table.loc[left_out].assign(**{column: group}), column, jax.random.key(1000 + seed)
        )
        out += [{"group": s.group[:48], "coverage_90": s.coverage_90, "beats": data.beats, **s.extra} for s in found]
    return pd.DataFrame(out)


def show(title: str, table: pd.DataFrame) -> None:
    """The groups, and the errors over all rows."""
    print(f"\n{title}\n{table.round(4).to_string(index=False)}")
    weight = table.n_rows / table.n_rows.sum()
    pooled = {name: float((weight * table[name]).sum()) for name in ("mape", "mape_no_slowdown", "coverage_90")}
    medians = table[["mape", "mape_no_slowdown", "coverage_90"]].median()
    print("all rows     ", {name: round(value, 5) for name, value in pooled.items()})
    print("median group ", {name: round(float(value), 5) for name, value in medians.items()})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--quick", action="store_true", help="shorter chains, kernels left out only")
    args = parser.parse_args()
    table = read(args.data)
    n = 100 if args.quick else 300
    beside = table.overlap_ratio > 0.0
    error = np.abs(table.duration_s / table.overlapped_s - 1.0)
    print(
        f"no slowdown: {error[beside].mean():.4%} over {beside.sum()} rows with overlap, {error.mean():.4%} over all {len(table)}"
    )
    data = MODEL.prepare(table.drop(columns="template"))
    print(MODEL.describe(data, posterior(data, 0, n))["verdict"])
    show("kernels left out (short names)", scores(table, table.kernel, "kernel", n))
    if args.quick:
        return
    blocks = pd.Series(np.random.default_rng(0).integers(0, N_BLOCK, len(table)), index=table.index).astype(str)
    show("rows of known kernels left out", scores(table, blocks, "block", n))


if __name__ == "__main__":
    jax.config.update("jax_enable_x64", True)
    main()
