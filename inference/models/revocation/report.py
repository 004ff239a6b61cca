"""What a fit of revocations says, for people and for JSON."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...model import Draws
from ...summary import interval
from . import choice as choice, markets as markets
from .data import CLASSES, QUANTITIES, RevocationData
from .laws import FAMILIES

MOST_NAMED = 50  # groups in a report


def describe(data: RevocationData, draws: Draws) -> dict[str, Any]:
    """Families, an unseen zone, and every group."""
    found = choice.chosen(data, draws)
    return {
        "n_groups": len(data.zones),
        "n_zones": len(set(data.zones)),
        "n_spells": {name: int(n) for name, n in zip(QUANTITIES, data.n_spell.sum(axis=1), strict=True)},
        "family": {name: FAMILIES[n] for name, n in zip(QUANTITIES, found.family, strict=True)},
        "left_out_log_density": {
            name: {family: float(found.log_density[n, index]) for n, family in enumerate(FAMILIES)}
            for index, name in enumerate(QUANTITIES)
        },
        "best_in_zones": {
            name: {family: int(found.best_in[n, index]) for n, family in enumerate(FAMILIES)}
            for index, name in enumerate(QUANTITIES)
        },
        "losses_take": {name: interval(np.asarray(draws["class"])[:, n]) for n, name in enumerate(CLASSES)},
        "new_zone": _figures(data, draws, None, found),
        "groups": {
            markets.title(data, at): _figures(data, draws, at, found) for at in range(min(len(data.zones), MOST_NAMED))
        },
        "notes": list(data.notes),
    }


def _figures(data: RevocationData, draws: Draws, at: int | None, found: choice.Choice) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    out: dict[str, Any] = {}
    for index, name in enumerate(QUANTITIES):
        spell = markets.spells(data, draws, index, int(found.family[index]), at, markets.trait_of(data, at), rng)
        out[f"{name}_median_h"] = interval(np.exp(spell.theta[:, 0]) / 3600.0)
        out[f"{name}_log_sd"] = interval(np.exp(spell.theta[:, 1]))
    return out
