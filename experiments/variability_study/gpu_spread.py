# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false, reportIndexIssue=false
"""Section 1: how GPUs differ from each other, and one GPU from itself, by kernel.

Longhorn: 4 kernels on 172 to 392 V100 with names of GPUs, nodes and runs. Spatial: spread of the GPUs' medians.
Temporal: spread of the runs of one GPU. SuperBench: one node each of A100 and MI100 with eight GPUs (and two V100),
one value per GPU and benchmark, no names: spatial only. All spreads are standard deviations of log seconds.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

import inference
from inference.data.clean import Measurements
from prism_jax.core.picture import CYAN, INDIGO, PURPLE, ROSE, TEAL, style

KERNELS = {  # name on the page -> name in the table
    "SGEMM": "SGEMM (cuBLAS, median of reps)",
    "PageRank": "PageRank",
    "ResNet": "ResNet-50 iteration (4-GPU DP)",
    "BERT": "BERT iteration (4-GPU DP)",
}
COLOURS = {"SGEMM": INDIGO, "PageRank": TEAL, "ResNet": ROSE, "BERT": CYAN}
SUPERBENCH = {  # class -> how its benchmarks begin; copies to and from the host measure links, not GPUs
    "matrix peak": "gemm-flops/",
    "cuBLAS calls": "cublas-function/",
    "cuDNN calls": "cudnn-function/",
    "device memory": "mem-bw/D2D",
    "kernel launch": "kernel-launch/",
}
N_BOOT = 1000
EPOCH = 1e9  # s; earlier stamps are of clocks that were not set
FEWEST_RUNS = 3  # of a GPU, to tell how it differs from itself
Found = dict[str, tuple[float, float, float]]


def same(value: float) -> tuple[float, float, float]:
    """A figure without an interval."""
    return float(value), float(value), float(value)


def table(folder: Path) -> Path:
    return folder / "variability" / "gpu_kernels.csv.gz"


def measured(folder: Path, kernel: str) -> Measurements:
    """Checked rows of one kernel of `KERNELS`."""
    return inference.measured([table(folder)], "fleet", where={"kernel": KERNELS[kernel]})


def study(folder: Path) -> tuple[Found, Figure]:
    """Figures with 90% intervals, and the picture."""
    logs = {name: _logs(measured(folder, name).frame) for name in KERNELS}
    found: Found = {}
    for name, rows in logs.items():
        found |= {f"{name}.{key}": value for key, value in _longhorn(rows).items()}
    single = _superbench(folder)
    for (model, kind), part in single.groupby(["model", "kind"]):
        cv = part["cv"].to_numpy()
        found[f"{model}.{kind}"] = (float(np.median(cv)), float(cv.min()), float(cv.max()))
        found[f"{model}.{kind}.benchmarks"] = same(len(cv))
    return found, picture(logs, single)


def _logs(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[["gpu", "node", "time"]].assign(log_s=np.log(frame["duration_s"].to_numpy(dtype=float)))


def _longhorn(rows: pd.DataFrame) -> Found:
    by = rows.groupby("gpu")["log_s"]
    median, runs = by.median(), by.size()
    node = rows.groupby("gpu")["node"].agg(lambda names: names.mode().iloc[0] if names.notna().any() else None)
    place = node.where(node.notna(), node.index.to_series())
    within = _within(rows)
    halves = _halves(rows)
    stamp = pd.to_numeric(rows["time"])
    days = np.ptp(stamp[stamp > EPOCH]) / 86400.0
    return {
        "gpus": same(len(median)),
        "nodes": same(node.nunique()),
        "runs per GPU": (float(runs.median()), float(runs.min()), float(runs.max())),
        "days": same(days),
        "spatial sd": _over_nodes(median, place, lambda x: float(np.std(x, ddof=1))),
        "spatial bulk sd": _over_nodes(median, place, lambda x: float(np.diff(np.quantile(x, [0.16, 0.84]))[0] / 2.0)),
        "slowest over fastest": _over_nodes(median, place, lambda x: float(np.expm1(np.ptp(x)))),
        "p99 over p50": _over_nodes(median, place, lambda x: float(np.expm1(np.quantile(x, 0.99) - np.median(x)))),
        "temporal sd": (float(within.median()), float(within.quantile(0.05)), float(within.quantile(0.95))),
        "same order in both halves": halves,
    }


def _within(rows: pd.DataFrame) -> pd.Series:
    by = rows.groupby("gpu")["log_s"]
    return pd.Series(by.std(ddof=1)).loc[by.size() >= FEWEST_RUNS]


def _over_nodes(values: pd.Series, node: pd.Series, figure) -> tuple[float, float, float]:
    """The figure over GPUs; interval from nodes drawn with replacement, because their GPUs are alike."""
    rng = np.random.default_rng(0)
    groups = [part.to_numpy() for _, part in values.groupby(node)]
    drawn = [
        figure(np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])) for _ in range(N_BOOT)
    ]
    low, high = np.quantile(drawn, [0.05, 0.95])
    return figure(values.to_numpy()), float(low), float(high)


def _halves(rows: pd.DataFrame) -> tuple[float, float, float]:
    """Spearman's correlation of the GPUs' medians over their earlier and their later runs."""
    ordered = rows.assign(at=pd.to_numeric(rows["time"])).sort_values(["gpu", "at"])
    place = ordered.groupby("gpu").cumcount()
    size = ordered.groupby("gpu")["log_s"].transform("size")
    pick = ordered[size >= 2 * FEWEST_RUNS - 2]
    late = (place >= size / 2).reindex(pick.index)
    both = pick.groupby(["gpu", late.rename("late")])["log_s"].median().unstack().dropna()
    r = float(both[False].corr(both[True], method="spearman"))
    half = 1.6449 / np.sqrt(max(len(both) - 3, 1))
    return r, float(np.tanh(np.arctanh(r) - half)), float(np.tanh(np.arctanh(r) + half))


def _superbench(folder: Path) -> pd.DataFrame:
    """Per benchmark of `SUPERBENCH` its class, GPU model and spread over the GPUs of the node."""
    raw = pd.read_csv(table(folder), usecols=["cluster", "gpu_model", "kernel", "gpu_index", "duration"])
    raw = raw[raw["cluster"].str.startswith("SuperBench") & (raw["duration"] > 0.0)]
    rows = []
    for (model, kernel), part in raw.groupby(["gpu_model", "kernel"]):
        kind = next((name for name, front in SUPERBENCH.items() if str(kernel).startswith(front)), None)
        if kind and part["gpu_index"].nunique() == len(part) > 1:
            sd = float(np.log(part["duration"]).std(ddof=1))
            rows.append({"model": f"{model} ({len(part)} GPUs)", "kind": kind, "cv": sd})
    return pd.DataFrame(rows)


def picture(logs: dict[str, pd.DataFrame], single: pd.DataFrame) -> Figure:
    """Left: between GPUs. Middle: one GPU over its runs. Right: single nodes, a point per benchmark."""
    with style():
        figure = Figure(figsize=(10.5, 3.9), layout="constrained")
        left, middle, right = figure.subplots(1, 3, width_ratios=[1.0, 1.0, 1.15])
        for name, rows in logs.items():
            median = rows.groupby("gpu")["log_s"].median()
            _ecdf(left, 100.0 * np.expm1(median - median.median()), name)
            _ecdf(middle, 100.0 * _within(rows).clip(lower=1e-5), name)
        left.set(
            xlabel="GPU's median over the fleet's (percent)",
            ylabel="share of GPUs",
            title="between GPUs",
            xlim=(-8, 12),
        )
        middle.set(xlabel="sd of one GPU's runs (percent)", xscale="log", title="one GPU, run to run")
        left.legend(loc="upper left", handlelength=1.2)
        _nodes(right, single)
        for ax in (left, middle):
            ax.grid(True)
    return figure


def _ecdf(ax, values, name: str) -> None:
    x = np.sort(np.asarray(values, dtype=float))
    ax.step(x, (np.arange(len(x)) + 1.0) / len(x), where="post", color=COLOURS[name], label=name)


def _nodes(ax, single: pd.DataFrame) -> None:
    kinds = list(SUPERBENCH)[::-1]
    models = {
        "A100-40GB (8 GPUs)": (INDIGO, "o", 0.16),
        "MI100 (8 GPUs)": (ROSE, "s", 0.0),
        "V100 (2 GPUs)": (PURPLE, "^", -0.16),
    }
    for model, (colour, marker, shift) in models.items():
        part = single[single["model"] == model]
        at = part["kind"].map(kinds.index) + shift
        ax.plot(100.0 * part["cv"].clip(lower=1e-4), at, marker, color=colour, alpha=0.6, markersize=5, label=model)
    ax.set(xscale="log", xlabel="sd over the GPUs of one node (percent)", title="SuperBench, single nodes")
    ax.set_yticks(range(len(kinds)), kinds)
    ax.set_ylim(-0.6, len(kinds) + 0.9)
    ax.legend(loc="upper left", handlelength=1.0)
    ax.grid(True, axis="x")
