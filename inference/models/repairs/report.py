"""What a fit of repairs says, for people and for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model import Draws
from ...summary import interval
from . import predict as predict, score as score
from .data import GROUPED, QUANTITIES, RepairsData

MOST_NAMED = 50  # systems in a report


def describe(data: RepairsData, draws: Draws) -> dict[str, Any]:
    """Laws, a new system, every system of the log, and how many of them the exponential law would have described as well."""
    found = score.log_probabilities(data, draws)
    better = (found.times > found.exponential).sum(axis=1)
    rng = np.random.default_rng(0)
    return {
        "n_systems": len(data.systems),
        "n_events": int(data.n_event.sum()),
        "n_nodes_lost": int(data.n_down.sum()),
        "weibull_share": {name: interval(draws["weibull"][:, i]) for i, name in enumerate(QUANTITIES)},
        "spread_between_nodes": interval(np.exp(-0.5 * np.asarray(draws["alike"]))),
        "systems_better_than_exponential": {name: int(n) for name, n in zip(QUANTITIES, better, strict=True)},
        "systems_with_group_losses": int((data.grouped >= GROUPED).sum()),
        "new_system": _figures(data, draws, None, rng),
        "systems": {name: _figures(data, draws, name, rng) for name in data.systems[:MOST_NAMED]},
        "notes": list(data.notes),
    }


def _figures(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> dict[str, Any]:
    between = predict.parameters(data, draws, "between", system, rng)
    repair = predict.parameters(data, draws, "repair", system, rng)
    return {
        "node_hours_between_events": interval(1.0 / predict.events_per_node_h(data, draws, system, rng)),
        "spread_between_events": interval(between.spread),
        "nodes_lost": interval(predict.nodes_lost(data, draws, system, rng)),
        "repair_median_h": interval(repair.median_s / predict.HOUR_S),
        "repair_spread": interval(repair.spread),
    }
