# pyright: reportArgumentType=false, reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)
"""How many nodes of a group are alive six hours after all of them came up: groups of zones that were left out."""

from __future__ import annotations

import jax
import numpy as np
import pandas as pd
from scipy.stats import binom

import inference
from inference.durations import revocation as predict
from inference.durations.revocation_data import from_frame
from prism_jax.cloud.availability import FittedSpells

from .tables import DAY_S, before, recorded

AFTER_S, BACK_S = 6 * 3600.0, 30 * DAY_S
FIRST_LAUNCH, EVERY = 5, 5  # launches of which the past is taken into account
N_WORLDS = 8000


def alive(until_s: np.ndarray, n_up: np.ndarray) -> np.ndarray:
    """Nodes of the first moment that are still there after `AFTER_S`: those that join do not count, [world]."""
    begins = np.concatenate([np.zeros((1, until_s.shape[1])), until_s[:-1]])
    return np.where(begins < AFTER_S, n_up, n_up.max()).min(axis=0)


def of_group(table: pd.DataFrame, rows: pd.DataFrame, seed: int) -> dict[str, float]:
    """KS distances of one trace of a group whose zone was not fitted."""
    nodes, zone = int(rows["requested_nodes"].iloc[0]), str(rows["zone"].iloc[0])
    others = (
        table[(table["zone"] != zone) & ~table["gpu"].str.startswith("none")]
        .drop(columns="days")
        .reset_index(drop=True)
    )
    fit = inference.fit(others, model="revocation", key=jax.random.key(seed), method="map")
    own = from_frame(inference.measured(rows.drop(columns="days"), "revocation").frame)  # what kind of group it is
    market = predict.of_group(fit.data, fit.draws, own, None, predict.chosen_families(fit.data, fit.draws)).now(
        True, 0.0
    )
    predicted = _predicted(market, nodes, N_WORLDS, seed)
    there, since = rows["available"].to_numpy(), rows["start_s"].to_numpy(dtype=float)
    comes_up = (there == nodes) & (np.append(0, there[:-1]) < nodes) & (since < since[-1] - AFTER_S)
    comes_up[0] = False  # how long they had been there is not known
    seen = recorded(rows).beginning_at(since[comes_up], nodes, AFTER_S)
    measured = np.bincount(alive(seen.until_s, seen.n_up), minlength=nodes + 1) / comes_up.sum()
    at = np.flatnonzero(comes_up)[FIRST_LAUNCH::EVERY]
    known = np.zeros(nodes + 1)
    for index in at:
        past = from_frame(
            inference.measured(before(rows, float(since[index]), BACK_S)[0].drop(columns="days"), "revocation").frame
        )
        of_past = predict.of_group(fit.data, fit.draws, past, 0, predict.chosen_families(fit.data, fit.draws)).now(
            True, 0.0
        )
        known += _predicted(of_past, nodes, N_WORLDS // 10, seed) / len(at)
    share = float(predicted @ np.arange(nodes + 1)) / nodes
    alone = binom(nodes, share).pmf(np.arange(nodes + 1))
    return {
        "launches": float(comes_up.sum()),
        "none_alive": measured[0],
        "none_alive_predicted": predicted[0],
        "ks": _ks(predicted, measured),
        "ks_independent": _ks(alone, measured),
        "ks_known_past": _ks(known, measured),
    }


def _predicted(market: FittedSpells, nodes: int, n_worlds: int, seed: int) -> np.ndarray:
    """Shares of the worlds in which so many are alive, [nodes]."""
    paths = market.draw(nodes, n_worlds, AFTER_S, np.random.default_rng(seed))
    return np.bincount(alive(paths.until_s, paths.n_up), minlength=nodes + 1) / n_worlds


def _ks(one: np.ndarray, other: np.ndarray) -> float:
    return float(np.abs(np.cumsum(one) - np.cumsum(other)).max())
