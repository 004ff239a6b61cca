# pyright: reportArgumentType=false, reportReturnType=false
"""Each GPU left out: kernels fitted on the others, its own predicted from its datasheet; errors, coverage."""

from __future__ import annotations

import warnings
from pathlib import Path

import jax
import numpy as np
import pandas as pd

from experiments.kernels2 import tables
from inference.engine.model import Draws
from inference.engine.program import Settings
from inference.fitting.fit import posterior
from inference.kernels import data as kernels_table, predict
from inference.kernels.data import KernelsData, log_ideal_s
from inference.kernels.model import Kernels

MODEL = Kernels()
MOST_FITTED = {"gemm": 200, "conv": 400, "vector": 40}  # of every op, GPU and split
MOST_SCORED = {"gemm": 1500, "conv": 5000, "vector": 300}


def scores(folder: Path, part: str, seed: int) -> pd.DataFrame:
    """One row per kernel: GPU, op, split, measured and predicted seconds with 90% interval, rooflines."""
    every = tables.read(folder, part)
    scored = tables.with_rooflines(tables.thinned(every, MOST_SCORED[part], seed))
    measured = tables.thinned(every, MOST_FITTED[part], seed + 1)
    return pd.concat([fold(measured, scored, gpu, seed) for gpu in sorted(every.gpu.unique())], ignore_index=True)


def fitted(rows: pd.DataFrame, seed: int) -> tuple[KernelsData, Draws]:
    """A kernels fit of some rows."""
    data = MODEL.prepare(rows)
    draws = posterior(MODEL, data, "map", jax.random.key(seed), settings=Settings(n_approximate_draw=200)).draws
    return data, {name: value.reshape(-1, *value.shape[2:]) for name, value in draws.items()}


def fold(measured: pd.DataFrame, scored: pd.DataFrame, gpu: str, seed: int) -> pd.DataFrame:
    """Rows of `gpu` predicted by a fit of all others."""
    data, draws = fitted(measured[measured.gpu != gpu], seed)
    rows = scored[scored.gpu == gpu].copy()
    sizes, _ = kernels_table.tidy(rows)
    for name, of in sizes.groupby("class").groups.items():
        size = sizes.loc[of, kernels_table.AXES].to_numpy(dtype=np.float64)
        op, dtype = str(name).split(" | ")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # every row extrapolates: its GPU was not measured
            found = predict.efficiency(
                data, draws, gpu=gpu, dtype=dtype, op=op, size=size, key=jax.random.key(seed + 1)
            )
        seconds = np.exp(log_ideal_s(str(name), gpu, size)) / found.draws
        low, middle, high = np.quantile(seconds, [0.05, 0.5, 0.95], axis=0)
        rows.loc[of, "low_s"], rows.loc[of, "predicted_s"], rows.loc[of, "high_s"] = low, middle, high
    return rows
