"""What a fit of the steps model says: where tails differ, how runs repeat, and the tree it amounts to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from prism_jax._typing import Floats
from prism_jax.variability.families import Pool
from prism_jax.variability.tree import Variability

from ...model import Draws
from ...summary import interval
from .conditional import Query
from .data import N_SMOOTH, StepsData
from .kernel import EFFECTS, Places, shared
from .predict import autocorrelation, configurations, shapes
from .runs import LABELS
from .shape import P95, P99, quantile, ratios

METRIC_WORDS = {"": "step time", "step_s": "step time", "log_dt_ms": "time between log lines"}
SAME = 1e-9  # variance of an effect that all configurations share, on the scale where different ones have 1
N_POOL = 1000  # quantiles of the step factor: up to one step in 2,000


def describe(data: StepsData, draws: Draws) -> dict[str, Any]:
    """How steps scatter, shares of the variance of that, what totals of repeats differ by, and what could not be told."""
    known = {name: _kind(data, draws, i) for i, name in enumerate(data.kinds)}
    several = len(data.units) > 1
    return {
        "n_runs": int(data.n_runs.sum()),
        "n_configurations": len(data.units),
        "variance_of": "how far p99 lies above the median, on a log scale",
        "variance_shares": variance_shares(data, draws, P99),
        **({"shares_of_the_same_for_p95": variance_shares(data, draws, P95)} if several else {}),
        **{kind_words(name): said for name, said in known.items()},
        **({"prediction_for_a_configuration_not_measured": _typical_ratios(data, draws)} if several else {}),
        **_similarity(data, draws),
        "notes": [*data.notes, *_not_estimable(data)],
    }


def kind_words(kind: str) -> str:
    """As "step time of bert" of the kind "step_s | bert"."""
    metric, _, benchmark = kind.partition(" | ")
    named = METRIC_WORDS.get(metric, metric)
    return f"{named} of {benchmark}" if benchmark else named


def _kind(data: StepsData, draws: Draws, i: int) -> dict[str, Any]:
    """What was measured of one metric and benchmark, medians over configurations, and what repeats differ by if there are any."""
    members = data.kind == i
    p95, p99 = np.median(data.ratios[members], axis=0)
    typical_s = data.step_s[members]
    repeated = bool((data.n_runs[members] > 1.0).any())
    return {
        "median_step_s": float(typical_s[0]) if len(typical_s) == 1 and np.isfinite(typical_s[0]) else None,
        "p95_over_median": float(p95),
        "p99_over_median": float(p99),
        "correlation_of_consecutive_steps": round(float(np.median(data.ar1[members])), 3),
        "spread_of_total_time_between_runs": interval(draws["level_scale"][:, i]) if repeated else None,
    }


def _similarity(data: StepsData, draws: Draws) -> dict[str, Any]:
    """How far configurations resemble each other, where there are different ones to tell."""
    sizes, metrics = np.unique(data.log2_gpus), np.unique(data.codes[:, LABELS.index("metric")])
    found: dict[str, Any] = {}
    if len(sizes) > 1:
        found["resemblance_reaches_over_doublings_of_gpus"] = interval(draws["length"])
        found["assumed_growth_of_the_tail_per_doubling_of_gpus"] = {
            "p95": _knot(data, data.slope, P95),
            "p99": _knot(data, data.slope, P99),
        }
    if len(metrics) > 1:
        found["correlation_between_metrics"] = interval(draws["coupling"])
    if (data.n_runs > 1.0).sum() > 1:
        found["runs_that_the_typical_spread_counts_for"] = interval(draws["level_dof"])
    return found


def _not_estimable(data: StepsData) -> list[str]:
    """What these data cannot tell, and what predictions do about it."""
    one_each = bool((data.n_runs < 2.0).all())
    if len(data.units) == 1 and one_each:
        return [
            "one run: not estimable are how runs differ and how configurations differ, so that there are no shares of variance; "
            "predictions keep what is assumed of both before data"
        ]
    if len(data.units) == 1:
        return [
            "one configuration: not estimable is how configurations differ, so that there are no shares of variance; predictions "
            "keep what is assumed of it before data"
        ]
    if one_each:
        return [
            "one run of every configuration: not estimable is how runs differ; it is in the share of the configurations as "
            "far as it exceeds what is assumed of it before data"
        ]
    return []


def variance_shares(data: StepsData, draws: Draws, knot: int) -> dict[str, float]:
    """Share of the variance of the log excess at `knot` by effect, then what is a configuration's own and a run's; sums to 1.

    Notes: an effect counts with its variance among the fitted configurations. A level with one member (one system, one run of
        each configuration) has no variance and is left out; where fewer than two levels remain there are no shares.
    """
    places = Places.of(data)
    alike = shared(float(np.median(draws["length"])), float(np.median(draws["coupling"])), places, places, np)
    varies = 1.0 - alike.mean(axis=(1, 2))
    loading = data.rotation[knot] ** 2
    amplitude = (draws["amplitude"] ** 2).mean(axis=0)
    parts = {
        effect.name: float(varies[i] * loading[:N_SMOOTH] @ amplitude[:, i])
        for i, effect in enumerate(EFFECTS)
        if varies[i] > SAME
    }
    if len(data.units) > 1:
        own = loading[:N_SMOOTH] @ (draws["own"] ** 2).mean(axis=0)
        parts["configuration"] = float(own + loading[N_SMOOTH:] @ (draws["rest"] ** 2).mean(axis=0))
    if (data.n_runs > 1.0).any():
        parts["run"] = float(np.median(data.run_variance @ loading))
    total = sum(parts.values())
    return {name: round(part / total, 4) for name, part in parts.items()} if len(parts) > 1 else {}


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
    return {"p95_over_median": round(float(p95), 5), "p99_over_median": round(float(p99), 5)}


def _knot(data: StepsData, coordinate: Floats, knot: int) -> float:
    return round(float(data.rotation[knot] @ coordinate), 4)
