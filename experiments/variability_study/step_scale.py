# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
"""Section 4: what grows with the number of GPUs, from the MLPerf series of step times.

Protocol of `score_steps.py`: no re-submitted runs, the first 3 points of a run dropped, at least 20 points; every
point over the median of its run. A configuration is (submitter, system, benchmark, GPUs); its figure is the median
over its runs. A system's figure in a bucket of GPU counts is the median over its configurations, a bucket's that over
its systems; intervals come from drawing systems with replacement. Larger jobs are other systems, so growth is also
told within a submitter, benchmark and GPU model. The two metrics stay apart: `step_s` is one step, a point of
`log_dt_ms` spans some steps, which averages.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import spearmanr

from inference.steps.runs import gpu_class
from prism_jax.core.picture import INDIGO, ROSE, style
from prism_jax.core.robust import robust_sd

Found = dict[str, tuple[float, float, float]]
FIRST, FEWEST = 3, 20  # points dropped at the start of a run, and needed after that
SPIKE_SDS, SPIKE_MIN = 6.0, 0.01  # a spike is beyond six bulk standard deviations and 1% of the step
EDGES = (8, 64, 512, 2048)  # upper ends of the buckets, GPUs; one more is open
BUCKETS = ("<= 8", "9-64", "65-512", "513-2,048", "> 2,048")
METRICS = {"step_s": "single steps (step_s)", "log_dt_ms": "log intervals (log_dt_ms)"}
FIGURES = {
    "bulk_cv": "bulk: robust cv of a run",
    "p95": "p95 / p50 - 1",
    "p99": "p99 / p50 - 1",
    "spikes": "spikes: share of points",
    "between_runs": "between repeats: sd of medians",
}
CONFIGURATION = ["metric", "benchmark", "submitter", "system", "num_gpus"]
FLOOR = 1e-4  # added before the logarithm: differences below 0.01% of the step hardly count
N_BOOT = 1000
BOTTOM = {"spikes": 1e-3}  # of the picture
COLOURS = {"step_s": INDIGO, "log_dt_ms": ROSE}


def configurations(folder: Path) -> pd.DataFrame:
    """One row per configuration and metric with `FIGURES` and the number of its runs."""
    columns = ["run_id", "benchmark", "submitter", "system", "gpu", "num_gpus", "dup_of"]
    runs = pd.read_csv(folder / "variability" / "mlperf_runs.csv.gz", usecols=columns)
    series = pd.read_csv(folder / "variability" / "mlperf_series.csv.gz", usecols=["run_id", "metric", "i", "value"])
    known = runs[runs["dup_of"].isna()]
    series = series[
        series["run_id"].isin(known["run_id"]) & series["metric"].isin(list(METRICS)) & (series["value"] > 0.0)
    ]
    series = series.sort_values(["run_id", "metric", "i"], kind="stable")
    series = series[series.groupby(["run_id", "metric"]).cumcount() >= FIRST]
    grouped: Any = series.groupby(["run_id", "metric"])["value"]
    rows = [
        {"run_id": run, "metric": metric} | of_run(values.to_numpy())
        for (run, metric), values in grouped
        if len(values) >= FEWEST
    ]
    table = pd.DataFrame(rows).merge(known, on="run_id").dropna(subset=["num_gpus"])
    by = table.groupby(CONFIGURATION)
    found = by[["bulk_cv", "p95", "p99", "spikes"]].median()
    found["between_runs"] = by["log_median"].std(ddof=1).where(by.size() >= 3)
    found["n_runs"] = by.size()
    found["gpu"] = by["gpu"].first().astype(str).map(gpu_class)
    found = found.reset_index()
    found["owner"] = found["submitter"].astype(str) + "/" + found["system"].astype(str)
    found["bucket"] = np.searchsorted(EDGES, found["num_gpus"].to_numpy())
    return found


def of_run(value: np.ndarray) -> dict[str, float]:
    """Figures of one run."""
    middle = float(np.median(value))
    x = value / middle - 1.0
    bulk = robust_sd(x, 0.0)
    p95, p99 = np.quantile(x, [0.95, 0.99])
    return {
        "log_median": float(np.log(middle)),
        "bulk_cv": bulk,
        "p95": float(p95),
        "p99": float(p99),
        "spikes": float((x > max(SPIKE_SDS * bulk, SPIKE_MIN)).mean()),
    }


def study(folder: Path) -> tuple[Found, Figure]:
    """Figures by name with 90% intervals, and the picture."""
    table = configurations(folder)
    found: Found = {}
    for metric in METRICS:
        part = table[table["metric"] == metric]
        for name in FIGURES:
            for b, bucket in enumerate(BUCKETS):
                values = part[part["bucket"] == b].groupby("owner")[name].median().dropna().to_numpy()
                if len(values):
                    found[f"{metric}.{name}.{bucket}"] = _median_interval(values)
            found[f"{metric}.{name}.spearman with GPUs"] = _rank_interval(part[["owner", "num_gpus", name]].dropna())
            found[f"{metric}.{name}.per doubling"] = _growth_interval(part, name)
        for b, bucket in enumerate(BUCKETS):
            inside = part[part["bucket"] == b]
            n = float(inside["owner"].nunique())
            found[f"{metric}.systems.{bucket}"] = (n, n, n)
            n = float(inside["n_runs"].sum())
            found[f"{metric}.runs.{bucket}"] = (n, n, n)
    return found, picture(table, found)


def _median_interval(values: np.ndarray) -> tuple[float, float, float]:
    rng = np.random.default_rng(0)
    drawn = np.median(rng.choice(values, (N_BOOT, len(values))), axis=1)
    low, high = np.quantile(drawn, [0.05, 0.95])
    return float(np.median(values)), float(low), float(high)


def _rank_interval(part: pd.DataFrame) -> tuple[float, float, float]:
    """Spearman's correlation with the GPU count over configurations; systems are drawn with replacement."""
    rng = np.random.default_rng(0)
    groups = [rows.iloc[:, 1:].to_numpy(dtype=float) for _, rows in part.groupby("owner")]

    def rank(rows: np.ndarray) -> float:
        return float(spearmanr(rows[:, 0], rows[:, 1]).statistic)

    drawn = [
        rank(np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))]))
        for _ in range(N_BOOT // 2)
    ]
    low, high = np.nanquantile(drawn, [0.05, 0.95])
    return rank(np.concatenate(groups)), float(low), float(high)


