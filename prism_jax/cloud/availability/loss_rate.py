"""How often nodes of a law are lost while they are used: counted in draws, whatever the law."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from .base import Availability

N_WORLDS = 400
HORIZON_S = 10 * 86_400.0
SEED = 20230215


@lru_cache(maxsize=512)
def loss_rate_s(law: Availability, n_nodes: int) -> float:
    """Losses of at least one of `n_nodes` nodes per second in which all are there.

    Notes: it sets the interval between checkpoints, for which a few percent do not matter.
    """
    paths = law.draw(n_nodes, N_WORLDS, HORIZON_S, np.random.default_rng(SEED))
    up = paths.n_up >= n_nodes
    ends = np.minimum(paths.until_s, HORIZON_S)
    length_s = np.diff(ends, axis=0, prepend=0.0)
    lost = up[:-1] & ~up[1:] & (paths.until_s[:-1] < HORIZON_S)
    up_s = float((length_s * up).sum())
    return float(lost.sum()) / up_s if up_s > 0.0 else 1.0 / HORIZON_S
