"""Populations of groups: log medians and log spreads of one quantity under one family, and what losses take.

No parameter of one population is in another, so that each is sampled by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpyro
import numpyro.distributions as dist

from . import hierarchy as hierarchy
from .data import CENTRE, CLASSES, QUANTITIES, SPREAD_CENTRE, RevocationData
from .laws import FAMILIES, SHAPES_OF
from .sites import LOSSES, name_of

LOCATION_SD = 2.0  # of populations, around an hour and a half
# Of log medians per e-fold of nodes, and between probes and nodes that were kept; up, down. Losses of N nodes that are taken one
# by one come N times as often (slope -1), those of nodes taken together as often as of one (0).
SLOPE, SLOPE_SD = np.array([[-0.4, 0.0], [0.0, 0.0]]), np.array([[0.3, 0.5], [0.5, 0.5]])
BETWEEN = (np.log(0.8), 0.6)  # standard deviation of log medians between groups: 0.25 to 2.7
SPREAD_SD = 0.5
SPREAD_BETWEEN = (np.log(0.25), 0.6)
CONCENTRATION = (np.log(5.0), 1.0)  # of shares of losses between groups


@dataclass(frozen=True)
class SpellData:
    """Likelihoods of one quantity under the laws of a family.

    Attributes:
        trait: see `RevocationData`, [group, trait].
        slope, slope_sd: law of what a trait adds to log medians, [trait].
        theta: log median and, but for the exponential law, log spread, [shape, group, point, 1 or 2].
        log_weight: log(likelihood x volume) there, [shape, group, point].
    """

    trait: np.ndarray
    slope: np.ndarray
    slope_sd: np.ndarray
    theta: np.ndarray
    log_weight: np.ndarray


@dataclass(frozen=True)
class SpellPopulation:
    """Normal populations; spells of every group with parameters of its own, which are summed out."""

    def program(self, data: SpellData) -> None:
        """Places and spreads of the population, and shares of the shapes where there are several."""
        n_shape, *_, n_parameter = data.theta.shape
        site = {
            "location": numpyro.sample("location", dist.Normal(CENTRE, LOCATION_SD)),
            "slope": numpyro.sample("slope", dist.Normal(data.slope, data.slope_sd).to_event(1)),
            "between_sd": numpyro.sample("between_sd", dist.LogNormal(*BETWEEN)),
        }
        if n_parameter > 1:
            site["log_spread"] = numpyro.sample("log_spread", dist.Normal(SPREAD_CENTRE, SPREAD_SD))
            site["spread_sd"] = numpyro.sample("spread_sd", dist.LogNormal(*SPREAD_BETWEEN))
        if n_shape > 1:
            site["shape_share"] = numpyro.sample("shape_share", dist.Dirichlet(np.ones(n_shape)))
        numpyro.factor("spells", hierarchy.of_spells(data.trait, data.theta, data.log_weight, site).sum())

    def start(self, data: SpellData) -> dict[str, Any]:
        """The location at the median of the groups' own, everything else at the centre of its prior."""
        n_shape, *_, n_parameter = data.theta.shape
        best = np.take_along_axis(data.theta[0], data.log_weight[0].argmax(axis=-1)[:, None, None], axis=1)[:, 0]
        found = {"location": np.median(best[:, 0]), "slope": data.slope, "between_sd": np.exp(BETWEEN[0])}
        if n_parameter > 1:
            found |= {"log_spread": np.median(best[:, 1]), "spread_sd": np.exp(SPREAD_BETWEEN[0])}
        return found | ({"shape_share": np.full(n_shape, 1.0 / n_shape)} if n_shape > 1 else {})


@dataclass(frozen=True)
class LossData:
    """Events that took one of several nodes, some, or all, [group, class]."""

    losses: np.ndarray


@dataclass(frozen=True)
class LossPopulation:
    """Shares of what losses take, of every group its own."""

    def program(self, data: LossData) -> None:
        """Mean and concentration of the population of shares."""
        mean = numpyro.sample("class", dist.Dirichlet(np.ones(len(CLASSES))))
        concentration = numpyro.sample("concentration", dist.LogNormal(*CONCENTRATION))
        numpyro.factor("losses", hierarchy.of_losses(data.losses, mean, concentration).sum())

    def start(self, data: LossData) -> dict[str, Any]:
        """The centre of the prior."""
        del data
        return {"class": np.full(len(CLASSES), 1.0 / len(CLASSES)), "concentration": np.exp(CONCENTRATION[0])}


Population = SpellPopulation | LossPopulation


def populations(data: RevocationData) -> dict[str, tuple[Population, Any]]:
    """Every population with what was seen of it."""
    found: dict[str, tuple[Population, Any]] = {}
    for index, quantity in enumerate(QUANTITIES):
        for family in FAMILIES:
            found[name_of(family, quantity)] = SpellPopulation(), seen(data, family, index)
    return {**found, LOSSES: (LossPopulation(), LossData(data.losses))}


def seen(data: RevocationData, family: str, index: int) -> SpellData:
    """What groups showed of one quantity, under the laws of a family."""
    if family in SHAPES_OF:
        shapes = slice(SHAPES_OF[family][0], SHAPES_OF[family][-1] + 1)
        theta, log_weight = data.theta[shapes, index], data.log_weight[shapes, index]
    else:
        theta, log_weight = data.median[None, index, ..., None], data.median_log_weight[None, index]
    return SpellData(data.trait, SLOPE[index], SLOPE_SD[index], theta, log_weight)
