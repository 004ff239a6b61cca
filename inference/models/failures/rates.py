"""Rates of a cluster from posterior draws: of one that was fitted, or of one that was not.

    count  ~ Poisson(G . sum over levels of rate[level] x exposure[level]),    G ~ Gamma(shape, shape) by cluster and kind

G is integrated out of the fit; given the counts of its group it is Gamma(shape + count, shape + expected).
"""

from __future__ import annotations

import numpy as np

from ...model import Draws
from .data import KINDS, LEVELS, FailuresData


def of_levels(data: FailuresData, draws: Draws) -> np.ndarray:
    """Events per hour of a GPU, a node, a job of the average cluster, [draw, level]; 0 where the data do not tell one apart."""
    return np.exp(np.asarray(draws["log_rate"])) * data.levels


def expected(data: FailuresData, draws: Draws) -> np.ndarray:
    """Counts by group of a cluster that is as the average, [draw, group]."""
    by_row = of_levels(data, draws) @ data.exposure_h.T
    out = np.zeros((len(by_row), data.n_group))
    np.add.at(out.T, data.group, by_row.T)
    return out


def counts(data: FailuresData) -> np.ndarray:
    """Interruptions by group, [group]."""
    return np.bincount(data.group, weights=data.count, minlength=data.n_group)


def new_factors(draws: Draws, n: int, rng: np.random.Generator) -> np.ndarray:
    """Factors of `n` clusters (or kinds) that were not fitted, [draw, n]."""
    shape = np.asarray(draws["shape"])[:, None]
    return rng.gamma(np.broadcast_to(shape, (len(shape), n))) / shape


def cluster_rates(data: FailuresData, draws: Draws, cluster: str | None, rng: np.random.Generator) -> np.ndarray:
    """Events per hour of a GPU, a node, a job of `cluster`, [draw, level]; of a new cluster for None.

    Notes:
        A level takes the factor of the counts of its own kind in that cluster, else of its counts of all kinds, else a new one.
    """
    rates = of_levels(data, draws)
    factors = new_factors(draws, len(LEVELS), rng)
    if cluster is None:
        return rates * factors
    shape = np.asarray(draws["shape"])
    n, mean = counts(data), expected(data, draws)
    own = data.cluster == data.clusters.index(cluster)
    for kind in ("all", *LEVELS):  # a level's own counts come last and stand
        for group in np.flatnonzero(own & (data.kind == KINDS.index(kind))):
            factor = rng.gamma(shape + n[group]) / (shape + mean[:, group])
            at = slice(None) if kind == "all" else LEVELS.index(kind)
            factors[:, at] = factor[:, None] if kind == "all" else factor
    return rates * factors


def per_gpu_h(rates: np.ndarray, n_gpus: float, node_size: float) -> np.ndarray:
    """Events per GPU-hour of one job on `n_gpus` GPUs, of all levels, [draw]."""
    return rates[:, 0] + rates[:, 1] / node_size + rates[:, 2] / n_gpus
