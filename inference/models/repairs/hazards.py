"""The `Reliability` that a fit of repairs amounts to."""

from __future__ import annotations

import numpy as np

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean
from prism_jax.horizon.reliability import Hazard, Reliability

from ...model import Draws
from . import laws as laws, predict as predict
from .data import RepairsData


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
    log_rate = np.log(predict.events_per_node_h(data, draws, system, rng))
    between = predict.parameters(data, draws, "between", system, rng)
    repair = predict.parameters(data, draws, "repair", system, rng)
    log_repair = repair.theta[:, 0]
    hazard = Hazard(
        "node failures",
        per_node_h=float(np.exp(np.median(log_rate))),
        nodes_lost=float(np.median(predict.nodes_lost(data, draws, system, rng))),
        repair_s=float(np.exp(np.median(log_repair))),
        repair_log_sd=float(np.sqrt(np.median(repair.spread) ** 2 + log_repair.var())),
        shape=float(np.exp(laws.EXPONENTIAL) / np.median(between.spread)),
        log_sd=float(log_rate.std()),
    )
    where = system or "a system that was not measured"
    return Reliability((hazard,), name=where, source=f"fit of repairs in {len(data.systems)} systems")
