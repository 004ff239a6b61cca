# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Cells of rows that repeat each other: a mean of log seconds, sizes of the terms, and the groups that a cell is in.

Repeats of one thing are one cell, so that a thing that was run often does not count more than another, and so that no repeat
tells a fit about the thing itself when it is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd

from prism_jax.errors import DataError, FitError

MOST_CELLS = 5000
MOST_EFFECTS = 400


@dataclass(frozen=True)
class Term:
    """One term of a sum.

    Attributes:
        name: for people.
        factor: one standard deviation of its prior, as a factor on its size.
    """

    name: str
    factor: float


@dataclass(frozen=True)
class SumsData:
    """What the program of `sums` needs.

    Attributes:
        terms: names; factor: of their priors, [term].
        levels: columns whose groups have effects; spread: standard deviation of the effects of each, [level].
        effects: "column value" of every group met; level: which column it is of, [effect].
        uneven: place of the level whose groups have an error of their own each; -1: no level.
        size: seconds of every term as expected before any measurement, [cell, term].
        member: 1 where a cell is in a group, [cell, effect].
        log_s: mean log seconds, [cell]; n: rows of it, [cell].
        within: sum of squares of rows around the mean of their cell; n_within: its degrees of freedom.
        notes: what was assumed.
    """

    AXES: ClassVar[Mapping[str, str]] = {
        "term": "terms factor",
        "level": "levels spread",
        "effect": "effects",
        "effect -> level": "level",
        "cell term": "size",
        "cell effect": "member",
        "cell": "log_s n",
    }

    terms: tuple[str, ...]
    factor: np.ndarray
    levels: tuple[str, ...]
    spread: np.ndarray
    effects: tuple[str, ...]
    level: np.ndarray
    uneven: int
    size: np.ndarray
    member: np.ndarray
    log_s: np.ndarray
    n: np.ndarray
    within: float
    n_within: int
    notes: tuple[str, ...] = ()


def sums_data(
    frame: pd.DataFrame,
    sizes: np.ndarray,
    seconds: str,
    terms: Sequence[Term],
    levels: Mapping[str, float],
    *,
    uneven: str = "",
    notes: tuple[str, ...] = (),
) -> SumsData:
    """Cells of a checked table: rows that agree in their sizes and groups.

    Args:
        sizes: seconds of every term as expected, [row, term].
        seconds: column that was measured.
        levels: column -> spread of its groups; a column that is absent has no groups.
        uneven: the level, if any, whose groups are not equally well described.

    Raises:
        DataError: no row, sizes that are no finite numbers, or too many cells or groups.
    """
    if not len(frame):
        raise DataError(f"no row has {seconds} and the sizes that it depends on")
    if not np.isfinite(sizes).all():
        raise DataError("sizes of a row are too large to be numbers. Are the units what they should be?")
    groups = [groups_of(frame, name) for name in levels]
    effects = sorted({(place, text) for place, column in enumerate(groups) for text in column if text})
    keys = pd.DataFrame([*groups, *sizes.T]).T.astype(str).agg("|".join, axis=1).to_numpy()
    _, first, cell = np.unique(keys, return_index=True, return_inverse=True)
    if len(first) > MOST_CELLS or len(effects) > MOST_EFFECTS:
        raise DataError(
            f"{len(first):,} things in {len(effects):,} groups, but at most {MOST_CELLS:,} in {MOST_EFFECTS:,} can be fitted. "
            "Are the columns what they should be?"
        )
    log_s = np.log(frame[seconds].to_numpy(dtype=float))
    n = np.bincount(cell).astype(float)
    mean = np.bincount(cell, log_s) / n
    return SumsData(
        terms=tuple(term.name for term in terms),
        factor=np.array([term.factor for term in terms]),
        levels=tuple(levels),
        spread=np.array(list(levels.values()), dtype=float),
        effects=tuple(f"{tuple(levels)[place]} {text}" for place, text in effects),
        level=np.array([place for place, _ in effects], dtype=np.int64),
        uneven=tuple(levels).index(uneven) if uneven else -1,
        size=sizes[first],
        member=membership(effects, [[column[row] for row in first] for column in groups]),
        log_s=mean,
        n=n,
        within=float(((log_s - mean[cell]) ** 2).sum()),
        n_within=int(len(log_s) - len(first)),
        notes=notes,
    )


def groups_of(frame: pd.DataFrame, name: str) -> list[str]:
    """Group of every row in a column, empty where none is named."""
    return ["" if pd.isna(value) else str(value) for value in frame[name]] if name in frame else [""] * len(frame)


def chosen(what: str, name: str, known: Sequence[str]) -> str:
    """A group of a fit by its name; the only one where none is named.

    Raises:
        FitError: no such group, or several and none is named.
    """
    if not name and len(known) == 1:
        return known[0]
    if name not in known:
        told = ", ".join(one[:40] for one in known[:10])
        raise FitError(f"{what} {name[:40]!r} is not in the fit; it has {told}. Name one of them.")
    return name


def membership(effects: Sequence[tuple[int, str]], groups: Sequence[Sequence[str]]) -> np.ndarray:
    """1 where a row is in the group of an effect, [row, effect]; of `groups` [level][row]."""
    n_row = len(groups[0]) if groups else 0
    out = np.zeros((n_row, len(effects)))
    for column, (place, text) in enumerate(effects):
        out[:, column] = [given == text for given in groups[place]]
    return out
