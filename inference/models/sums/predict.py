# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Log seconds of rows from a fit of a sum, and scores of groups that were left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import jax
import numpy as np
import pandas as pd
from jax import Array

from ...model import Draws, Score
from .data import SumsData, groups_of, membership
from .program import TAIL, UNEVEN_SD, effects_of, misfits_of

Predict = Callable[[pd.DataFrame, np.random.Generator], np.ndarray]


def log_seconds(
    data: SumsData,
    draws: Draws,
    sizes: np.ndarray,
    groups: Sequence[Sequence[str]],
    rng: np.random.Generator,
    *,
    with_noise: bool = True,
) -> np.ndarray:
    """Log seconds of rows [draw, row]; rows of equal sizes and groups share the error of their cell.

    Args:
        sizes: as expected, [row, term].
        groups: of every level, [level][row]; a group that the fit has not seen has an effect that is drawn.
        with_noise: whether repeats scatter.
    """
    known = [(int(place), name.split(" ", 1)[1]) for place, name in zip(data.level, data.effects, strict=True)]
    member = membership(known, groups)
    mean = np.log(np.exp(np.asarray(draws["log_factor"])) @ sizes.T) + effects_of(data, draws) @ member.T
    own = misfits_of(data, draws) @ member.T
    for place, names in enumerate(groups):
        for name in sorted(set(names) - {""} - {text for at, text in known if at == place}):
            new = [at == name for at in names]
            mean[:, new] += data.spread[place] * rng.standard_normal((len(mean), 1))
            if place == data.uneven:
                own[:, new] += UNEVEN_SD * rng.standard_normal((len(mean), 1))
    cell = _cells(sizes, groups)
    error = rng.standard_t(TAIL, (len(mean), int(cell.max(initial=0)) + 1))[:, cell]
    mean = mean + np.asarray(draws["misfit"])[:, None] * np.exp(own) * error
    return mean + with_noise * np.asarray(draws["noise"])[:, None] * rng.standard_normal(mean.shape)


def _cells(sizes: np.ndarray, groups: Sequence[Sequence[str]]) -> np.ndarray:
    """Number of the cell of every row, [row]."""
    keys = ["|".join(map(str, (*size, *group))) for size, group in zip(sizes, zip(*groups, strict=True), strict=True)]
    return np.unique(np.array(keys, dtype=str), return_inverse=True)[1]


def group_scores(
    left_out: pd.DataFrame, column: str, seconds: str, predict: Predict, trivial: Callable[..., np.ndarray], key: Array
) -> list[Score]:
    """One score per group: mean relative error of the median beside that of the trivial prediction, coverage of rows.

    Args:
        predict: log seconds [draw, row] of rows.
        trivial: seconds [row] of rows, by the plainest rule.
    """
    rng = np.random.default_rng(np.asarray(jax.random.key_data(key)).ravel().tolist())
    names = np.array(groups_of(left_out, column))
    out = []
    for name in np.unique(names):
        rows = left_out[names == name]
        measured = rows[seconds].to_numpy(dtype=float)
        low, middle, high = np.exp(np.quantile(predict(rows, rng), [0.05, 0.5, 0.95], axis=0))
        extra = {
            "mape": float(np.mean(np.abs(middle / measured - 1.0))),
            "mape_trivial": float(np.mean(np.abs(trivial(rows) / measured - 1.0))),
            "n_rows": float(len(rows)),
        }
        inside = float(((measured >= low) & (measured <= high)).mean())
        out.append(Score(group=str(name), coverage_90=inside, extra=extra))
    return out
