"""Plain rules and what else was tried, under the same split: a network left out, rules fitted to the others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from scipy.optimize import nnls

from prism_jax.cost.compute import class_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.workload.cnn.architectures import CM_DARE_TOTALS
from prism_jax.workload.cnn.spec import CnnSpec

Fit = Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]  # features, seconds, features of what was left out


def left_out_errors(table: pd.DataFrame, features: np.ndarray, seconds: str, fit: Fit) -> np.ndarray:
    """Mean relative error of every network, which the others predict, [network]."""
    names, measured = table["model"].to_numpy(dtype=object), table[seconds].to_numpy(dtype=float)
    errors = []
    for name in sorted(set(names)):
        out = names == name
        predicted = fit(features[~out], measured[~out], features[out])
        errors.append(float(np.mean(np.abs(predicted / measured[out] - 1.0))))
    return np.array(errors)


def linear(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Least squares."""
    return _with_one(new) @ np.linalg.lstsq(_with_one(x), y, rcond=None)[0]


def log_log(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """A product of powers, by least squares of logarithms."""
    return np.exp(linear(np.log(x), np.log(y), np.log(new)))


def positive(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """A sum with positive coefficients and a constant, by relative errors."""
    scaled = _with_one(x) / y[:, None]
    size = scaled.mean(axis=0)
    return _with_one(new) / size @ nnls(scaled / size, np.ones(len(y)))[0]


def gaussian_process(x: np.ndarray, y: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Of logarithms: a plane and what deviates from it by 30% over two standard deviations of the sizes, noise of 5%."""
    mean, sd = np.log(x).mean(axis=0), np.log(x).std(axis=0)
    a, b = ((np.log(z) - mean) / sd for z in (x, new))
    level = np.log(y).mean()

    def kernel(p: np.ndarray, q: np.ndarray) -> np.ndarray:
        apart = ((p[:, None] - q[None]) ** 2).sum(axis=-1)
        return 0.3**2 * np.exp(-apart / 8.0) + 4.0 * (1.0 + 0.1 * p @ q.T)

    weights = np.linalg.solve(kernel(a, a) + 0.05**2 * np.eye(len(a)), np.log(y) - level)
    return np.exp(level + kernel(b, a) @ weights)


def own_cost(table: pd.DataFrame, device: str, batch: int) -> np.ndarray:
    """What the package's cost model says of each network's products, passes and launches, uncalibrated, [row, 3]."""
    names = {(flops, n_params): name for name, (flops, n_params, _) in CM_DARE_TOTALS.items()}
    plan = ParallelPlan(micro_batch=batch, global_batch=batch, dtype="fp32")
    known: dict[str, np.ndarray] = {}
    for key in zip(table["flops"].astype(int), table["n_params"].astype(int), strict=True):
        known.setdefault(names[key], np.empty(0))
    for name in known:
        spec, found = CnnSpec(name, f"cm-dare-{name}"), np.zeros(3)
        for run in spec.layout:
            kernels = spec.block(run.kind, plan).kernels
            seconds = class_seconds(
                kernels, catalog.device(device), "fp32", efficiency(catalog.device(device).generation)
            )
            launches = float(kernels.column("n_launch").sum())
            found += run.count * np.array([seconds[:, 0].sum(), seconds[:, 2].sum(), launches])
        known[name] = found
    return np.stack(
        [known[names[key]] for key in zip(table["flops"].astype(int), table["n_params"].astype(int), strict=True)]
    )


def _with_one(x: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(x)), x])
