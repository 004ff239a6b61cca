"""Report of a fit of collectives, the variability and the curves that it amounts to, and measured collectives for jobs.

The report lists latency, bandwidth and noise by fabric and scale, and the results of least squares (`least_squares`), with
intervals, next to the posterior. For jobs: at the measured group sizes the fit says how long a message takes, noise and
unevenness apart, and so does the network of the cluster by its figures; the ratio, one value per doubling of the message, is what
predictions take over (`system.network_kinds.MeasuredNetwork`). Fitted curves next to measured points, bus bandwidth by message
size, are for pictures and for checks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError, FitError, SpecError
from prism_jax.cost.efficiency import MeasuredCost, MeasuredTables
from prism_jax.fits.report import CollectiveCurve
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster
from prism_jax.system.network_kinds import MeasuredCollectives, MeasuredCurve
from prism_jax.variability.families import StudentT
from prism_jax.variability.tree import ClassVariability, Variability

from ..engine.model import Draws
from . import laws
from .data import FABRIC, CollectivesData
from .laws import axis, between_knots, doublings
from .least_squares import SHORT_BYTES, FittedLaw, drawn, fit_least, latency_and_bandwidth, left_open
from .predict import FabricPlace, log_centre

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


PER_OCTAVE = 2  # points of a curve
SEED = 0


def fitted_curves(law: str, data: CollectivesData, draws: Draws) -> list[CollectiveCurve]:
    """Every measured curve, from its smallest to its largest size."""
    return [_curve(law, data, draws, curve) for curve in range(len(data.curve_gpus))]


def band(law: str, data: CollectivesData, draws: Draws, curve: int, n_bytes: Floats) -> Floats:
    """Seconds of a curve at some sizes, without unevenness and noise: 5%, median and 95% [3, size]."""
    fabric = int(data.curve_fabric[curve])
    place = FabricPlace(
        data.fabric_op[fabric], float(data.curve_gpus[curve]), float(data.curve_nodes[curve]), fabric, config=-1
    )
    seconds = np.exp(log_centre(law, data, draws, place, n_bytes, np.random.default_rng(SEED)))
    return np.quantile(seconds, [0.05, 0.5, 0.95], axis=0)


def _curve(law: str, data: CollectivesData, draws: Draws, curve: int) -> CollectiveCurve:
    here, bus = data.curve == curve, float(data.curve_bus[curve])
    measured = np.exp(data.log_bytes[here])
    low, high = float(np.log2(measured.min())), float(np.log2(measured.max()))
    n_bytes = np.exp2(np.linspace(low, high, max(2, int(PER_OCTAVE * (high - low)) + 1)))
    key = data.fabric_keys[int(data.curve_fabric[curve])]
    lines = bus * n_bytes / band(law, data, draws, curve, n_bytes)[::-1]
    return CollectiveCurve(
        op=data.fabric_op[int(data.curve_fabric[curve])],
        n_gpus=round(float(data.curve_gpus[curve])),
        n_nodes=round(float(data.curve_nodes[curve])),
        fabric=", ".join(part for name, part in zip(FABRIC, key, strict=True) if part and name != "op"),
        measured_bytes=tuple(measured.tolist()),
        measured_bus=tuple((bus * measured / np.exp(data.log_s[here])).tolist()),
        n_bytes=tuple(n_bytes.tolist()),
        **{name: tuple(line.tolist()) for name, line in zip(("low", "middle", "high"), lines, strict=True)},
    )


KNOB = {False: "scale_up", True: "network"}
MOST_FABRICS = 4  # named in a message
LEAST_SIZES = 2


def measured_collectives(
    law: str, data: CollectivesData, draws: Draws, cluster: Cluster, n_draw: int, rng: np.random.Generator
) -> MeasuredTables:
    """Measured over predicted seconds on `cluster`, with draws.

    Raises:
        DataError: the collectives of another device were measured.
    """
    chosen, notes = _curves_of(data, cluster)
    network = replace(cluster, measured=None).fabric
    curves: list[MeasuredCurve] = []
    tables: list[list[MeasuredCurve]] = []
    for c in chosen:
        kind = data.fabric_op[int(data.curve_fabric[c])]
        n, nodes = round(float(data.curve_gpus[c])), round(float(data.curve_nodes[c]))
        stride = _stride(cluster, n, nodes)
        if stride is None:
            notes.append(f"{kind} of {n} GPUs on {nodes} nodes: {cluster.name} has no such groups")
            continue
        size = np.exp(_sizes(data, c))
        figures = network.of_size(max(cluster.n_devices, n * stride))
        predicted = np.log([figures.collective(kind, float(one), stride, n).seconds for one in size])
        place = FabricPlace(kind, float(n), float(nodes), int(data.curve_fabric[c]), config=-1)
        ratio = log_centre(law, data, draws, place, size, rng) - predicted
        curves.append(
            MeasuredCurve(kind, nodes > 1, n, tuple(np.log(size).tolist()), tuple(ratio.mean(axis=0).tolist()))
        )
        pick = np.linspace(0, len(ratio) - 1, n_draw).round().astype(int)
        tables.append([replace(curves[-1], log_ratio=tuple(one.tolist())) for one in ratio[pick]])
    if not curves:
        return MeasuredTables(MeasuredCost(), (MeasuredCost(),) * n_draw, notes=tuple(notes))
    sides = sorted({(one.kind, one.crosses_nodes) for one in curves})
    return MeasuredTables(
        MeasuredCost(collectives=MeasuredCollectives(tuple(curves))),
        tuple(MeasuredCost(collectives=MeasuredCollectives(one)) for one in zip(*tables, strict=True)),
        frozenset(KNOB[across] for _, across in sides),
        tuple(f"{kind} {'between nodes' if across else 'in a node'}" for kind, across in sides),
        tuple(notes),
    )


def _curves_of(data: CollectivesData, cluster: Cluster) -> tuple[list[int], list[str]]:
    """Curves of the cluster's device (or of one that the table does not name); and operations left out, of several fabrics."""
    gpu = [key[FABRIC.index("gpu")] for key in data.fabric_keys]
    own = [i for i, name in enumerate(gpu) if not name or catalog.is_called(name, cluster.device)]
    if not own:
        raise DataError(
            f"collectives of {', '.join(sorted(set(gpu)))}, but the job runs on {cluster.device.name}. Fit collectives that were "
            f"measured on {cluster.device.name} (`prism-jax fit collectives FILE --where gpu=NAME`)."
        )
    notes = [f"the table names no GPU: taken as measured on {cluster.name}"] if not any(gpu) else []
    fabrics: list[int] = []
    for op in sorted({data.fabric_op[i] for i in own}):
        same = [i for i in own if data.fabric_op[i] == op]
        if len(same) == 1:
            fabrics += same
        else:
            named = "; ".join(data.fabrics[i] for i in same[:MOST_FABRICS])
            notes.append(
                f"seconds of {op} are not used, they are of {len(same)} fabrics ({named}): fit one, by --where network=NAME"
            )
    few = np.bincount(data.curve, minlength=len(data.curve_gpus)) < LEAST_SIZES
    return [c for c in range(len(data.curve_gpus)) if int(data.curve_fabric[c]) in fabrics and not few[c]], notes


def _stride(cluster: Cluster, n: int, nodes: int) -> int | None:
    """The stride at which `n` devices span that many nodes; None where there is none."""
    for stride in range(1, cluster.node_size + 1):
        try:
            if cluster.fabric.of_size(max(cluster.n_devices, n * stride)).n_node(stride, n) == nodes:
                return stride
        except SpecError:
            return None
    return None


def _sizes(data: CollectivesData, curve: int) -> Floats:
    """Log bytes from the smallest to the largest measured, one per doubling."""
    own = data.log_bytes[data.curve == curve]
    return np.linspace(own.min(), own.max(), max(2, round(float(np.ptp(own)) / np.log(2.0)) + 1))
