"""What a fit of collectives says: latency, bandwidth and noise by fabric and scale, and the variability they amount to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from prism_jax.errors import FitError
from prism_jax.variability.families import StudentT
from prism_jax.variability.tree import ClassVariability, Variability

from ...model import Draws
from . import laws as laws
from .data import CollectivesData
from .knots import doublings

SMALLEST_SCALE, LARGEST_SCALE = 1e-6, 2.0  # what the StudentT family takes
DF_RANGE = (1.1, 200.0)


def describe(law: str, data: CollectivesData, draws: Draws) -> dict[str, Any]:
    """Figures with 90 % intervals: [5 %, median, 95 %]."""
    return {
        "law": law,
        "n_cells": len(data.log_s),
        "n_repeats": len(data.repeat),
        "fabrics": {name: _fabric(law, data, draws, i) for i, name in enumerate(data.fabrics)},
        "residual_sd": _interval(draws["curve_scale"]),
        "residual_sd_per_doubling": _interval(draws["step_scale"]),
        "residual_sd_across_nodes": _interval(draws["across_scale"]),
        "noise_growth_per_doubling": _interval(np.exp(draws["noise_growth"])),
        "unevenness_growth_per_doubling": _interval(np.exp(draws["uneven_growth"])),
        "noise_degrees_of_freedom": _interval(draws["noise_df"]),
        "in_place_over_out_of_place": _interval(np.exp(draws["in_place"])),
        "notes": list(data.notes),
    }


def noise_scale(
    data: CollectivesData, draws: Mapping[str, np.ndarray], fabric: int, n_gpus: float, kind: str = "noise"
) -> Any:
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
            "every message size was measured once: noise cannot be told from the unevenness of the curve. "
            "Add repeats (more runs, or in place beside out of place)."
        )
    df = float(np.clip(draw["noise_df"], *DF_RANGE))
    classes = {}
    for op in sorted(set(data.fabric_op)):
        fabrics = [i for i, other in enumerate(data.fabric_op) if other == op and (data.repeat_fabric == i).any()]
        if not fabrics:
            continue
        largest = max(float(data.curve_gpus[data.curve_fabric == i].max()) for i in fabrics)
        scales = [float(noise_scale(data, draw, i, n_gpus or largest)) for i in fabrics]
        scale = float(np.clip(np.median(scales), SMALLEST_SCALE, LARGEST_SCALE))
        classes[op] = ClassVariability(call=StudentT(scale, df))
    return Variability(name="collectives", classes=classes, source="noise between repeats of measured collectives")


def _fabric(law: str, data: CollectivesData, draws: Draws, fabric: int) -> dict[str, Any]:
    """Latency and bus bandwidth that the law gives at every measured scale, and unevenness and noise there."""
    p = {name: np.asarray(draws[name])[:, fabric] for name in (*laws.priors(law), "two_node")}
    out = {}
    for i in np.flatnonzero(data.curve_fabric == fabric):
        where = laws.Place(*(float(value[i]) for value in data.curve_where))
        with jax.enable_x64(True):
            latency = np.asarray(laws.latency_s(p, where))
            bandwidth = where.bus / np.asarray(laws.wire_s_per_byte(p, where))
        out[f"{where.n_gpus:g} GPUs in {where.n_nodes:g} nodes"] = {
            "latency_s": _interval(latency),
            "bus_bytes_per_s": _interval(bandwidth),
            "noise": _interval(noise_scale(data, draws, fabric, where.n_gpus)),
            "unevenness": _interval(noise_scale(data, draws, fabric, where.n_gpus, "uneven")),
        }
    return out


def _interval(values: np.ndarray) -> list[float]:
    return [float(value) for value in np.quantile(np.asarray(values), [0.05, 0.5, 0.95])]
