# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""What a fit of repairs says: parameters of a system, what interrupts a job on it, its report, and scores of systems left out.

The density of a system that was left out is that of its whole log, its own parameters unknown: by the chain rule, of every time
given those before it. Beside the model stand the exponential law, and independent nodes, which renew one by one by the law of
`of_node`; both are densities of the same thing, which node went when.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
import pandas as pd

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean
from prism_jax.horizon.reliability import Hazard, Reliability

from ...model import Draws, Score
from ...summary import interval
from .. import durations
from . import population
from .data import GROUPED, QUANTITIES, RepairsData, from_frame
from .events import mean_of_several

HOUR_S = 3600.0


@dataclass(frozen=True)
class Parameters:
    """Of the times of one system.

    Attributes:
        is_weibull: or else log-normal, [draw].
        theta: log median and log spread, [draw, 2].
    """

    is_weibull: np.ndarray
    theta: np.ndarray

    @property
    def median_s(self) -> np.ndarray:
        """Seconds, [draw]."""
        return np.exp(self.theta[:, 0])

    @property
    def spread(self) -> np.ndarray:
        """Standard deviation of log times, [draw]."""
        return np.exp(self.theta[:, 1])

    @property
    def mean_s(self) -> np.ndarray:
        """Seconds, [draw]."""
        return durations.mean_s(self.is_weibull, self.theta)


def parameters(
    data: RepairsData, draws: Draws, quantity: str, system: str | None, rng: np.random.Generator
) -> Parameters:
    """Parameters of a system; of a system of one node where they are of times between events."""
    index = QUANTITIES.index(quantity)
    mean = np.stack([draws["location"][:, index], draws["log_spread"][:, index]], axis=-1)
    sd = np.stack([draws["between_sd"][:, index], draws["spread_sd"][:, index]], axis=-1)
    weibull = np.asarray(draws["weibull"])[:, index]
    at = None if system is None else data.systems.index(system)
    grid = None if at is None else (data.theta[:, index, at], data.log_weight[:, index, at])
    law, theta = durations.drawn(mean, sd, np.stack([weibull, 1.0 - weibull], axis=-1), grid, rng)
    return Parameters(law == 0, theta)


def events_per_node_h(data: RepairsData, draws: Draws, system: str | None, rng: np.random.Generator) -> np.ndarray:
    """Events of any size per node and hour, [draw]."""
    at = -1 if system is None else data.systems.index(system)
    if at >= 0 and data.watched_s[at] > 0.0:  # counted, as means of broad laws are a matter of their tails
        return rng.gamma(data.n_event[at], size=len(draws["share"])) / (data.n_node[at] * data.watched_s[at]) * HOUR_S
    return HOUR_S / parameters(data, draws, "between", system, rng).mean_s


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


def reliability(data: RepairsData, draws: Draws, system: str | None) -> Reliability:
    """Node failures: events per node-hour, nodes lost together, repair, and the shape of the times between them.

    Args:
        system: a system of the log; None: one that is not in it, with what systems differ by as `log_sd`.

    Raises:
        FitError: no such system.
    """
    if system is not None and system not in data.systems:
        raise FitError(f"system {system!r} is not in the fit{did_you_mean(system, data.systems)}")
    rng = np.random.default_rng(0)
    log_rate = np.log(events_per_node_h(data, draws, system, rng))
    between = parameters(data, draws, "between", system, rng)
    repair = parameters(data, draws, "repair", system, rng)
    log_repair = repair.theta[:, 0]
    hazard = Hazard(
        "node failures",
        per_node_h=float(np.exp(np.median(log_rate))),
        nodes_lost=float(np.median(nodes_lost(data, draws, system, rng))),
        repair_s=float(np.exp(np.median(log_repair))),
        repair_log_sd=float(np.sqrt(np.median(repair.spread) ** 2 + log_repair.var())),
        shape=float(np.exp(durations.EXPONENTIAL) / np.median(between.spread)),
        log_sd=float(log_rate.std()),
    )
    where = system or "a system that was not measured"
    return Reliability((hazard,), name=where, source=f"fit of repairs in {len(data.systems)} systems")


MOST_NAMED = 50  # systems in a report


def describe(data: RepairsData, draws: Draws) -> dict[str, Any]:
    """Laws, a new system, every system of the log, and how many of them the exponential law would have described as well."""
    found = log_probabilities(data, draws)
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
    between = parameters(data, draws, "between", system, rng)
    repair = parameters(data, draws, "repair", system, rng)
    return {
        "node_hours_between_events": interval(1.0 / events_per_node_h(data, draws, system, rng)),
        "spread_between_events": interval(between.spread),
        "nodes_lost": interval(nodes_lost(data, draws, system, rng)),
        "repair_median_h": interval(repair.median_s / HOUR_S),
        "repair_spread": interval(repair.spread),
    }


def scores(data: RepairsData, draws: Draws, left_out: pd.DataFrame, column: str) -> list[Score]:
    """One score per group; figures are nats per event, except those that say which is better (1 or 0)."""
    names = left_out[column].astype(str).to_numpy()
    found = []
    for name in np.unique(names):
        frame = left_out[names == name]
        if (frame["start_time"].to_numpy() > frame["start_time"].min()).any():
            found.append(Score(group=str(name), extra=figures(from_frame(frame), draws)))
    return found


def figures(left_out: RepairsData, draws: Draws) -> dict[str, float]:
    """Figures of systems [system] that were not fitted, added up over them."""
    found = log_probabilities(left_out, draws)
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


def log_probabilities(data: RepairsData, draws: Draws) -> population.LogProbabilities:
    """Log of the mean over draws of what the systems showed."""
    some = durations.some_of(draws, len(draws["share"]))
    with jax.enable_x64(True):
        found = jax.jit(lambda given: jax.lax.map(lambda draw: population.log_probabilities(data, draw), given))(some)
    means = (np.logaddexp.reduce(np.asarray(part), axis=0) - np.log(len(some["share"])) for part in found)
    return population.LogProbabilities(*means)  # pyright: ignore[reportArgumentType]