def _growth_interval(part: pd.DataFrame, name: str) -> tuple[float, float, float]:
    """Factor per doubling of the GPUs among configurations of one submitter, benchmark and GPU model (drawn with replacement)."""
    rng = np.random.default_rng(0)
    sums = []
    for _, rows in part.dropna(subset=[name]).groupby(["submitter", "benchmark", "gpu"]):
        x, y = np.log2(rows["num_gpus"].to_numpy(dtype=float)), np.log2(rows[name].to_numpy(dtype=float) + FLOOR)
        x = x - x.mean()
        sums.append((x @ y, x @ x))
    both = np.array(sums)
    drawn = both[rng.integers(len(both), size=(N_BOOT, len(both)))].sum(axis=1)
    slopes = [both.sum(axis=0), *drawn]
    factor = np.array([2.0 ** (xy / xx) if xx > 0.0 else np.nan for xy, xx in slopes])
    low, high = np.nanquantile(factor[1:], [0.05, 0.95])
    return float(factor[0]), float(low), float(high)


def picture(table: pd.DataFrame, found: Found) -> Figure:
    """A panel per figure: configurations as points, medians over systems by bucket as lines with intervals."""
    with style():
        figure = Figure(figsize=(10.0, 5.6), layout="constrained")
        axes = figure.subplots(2, 3)
        for ax, (name, words) in zip(axes.ravel(), FIGURES.items(), strict=False):
            low = BOTTOM.get(name, 1e-4)
            for shift, (metric, label) in zip((-0.16, 0.16), METRICS.items(), strict=True):
                part = table[(table["metric"] == metric) & table[name].notna()]
                jitter = np.random.default_rng(0).uniform(-0.1, 0.1, len(part))
                y = 100.0 * part[name].clip(lower=low)
                ax.plot(
                    part["bucket"] + shift + jitter,
                    y,
                    ".",
                    color=COLOURS[metric],
                    alpha=0.35,
                    markersize=5,
                    markeredgewidth=0,
                )
                here = [b for b in range(len(BUCKETS)) if f"{metric}.{name}.{BUCKETS[b]}" in found]
                value = 100.0 * np.maximum(np.array([found[f"{metric}.{name}.{BUCKETS[b]}"] for b in here]), low)
                span = np.stack([value[:, 0] - value[:, 1], value[:, 2] - value[:, 0]])
                at = np.array(here) + shift
                ax.errorbar(
                    at,
                    value[:, 0],
                    span,
                    fmt="o",
                    linestyle="-",
                    color=COLOURS[metric],
                    capsize=3,
                    markersize=5,
                    linewidth=1.5,
                    label=label,
                )
            ax.set(yscale="log", title=words, xlabel="GPUs", ylim=(100.0 * low / 1.4, 100.0))
            ax.set_ylabel("percent of the points" if name == "spikes" else "percent of the step")
            ax.set_xticks(range(len(BUCKETS)), ["<=8", "9-64", "65-512", "513-2k", ">2k"])
            ax.grid(True, axis="y")
        axes[1, 2].axis("off")
        handles, labels = axes[0, 0].get_legend_handles_labels()
        note = "Line: median over systems, 90% interval.\nFaint: one configuration; zeros and\nsmaller values at the bottom."
        axes[1, 2].legend(handles, labels, loc="upper left", title=note, alignment="left", title_fontsize=9)
    return figure
