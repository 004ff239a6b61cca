"""Which family predicts zones that were left out: their log densities by importance sampling from draws that saw them.

p(zone | others) = 1 / E[1 / p(zone | population)] over draws of the posterior (Gelfand, Dey, Chang 1992); the groups of one
zone are left out together.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import numpy as np

from ...model import Draws
from . import hierarchy as hierarchy
from .data import QUANTITIES, RevocationData
from .laws import FAMILIES
from .populations import seen
from .sites import of_population

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


def by_draw(data: RevocationData, draws: Draws) -> np.ndarray:
    """Log probabilities of the spells at some of the draws, [draw, family, quantity, group]."""
    n_draw = len(draws["concentration"])
    keep = np.unique(np.linspace(0, n_draw - 1, min(n_draw, MOST_DRAWS)).round().astype(int))
    some = {name: np.asarray(value)[keep] for name, value in draws.items()}
    parts = [
        [_spells(data, some, family, quantity) for quantity in range(len(QUANTITIES))] for family in FAMILIES
    ]  # [family][quantity] of [draw, group]
    return np.moveaxis(np.array(parts), 2, 0)


def _spells(data: RevocationData, draws: Draws, family: str, quantity: int) -> np.ndarray:
    """The same of one population, [draw, group]."""
    there = seen(data, family, quantity)
    arrays = there.trait, there.theta, there.log_weight
    with jax.enable_x64(True):
        return np.asarray(_by_draw(arrays, of_population(draws, family, quantity)))


@jax.jit
def _by_draw(arrays: Any, draws: Any) -> Any:
    trait, theta, log_weight = arrays
    return jax.lax.map(lambda site: hierarchy.of_spells(trait, theta, log_weight, site), draws)


def chosen(data: RevocationData, draws: Draws) -> Choice:
    """The family of each quantity with the highest log density of zones that were left out."""
    spells = by_draw(data, draws)
    names = np.array(data.zones)
    zones = np.unique(names)
    by_zone = np.stack([spells[..., names == zone].sum(axis=-1) for zone in zones], axis=-1)
    left_out = np.log(len(by_zone)) - np.logaddexp.reduce(-by_zone, axis=0)  # [family, quantity, zone]
    best = left_out.argmax(axis=0)
    counted = np.stack([(best == number).sum(axis=-1) for number in range(len(FAMILIES))])
    total = left_out.sum(axis=-1)
    return Choice(total.argmax(axis=0).reshape(len(QUANTITIES)), total, counted)
