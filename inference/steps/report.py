"""Report of a fit of the steps model: where tails differ, how runs repeat, the tree it amounts to, and scores of runs left out.

The trivial prediction of p95/p50 and p99/p50 is the median (and the 5 and 95% quantiles) of what was measured on the other
systems of the same benchmark and metric; of a repeat whose configuration was not left out, the median of the other repeats.
Errors are medians over the runs of a group, benchmark and metric; every one of these is one score.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import pandas as pd
from scipy.special import stdtrit

from prism_jax.core.arrays import Floats

from ..engine.model import Draws, GroupScore, interval
from .data import EFFECTS, N_SMOOTH, POOL, Configurations, StepsData, key_of, kind_of, shared
from .predict import Query, configurations, coordinates, level_law, query_of, shapes
from .runs import LABELS, P95, P99, Run, cdf, ks_distance, ratios

N_DRAW = 600  # per run: the 5% quantile is then known to 0.9% in probability
LEVELS = (0.05, 0.5, 0.95)


def score_runs(
    data: StepsData, draws: Draws, runs: Sequence[Run], names: Sequence[str], key: jax.Array
) -> list[GroupScore]:
    """Scores of runs that were read before, each with the name of its group."""
    if not runs:
        return []
    asked = query_of(data, [(dict(run.labels), run.n_gpus, key_of(run)) for run in runs])
    new = shapes(data, coordinates(data, draws, asked, N_DRAW, key))
    middle, drawn = np.median(new, axis=0), ratios(new)
    members: dict[str, list[int]] = {}
    for i, (run, name) in enumerate(zip(runs, names, strict=True)):
        members.setdefault(f"{name} | {kind_of(run)}", []).append(i)
    level = level_law(data, draws, asked)
    return [
        _score(name, data, [(runs[i], i) for i in rows], asked, middle, drawn, level) for name, rows in members.items()
    ]


def _score(
    name: str,
    data: StepsData,
    rows: list[tuple[Run, int]],
    asked: Query,
    middle: Floats,
    drawn: Floats,
    level: tuple[Floats, Floats],
) -> GroupScore:
    measured = np.array([run.ratios for run, _ in rows])
    index = [i for _, i in rows]
    predicted = np.quantile(drawn[:, index], LEVELS, axis=0)
    trivial = np.stack([_trivial(data, asked, i) for i in index], axis=1)
    inside = (measured >= predicted[0]) & (measured <= predicted[2])
    error, error_trivial = np.abs(predicted[1] / measured - 1.0), np.abs(trivial[1] / measured - 1.0)
    totals = np.array([_total(data, run, asked, i, level) for run, i in rows])
    ks = [ks_distance(np.sort(run.relative), cdf(middle[i], np.sort(run.relative))) for run, i in rows]
    pooled = [_ks_pooled(data, run, int(asked.kind[i])) for run, i in rows]
    return GroupScore(
        group=name,
        ks=float(np.median(ks)),
        ks_empirical=float(np.median(pooled)),
        coverage_90=float(inside.mean()),
        p95_p50_ape=float(np.median(error[:, 0])),
        p99_p50_ape=float(np.median(error[:, 1])),
        extra={
            "n_runs": float(len(rows)),
            "p95_p50_ape_baseline": float(np.median(error_trivial[:, 0])),
            "p99_p50_ape_baseline": float(np.median(error_trivial[:, 1])),
            "pinball": _pinball(predicted, measured),
            "pinball_baseline": _pinball(trivial, measured),
            "coverage_90_p99": float(inside[:, 1].mean()),
            "total_coverage_90": float(np.mean(totals[:, 0])),
            "total_width": float(np.median(totals[:, 1])),
        },
    )


def _trivial(data: StepsData, asked: Query, i: int) -> Floats:
    """5, 50 and 95% of p95/p50 and p99/p50, without a model; [level, 2]."""
    unit, kind = int(asked.unit[i]), int(asked.kind[i])
    members = data.kind == kind if kind >= 0 else np.ones(len(data.units), dtype=bool)
    system = data.codes[members, LABELS.index("system")]
    values = pd.DataFrame(data.ratios[members]).groupby(system).median().to_numpy()
    quantiles = np.quantile(values, LEVELS, axis=0)
    if unit >= 0:
        quantiles[1] = data.ratios[unit]
    return quantiles


def _pinball(predicted: Floats, measured: Floats) -> float:
    """Mean over runs, levels and ratios of the quantile loss."""
    losses = []
    for level, guess in zip(LEVELS, predicted, strict=True):
        miss = measured - guess
        losses.append(np.maximum(level * miss, (level - 1.0) * miss))
    return float(np.mean(losses))


def _total(data: StepsData, run: Run, asked: Query, i: int, level: tuple[Floats, Floats]) -> tuple[float, float]:
    """Whether the run's total time is inside its 90% interval, and the interval's relative width; NaN if new."""
    unit = int(asked.unit[i])
    if unit < 0:
        return np.nan, np.nan
    half = float(level[0][i] * stdtrit(level[1][i], 0.95))
    return float(abs(run.level - data.level_mean[unit]) <= half), float(2.0 * np.sinh(half))


def _ks_pooled(data: StepsData, run: Run, kind: int) -> float:
    """KS distance from the pooled steps of the benchmark's other runs."""
    if kind < 0:
        return np.nan
    values = np.sort(run.relative)
    return ks_distance(values, np.interp(values, data.pool[kind], POOL, left=0.0, right=1.0))


METRIC_WORDS = {"": "step time", "step_s": "step time", "log_dt_ms": "time between log lines"}
SAME = 1e-9  # variance of an effect that all configurations share, on the scale where different ones have 1


def describe(data: StepsData, draws: Draws) -> dict[str, Any]:
    """Describes how steps scatter, variance shares, differences between totals of repeats, and what could not be told."""
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
    """Words such as "step time of bert" for the kind "step_s | bert"."""
    metric, _, benchmark = kind.partition(" | ")
    named = METRIC_WORDS.get(metric, metric)
    return f"{named} of {benchmark}" if benchmark else named


def _kind(data: StepsData, draws: Draws, i: int) -> dict[str, Any]:
    """Measured medians of one metric and benchmark over configurations, and the spread of repeats if there are any."""
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
    """Similarity of configurations, where there are different ones to tell."""
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
    """Notes on what these data cannot tell, and what predictions do about it."""
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
    places = Configurations.of(data)
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
