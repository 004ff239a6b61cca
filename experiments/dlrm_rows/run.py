"""Recommendation models against measured steps. Nothing is fitted: each row, GPU model and scale is left out by every prediction.

python experiments/dlrm_rows/run.py [--data ../shared/data]
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
from experiments import common
from experiments.dlrm_rows.parts import parts_of
from experiments.dlrm_rows.rows import Row, mlperf_rows, other_rows

GROUPS: dict[str, Callable[[Row], object]] = {"gpu": lambda row: row.gpu, "scale": lambda row: row.plan.dp}
BARS = {
    ("gpu", "dlrm-criteo1tb"): 0.15,
    ("gpu", "dlrm-dcnv2"): 0.12,
    ("scale", "dlrm-criteo1tb"): 0.08,
    ("scale", "dlrm-dcnv2"): 0.12,
}


def main() -> None:
    """Prints all figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    data = parser.parse_args().data
    common.start()
    rows = mlperf_rows(data)
    parts = parts_of(rows)
    log_s = np.log(parts.sum(axis=1))
    print(f"{len(rows)} rows of MLPerf Training")
    for model in sorted({row.model.name for row in rows}):
        print(f"  {model}: {_figures(rows, log_s, model)}")
        for name, key in GROUPS.items():
            trivial = _figures(rows, rates(rows, key, name), model)
            print(f"    {name} left out, bar {BARS[name, model]:.0%}; trivial: {trivial}")
            for group in sorted({key(row) for row in rows if row.model.name == model}, key=str):
                own = [key(row) == group for row in rows]
                figures = _figures([row for row, is_own in zip(rows, own, strict=True) if is_own], log_s[own], model)
                print(f"      {group}: {figures}")
    _others(data)
    _by_configuration(rows, log_s, parts)


def rates(rows: Sequence[Row], key: Callable[[Row], object], name: str) -> np.ndarray:
    """[row] logarithms of seconds by the median rate of the other groups, per GPU, or per peak FLOP/s where GPUs are left out."""

    def unit(row: Row) -> float:
        return row.plan.dp * (row.cluster.device.peak("fp16") if name == "gpu" else 1.0)

    per_unit = np.array([row.plan.global_batch / row.measured_s / unit(row) for row in rows])
    found = []
    for row in rows:
        others = [
            rate
            for other, rate in zip(rows, per_unit, strict=True)
            if other.model.name == row.model.name and key(other) != key(row) and (name == "gpu" or other.gpu == row.gpu)
        ]
        found.append(np.log(row.plan.global_batch / (np.median(others) * unit(row))) if others else np.nan)
    return np.array(found)


def _figures(rows: Sequence[Row], log_s: np.ndarray, model: str) -> str:
    own = np.array([row.model.name == model for row in rows])
    off = np.abs(np.expm1(log_s - np.log([row.measured_s for row in rows])))[own]
    off = off[np.isfinite(off)]
    return f"median {np.median(off):.1%}, 90th {np.quantile(off, 0.9):.1%} of {len(off)}" if len(off) else "no row"


def _others(data: Path) -> None:
    """Tables of frameworks, by precision."""
    rows = other_rows(data)
    ratio = parts_of(rows).sum(axis=1) / np.array([row.measured_s for row in rows])
    print(f"{len(rows)} rows of other tables")
    for table, n_gpus, dtype in sorted({(row.table, row.plan.dp, row.plan.dtype) for row in rows}):
        own = ratio[[(row.table, row.plan.dp, row.plan.dtype) == (table, n_gpus, dtype) for row in rows]]
        median, middle = np.median(np.abs(own - 1.0)), np.median(own)
        print(
            f"  {table} {n_gpus:2} x {dtype}: median error {median:.1%}, predicted over measured {middle:.2f} of {len(own)}"
        )


def _by_configuration(rows: Sequence[Row], log_s: np.ndarray, parts: np.ndarray) -> None:
    """Every configuration with its measured range, and what its prediction is made of. Milliseconds."""
    print("measured ms (rows), predicted: products, memory, exchange in nodes, between nodes")
    for configuration in sorted({row.configuration for row in rows}):
        own = [index for index, row in enumerate(rows) if row.configuration == configuration]
        measured = [1e3 * rows[index].measured_s for index in own]
        of = " ".join(f"{1e3 * part:5.2f}" for part in parts[own[0]])
        name, gpu, n, batch = configuration
        span = f"{min(measured):6.2f} to {max(measured):6.2f} ({len(own):2})"
        print(f"  {name:15} {gpu:11} {n:4} {batch:7}  {span}  {1e3 * np.exp(log_s[own[0]]):6.2f}: {of}")


if __name__ == "__main__":
    main()
