"""The kernels model is calibrated: truths drawn from its priors have uniform ranks among the draws of fits."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from inference.engine.program import Settings
from inference.kernels import laws as shapes
from inference.kernels.data import KernelsData, from_frame
from inference.kernels.model import Kernels
from tests.inference.calibration import Calibration, Sites, calibrate

GPUS = ("a100-80gb", "h100-sxm")
N_SHAPE = 40  # of every table: two types, two GPUs
N_FIT = 100


def skeleton() -> KernelsData:
    """Products of random shapes."""
    rng = np.random.default_rng(0)
    out = []
    for dtype in ("bf16", "fp16"):
        for gpu in GPUS:
            m, n, k = 2.0 ** rng.uniform(7.0, 14.0, (3, N_SHAPE)).round(2)
            rows = {"m": m, "n": n, "k": k, "efficiency": 0.5 * np.exp(0.1 * rng.standard_normal(N_SHAPE))}
            out.append(pd.DataFrame(rows).assign(op="gemm", dtype=dtype, gpu=gpu, software="lib"))
    return from_frame(pd.concat(out, ignore_index=True))


def measured(data: KernelsData, true: Sites, rng: np.random.Generator) -> KernelsData:
    """y = x (w[class] + d[table]) + noise, and the sums of products of x and y, all cells of weight one."""
    n_feature, of_table = len(data.block), data.cell_table
    of_class = true["class_scale"][data.block] * rng.standard_normal((len(data.classes), n_feature))
    deviation = true["table_scale"][data.block] * rng.standard_normal((len(data.tables), n_feature))
    coefficient = of_class[data.table_class] + deviation
    x = features(data)
    y = np.sum(x * coefficient[of_table], axis=1) + np.exp(true["log_noise"])[of_table] * rng.standard_normal(len(x))
    parts = [(x[of_table == t], y[of_table == t]) for t in range(len(data.tables))]
    return replace(
        data,
        xx=np.stack([a.T @ a for a, _ in parts]),
        xy=np.stack([a.T @ b for a, b in parts]),
        yy=np.array([b @ b for _, b in parts]),
        weight=np.array([float(len(b)) for _, b in parts]),
        log_efficiency=y,
        residual=np.concatenate([b - a @ _ridge(a, b) for a, b in parts]),  # tables follow one another; a start only
    )


def features(data: KernelsData) -> np.ndarray:
    """Standardised features [cell, feature]."""
    gpu = np.array(data.table_gpus)[data.cell_table]
    n_sm = np.array([float(shapes.n_sm(str(name))) for name in gpu])
    of_class = data.table_class[data.cell_table]
    return (shapes.features("gemm", data.size, n_sm)[0] - data.centre[of_class]) / data.spread[of_class]


def _ridge(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.linalg.solve(x.T @ x + 0.1 * np.eye(x.shape[1]), x.T @ y)


def run(n_fit: int = N_FIT) -> Calibration:
    data = skeleton()
    return calibrate(
        Kernels(),
        data,
        lambda true, rng: measured(data, true, rng),
        n_fit=n_fit,
        seed=23,
        method="map",
        settings=Settings(n_approximate_draw=1000),
    )


@pytest.mark.slow
def test_ranks_of_true_values_are_uniform() -> None:
    """Nine numbers, each with a false-alarm rate of 1e-4: 9e-4 in all."""
    run().assert_uniform(Kernels.reported, max_failed=0.1)
