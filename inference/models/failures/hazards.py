"""The `Reliability` that a fit of failures amounts to."""

from __future__ import annotations

import numpy as np

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean
from prism_jax.horizon.reliability import Hazard, Reliability

from ...model import Draws
from . import rates as rates
from .data import FailuresData

CAUSES = ("GPU failures", "node failures", "job failures")


def reliability(data: FailuresData, draws: Draws, cluster: str | None) -> Reliability:
    """One hazard per level that the data tell apart: rates, and what is not known of them as `log_sd`.

    Args:
        cluster: a cluster of the table; None: one that is not in it.

    Raises:
        FitError: no such cluster.
    """
    if cluster is not None and cluster not in data.clusters:
        raise FitError(f"cluster {cluster!r} is not in the fit{did_you_mean(cluster, data.clusters)}")
    drawn = rates.cluster_rates(data, draws, cluster, np.random.default_rng(0))
    hazards = [_hazard(level, drawn[:, level]) for level in range(len(CAUSES)) if data.levels[level] > 0.0]
    where = cluster or "a cluster that was not measured"
    return Reliability(tuple(hazards), name=where, source=f"fit of failures in {len(data.clusters)} clusters")


def _hazard(level: int, drawn: np.ndarray) -> Hazard:
    """The log-normal law of the mean and spread of the draws, so that rates add up; a failed job takes no node with it."""
    names = ("per_gpu_h", "per_node_h", "per_job_h")
    mean = float(drawn.mean())
    variance = float(np.log1p(drawn.var() / mean**2))
    rate = mean * np.exp(-0.5 * variance)
    return Hazard(CAUSES[level], **{names[level]: rate}, nodes_lost=0.0 if level == 2 else 1.0, log_sd=variance**0.5)
