"""Section 3: whether what differs between GPUs comes from their clock, and what temperature and power add.

Correlations across GPUs come from their means, with nodes drawn with replacement; slopes within a GPU from the fit of
section 2. What logged values explain is scored on nodes left out, so that a further value can also explain nothing or
less.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.optimize import least_squares
from scipy.stats import theilslopes

from experiments.variability_study.gpu_spread import COLOURS, KERNELS, Found, same
from experiments.variability_study.levels import LOGGED, correlation, fitted, gpu_means, triple
from prism_jax.core.picture import style

UNITS = {"clock_mhz": "SM clock (MHz)", "temp_c": "temperature (deg C)", "power_w": "power (W)"}
N_FOLD = 10


def study(folder: Path, keep: Path | None) -> tuple[Found, Figure]:
    """Section 3."""
    found: Found = {}
    tables = {}
    for name, kernel in KERNELS.items():
        means = tables[name] = gpu_means(folder, name)
        logged = [key for key in LOGGED if key in means and len(means[key].unique()) > 1]
        for key in logged:
            for how, ranks in (("Pearson", False), ("Spearman", True)):
                found[f"{name}.{LOGGED[key]}.{how}"] = correlation(means, key, ranks)
        found |= {f"{name}.{words}": value for words, value in _explained(means, logged).items()}
        if "clock_mhz" in logged:
            line: Any = theilslopes(means["log_s"], np.log(means["clock_mhz"]), alpha=0.9)
            found[f"{name}.clock.slope across GPUs"] = (
                float(line.slope),
                float(line.low_slope),
                float(line.high_slope),
            )
        said, _ = fitted(folder, name, keep)
        for key, by_kernel in said["covariates"].items():
            found[f"{name}.{LOGGED[key]}.slope within a GPU"] = triple(by_kernel[kernel]["slope_within_gpu"])
    return found, _clock_picture(tables, found)


def _explained(means: pd.DataFrame, logged: list[str]) -> Found:
    """Shares explained on nodes left out, by what is known: of the bulk and of the variance. The three numbers are the same."""
    nodes = np.random.default_rng(0).permutation(np.asarray(means["node"].unique()))
    fold_of = {node: i % N_FOLD for i, node in enumerate(nodes)}
    fold = np.array([fold_of[node] for node in means["node"]])
    sets = {LOGGED[key]: [key] for key in logged}
    if "clock_mhz" in logged:
        sets |= {f"clock and {LOGGED[key]}": ["clock_mhz", key] for key in logged if key != "clock_mhz"}
    if len(logged) > 1:
        sets["all"] = logged
    y = means["log_s"].to_numpy()
    found: Found = {}
    for words, keys in sets.items():
        miss, base = _left_out(means[keys].to_numpy(dtype=float), y, fold)
        found[f"of the bulk.{words}"] = same(1.0 - (_bulk(miss) / _bulk(base)) ** 2)
        found[f"of the variance.{words}"] = same(1.0 - float((miss**2).sum() / (base**2).sum()))
    return found


def _left_out(x: np.ndarray, y: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Errors of a linear law, robust to single chips, fitted to the other folds, and of their median."""
    design = np.column_stack([np.ones(len(x)), (x - x.mean(axis=0)) / x.std(axis=0)])
    unit = _bulk(y - np.median(y))
    miss, base = np.empty_like(y), np.empty_like(y)
    for index in np.unique(fold):
        out = fold == index
        middle = float(np.median(y[~out]))
        z = (y - middle) / unit
        weight = least_squares(
            lambda w, out=out, z=z: design[~out] @ w - z[~out], np.zeros(design.shape[1]), loss="soft_l1"
        ).x
        miss[out], base[out] = unit * (z[out] - design[out] @ weight), unit * z[out]
    return miss, base


def _bulk(values: np.ndarray) -> float:
    """Half the distance between the 16 and 84% quantiles."""
    return float(np.diff(np.quantile(values, [0.16, 0.84]))[0] / 2.0)


def _clock_picture(tables: dict[str, pd.DataFrame], found: Found) -> Figure:
    """SGEMM against each logged value, and how much of each kernel's spread they explain."""
    with style():
        figure = Figure(figsize=(10.5, 3.4), layout="constrained")
        axes = figure.subplots(1, 4, width_ratios=[1.0, 1.0, 1.0, 1.25])
        means = tables["SGEMM"]
        slow = 100.0 * np.expm1(means["log_s"] - means["log_s"].median())
        for ax, key in zip(axes, LOGGED, strict=False):
            ax.plot(means[key], slow, ".", color=COLOURS["SGEMM"], alpha=0.5, markersize=4)
            ax.set(xlabel=UNITS[key], title=f"SGEMM: r = {found[f'SGEMM.{LOGGED[key]}.Pearson'][0]:+.2f}")
            ax.grid(True)
        axes[0].set_ylabel("GPU's mean time over median (percent)")
        words = ["clock", "temperature", "power", "all"]
        height = 0.8 / len(KERNELS)
        for i, name in enumerate(KERNELS):
            value = [max(100.0 * found.get(f"{name}.of the bulk.{word}", (0.0,))[0], 0.0) for word in words]
            axes[3].barh(
                np.arange(len(words)) + (i - 1.5) * height, value, height=height, color=COLOURS[name], label=name
            )
        axes[3].set_yticks(range(len(words)), words)
        axes[3].invert_yaxis()
        axes[3].set(xlabel="explained of the bulk (percent)", xlim=(0, 100))
        axes[3].legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=2, handlelength=1.0, columnspacing=1.0)
    return figure
