"""A hierarchical model of the log excess of a run's slow steps, fitted in closed form and integrated over the spread of machines.

    ln(excess + floor) = features + network + (work, GPUs) + (network, work, GPUs) + model of the GPU + machine + run

Every effect is Normal with a spread of its own. Features: work, number of GPUs and the median step, whose length says how far the
host decides. Spreads are where their posterior is highest, but that of machines, of which there are few: it is integrated over a
grid, so that intervals are wide where few were seen.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.linalg import cho_factor, cho_solve
from scipy.optimize import minimize
from scipy.special import ndtr

FIXED_SD = 2.0  # of a feature's coefficient
TYPICAL_S = 0.2  # of a step
PRIOR_SD = 1.0  # half Normal, of every spread: an excess e times larger or smaller
GRID = np.geomspace(0.05, 3.0, 13)  # spreads of machines


class Design(NamedTuple):
    """[row, column] features, and the block each column belongs to."""

    columns: np.ndarray
    block: np.ndarray


@dataclass(frozen=True)
class Fitted:
    """Coefficients under every spread of machines.

    Attributes:
        weight: [grid] posterior.
        mean, covariance: [grid, column], [grid, column, column]; none of machines, which say nothing of another.
        names: values that columns stand for, by block.
        sd: spreads of `_levels` but the first and the last, and of runs.
    """

    weight: np.ndarray
    mean: np.ndarray
    covariance: np.ndarray
    names: tuple[list[str], ...]
    sd: np.ndarray

    def predict(self, runs: pd.DataFrame, levels: tuple[float, ...]) -> np.ndarray:
        """[level, run] quantiles of ln(excess + floor) on a machine that was not seen."""
        x = design(runs, self.names).columns
        middle = self.mean @ x.T
        known = np.stack([((x @ own) * x).sum(axis=1) for own in self.covariance])
        unseen = sum(
            (~column.isin(own)).to_numpy() * sd**2
            for column, own, sd in zip(_levels(runs)[1:-1], self.names[1:-1], self.sd, strict=False)
        )
        spread = np.sqrt(known + unseen + GRID[:, None] ** 2 + self.sd[-1] ** 2)
        return np.stack([_mixture_quantile(level, middle, spread, self.weight) for level in levels])


def _mixture_quantile(level: float, middle: np.ndarray, spread: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """[run] by bisection."""
    low, high = (middle - 9 * spread).min(axis=0), (middle + 9 * spread).max(axis=0)
    for _ in range(60):
        at = 0.5 * (low + high)
        below = weight @ ndtr((at - middle) / spread) < level
        low, high = np.where(below, at, low), np.where(below, high, at)
    return 0.5 * (low + high)


def design(runs: pd.DataFrame, names: tuple[list[str], ...]) -> Design:
    """Features (block 0), then a block for each of `_levels`; values that are not among `names` have no column."""
    log_s = np.log(runs.step_s.to_numpy() / TYPICAL_S)
    gpus = np.log2(runs.gpus.to_numpy(float))
    plain = np.column_stack([np.ones(len(runs)), _one_hot(runs.work, names[0]), log_s, gpus, gpus > 0])
    parts = [plain, *(_one_hot(column, own) for column, own in zip(_levels(runs)[1:], names[1:], strict=True))]
    block = np.concatenate([np.full(part.shape[1], index) for index, part in enumerate(parts)])
    return Design(np.hstack(parts).astype(float), block)


def _levels(runs: pd.DataFrame) -> tuple[pd.Series, ...]:
    """Work, network, work and GPUs, all three, model of the GPU, machine."""
    pair = runs.work + "|" + runs.gpus.astype(str)
    return runs.work, runs.model, pair, pair + "|" + runs.model, runs.gpu, runs.machine


def _one_hot(column: pd.Series, names: list[str]) -> np.ndarray:
    return (column.to_numpy()[:, None] == np.array(names, dtype=object)[None, :]).astype(float)


def fit(runs: pd.DataFrame, log_excess: np.ndarray) -> Fitted:
    """The model of runs."""
    names = tuple(sorted(set(column)) for column in _levels(runs))
    made = design(runs, names)
    x = made.columns
    gram, cross, square = x.T @ x, x.T @ log_excess, float(log_excess @ log_excess)

    def evidence(log_sd: np.ndarray, machine_sd: float) -> float:
        return _solved(gram, cross, square, len(x), made.block, np.exp(log_sd), machine_sd)[0]

    first = minimize(
        lambda at: -evidence(at[:5], float(np.exp(at[5]))), np.log([0.3, 0.3, 0.3, 0.5, 0.5, 0.5]), method="Nelder-Mead",
        options={"maxiter": 120, "xatol": 2e-2, "fatol": 2e-2},
    ).x  # fmt: skip
    sd = np.exp(first[:5])
    found = [_solved(gram, cross, square, len(x), made.block, sd, float(each)) for each in GRID]
    log_weight = np.array([own[0] for own in found]) + np.log(GRID)  # per step of a grid of logarithms
    weight = np.exp(log_weight - log_weight.max())
    # what a machine that was seen has of its own says nothing of another: only blocks 0 and 1 are kept
    kept = np.flatnonzero(made.block < made.block.max())
    mean = np.stack([own[1][kept] for own in found])
    covariance = np.stack([cho_solve(own[2], np.eye(x.shape[1]))[np.ix_(kept, kept)] for own in found])
    return Fitted(weight / weight.sum(), mean, covariance, (*names[:-1], []), sd)


def _solved(
    gram: np.ndarray, cross: np.ndarray, square: float, n: int, block: np.ndarray, sd: np.ndarray, machine_sd: float
) -> tuple[float, np.ndarray, Any]:
    """Log posterior density of the spreads, coefficients and the factor of their precision; `sd` as of `Fitted`."""
    prior_sd = np.array([FIXED_SD, *sd[:-1], machine_sd])[block]
    factor = cho_factor(gram / sd[-1] ** 2 + np.diag(prior_sd**-2.0))
    mean = cho_solve(factor, cross) / sd[-1] ** 2
    fitted = (square - float(mean @ cross)) / sd[-1] ** 2
    log_det = 2.0 * (np.log(np.diag(factor[0])).sum() + np.log(prior_sd).sum() + n * np.log(sd[-1]))
    prior = -0.5 * float((np.append(sd, machine_sd) ** 2).sum()) / PRIOR_SD**2
    return -0.5 * (fitted + log_det) + prior, mean, factor
