# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""A calm fleet: instances of which most reach the limit of 24 hours, at which they are stopped whatever happens."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd

import inference
from inference.durations import revocation as predict
from inference.durations.revocation_data import from_frame

LIMIT_S = 24 * 3600.0
N_WORLDS = 4000


def of_zone(lives: pd.DataFrame, zone: str, seed: int) -> dict[str, float]:
    """Share of the instances of a zone left out that reach the limit, and its 90% prediction."""
    fit = inference.fit(
        lives[lives["zone"] != zone].reset_index(drop=True), model="revocation", key=jax.random.key(seed), method="map"
    )
    found = predict.chosen_families(fit.data, fit.draws)
    rows = lives[lives["zone"] == zone]
    shares, predicted, n = [], np.zeros(N_WORLDS), 0
    for number, (_, batch) in enumerate(rows.groupby(["gpu", "start_s"])):
        own = from_frame(inference.measured(batch, "revocation").frame) if _ends(batch) else None
        record, nodes = own or fit.data, len(batch)
        market = predict.of_group(fit.data, fit.draws, record, None, found).now(True, 0.0)
        paths = market.draw(nodes, N_WORLDS, LIMIT_S, np.random.default_rng([seed, number]))
        begins = np.concatenate([np.zeros((1, N_WORLDS)), paths.until_s[:-1]])
        predicted += np.where(begins < LIMIT_S, paths.n_up, nodes).min(axis=0)
        shares.append(float(batch["ended_at_24h_limit"].sum()))
        n += nodes
    low, high = np.quantile(predicted / n, [0.05, 0.95])
    return {
        "instances": n,
        "reached": sum(shares) / n,
        "predicted": float(predicted.mean() / n),
        "p5": low,
        "p95": high,
    }


def _ends(batch: pd.DataFrame) -> bool:
    return bool((batch["ended_at_24h_limit"] == 0).any())
