"""Rows that were read before: the same row again, and runs that were submitted again.

Equal rows are not always one measurement: where repeats carry no number and times are rounded, two measurements may well agree.
Then as many rows of equal labels differ by a single unit of the last digit as agree (twice as many, for a smooth distribution);
where rows were copied, next to none do. That decides.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .formats.raw_table import Hashes, as_floats, hash_column
from .values import labels

MAX_DECIMALS = 9
MIN_NEAR = (
    0.5  # pairs one unit apart for every equal pair, from which equality is taken to be chance; chance makes it 2
)


def copied_rows(row_hash: Hashes, value: pd.Series | None) -> tuple[NDArray[np.bool_], int]:
    """Which rows are copies of one before them, and how many are equal to one before by chance, which makes none a copy.

    Args:
        row_hash: of whole rows, as `RawTable.row_hash`.
        value: the measured column; None if there is none.
    """
    again = pd.Series(row_hash).duplicated().to_numpy(bool)
    if not again.any() or value is None:
        return again, 0
    label = row_hash - hash_column(value)
    if _is_chance(label, as_floats(value)):
        return np.zeros(len(again), bool), int(again.sum())
    return again, 0


def _is_chance(label: Hashes, value: NDArray[np.float64]) -> bool:
    usable = pd.Series(label).duplicated(keep=False).to_numpy(bool) & ~np.isnan(value)
    groups, _ = pd.factorize(label[usable])
    order = np.lexsort((value[usable], groups))
    group, ordered = groups[order], value[usable][order]
    is_first = np.append(True, (np.diff(group) != 0) | (np.diff(ordered) != 0))[: len(group)]
    n = np.diff(np.append(np.flatnonzero(is_first), len(group))).astype(np.float64)
    group, ordered = group[is_first], ordered[is_first]
    if not len(group):
        return False
    decimals = np.zeros(group.max() + 1)
    np.maximum.at(decimals, group, _decimals(ordered))
    unit = 10.0 ** -decimals[group]
    near = (np.diff(group) == 0) & (np.diff(ordered) < 1.5 * unit[1:])
    return bool((n[1:] * n[:-1])[near].sum() >= MIN_NEAR * (n * (n - 1) / 2).sum())


def _decimals(value: NDArray[np.float64]) -> NDArray[np.float64]:
    """Decimal places with which every value is written."""
    places = np.full(len(value), float(MAX_DECIMALS))
    for k in range(MAX_DECIMALS - 1, -1, -1):
        scaled = value * 10.0**k
        places[np.abs(scaled - np.round(scaled)) <= 1e-9 * np.maximum(np.abs(scaled), 1.0)] = k
    return places


def resubmitted(dup_of: pd.Series, run_id: pd.Series | None, alive: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Which rows belong to a run that is there already under another number.

    Args:
        dup_of: number of the run that this one repeats; blank in a run of its own.
        run_id: number of the run; None if the file has none.
        alive: rows that are still there. A copy whose original is not there stands for it.
    """
    copy = labels(dup_of).notna().to_numpy(bool)
    if run_id is None or not copy.any():
        return copy
    numbers, _ = pd.factorize(pd.concat([labels(run_id), labels(dup_of)]))
    run, source = numbers[: len(run_id)], numbers[len(run_id) :]
    original = np.where(copy, source, run)
    stands = np.full(original.max() + 1, -1)  # which run stands for an original
    rows = np.flatnonzero(alive)
    rows = rows[np.argsort(copy[rows], kind="stable")][::-1]
    stands[original[rows]] = run[rows]  # the last assignment wins: the original itself, else its first copy
    return alive & (stands[original] != run)
