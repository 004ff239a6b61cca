# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""How well the counts of clusters are predicted that were left out, beside one rate for all clusters."""

from __future__ import annotations

from dataclasses import replace

import jax
import numpy as np
import pandas as pd
from jax import Array
from scipy.special import gammaln
from scipy.stats import poisson

from ...model import Draws, Score
from . import rates as rates
from .data import FailuresData, from_frame


def scores(data: FailuresData, draws: Draws, left_out: pd.DataFrame, column: str, key: Array) -> list[Score]:
    """One score per group: whether its total count lies in the 90 % interval, and log densities; groups without failures too."""
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    names = left_out[column].astype(str).to_numpy()
    pooled = data.count.sum() / data.gpu_hours.sum()
    out = []
    for name in np.unique(names):
        rows = left_out[names == name]
        if not rows["count"].to_numpy().sum():
            continue
        out.append(_score(str(name), replace(from_frame(rows), levels=data.levels), draws, pooled, rng))
    return out


def _score(name: str, left_out: FailuresData, draws: Draws, pooled: float, rng: np.random.Generator) -> Score:
    expected, shape = rates.expected(left_out, draws), np.asarray(draws["shape"])[:, None]
    count = rates.counts(left_out)
    drawn = rng.poisson(np.minimum(rates.new_factors(draws, left_out.n_group, rng) * expected, 1e15)).sum(axis=1)
    low, middle, high = np.quantile(drawn, [0.05, 0.5, 0.95])
    total = count.sum()
    with np.errstate(divide="ignore"):
        density = (
            gammaln(shape + count)
            - gammaln(shape)
            - gammaln(count + 1.0)
            + shape * np.log(shape / (shape + expected))
            + np.where(count > 0, count * np.log(expected / (shape + expected)), 0.0)
        ).sum(axis=1)
    extra = {
        "log_density": float(np.logaddexp.reduce(density) - np.log(len(density))),
        "log_density_one_rate": float(poisson.logpmf(total, pooled * left_out.gpu_hours.sum())),
        "interval_factor": float(high / max(low, 1.0)),
        "ape": float(abs(middle / total - 1.0)),
    }
    return Score(group=name, coverage_90=float(low <= total <= high), extra=extra)
