"""Parameters of a system from posterior draws: of one that was fitted, or of one that was not."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...model import Draws
from . import laws as laws, sizes as sizes
from .data import QUANTITIES, RepairsData

HOUR_S = 3600.0


@dataclass(frozen=True)
class Parameters:
    """Of the times of one system.

    Attributes:
        is_weibull: or else log-normal, [draw].
        theta: log median and log spread, [draw, 2].
    """

    is_weibull: np.ndarray
    theta: np.ndarray

    @property
    def median_s(self) -> np.ndarray:
        """Seconds, [draw]."""
        return np.exp(self.theta[:, 0])

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of log times, [draw]."""
        return np.exp(self.theta[:, 1])

    @property
    def mean_s(self) -> np.ndarray:
        """Seconds, [draw]."""
        return laws.mean_s(self.is_weibull, self.theta)


def parameters(
    data: RepairsData, draws: Draws, quantity: str, system: str | None, rng: np.random.Generator
) -> Parameters:
    """Parameters of a system; of a system of one node where they are of times between events."""
    index = QUANTITIES.index(quantity)
    mean = np.stack([draws["location"][:, index], draws["log_spread"][:, index]], axis=-1)
    sd = np.stack([draws["between_sd"][:, index], draws["spread_sd"][:, index]], axis=-1)
    weibull = np.asarray(draws["weibull"])[:, index]
    if system is None:
        return Parameters(rng.random(len(weibull)) < weibull, mean + sd * rng.standard_normal(mean.shape))
    at = data.systems.index(system)
    grid = data.theta[:, index, at].reshape(-1, 2)
    n = data.theta.shape[3]
    prior = -0.5 * (((grid - mean[:, None]) / sd[:, None]) ** 2).sum(axis=-1)
    share = np.repeat(np.log(np.stack([weibull, 1.0 - weibull], axis=-1) + 1e-300), n, axis=1)
    chosen = _chosen(data.log_weight[:, index, at].ravel() + prior + share, rng)
    return Parameters(chosen < n, grid[chosen])


def events_per_node_h(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Events of any size per node and hour, [draw]."""
    at = -1 if system is None else data.systems.index(system)
    if at >= 0 and data.watched_s[at] > 0.0:  # counted, as means of broad laws are a matter of their tails
        return rng.gamma(data.n_event[at], size=len(draws["share"])) / (data.n_node[at] * data.watched_s[at]) * HOUR_S
    return HOUR_S / parameters(data, draws, "between", system, rng).mean_s


def nodes_lost(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Mean nodes lost in an event, [draw]; a system that was not measured is as large as the median one."""
    a = np.asarray(draws["share"] * draws["concentration"])
    b = np.asarray(draws["concentration"]) - a
    if system is None:
        exponent = draws["exponent"] + draws["exponent_sd"] * rng.standard_normal(len(a))
        return _mean_size(rng.beta(a, b), exponent, float(np.median(data.n_node)))
    at = data.systems.index(system)  # counted, as the mean of a power law is a matter of its tail
    several = data.n_multi[at]
    size = (data.n_down[at] - data.n_event[at] + several) / max(several, 1.0)
    return 1.0 + rng.beta(a + several, b + data.n_event[at] - several) * max(size - 1.0, 0.0)


def _mean_size(share: np.ndarray, exponent: np.ndarray, n_node: float) -> np.ndarray:
    if n_node < 2.0:
        return np.ones(len(share))
    return 1.0 + share * (sizes.mean_of_several(exponent, n_node) - 1.0)


def _chosen(log_weight: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """One place per draw of log weights [draw, place]."""
    cumulated = np.cumsum(np.exp(log_weight - log_weight.max(axis=1, keepdims=True)), axis=1)
    return (cumulated < rng.random((len(cumulated), 1)) * cumulated[:, -1:]).sum(axis=1)
