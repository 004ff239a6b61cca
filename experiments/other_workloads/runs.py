# pyright: reportArgumentType=false, reportOperatorIssue=false, reportGeneralTypeIssues=false
# (of pandas without stubs, every expression may be of any type)
"""Runs of convolutional networks whose every iteration was timed: how far their slow steps lie above their median."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd

from prism_jax.core.robust import robust_sd

WARM_UP = 20  # iterations of Lambda's runs
FLOOR = 2e-4  # added to an excess before its logarithm: what clocks and 50 iterations resolve
LEVELS = (0.95, 0.99)


def lambda_runs(data: Path) -> pd.DataFrame:
    """ResNet-50 on cloud nodes; a machine is a node, whatever part of it was used."""
    table = pd.read_csv(data / "lambda_resnet50_iters.csv.gz")
    table = table[table.iter >= WARM_UP]
    table["machine"] = [re.sub(r"\d+x", "", name) for name in table.node]
    table["work"] = "train " + table.dtype
    table["model"] = "resnet50"
    return runs_of(table, "dt_us", ["machine", "gpu", "gpus", "work", "model", "run_id"])


def cnn_runs(data: Path) -> pd.DataFrame:
    """32 networks of torchvision on 1 to 4 GPUs of a workstation, 12 images each."""
    table = pd.read_csv(data / "cnn_iter_times.csv.gz").rename(columns={"folder": "machine"})
    table["work"] = table["mode"] + " " + table.dtype
    return runs_of(table, "us", ["machine", "gpu", "gpus", "work", "model"])


def runs_of(table: pd.DataFrame, column: str, key: list[str]) -> pd.DataFrame:
    """One row per run: `key`, median seconds `step_s`, quantiles over it, spread and correlation of neighbours."""
    rows = []
    for name, own in table.groupby(key, sort=True)[column]:
        seconds = own.to_numpy(float) * 1e-6
        middle = np.median(seconds)
        relative = seconds / middle
        p95, p99 = np.quantile(relative, LEVELS)
        spread = robust_sd(relative, 1.0)
        rows.append((*name, len(own), middle, p95, p99, spread, relative.std(), _lag_one(relative)))
    return pd.DataFrame(rows, columns=[*key, "n", "step_s", "p95", "p99", "spread", "cv", "ar1"])


def _lag_one(relative: np.ndarray) -> float:
    """Correlation of neighbours after clipping what is far out."""
    low, high = np.quantile(relative, [0.02, 0.98])
    values = np.clip(relative, low, high) - np.clip(relative, low, high).mean()
    square = float(values @ values)
    return float(values[1:] @ values[:-1]) / square if square > 0.0 else 0.0
