# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""Seconds of a checkpoint from a fit, and the scores of sources that were left out."""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd
from jax import Array

from experiments.checkpoints_fit.data import CheckpointsData, observations
from experiments.checkpoints_fit.features import Design, Observation
from inference.engine.model import Draws, GroupScore


def seconds(
    data: CheckpointsData,
    draws: Draws,
    *,
    operation: str,
    n_bytes: float,
    writers: float = float("nan"),
    storage: str = "",
    method: str = "",
    source: str = "",
    key: Array,
) -> np.ndarray:
    """Seconds of one checkpoint, [draw].

    Args:
        operation: save, block or load; see `features.OPERATIONS`.
        n_bytes: of the checkpoint.
        writers: processes that write or read; NaN where that is not known.
        storage: as in tables: "GPFS", "NAS about 100 MB/s".
        method: as in the fit, or another.
        source: of the fit; any other is a new one.
    """
    one = Observation.of(operation, n_bytes, writers, storage, method, "", source)
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    return np.exp(log_seconds(data, draws, [one], rng)[:, 0])


def log_seconds(
    data: CheckpointsData, draws: Draws, rows: Sequence[Observation], rng: np.random.Generator
) -> np.ndarray:
    """Log seconds of single observations, [draw, observation]; the rows of a new source share its effect."""
    design = Design(data.names, data.level, data.prior_mean, data.prior_sd)
    mean = np.asarray(draws["effect"]) @ design.matrix(rows).T + design.offset(rows)
    new_names = {
        "source_sd": [f"source {row.source}" for row in rows],
        "method_sd": [f"method {row.method}" for row in rows],
        "operation_sd": [f"{row.operation} of {row.source}" for row in rows],
    }
    for kind, names in new_names.items():
        new = sorted(set(names) - set(data.names))
        drawn = np.asarray(draws[kind])[:, None] * rng.standard_normal((len(mean), len(new)))
        for index, name in enumerate(new):
            mean[:, [at == name for at in names]] += drawn[:, [index]]
    return mean + np.asarray(draws["noise"])[:, None] * rng.standard_normal(mean.shape)


def scores(data: CheckpointsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[GroupScore]:
    """One score per group: median relative error of the median, and of bytes by the median bandwidth of the rest."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    names = left_out[column].astype(str).to_numpy()
    out = []
    for name in np.unique(names):
        rows, measured = observations(left_out[names == name])
        if not rows:
            continue
        low, middle, high = np.quantile(np.exp(log_seconds(data, draws, rows, rng)), [0.05, 0.5, 0.95], axis=0)
        trivial = np.exp([row.log_bytes - data.log_bandwidth for row in rows])
        extra = {
            "mape": float(np.median(np.abs(middle / measured - 1.0))),
            "mape_one_bandwidth": float(np.median(np.abs(trivial / measured - 1.0))),
            "log_error": float(np.median(np.abs(np.log(middle / measured)))),
            "log_error_one_bandwidth": float(np.median(np.abs(np.log(trivial / measured)))),
            "n_observations": float(len(rows)),
        }
        inside = (measured >= low) & (measured <= high)
        out.append(GroupScore(group=str(name), coverage_90=float(inside.mean()), extra=extra))
    return out
