"""Model of times between failures, repair times and numbers of nodes lost at once, by system with a hierarchy.

Times of a system are Weibull or log-normal with a median and a spread of its own; all three are summed out over grids of its
likelihood, so that what is sampled is the population alone.

The density of a system that was left out is that of its whole log, its own parameters unknown: by the chain rule, of every time
given those before it. A score holds it against two laws that are fitted together with the model: the exponential law, and
independent nodes, which renew one by one by the law of `of_node`; all are densities of the same thing, which node went when.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpyro
import numpyro.distributions as dist
import pandas as pd
from jax import Array
from jax.scipy.special import betaln, logsumexp

from prism_jax.core.errors import FitError
from prism_jax.core.registry import did_you_mean
from prism_jax.horizon.reliability import Hazard, Reliability

from ..data.checks import groups_of
from ..engine.model import Draws, GroupScore, Model, interval
from . import durations
from .durations import DrawnLaws, of_line, of_pairs
from .repair_data import (
    ALIKE,
    CENTRE,
    COLUMNS,
    EXPONENT,
    GROUPED,
    QUANTITIES,
    SPREAD_CENTRE,
    RepairsData,
    from_frame,
    mean_of_several,
)


class LogProbabilities(NamedTuple):
    """Log probabilities, by system: times under the model's and the exponential law [quantity, system], sizes, nodes [system]."""

    times: Array
    exponential: Array
    sizes: Array
    which: Array


def log_probabilities(data: RepairsData, site: Mapping[str, Any]) -> LogProbabilities:
    """Log probabilities of the logs of the systems, at one draw of the population."""
    several = jnp.asarray(data.n_node) > 1.0
    mean = jnp.stack([site["location"], site["log_spread"]], axis=-1)
    sd = jnp.stack([site["between_sd"], site["spread_sd"]], axis=-1)
    by_law = of_pairs(jnp.asarray(data.theta), jnp.asarray(data.log_weight), mean, sd)
    share = jnp.log(jnp.stack([site["weibull"], 1.0 - site["weibull"]]))[..., None]
    line, line_weight = jnp.asarray(data.median), jnp.asarray(data.median_log_weight)
    exponent, alike = jnp.asarray(data.exponent), jnp.asarray(data.alike)
    shares = of_shares(jnp.asarray(data.n_multi), jnp.asarray(data.n_event), site["share"], site["concentration"])
    sizes = of_line(exponent, jnp.asarray(data.exponent_log_weight), site["exponent"], site["exponent_sd"])
    which = of_line(alike, jnp.asarray(data.alike_log_weight), site["alike"], site["alike_sd"])
    return LogProbabilities(
        times=logsumexp(by_law + share, axis=0),
        exponential=of_line(line, line_weight, site["exponential_location"], site["exponential_sd"]),
        sizes=jnp.where(several, shares + sizes, 0.0),
        which=jnp.where(several, which, 0.0),
    )


def of_shares(n_multi: Array, n_event: Array, share: Any, concentration: Any) -> Array:
    """Log probability by system that these events in this order took several nodes: shares are Beta, integrated out."""
    a, b = share * concentration, (1.0 - share) * concentration
    return betaln(a + n_multi, b + n_event - n_multi) - betaln(a, b)


HOUR_S = 3600.0


def parameters(
    data: RepairsData, draws: Draws, quantity: str, system: str | None, rng: np.random.Generator
) -> DrawnLaws:
    """Parameters of a system; of a system of one node where they are of times between events."""
    index = QUANTITIES.index(quantity)
    mean = np.stack([draws["location"][:, index], draws["log_spread"][:, index]], axis=-1)
    sd = np.stack([draws["between_sd"][:, index], draws["spread_sd"][:, index]], axis=-1)
    weibull = np.asarray(draws["weibull"])[:, index]
    at = None if system is None else data.systems.index(system)
    grid = None if at is None else (data.theta[:, index, at], data.log_weight[:, index, at])
    return DrawnLaws(*durations.drawn(mean, sd, np.stack([weibull, 1.0 - weibull], axis=-1), grid, rng))


