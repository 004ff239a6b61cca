"""Parameters of a system from posterior draws: of one that was fitted, or of one that was not."""

from __future__ import annotations

import numpy as np

from ...model import Draws
from . import laws as laws, sizes as sizes
from .data import QUANTITIES, RepairsData

HOUR_S = 3600.0


def parameters(data: RepairsData, draws: Draws, quantity: str, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Log scale and log shape, [draw, 2]; of a system of one node where they are of times between events."""
    index = QUANTITIES.index(quantity)
    mean = np.stack([draws["location"][:, index], draws["log_shape"][:, index]], axis=-1)
    sd = np.stack([draws["between_sd"][:, index], draws["shape_sd"][:, index]], axis=-1)
    if system is None:
        return mean + sd * rng.standard_normal(mean.shape)
    at = data.systems.index(system)
    grid, weight = data.theta[index, at], data.log_weight[index, at]
    prior = -0.5 * (((grid - mean[:, None]) / sd[:, None]) ** 2).sum(axis=-1)
    return grid[_chosen(weight + prior, rng)]


def events_per_node_h(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Events of any size per node and hour, [draw]."""
    theta = parameters(data, draws, "between", system, rng)
    return HOUR_S / np.minimum(laws.mean_s(data.laws[0], theta), 1e12)


def nodes_lost(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Mean nodes lost in an event, [draw]; a system that was not measured is as large as the median one."""
    a = np.asarray(draws["share"] * draws["concentration"])
    b = np.asarray(draws["concentration"]) - a
    if system is None:
        exponent = draws["exponent"] + draws["exponent_sd"] * rng.standard_normal(len(a))
        return _mean_size(rng.beta(a, b), exponent, float(np.median(data.n_node)))
    at = data.systems.index(system)
    share = rng.beta(a + data.n_multi[at], b + data.n_event[at] - data.n_multi[at])
    apart = (data.exponent[at] - draws["exponent"][:, None]) / draws["exponent_sd"][:, None]
    chosen = _chosen(data.exponent_log_weight[at] - 0.5 * apart**2, rng)
    return _mean_size(share, data.exponent[at][chosen], data.n_node[at])


def _mean_size(share: np.ndarray, exponent: np.ndarray, n_node: float) -> np.ndarray:
    if n_node < 2.0:
        return np.ones(len(share))
    return 1.0 + share * (sizes.mean_of_several(exponent, n_node) - 1.0)


def _chosen(log_weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One place per draw of log weights [draw, place]."""
    cumulated = np.cumsum(np.exp(log_weight - log_weight.max(axis=1, keepdims=True)), axis=1)
    return (cumulated < rng.random((len(cumulated), 1)) * cumulated[:, -1:]).sum(axis=1)
