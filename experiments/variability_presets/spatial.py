# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
"""Persistent spread between GPUs and nodes, from per-GPU kernel times (PAL Longhorn V100, SuperBench A100 and MI100)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

DRAIN_FACTOR = 1.06  # GPUs slower than this over the median are taken out of a production pool before a long job


def spatial_facts(data: Path) -> dict[str, float]:
    """cv's and mixture parameters, all dimensionless; keys say of what."""
    table = pd.read_csv(data / "variability" / "gpu_kernels.csv.gz", low_memory=False)
    facts = _longhorn(table)
    facts |= _superbench(table)
    return facts


def _longhorn(table: pd.DataFrame) -> dict[str, float]:
    sgemm = table[table.kernel.str.startswith("SGEMM")]
    factor = _gpu_factor(sgemm)
    facts = {"pal_sgemm_gpus": float(len(factor)), "pal_sgemm_cv": float(factor.std() / factor.mean())}
    y = np.log(factor.to_numpy())
    facts |= {f"pal_sgemm_{k}": v for k, v in fit_mixture(y).items()}
    facts |= {f"pal_drained_{k}": v for k, v in fit_mixture(y, np.log(DRAIN_FACTOR)).items()}
    facts["pal_sgemm_max"] = float(factor.max())
    facts["pal_drained_gpus"] = float((factor >= DRAIN_FACTOR).sum())
    facts["pal_sgemm_node_cv"] = _node_cv(sgemm)
    facts["pal_sgemm_within_gpu_cv"] = _within_gpu_cv(sgemm)
    pagerank = table[table.kernel == "PageRank"]
    spread = _gpu_factor(pagerank)
    facts["pal_pagerank_cv"] = float(spread.std() / spread.mean())
    facts["pal_pagerank_within_gpu_cv"] = _within_gpu_cv(pagerank)
    for name in ("ResNet-50", "BERT"):  # data parallel inside a node: four GPUs share a time, so cross-check only
        spread = _gpu_factor(table[table.kernel.str.startswith(name)])
        facts[f"pal_{name.lower()}_cv"] = float(spread.std() / spread.mean())
    return facts


def _superbench(table: pd.DataFrame) -> dict[str, float]:
    bench = table[table.source.str.startswith("microsoft")]
    per_kernel = bench[bench.duration > 0].groupby(["gpu_model", "kernel"]).duration.agg(["size", "mean", "std"])
    eight = per_kernel[per_kernel["size"] == 8]  # one value for each GPU of a node
    cv = eight["std"] / eight["mean"]
    a100, mi100 = cv["A100-40GB"], cv["MI100"]
    half = ["gemm-flops/BF16_TC", "gemm-flops/FP16_TC"]
    matrix = mi100[mi100.index.str.contains("gemm-flops/.*xDLOPS")]
    return {
        "a100_gemm_cv": float(a100[half].mean()),
        "a100_memory_cv": float(a100["mem-bw/D2D_Mem_BW"]),
        "mi100_gemm_cv": float(matrix.median()),
        "mi100_gemm_cv_max": float(matrix.max()),
    }


def _gpu_factor(runs: pd.DataFrame) -> pd.Series:
    """Median time of every GPU over the fleet's median of those."""
    time = runs.groupby("gpu_uuid").duration.median()
    return time / time.median()


def _within_gpu_cv(runs: pd.DataFrame) -> float:
    """Median over GPUs of the cv of one GPU's runs."""
    return float(runs.groupby("gpu_uuid").duration.agg(lambda x: x.std() / x.mean()).median())


def _node_cv(runs: pd.DataFrame) -> float:
    """Standard deviation of the node effect on log time, by one-way analysis of variance over known nodes."""
    log_factor = np.log(_gpu_factor(runs))
    frame = pd.DataFrame({"y": log_factor, "node": runs.groupby("gpu_uuid").node_key.first()}).dropna()
    groups = frame.groupby("node").y
    size, total, n_node = groups.size(), len(frame), groups.ngroups
    between = float((size * (groups.mean() - frame.y.mean()) ** 2).sum()) / (n_node - 1)
    within = float((groups.var(ddof=0) * size).sum()) / (total - n_node)
    per_node = (total - float((size**2).sum()) / total) / (n_node - 1)
    return float(np.sqrt(max((between - within) / per_node, 0.0)))


def fit_mixture(y: np.ndarray, drain: float = np.inf, n_iter: int = 500) -> dict[str, float]:
    """Two normals on log factors by expectation maximisation, started from the slowest 3%.

    Args:
        y: log factors of all GPUs.
        drain: the components' moments are taken over the GPUs with `y < drain` only, with memberships fitted to all.
        n_iter: iterations; 100 are enough.
    """
    slow = (y >= np.quantile(y, 0.97)).astype(float) * 0.98 + 0.01
    for _ in range(n_iter):
        mass, mean, sd = _moments(y, slow)
        log_like = np.log(mass / len(y))[:, None] - 0.5 * ((y - mean[:, None]) / sd[:, None]) ** 2 - np.log(sd)[:, None]
        slow = 1.0 / (1.0 + np.exp(np.clip(log_like[0] - log_like[1], -700.0, 700.0)))
    kept = y < drain
    mass, mean, sd = _moments(y[kept], slow[kept])
    means = np.exp(mean + 0.5 * sd**2)
    return {
        "bulk_cv": float(np.sqrt(np.expm1(sd[0] ** 2))),
        "slow_prob": float(mass[1] / mass.sum()),
        "slow_factor": float(means[1] / means[0]),
        "slow_cv": float(np.sqrt(np.expm1(sd[1] ** 2))),
    }


def _moments(y: np.ndarray, slow: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Mass, mean and standard deviation of the bulk and of the slow component, given memberships."""
    weight = np.stack([1.0 - slow, slow])
    mass = weight.sum(1)
    mean = weight @ y / mass
    return mass, mean, np.sqrt((weight * (y - mean[:, None]) ** 2).sum(1) / mass)
