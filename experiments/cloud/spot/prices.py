"""Prices three months on: are they inside what the law of the months before says?"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.cloud.spot.price_fit import fit_price

AHEAD, LEAST = 3, 12  # months
N_WORLDS = 400


def coverage(folder: Path) -> tuple[int, float, float]:
    """Forecasts, and shares of them inside the 90% interval of the law, and of prices that had not moved at all.

    A forecast is made of every month with `LEAST` before it and `AHEAD` after it.
    """
    table = pd.read_csv(folder / "gcp_gpu_price_history.csv.gz").dropna(subset=["spot_usd_h"])
    found = []
    for _, rows in table.groupby(["instance", "region"]):
        price, when = rows["spot_usd_h"].to_numpy(dtype=float), pd.to_datetime(rows["date"])
        t_s = (when - when.min()).dt.total_seconds().to_numpy(dtype=float)
        found += [_forecast(t_s, price, n) for n in range(LEAST, len(rows) - AHEAD)]
    inside, same = np.array(found).T
    return len(found), float(inside.mean()), float(same.mean())


def _forecast(t_s: np.ndarray, price: np.ndarray, n: int) -> tuple[bool, bool]:
    """Whether the price `AHEAD` months after the first `n` is inside their interval, and whether it is the same."""
    law = fit_price(t_s[:n], price[:n])
    ends = (t_s[n - 1 + AHEAD] - t_s[n - 1]) + np.array([[0.0], [1.0]]) * np.ones((2, N_WORLDS))
    low, high = np.quantile(law.path(ends, np.random.default_rng(0))[1], [0.05, 0.95])
    now = price[n - 1 + AHEAD] / price[n - 1]
    return bool(low - 1e-6 <= now <= high + 1e-6), bool(abs(now - 1.0) < 1e-6)
