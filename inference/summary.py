"""Posterior draws as people read them."""

from __future__ import annotations

import numpy as np


def interval(draws: np.ndarray) -> dict[str, float]:
    """Median and 90 % interval of draws [draw]."""
    low, middle, high = np.quantile(np.asarray(draws, dtype=float), [0.05, 0.5, 0.95])
    return {"median": float(middle), "p5": float(low), "p95": float(high)}
