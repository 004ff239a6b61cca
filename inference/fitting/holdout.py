"""Scores a model on data that it has not seen: whole groups of a column are left out, the rest fitted, the groups scored."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import numpy as np
import pandas as pd

from prism_jax.core.errors import DataError, FitError
from prism_jax.core.executor import ALONE, Workers, answers_in_order
from prism_jax.core.processes import Progress, silent
from prism_jax.core.registry import did_you_mean
from prism_jax.fits.models import model_named

from ..data.checks import ROW
from ..data.clean import Measurements, naming
from ..engine.diagnostics import one_blas_thread
from ..engine.model import GroupScore, Model
from ..engine.program import Settings, generator
from .fit import posterior, posterior_near

# pyright: reportArgumentType=false, reportReturnType=false
# (of pandas without stubs, every expression may be of any type)


N_DRAW = 1000  # of each approximation
HALVES = 20  # splits where a group is one point of the predicted distribution
MAX_FOLDS = 20  # fits where every group is scored by itself; fewer groups are left out one by one
FEWEST_GROUPS = 2
FIGURES = ("ks", "ks_empirical", "coverage_90", "p95_p50_ape", "p99_p50_ape")


@dataclass(frozen=True)
class Holdout:
    """Scores of groups that were left out.

    Attributes:
        column: the column whose groups were left out.
        n_groups: groups in the data.
        scores: one per group, or one per random half.
    """

    column: str
    n_groups: int
    scores: tuple[GroupScore, ...]

    def as_dict(self) -> dict[str, Any]:
        """Medians over the scores, of coverage the mean; None where no score has the figure; the model's own by name."""
        figures = {name: _figure(np.median, (getattr(score, name) for score in self.scores)) for name in FIGURES}
        # Of one run it is 0 or 1: only the mean says something
        figures["coverage_90"] = _figure(np.mean, (score.coverage_90 for score in self.scores))
        own = sorted({name for score in self.scores for name in score.extra})
        extra = {name: _figure(np.median, (one.extra.get(name, np.nan) for one in self.scores)) for name in own}
        return {"column": self.column, "n_groups": self.n_groups, "n_scores": len(self.scores), **figures, **extra}


@one_blas_thread
def holdout(
    measured: Measurements,
    *,
    model: str | Model[Any],
    column: str,
    key: jax.Array,
    method: str | None = None,
    n_split: int | None = None,
    settings: Settings | None = None,
    workers: Workers = ALONE,
    progress: Progress = silent,
) -> Holdout:
    """Leaves whole groups of `column` out and scores their prediction.

    Args:
        n_split: random halves (models with `holdout` "halves"), or folds that every group is in once. Default: 20 halves, or one
            fold per group up to 20 folds.
        workers: processes that share the folds.

    Raises:
        DataError: no such column, or fewer than two groups.
        FitError: a number of splits that leaves nothing to fit.
    """
    chosen: Model[Any] = model_named(model) if isinstance(model, str) else model
    names, splits = splits_of_groups(measured, model=chosen, column=column, key=key, n_split=n_split)
    method = method or chosen.holdout_method
    settings = replace(settings or Settings(), n_approximate_draw=N_DRAW)
    with naming(measured.sources):
        prepared = chosen.prepare(measured.frame)
    everything = posterior(chosen, prepared, method, key, settings=settings)
    near = partial(posterior_near, near=everything.flat, method=method, settings=settings)
    one = partial(_scores, measured=measured, model=model, column=column, key=key, near=near)
    found = answers_in_order(one, list(enumerate(splits)), workers, progress)
    return Holdout(column, len(names), tuple(score for own in found for score in own))


def splits_of_groups(
    measured: Measurements, *, model: str | Model[Any], column: str, key: jax.Array, n_split: int | None = None
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Names of the groups of a column, and those that each split leaves out; asked before a fit, refuses what cannot be scored.

    Args:
        n_split: see `holdout`.

    Raises:
        DataError, FitError: see `holdout`.
    """
    chosen: Model[Any] = model_named(model) if isinstance(model, str) else model
    names = np.array(sorted(_groups(measured.frame, chosen, column).dropna().unique()))
    if len(names) < FEWEST_GROUPS:
        raise DataError(
            f"--holdout {column}: {len(names)} group, but at least {FEWEST_GROUPS} are needed to leave one out"
        )
    return names, list(_splits(chosen.holdout, names, n_split, key))


@one_blas_thread
def _scores(
    split: tuple[int, np.ndarray],
    *,
    measured: Measurements,
    model: str | Model[Any],
    column: str,
    key: jax.Array,
    near: Callable[..., Any],
) -> list[GroupScore]:
    """Scores of the groups of a split, fitted to the others; what a worker does."""
    index, out = split
    chosen: Model[Any] = model_named(model) if isinstance(model, str) else model
    groups = _groups(measured.frame, chosen, column)
    is_out = groups.isin(out)
    split_key = jax.random.fold_in(key, index)
    with naming(measured.sources):
        data = chosen.prepare(measured.frame[~is_out & groups.notna()])
    sampled = near(chosen, data, key=split_key)
    draws = {name: value.reshape(-1, *value.shape[2:]) for name, value in sampled.draws.items()}
    return chosen.score(data, draws, measured.frame[is_out], _canonical(chosen, column), split_key)


def _canonical(model: Model[Any], column: str) -> str:
    """Canonical name of a column given by that or an alias."""
    for known in model.columns:
        if column == known.name or column in known.aliases:
            return known.name
    return column


def _groups(frame: pd.DataFrame, model: Model[Any], column: str) -> pd.Series:
    name = _canonical(model, column)
    if name not in frame:
        known = [own for own in frame.columns if own != ROW]
        raise DataError(
            f"--holdout {column}: no such column; there are {', '.join(known)}{did_you_mean(column, known, '')}"
        )
    values = frame[name]
    return values if values.dtype.kind in "OUST" else values.map(lambda value: f"{value:g}", na_action="ignore")


def _splits(kind: str, names: np.ndarray, n_split: int | None, key: jax.Array) -> Iterator[np.ndarray]:
    if n_split is not None and n_split < 1:
        raise FitError(f"--splits {n_split}: at least 1 is needed")
    rng = generator(key)
    if kind == "halves":
        for _ in range(n_split or HALVES):
            yield rng.permutation(names)[: len(names) // 2]
        return
    if n_split == 1:
        raise FitError("--splits 1: one fold holds every group and leaves nothing to fit; at least 2 are needed")
    n_fold = min(n_split or MAX_FOLDS, len(names))
    yield from np.array_split(rng.permutation(names), n_fold)


def _figure(middle: Callable[[list[float]], Any], values: Iterable[float]) -> float | None:
    """The middle of the finite values; None without any."""
    known = [value for value in values if np.isfinite(value)]
    return float(middle(known)) if known else None
