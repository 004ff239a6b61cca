"""Report of a fit of collectives: latency, bandwidth and noise by fabric and scale, and the variability they amount to.

The results of least squares (`least_squares`), with intervals, are listed next to the posterior.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax.core.errors import FitError
from prism_jax.variability.families import StudentT
from prism_jax.variability.tree import ClassVariability, Variability

from ..engine.model import Draws
from . import laws
from .data import CollectivesData
from .laws import axis, between_knots, doublings
from .least_squares import SHORT_BYTES, FittedLaw, drawn, fit_least, latency_and_bandwidth, left_open

SMALLEST_SCALE, LARGEST_SCALE = 1e-6, 2.0  # what the StudentT family takes
DF_RANGE = (1.1, 200.0)


def describe(law: str, data: CollectivesData, draws: Draws) -> dict[str, Any]:
    """Figures with 90% intervals: [5%, median, 95%]; what the data leave at its prior is not among them."""
    least = fit_least(law, data)
    several = len(data.curve_gpus) > len(data.fabrics)
    return {
        "law": law,
        "n_cells": len(data.log_s),
        "n_repeats": len(data.repeat),
        "fabrics": {name: _fabric(law, data, draws, i) for i, name in enumerate(data.fabrics)},
        "least_squares": {name: _least_squares(law, data, i, least[i]) for i, name in enumerate(data.fabrics)},
        "residual_sd": _interval(draws["curve_scale"]),
        **({"residual_sd_per_doubling": _interval(draws["step_scale"])} if several else {}),
        **({"residual_sd_across_nodes": _interval(draws["across_scale"])} if data.curve_across.any() else {}),
        **({"noise_growth_per_doubling": _interval(np.exp(draws["noise_growth"]))} if several else {}),
        **({"unevenness_growth_per_doubling": _interval(np.exp(draws["uneven_growth"]))} if several else {}),
        **({"noise_degrees_of_freedom": _interval(draws["noise_df"])} if len(data.repeat) else {}),
        "in_place_over_out_of_place": _interval(np.exp(draws["in_place"])),
        "notes": [*data.notes, *left_open(law, least, data)],
    }


def noise_scale(draws: Mapping[str, np.ndarray], fabric: int, n_gpus: float, kind: str = "noise") -> Any:
    """Scale of log seconds of repeats ("noise") or cells ("uneven") at a scale, per draw."""
    level, growth = np.asarray(draws[f"{kind}_level"])[..., fabric], np.asarray(draws[f"{kind}_growth"])
    return np.exp(level + growth * doublings(n_gpus))


def variability(data: CollectivesData, draw: Mapping[str, np.ndarray], n_gpus: float | None = None) -> Variability:
    """The `call` factor of every measured operation, from the noise between repeats.

    The scale is `n_gpus`, or the largest measured one; of several fabrics of an operation the typical (median) noise counts.
    A row of nccl-tests is the mean of many calls: the noise is that between such means, a lower bound for single calls.
    """
    if not len(data.repeat):
        raise FitError(
            "every message size was measured once: noise cannot be separated from the unevenness of the curve. "
            "Add repeats (more runs, or in place next to out of place)."
        )
    df = float(np.clip(draw["noise_df"], *DF_RANGE))
    classes = {}
    for op in sorted(set(data.fabric_op)):
        fabrics = [i for i, other in enumerate(data.fabric_op) if other == op and (data.repeat_fabric == i).any()]
        if not fabrics:
            continue
        largest = max(float(data.curve_gpus[data.curve_fabric == i].max()) for i in fabrics)
        scales = [float(noise_scale(draw, i, n_gpus or largest)) for i in fabrics]
        scale = float(np.clip(np.median(scales), SMALLEST_SCALE, LARGEST_SCALE))
        classes[op] = ClassVariability(call=StudentT(scale, df))
    return Variability(name="collectives", classes=classes, source="noise between repeats of measured collectives")


def _fabric(law: str, data: CollectivesData, draws: Draws, fabric: int) -> dict[str, Any]:
    """Latency and bus bandwidth at every measured scale, and unevenness and noise there."""
    p = {name: np.asarray(draws[name])[:, fabric] for name in (*laws.priors(law), "two_node")}
    out = {}
    for i in np.flatnonzero(data.curve_fabric == fabric):
        residual = np.asarray(draws["residual"])[:, i]
        below, share = between_knots(data.knots, _ends(data, int(i)))
        low, high = (residual[:, below] * (1.0 - share) + residual[:, below + 1] * share).T
        latency, bandwidth = latency_and_bandwidth(law, p, data, int(i))
        out[scale_name(data, int(i))] = {
            "latency_s": _interval(latency * np.exp(low)),
            "bus_bytes_per_s": _interval(bandwidth * np.exp(-high)),
            "noise": _interval(noise_scale(draws, fabric, data.curve_gpus[i])),
            "unevenness": _interval(noise_scale(draws, fabric, data.curve_gpus[i], "uneven")),
        }
    return out


def _least_squares(law: str, data: CollectivesData, fabric: int, found: FittedLaw) -> dict[str, Any]:
    """Latency and bus bandwidth of the law alone, by least squares: [5%, estimate, 95%]."""
    p = drawn(law, data, fabric, found)
    out: dict[str, Any] = {}
    for i in np.flatnonzero(data.curve_fabric == fabric):
        latency, bandwidth = latency_and_bandwidth(law, p, data, int(i))
        out[scale_name(data, int(i))] = {
            "latency_s": _around_estimate(latency),
            "bus_bytes_per_s": _around_estimate(bandwidth),
        }
    return out | {"numbers": found.n_numbers, "left_by_the_law": found.spread}


def scale_name(data: CollectivesData, curve: int) -> str:
    """Name of a scale in reports."""
    nodes = data.curve_nodes[curve]
    return f"{data.curve_gpus[curve]:g} GPUs in {nodes:g} {'nodes' if nodes > 1 else 'node'}"


def _ends(data: CollectivesData, curve: int) -> np.ndarray:
    """Positions along the knots of a short message and the largest measured one of a curve."""
    largest = float(data.log_bytes[data.curve == curve].max())
    return axis([SHORT_BYTES, np.exp(largest)], data.curve_gpus[curve])


def _interval(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.quantile(np.asarray(values), [0.05, 0.5, 0.95])]


def _around_estimate(values: np.ndarray) -> list[float]:
    """5% quantile, estimate and 95% quantile of draws of which the first is the estimate."""
    low, _, high = _interval(values)
    return [low, float(values[0]), high]
