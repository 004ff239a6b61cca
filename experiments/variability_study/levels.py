# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false, reportOperatorIssue=false
# pyright: reportGeneralTypeIssues=false
"""Section 2: chip, node or run, from one fit of the fleet model per Longhorn kernel, with 90% intervals.

Runs are cut into what the GPUs of a node share, disturbed runs, and the rest. Beside it, without a model: whether GPUs keep their
order from kernel to kernel, and the fast batch of PageRank.
"""

from __future__ import annotations

from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from scipy.stats import rankdata

import inference
from experiments.variability_study.gpu_spread import KERNELS, Found, measured, same
from inference.data.clean import Measurements
from inference.fleet.data import labelled
from prism_jax.core.picture import INDIGO, ROSE, SAND, TEAL, WINE, style

OF_RUN = ("shared", "disturbed", "rest")
PARTS = {  # of a bar
    "chip": INDIGO,
    "node": TEAL,
    "run shared by a node": ROSE,
    "disturbed runs": WINE,
    "rest of a run": SAND,
}
SPREADS = {
    "gpu_cv": ("between chips", INDIGO),
    "node_cv": ("between nodes", TEAL),
    "shared_run_cv": ("run shared by a node", ROSE),
    "rest_cv": ("rest of a run", SAND),
}
LOGGED = {"clock_mhz": "clock", "temp_c": "temperature", "power_w": "power"}
N_BOOT = 1000
FAST = 0.02  # GPUs farther below the median are the fast batch of PageRank; nothing lies between 0.1 and 2.6%
METHODS = (("svi", 0, 1000), ("svi", 1, 1000), ("nuts", 0, 1000))  # method, seed, draws of an approximation


@cache
def fitted(folder: Path, kernel: str, keep: Path | None) -> tuple[dict[str, Any], dict[str, float]]:
    """What the fit of one kernel says, and its `_run_parts`; the fit is kept in the folder `keep` and found there again."""
    kept = keep / f"{kernel}.npz" if keep else None
    if kept and kept.exists():
        fit = inference.Fit.load(kept)
    else:
        fit = _fit(measured(folder, kernel), kernel)
        if kept:
            fit.save(kept)
    return fit.describe(), {"verdict good": float(fit.verdict.ok), **_run_parts(fit)}


def _fit(rows: Measurements, kernel: str) -> inference.Fit:
    """The first fit whose own check passes: approximations from two seeds, then NUTS; the last one, where none does."""
    for method, seed, n_draw in METHODS:
        settings = inference.Settings(n_approximate_draw=n_draw)
        fit = inference.fit(rows, model="fleet", method=method, key=jax.random.key(seed), settings=settings)
        print(
            f"  {kernel}: {method}, seed {seed}, {n_draw} draws, {fit.elapsed_s:.0f} s, {fit.verdict.sentence}",
            flush=True,
        )
        if fit.verdict.ok:
            break
    return fit


def _run_parts(fit: inference.Fit) -> dict[str, float]:
    """Shares of the run's variance: runs that the GPUs of a node share, disturbed runs, and the rest; sum one."""
    draws = fit.draws
    shared = float(np.median(draws["run_spread"][:, 0] ** 2)) if "run_spread" in draws else 0.0
    parts = {
        "shared": shared,
        "disturbed": float(fit.data.disturbed_square[0]),
        "rest": float(np.median(draws["rest_spread"][:, 0] ** 2)),
    }
    return {name: value / sum(parts.values()) for name, value in parts.items()}


def disturbed_together(folder: Path, kernel: str) -> tuple[float, float]:
    """Share of disturbed rows, and of their node's other rows of that run that are disturbed, too (NaN without shared runs)."""
    rows = labelled(measured(folder, kernel).frame)
    named = rows[rows["run_of_node"] != ""]
    by = named.groupby(["node", "run_of_node"])["disturbed"]
    others = by.transform("size") - 1
    far = named["disturbed"] & (others > 0)
    together = (by.transform("sum") - 1)[far].sum() / others[far].sum() if far.any() else np.nan
    return float(rows["disturbed"].mean()), float(together)


def study(folder: Path, keep: Path | None) -> tuple[Found, Figure]:
    """Section 2."""
    found: Found = {}
    for name, kernel in KERNELS.items():
        said, parts = fitted(folder, name, keep)
        part = said["kernels"][kernel]
        for level, share in part["variance_share_intervals"].items():
            found[f"{name}.share.{level}"] = triple(share)
        for spread in ("gpu_cv", "gpu_bulk_cv", "node_cv", "shared_run_cv", "rest_cv"):
            if spread in part:
                found[f"{name}.{spread}"] = triple(part[spread])
        found[f"{name}.verdict good"] = same(parts["verdict good"])
        found |= {f"{name}.of the run.{what}": same(parts[what]) for what in OF_RUN}
        rows, together = disturbed_together(folder, name)
        found[f"{name}.disturbed rows"] = same(rows)
        if np.isfinite(together):
            found[f"{name}.disturbed together"] = same(together)
        found[f"{name}.disturbed excess"] = same(part["disturbed_excess"])
        found[f"{name}.slow share"] = triple(said["slow_chips"]["prob"])
        shift = said["slow_chips"]["shift_in_bulk_spreads"]
        if shift is not None:  # the data ask for slow chips
            found[f"{name}.slow shift"] = triple(
                {key: value * part["gpu_bulk_cv"]["median"] for key, value in shift.items()}
            )
    found |= _across_kernels({name: gpu_means(folder, name) for name in KERNELS})
    return found, _shares_picture(found)


