"""Repeat offenders: which node fails next, of nodes that fail alone.

    P(node i next | failures before) = (a + n_i) / (N a + n)

the urn of Polya: nodes have rates from a gamma law of shape a, all alike where a is large.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln

from .grid import Grid, around_likelihood

CENTRE, WIDTH = 0.5, 1.5  # of log a: rates of nodes differ by a coefficient of variation of 0.2 to 3


def on_line(alone: np.ndarray, n_node: float) -> Grid:
    """log a and log(likelihood x volume) there, [place], of counts by node that failed alone [node]."""
    repeats, n_with = np.unique(alone, return_counts=True)

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        a = np.exp(np.clip(at, -20.0, 20.0))
        by_node = ((gammaln(a + repeats) - gammaln(a)) * n_with).sum(axis=1)
        return by_node + (gammaln(n_node * a) - gammaln(n_node * a + alone.sum()))[:, 0]

    points, weight = around_likelihood(log_likelihood, np.array([CENTRE]), np.array([WIDTH]))
    return points[:, 0], weight
