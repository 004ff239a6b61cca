"""Which family predicts zones that were left out: their log densities by importance sampling from draws that saw them.

p(zone | others) = 1 / E[1 / p(zone | population)] over draws of the posterior (Gelfand, Dey, Chang 1992); the groups of one
zone are left out together.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import numpy as np

from ...model import Draws
from . import hierarchy as hierarchy
from .data import QUANTITIES, RevocationData
from .laws import FAMILIES

MOST_DRAWS = 400


class Choice(NamedTuple):
    """Families by quantity, and what they were chosen by.

    Attributes:
        family: numbers in `FAMILIES`, [quantity].
        log_density: sum over zones left out one by one, nats, [family, quantity].
        best_in: in how many zones each is the best, [family, quantity].
    """

    family: np.ndarray
    log_density: np.ndarray
    best_in: np.ndarray


def by_draw(data: RevocationData, draws: Draws) -> hierarchy.LogProbabilities:
    """Log probabilities at some of the draws, [draw, ...]."""
    n_draw = len(draws["concentration"])
    keep = np.unique(np.linspace(0, n_draw - 1, min(n_draw, MOST_DRAWS)).round().astype(int))
    chosen = {name: np.asarray(value)[keep] for name, value in draws.items()}
    with jax.enable_x64(True):
        found = jax.jit(lambda given: jax.lax.map(lambda draw: hierarchy.log_probabilities(data, draw), given))(chosen)
    return hierarchy.LogProbabilities(*(np.asarray(part) for part in found))  # pyright: ignore[reportArgumentType]


def chosen(data: RevocationData, draws: Draws) -> Choice:
    """The family of each quantity with the highest log density of zones that were left out."""
    spells = np.asarray(by_draw(data, draws).spells)  # [draw, family, quantity, group]
    names = np.array(data.zones)
    zones = np.unique(names)
    by_zone = np.stack([spells[..., names == zone].sum(axis=-1) for zone in zones], axis=-1)
    left_out = np.log(len(by_zone)) - np.logaddexp.reduce(-by_zone, axis=0)  # [family, quantity, zone]
    best = left_out.argmax(axis=0)
    counted = np.stack([(best == number).sum(axis=-1) for number in range(len(FAMILIES))])
    total = left_out.sum(axis=-1)
    return Choice(total.argmax(axis=0).reshape(len(QUANTITIES)), total, counted)
