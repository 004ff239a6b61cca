"""How many nodes an event takes: one, or several by a power law that ends at the size of the system.

P(1) = 1 - p,    P(k) = p k^-exponent / sum over j = 2..N of j^-exponent
"""

from __future__ import annotations

import numpy as np
from scipy.special import logsumexp

from .grid import around_likelihood

CENTRE, WIDTH = 2.0, 1.5  # of exponents: all sizes up to N alike at 0, next to nothing above three nodes at 5
MOST_TERMS = 4096  # sizes that are summed one by one; beyond them steps grow


def on_line(sizes: np.ndarray, n_node: float) -> tuple[np.ndarray, np.ndarray]:
    """Exponents and log(likelihood x volume) there, [place], of events of several nodes [event]."""
    total = float(np.log(sizes).sum())

    def log_likelihood(at: np.ndarray) -> np.ndarray:
        return -at[:, 0] * total - len(sizes) * log_sum(at[:, 0], n_node) if len(sizes) else np.zeros(len(at))

    points, weight = around_likelihood(log_likelihood, np.array([CENTRE]), np.array([WIDTH]))
    return points[:, 0], weight


def log_sum(exponent: np.ndarray, n_node: float) -> np.ndarray:
    """Logarithm of the sum of k^-exponent over 2..n_node, [...]."""
    size, weight = _terms(n_node)
    return np.asarray(logsumexp(np.log(weight) - np.asarray(exponent)[..., None] * np.log(size), axis=-1))


def mean_of_several(exponent: np.ndarray, n_node: float) -> np.ndarray:
    """Mean size of events of several nodes, [...]."""
    return np.exp(log_sum(np.asarray(exponent) - 1.0, n_node) - log_sum(exponent, n_node))


def _terms(n_node: float) -> tuple[np.ndarray, np.ndarray]:
    """Sizes, and how many sizes each stands for."""
    n = max(int(n_node), 2)
    if n <= MOST_TERMS:
        return np.arange(2.0, n + 1.0), np.ones(n - 1)
    edges = np.unique(np.round(np.geomspace(MOST_TERMS, n + 1, 200)))
    head = np.arange(2.0, MOST_TERMS)
    return np.append(head, np.sqrt(edges[1:] * (edges[:-1]))), np.append(np.ones(len(head)), np.diff(edges))
