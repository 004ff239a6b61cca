"""Populations of groups: log medians and log spreads of one quantity under one family, and what losses take.

No parameter of one population is in another, so that each is sampled by itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
from jax import Array
from jax.scipy.special import gammaln, logsumexp

from .durations import LOG_2PI
from .revocation_data import CENTRE, CLASSES, FAMILIES, QUANTITIES, SHAPES_OF, SPREAD_CENTRE, RevocationData

LOSSES = "losses"
OF_EXPONENTIAL = {
    "location": "exponential_location", "slope": "exponential_slope", "between_sd": "exponential_sd"
}  # fmt: skip
OF_FAMILY = ("location", "slope", "between_sd", "log_spread", "spread_sd")


def name_of(family: str, quantity: str) -> str:
    """Name of a population: "weibull up"."""
    return f"{family} {quantity}"


def of_population(draws: Mapping[str, np.ndarray], family: str, quantity: int) -> dict[str, np.ndarray]:
    """The sites [draw, ...] of one population, of draws [draw, (family,) quantity, ...] of all."""
    if family not in SHAPES_OF:
        return {site: np.asarray(draws[name])[:, quantity] for site, name in OF_EXPONENTIAL.items()}
    number = tuple(SHAPES_OF).index(family)
    found = {name: np.asarray(draws[name])[:, number, quantity] for name in OF_FAMILY}
    if len(SHAPES_OF[family]) > 1:
        found["shape_share"] = np.asarray(draws["shape_share"])[:, quantity]
    return found


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
        numpyro.factor("spells", of_spells(data.trait, data.theta, data.log_weight, site).sum())

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
        numpyro.factor("losses", of_losses(data.losses, mean, concentration).sum())

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
    """Spells of the groups of one quantity, as likelihoods under the laws of a family."""
    if family in SHAPES_OF:
        shapes = slice(SHAPES_OF[family][0], SHAPES_OF[family][-1] + 1)
        theta, log_weight = data.theta[shapes, index], data.log_weight[shapes, index]
    else:
        theta, log_weight = data.median[None, index, ..., None], data.median_log_weight[None, index]
    return SpellData(data.trait, SLOPE[index], SLOPE_SD[index], theta, log_weight)


def of_spells(trait: Any, theta: Any, log_weight: Any, site: Mapping[str, Any]) -> Array:
    """Log probability of the spells of every group, [group].

    Args:
        trait: of every group, [group, trait].
        theta: parameters, [shape, group, point, 1 or 2].
        log_weight: log(likelihood x volume) there, [shape, group, point].
        site: the population: `location`, `slope` [trait], `between_sd`, and where there are two parameters `log_spread` and
            `spread_sd`; `shape_share` [shape] where there are several.
    """
    mean = site["location"] + jnp.asarray(trait) @ site["slope"]
    sd = site["between_sd"]
    density = -0.5 * ((theta[..., 0] - mean[:, None]) / sd) ** 2 - jnp.log(sd) - 0.5 * LOG_2PI
    if theta.shape[-1] > 1:
        apart = (theta[..., 1] - site["log_spread"]) / site["spread_sd"]
        density = density - 0.5 * apart**2 - jnp.log(site["spread_sd"]) - 0.5 * LOG_2PI
    by_shape = logsumexp(log_weight + density, axis=-1)
    if len(by_shape) == 1:
        return by_shape[0]
    return logsumexp(by_shape + jnp.log(site["shape_share"])[:, None], axis=0)


def of_losses(counts: Any, mean: Any, concentration: Any) -> Array:
    """Log probability that losses [group, class] in this order took one, some or all; shares are Dirichlet, integrated out."""
    a = mean * concentration
    n = counts.sum(axis=-1)
    by_class = gammaln(a + counts) - gammaln(a)
    return by_class.sum(axis=-1) + gammaln(concentration) - gammaln(concentration + n)