def _across_kernels(tables: dict[str, pd.DataFrame]) -> Found:
    """Spearman's correlation between kernels of the means of GPUs measured with both; and PageRank's fast batch."""
    found: Found = {}
    for one, other in combinations(tables, 2):
        joined = tables[one][["log_s", "node"]].join(tables[other]["log_s"].rename("other"), how="inner")
        if len(joined) > 10:
            found[f"{one} and {other}.Spearman"] = correlation(joined, "other", True)
            found[f"{one} and {other}.GPUs"] = same(float(len(joined)))
    means = tables["PageRank"]
    ratio = np.expm1(means["log_s"] - means["log_s"].median())
    fast = ratio < -FAST
    found["PageRank.fast batch.GPUs"] = same(float(fast.sum()))
    found["PageRank.fast batch.nodes"] = same(float(means.loc[fast, "node"].nunique()))
    found["PageRank.fast batch.faster by"] = same(-float(ratio[fast].median()))
    known = tables["SGEMM"].assign(fast=fast).dropna(subset=["fast"])
    gap = known.groupby("fast")["log_s"].median()
    found["PageRank.fast batch.slower in SGEMM by"] = same(float(gap[True] - gap[False]))
    return found


def gpu_means(folder: Path, name: str) -> pd.DataFrame:
    """Per GPU the means of log seconds and of what was logged over undisturbed runs, and its node."""
    rows = labelled(measured(folder, name).frame)
    calm = rows[~rows["disturbed"]]
    by = calm.groupby("gpu")
    columns = [key for key in LOGGED if key in calm and calm[key].notna().all()]
    means = pd.DataFrame(by[["log_s", *columns]].mean())
    means["node"] = by["node"].agg(lambda names: names.mode().iloc[0])
    return means


def triple(said: dict[str, float]) -> tuple[float, float, float]:
    """Median and the ends of the 90% interval."""
    return said["median"], said["p5"], said["p95"]


def correlation(means: pd.DataFrame, key: str, ranks: bool) -> tuple[float, float, float]:
    """Correlation of `key` with log seconds over GPUs, or of their ranks; the interval is from nodes drawn with replacement."""
    rng = np.random.default_rng(0)
    groups = [part[["log_s", key]].to_numpy(dtype=float) for _, part in means.groupby("node")]

    def r(values: np.ndarray) -> float:
        both = rankdata(values, axis=0) if ranks else values
        return float(np.corrcoef(both.T)[0, 1]) if np.ptp(both[:, 1]) > 0.0 else np.nan

    drawn = [r(np.concatenate([groups[i] for i in rng.integers(len(groups), size=len(groups))])) for _ in range(N_BOOT)]
    low, high = np.nanquantile(drawn, [0.05, 0.95])
    return r(np.concatenate(groups)), float(low), float(high)


def _shares_picture(found: Found) -> Figure:
    """Shares as bars of one length; spreads of the levels beside them."""
    names = list(KERNELS)[::-1]
    with style():
        figure = Figure(figsize=(10.0, 3.6), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        start = np.zeros(len(names))
        widths = np.array([_pieces(found, name) for name in names])
        for (word, colour), width in zip(PARTS.items(), 100.0 * widths.T, strict=True):
            left.barh(names, width, left=start, color=colour, label=word, height=0.6)
            start += width
        left.set(xlabel="share of the variance of log time (percent)", xlim=(0, 100))
        for row, (spread, (_, colour)) in enumerate(SPREADS.items()):
            here = [(i, found[f"{name}.{spread}"]) for i, name in enumerate(names) if f"{name}.{spread}" in found]
            at = np.array([i + 0.24 - 0.16 * row for i, _ in here])
            value = 100.0 * np.maximum(np.array([v for _, v in here]), 1e-5)
            span = np.abs(value[:, 1:].T - value[:, 0])
            right.errorbar(value[:, 0], at, xerr=span, fmt="o", color=colour, markersize=6, capsize=2)
        right.set(xscale="log", xlabel="standard deviation of that level (percent)")
        right.grid(True, axis="x")
        figure.legend(
            *left.get_legend_handles_labels(), loc="outside upper center", ncols=len(PARTS), columnspacing=1.2
        )
    return figure


def _pieces(found: Found, name: str) -> list[float]:
    """Shares in the order of `PARTS`; the run's share is cut as its variance is."""
    run = found[f"{name}.share.run"][0]
    of_run = [run * found[f"{name}.of the run.{what}"][0] for what in OF_RUN]
    pieces = [found[f"{name}.share.gpu"][0], found[f"{name}.share.node"][0], *of_run]
    return [piece / sum(pieces) for piece in pieces]
