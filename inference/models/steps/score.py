"""How well runs that were left out were predicted, beside the trivial prediction.

The trivial prediction of p95/p50 and p99/p50 is the median (and the 5 and 95 % quantiles) of what was measured on the other
systems of the same benchmark and metric; of a repeat whose configuration was not left out, the median of the other repeats.
Errors are medians over the runs of a group, benchmark and metric; every one of these is one score.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax
import numpy as np
import pandas as pd
from scipy.special import stdtrit

from prism_jax._typing import Floats

from ...model import Draws, Score
from .conditional import Query
from .data import POOL, StepsData, key_of, kind_of
from .predict import coordinates, level_law, query_of, shapes
from .runs import LABELS, Run, read_runs
from .shape import cdf, ks_distance, ratios

N_DRAW = 600  # per run: the 5 % quantile is then known to 0.9 % in probability
LEVELS = (0.05, 0.5, 0.95)


def score_groups(data: StepsData, draws: Draws, left_out: pd.DataFrame, column: str, key: jax.Array) -> list[Score]:
    """One score for every group of `column`, benchmark and metric of the left-out runs."""
    runs = read_runs(left_out, data.schedules).runs
    first = left_out.drop_duplicates("run")
    names = dict(zip(first["run"].astype(str), first[column].astype(str), strict=True))
    return score_runs(data, draws, runs, [names[run.name] for run in runs], key)


def score_runs(data: StepsData, draws: Draws, runs: Sequence[Run], names: Sequence[str], key: jax.Array) -> list[Score]:
    """The same for runs that were read before, each with the name of its group."""
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
) -> Score:
    measured = np.array([run.ratios for run, _ in rows])
    index = [i for _, i in rows]
    predicted = np.quantile(drawn[:, index], LEVELS, axis=0)
    trivial = np.stack([_trivial(data, asked, i) for i in index], axis=1)
    inside = (measured >= predicted[0]) & (measured <= predicted[2])
    error, error_trivial = np.abs(predicted[1] / measured - 1.0), np.abs(trivial[1] / measured - 1.0)
    totals = np.array([_total(data, run, asked, i, level) for run, i in rows])
    ks = [ks_distance(np.sort(run.relative), cdf(middle[i], np.sort(run.relative))) for run, i in rows]
    pooled = [_ks_pooled(data, run, int(asked.kind[i])) for run, i in rows]
    return Score(
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
    """5, 50 and 95 % of p95/p50 and p99/p50, without a model; [level, 2]."""
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
    """Whether the run's total time is inside its 90 % interval, and the interval's relative width; NaN if new."""
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