def events_per_node_h(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Events of any size per node and hour, [draw]."""
    at = -1 if system is None else data.systems.index(system)
    if at >= 0 and data.watched_s[at] > 0.0:  # counted, as means of broad laws are a matter of their tails
        return rng.gamma(data.n_event[at], size=len(draws["share"])) / (data.n_node[at] * data.watched_s[at]) * HOUR_S
    found = parameters(data, draws, "between", system, rng)
    return HOUR_S / durations.mean_s(found.law == 0, found.theta)


def nodes_lost(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Mean nodes lost in an event, [draw]; a system that was not measured is as large as the median one."""
    a = np.asarray(draws["share"] * draws["concentration"])
    b = np.asarray(draws["concentration"]) - a
    if system is None:
        exponent = draws["exponent"] + draws["exponent_sd"] * rng.standard_normal(len(a))
        return _mean_size(rng.beta(a, b), exponent, float(np.median(data.n_node)))
    at = data.systems.index(system)  # counted, as the mean of a power law is a matter of its tail
    several = data.n_multi[at]
    size = (data.n_down[at] - data.n_event[at] + several) / max(several, 1.0)
    return 1.0 + rng.beta(a + several, b + data.n_event[at] - several) * max(size - 1.0, 0.0)


def _mean_size(share: np.ndarray, exponent: np.ndarray, n_node: float) -> np.ndarray:
    if n_node < 2.0:
        return np.ones(len(share))
    return 1.0 + share * (mean_of_several(exponent, n_node) - 1.0)


MOST_NAMED = 50  # systems in a report


def _figures(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> dict[str, Any]:
    between = parameters(data, draws, "between", system, rng)
    repair = parameters(data, draws, "repair", system, rng)
    return {
        "node_hours_between_events": interval(1.0 / events_per_node_h(data, draws, system, rng)),
        "spread_between_events": interval(between.spread),
        "nodes_lost": interval(nodes_lost(data, draws, system, rng)),
        "repair_median_h": interval(np.exp(repair.theta[:, 0]) / HOUR_S),
        "repair_spread": interval(repair.spread),
    }


def figures(left_out: RepairsData, draws: Draws) -> dict[str, float]:
    """Figures of systems [system] that were not fitted, added up over them."""
    found = predict_log_probabilities(left_out, draws)
    law, exponential = found.times.sum(axis=1), found.exponential.sum(axis=1)
    width = left_out.log_width.sum(axis=1)
    n_event, n_down = left_out.n_event.sum(), left_out.n_down.sum()
    between, repair, of_node = (law[index] - width[index] for index in range(len(QUANTITIES)))
    gain = {name: float(law[index] - exponential[index]) for index, name in enumerate(QUANTITIES)}
    out = {
        "between_log_density": float(between / n_event),
        "between_gain": gain["between"] / n_event,
        "between_better": float(gain["between"] > 0.0),
        "repair_log_density": float(repair / n_down),
        "repair_gain": gain["repair"] / n_down,
        "repair_better": float(gain["repair"] > 0.0),
    }
    grouped = (left_out.grouped * left_out.n_down).sum() / n_down
    if left_out.named.all() and left_out.n_node.max() > 1.0 and grouped >= GROUPED:
        which = found.sizes.sum() + found.which.sum() + left_out.log_which.sum()
        both = float(between + which - of_node)
        out |= {"groups_gain": both / n_down, "groups_better": float(both > 0.0)}
    return out


def predict_log_probabilities(data: RepairsData, draws: Draws) -> LogProbabilities:
    """Log of the mean over draws of what the systems showed."""
    some = durations.some_of(draws, len(draws["share"]))
    with jax.enable_x64(True):
        found = jax.jit(lambda given: jax.lax.map(lambda draw: log_probabilities(data, draw), given))(some)
    means = (np.logaddexp.reduce(np.asarray(part), axis=0) - np.log(len(some["share"])) for part in found)
    return LogProbabilities(*means)  # pyright: ignore[reportArgumentType]


N = len(QUANTITIES)
LOCATION_SD = 2.0  # of populations, around a node-year and an hour: e^2 = 7 either way
BETWEEN = (np.log(0.8), 0.6)  # standard deviation of log medians between systems: 0.25 to 2.7
SPREAD_SD = 0.5  # of the population's log spread
SPREAD_BETWEEN = (np.log(0.25), 0.6)  # standard deviation of log spreads between systems: 0.08 to 0.8
WEIBULL = (1.0, 1.0)  # Beta: share of systems whose times are Weibull
SHARE = (1.0, 4.0)  # Beta: one event in five takes several nodes
CONCENTRATION = (np.log(3.0), 1.0)  # of that share between systems
EXPONENT_SD, EXPONENT_BETWEEN = 1.0, (np.log(0.7), 0.6)
ALIKE_SD, ALIKE_BETWEEN = 1.0, (np.log(0.7), 0.6)


class Repairs(Model[RepairsData]):
    """The model by the name "repairs"."""

    name = "repairs"
    columns = COLUMNS
    reported = ("location", "log_spread", "between_sd", "spread_sd", "share", "exponent")
    no_variability = (
        "a fit of repairs describes what interrupts a job, not how its steps vary. Use it with "
        "`prism-jax run --reliability`."
    )

    def prepare(self, frame: pd.DataFrame) -> RepairsData:
        """Likelihoods of the systems on grids."""
        return from_frame(frame)

    def program(self, data: RepairsData) -> None:
        """Normal populations of log medians and log spreads, shares of laws; Beta of the shares of group losses."""
        site = {
            "location": numpyro.sample("location", dist.Normal(CENTRE, LOCATION_SD)),
            "between_sd": numpyro.sample("between_sd", dist.LogNormal(*BETWEEN).expand([N])),
            "log_spread": numpyro.sample("log_spread", dist.Normal(SPREAD_CENTRE, SPREAD_SD).expand([N])),
            "spread_sd": numpyro.sample("spread_sd", dist.LogNormal(*SPREAD_BETWEEN).expand([N])),
            "weibull": numpyro.sample("weibull", dist.Beta(*WEIBULL).expand([N])),
            "exponential_location": numpyro.sample("exponential_location", dist.Normal(CENTRE, LOCATION_SD)),
            "exponential_sd": numpyro.sample("exponential_sd", dist.LogNormal(*BETWEEN).expand([N])),
            "share": numpyro.sample("share", dist.Beta(*SHARE)),
            "concentration": numpyro.sample("concentration", dist.LogNormal(*CONCENTRATION)),
            "exponent": numpyro.sample("exponent", dist.Normal(EXPONENT, EXPONENT_SD)),
            "exponent_sd": numpyro.sample("exponent_sd", dist.LogNormal(*EXPONENT_BETWEEN)),
            "alike": numpyro.sample("alike", dist.Normal(ALIKE, ALIKE_SD)),
            "alike_sd": numpyro.sample("alike_sd", dist.LogNormal(*ALIKE_BETWEEN)),
        }
        for name, found in log_probabilities(data, site)._asdict().items():
            numpyro.factor(name, found.sum())

    def start(self, data: RepairsData) -> dict[str, Any]:
        """Locations at the median of the systems' own, everything else at the centre of its prior."""
        best = np.take_along_axis(data.theta[0], data.log_weight[0].argmax(axis=-1)[..., None, None], axis=2)[:, :, 0]
        line = np.take_along_axis(data.median, data.median_log_weight.argmax(axis=-1)[..., None], axis=2)[:, :, 0]
        return {
            "location": np.median(best[..., 0], axis=1),
            "between_sd": np.full(N, np.exp(BETWEEN[0])),
            "log_spread": np.median(best[..., 1], axis=1),
            "spread_sd": np.full(N, np.exp(SPREAD_BETWEEN[0])),
            "weibull": np.full(N, 0.5),
            "exponential_location": np.median(line, axis=1),
            "exponential_sd": np.full(N, np.exp(BETWEEN[0])),
            "share": np.asarray(0.2),
            "concentration": np.asarray(3.0),
            "exponent": np.asarray(EXPONENT),
            "exponent_sd": np.asarray(0.7),
            "alike": np.asarray(ALIKE),
            "alike_sd": np.asarray(0.7),
        }

    def describe(self, data: RepairsData, draws: Draws) -> dict[str, Any]:
        """Laws, a new system, every system of the log, and how many of them the exponential law would have described as well."""
        found = predict_log_probabilities(data, draws)
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

    def reliability(self, data: RepairsData, draws: Draws, group: str | None) -> Reliability:
        """Node failures: events per node-hour, nodes lost together, repair, and the shape of the times between them.

        Args:
            group: a system of the log; None: one that is not in it, with what systems differ by as `log_sd`.

        Raises:
            FitError: no such system.
        """
        if group is not None and group not in data.systems:
            raise FitError(f"system {group!r} is not in the fit{did_you_mean(group, data.systems)}")
        rng = np.random.default_rng(0)
        log_rate = np.log(events_per_node_h(data, draws, group, rng))
        between = parameters(data, draws, "between", group, rng)
        repair = parameters(data, draws, "repair", group, rng)
        log_repair = repair.theta[:, 0]
        hazard = Hazard(
            "node failures",
            per_node_h=float(np.exp(np.median(log_rate))),
            nodes_lost=float(np.median(nodes_lost(data, draws, group, rng))),
            repair_s=float(np.exp(np.median(log_repair))),
            repair_log_sd=float(np.sqrt(np.median(repair.spread) ** 2 + log_repair.var())),
            shape=float(np.exp(durations.EXPONENTIAL) / np.median(between.spread)),
            log_sd=float(log_rate.std()),
        )
        where = group or "a system that was not measured"
        return Reliability((hazard,), name=where, source=f"fit of repairs in {len(data.systems)} systems")

    def score(
        self, data: RepairsData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array
    ) -> list[GroupScore]:
        """One score per group; figures are nats per event, except those that say which is better (1 or 0)."""
        return [
            GroupScore(group=name, extra=figures(from_frame(rows), draws))
            for name, rows in groups_of(left_out, column)
            if (rows["start_time"].to_numpy() > rows["start_time"].min()).any()
        ]
