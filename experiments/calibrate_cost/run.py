"""Reproduces the constants of the cost model and prints what is left of them as error. See README.md."""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.calibrate_cost import collectives, kernels, rows

ROOT = Path(__file__).resolve().parents[2]
PARTS = ("gemm", "boards", "attention", "host", "collectives", "fit", "rows", "sources")


def show(name: str, frame: pd.DataFrame, decimals: int = 3) -> None:
    print(f"\n== {name}\n{frame.round(decimals).to_string()}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="default: all")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    args = parser.parse_args()
    for part in args.parts or PARTS:
        run(part, args.data)


def run(part: str, data: Path) -> None:
    match part:
        case "gemm":
            show("matrix products", kernels.gemm(data))
        case "boards":
            show("large products on boards with more watts", found := kernels.boards(data))
            print(f"mean exponent {found.exponent.mean():.3f}")
        case "attention":
            show("fused attention", kernels.attention(data))
        case "host":
            show("milliseconds per layer and micro-batch of host-bound rows", kernels.host(data))
        case "collectives":
            show("all-reduce on A100 over InfiniBand, relative error", collectives.across_nodes(data), 2)
            show("one node, relative error", collectives.in_node(data), 2)
        case "fit":
            show("in_step of ampere over the 24 rows", rows.fit_in_step(data), 4)
        case "rows":
            report_rows(rows.table(data))
        case "sources":
            show("other sources, closed form, noise-free", rows.other_sources(data))


def report_rows(table: pd.DataFrame) -> None:
    show("reference rows, noise-free", table)
    scored = table[table.id.str.startswith(rows.SCORED)]
    worst = scored.loc[scored.error.abs().idxmax()]
    print(f"{len(scored)} rows: mean absolute error {100 * scored.error.abs().mean():.2f} %,", end=" ")
    print(f"bias {100 * scored.error.mean():+.2f} %, worst {100 * worst.error:+.1f} % ({worst.id})")
    ranged = table[table.low_s.notna()]
    inside = np.logical_and(ranged.predicted_s >= ranged.low_s, ranged.predicted_s <= ranged.high_s)
    print(f"inside the stated range: {int(inside.sum())} of {len(ranged)}")


if __name__ == "__main__":
    main()
