"""What a fit of the steps model says: where tails differ, how runs repeat, and the tree it amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax._typing import Floats
from prism_jax.variability.families import Pool
from prism_jax.variability.tree import Variability

from ...model import Draws
from .conditional import Query
from .data import N_SMOOTH, StepsData
from .kernel import EFFECTS, Places, shared
from .predict import autocorrelation, configurations, shapes
from .runs import LABELS
from .shape import P95, P99, quantile, ratios

N_POOL = 1000  # quantiles of the step factor: up to one step in 2,000


def describe(data: StepsData, draws: Draws) -> dict[str, Any]:
    """Variance shares of the log excess of p95 and p99, spreads between repeats, and notes."""
    return {
        "n_runs": int(data.n_runs.sum()),
        "n_configurations": len(data.units),
        "variance_of": "log excess of p99",
        "variance_shares": variance_shares(data, draws, P99),
        "variance_shares_p95": variance_shares(data, draws, P95),
        "length_doublings": _interval(draws["length"]),
        "coupling_of_metrics": _interval(draws["coupling"]),
        "growth_per_doubling_prior": {
            "p95": float(_knot(data, data.slope, P95)),
            "p99": float(_knot(data, data.slope, P99)),
        },
        "level_spread": {name: _interval(draws["level_scale"][:, i]) for i, name in enumerate(data.kinds)},
        "level_dof": _interval(draws["level_dof"]),
        "ar1": {name: round(float(np.median(data.ar1[data.kind == i])), 3) for i, name in enumerate(data.kinds)},
        "typical": _typical_ratios(data, draws),
        "notes": list(data.notes),
    }


def variance_shares(data: StepsData, draws: Draws, knot: int) -> dict[str, float]:
    """Share of the variance of the log excess at `knot` by effect, then what is a configuration's own and a run's; sums to 1.

    Notes: an effect counts with its variance among the fitted configurations: none where they all share it.
    """
    places = Places.of(data)
    alike = shared(float(np.median(draws["length"])), float(np.median(draws["coupling"])), places, places, np)
    varies = 1.0 - alike.mean(axis=(1, 2))
    loading = data.rotation[knot] ** 2
    amplitude = (draws["amplitude"] ** 2).mean(axis=0)
    parts = {effect.name: float(varies[i] * loading[:N_SMOOTH] @ amplitude[:, i]) for i, effect in enumerate(EFFECTS)}
    own = loading[:N_SMOOTH] @ (draws["own"] ** 2).mean(axis=0) + loading[N_SMOOTH:] @ (draws["rest"] ** 2).mean(axis=0)
    parts["configuration"] = float(own)
    parts["run"] = float(np.median(data.run_variance @ loading))
    total = sum(parts.values())
    return {name: round(part / total, 4) for name, part in parts.items()}


def steps_variability(data: StepsData, draw: Mapping[str, Floats]) -> Variability:
    """The tree of a configuration that was not measured, at the median GPU count: effects as in the site `typical`."""
    one = {name: np.asarray(value)[None] for name, value in draw.items()}
    asked = unlabelled(data)
    mean, variance = configurations(data, one, asked)
    own = np.zeros_like(mean[0, 0])
    own[:N_SMOOTH] = one["typical"][0]
    shape = shapes(data, mean[0, 0] + np.sqrt(variance[0, 0]) * own)
    factors = quantile(shape, (np.arange(N_POOL) + 0.5) / N_POOL)
    return Variability(
        name="fitted steps",
        step=Pool(tuple(factors.tolist())),
        step_ar1=autocorrelation(data, asked),
        source=f"prism-jax fit steps: {int(data.n_runs.sum())} runs of {len(data.units)} configurations",
    )


def unlabelled(data: StepsData) -> Query:
    """A configuration of which nothing is known but the metric, which is the one with most runs."""
    place = LABELS.index("metric")
    metric = np.bincount(data.codes[:, place], weights=data.n_runs).argmax()
    codes = np.full((1, len(LABELS)), -1)
    codes[0, place] = metric
    return Query(codes, np.array([np.median(data.log2_gpus)]), np.array([-1]), np.array([-1]))


def _typical_ratios(data: StepsData, draws: Draws) -> dict[str, float]:
    mean, _ = configurations(data, draws, unlabelled(data))
    p95, p99 = ratios(shapes(data, mean[:, 0].mean(axis=0)))
    return {"p95_p50": round(float(p95), 5), "p99_p50": round(float(p99), 5)}


def _knot(data: StepsData, coordinate: Floats, knot: int) -> float:
    return round(float(data.rotation[knot] @ coordinate), 4)


def _interval(values: Floats) -> list[float]:
    """Median and 90 % interval."""
    return [float(f"{v:.4g}") for v in np.quantile(np.asarray(values, dtype=float), [0.5, 0.05, 0.95])]
