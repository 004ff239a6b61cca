"""What every method returns: draws by chain, and what tells whether to trust them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Sampled:
    """Draws of a posterior.

    Attributes:
        draws: site -> [chain, draw, ...]; one chain where the draws are independent.
        diverging: [chain, draw]; none for an approximation.
        n_leapfrog: [chain, draw]; zero for an approximation.
        k_hat: Pareto shape of the importance weights of an approximation; NaN for sampling.
        flat: the same draws as unconstrained vectors [draw, dim], for fits that begin where this one ended; not kept in files.
    """

    draws: dict[str, np.ndarray]
    diverging: np.ndarray
    n_leapfrog: np.ndarray
    k_hat: float = np.nan
    flat: np.ndarray | None = None


def independent(draws: dict[str, np.ndarray], k_hat: float, flat: np.ndarray) -> Sampled:
    """Draws [draw, ...] of an approximation, as one chain."""
    n_draw = len(next(iter(draws.values())))
    none = np.zeros((1, n_draw), dtype=int)
    return Sampled({name: value[None] for name, value in draws.items()}, none.astype(bool), none, k_hat, flat)
