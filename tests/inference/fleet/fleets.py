"""Simulated fleets with known spreads."""

import numpy as np
import pandas as pd

TRUTH = {
    "gpu_spread": 0.015,
    "node_spread": 0.010,
    "run_spread": 0.004,
    "rest_spread": 0.002,
    "slow_prob": 0.05,
    "slow_shift": 5.0,
    "slow_spread": 1.0,
    "far_prob": 0.1,
    "far_spread": 3.0,
}


def fleet_table(
    rng: np.random.Generator,
    *,
    n_node: int = 30,
    gpus_per_node: int = 8,
    n_run: int = 6,
    truth: dict[str, float] = TRUTH,
    shared_runs: bool = True,
    typical_s: float = 1e-3,
) -> pd.DataFrame:
    """Rows of every GPU in every run, in the model's own columns; without shared runs, `run_spread` plays no part."""
    node = np.where(rng.random(n_node) < truth["far_prob"], truth["far_spread"], 1.0) * rng.standard_normal(n_node)
    shape = (n_node, gpus_per_node)
    slow = rng.random(shape) < truth["slow_prob"]
    chip = np.where(
        slow, truth["slow_shift"] + truth["slow_spread"] * rng.standard_normal(shape), rng.standard_normal(shape)
    )
    run = truth["run_spread"] * rng.standard_normal((n_node, 1, n_run)) if shared_runs else 0.0
    log_s = (
        np.log(typical_s)
        + truth["node_spread"] * node[:, None, None]
        + truth["gpu_spread"] * chip[:, :, None]
        + run
        + truth["rest_spread"] * rng.standard_normal((*shape, n_run))
    )
    n, g, r = np.meshgrid(np.arange(n_node), np.arange(gpus_per_node), np.arange(n_run), indexing="ij")
    frame = pd.DataFrame(
        {
            "gpu": [f"g{a:04d}-{b}" for a, b in zip(n.ravel(), g.ravel(), strict=True)],
            "node": [f"n{a:04d}" for a in n.ravel()],
            "kernel": "gemm",
            "run": [f"r{c}" for c in r.ravel()],
            "duration_s": np.exp(log_s).ravel(),
        }
    )
    return frame if shared_runs else frame.drop(columns="run")
