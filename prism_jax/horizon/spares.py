"""Nodes in repair at one time, and how many spare ones suffice."""

from __future__ import annotations

from math import ceil

import numpy as np
from scipy.stats import binom

from .._typing import Floats
from .reliability import HOUR_S, Hazard, Reliability

ENOUGH = 0.99  # of the time
MOST_SPARES = 1 << 14


def n_down_law(reliability: Reliability, n_gpus: int, node_size: int, n_spare: int) -> Floats:
    """Probability of 0, 1, 2, ... nodes in repair, of the job's and the spare ones.

    Notes: a node is down for the share MTTR / (MTTR + MTBF) of its time, whatever the law of repair is: binomial. Hazards that
        take k nodes together take groups of k; hazards are independent.
    """
    n_node = ceil(n_gpus / node_size)
    law = np.ones(1)
    for hazard in reliability.hazards:
        size = max(round(hazard.nodes_lost), 1)
        share = down_share(hazard, n_gpus, node_size)
        if share == 0.0:
            continue
        n_group = max((n_node + n_spare) // size, 1)
        most = min(n_group, int(binom.ppf(1.0 - 1e-9, n_group, share)) + 1)
        own = np.zeros(most * size + 1)
        own[::size] = binom.pmf(np.arange(most + 1), n_group, share)
        law = np.convolve(law, own)
    return law


def down_share(hazard: Hazard, n_gpus: int, node_size: int) -> float:
    """Share of the time that a group of nodes is in repair for one hazard."""
    if hazard.nodes_lost == 0.0 or hazard.repair_s == 0.0:
        return 0.0
    mean_h = hazard.repair_s * float(np.exp(0.5 * hazard.repair_log_sd**2)) / HOUR_S
    size = max(round(hazard.nodes_lost), 1)
    n_group = max(ceil(n_gpus / node_size) // size, 1)
    odds = hazard.rate_h(n_gpus, node_size) / n_group * mean_h
    return odds / (1.0 + odds)


def enough_prob(reliability: Reliability, n_gpus: int, node_size: int, n_spare: int) -> float:
    """Share of the time that at most `n_spare` nodes are in repair."""
    return float(n_down_law(reliability, n_gpus, node_size, n_spare)[: n_spare + 1].sum())


def fewest_spares(reliability: Reliability, n_gpus: int, node_size: int, enough: float = ENOUGH) -> int:
    """Smallest number of spare nodes that suffices for `enough` of the time; at most `MOST_SPARES`."""
    low, high = -1, 1
    if enough_prob(reliability, n_gpus, node_size, 0) >= enough:
        return 0
    while high < MOST_SPARES and enough_prob(reliability, n_gpus, node_size, high) < enough:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough_prob(reliability, n_gpus, node_size, middle) >= enough else (middle, high)
    return high
