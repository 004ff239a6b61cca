"""Rows that were read before: the same row again, and runs that were submitted again.

Equal rows are not always one measurement: where repeats carry no number and times are rounded, two measurements may well agree.
Then as many rows of equal labels differ by a single unit of the last digit as agree (twice as many, for a smooth distribution);
where rows were copied, next to none do. That decides.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from .choose import equals
from .raw_table import Hashes, hash_column

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
    if _is_chance(label, value.to_numpy(np.float64, na_value=np.nan)):
        return np.zeros(len(again), bool), int(again.sum())
    return again, 0


def _is_chance(label: Hashes, value: NDArray[np.float64]) -> bool:
    rows = pd.DataFrame({"label": label, "value": value}).dropna()
    rows = rows[rows["label"].duplicated(keep=False).to_numpy(bool)]
    counts = rows.groupby(["label", "value"], sort=True).size().reset_index(name="n")
    if counts.empty:
        return False
    n = counts["n"].to_numpy(np.float64)
    equal_pairs = (n * (n - 1) / 2).sum()
    unit = (
        10.0
        ** -counts.assign(k=_decimals(counts["value"].to_numpy())).groupby("label")["k"].transform("max").to_numpy()
    )
    same_label = counts["label"].to_numpy()[1:] == counts["label"].to_numpy()[:-1]
    apart = np.diff(counts["value"].to_numpy())
    near = same_label & (apart < 1.5 * unit[1:])
    return bool((n[1:] * n[:-1])[near].sum() >= MIN_NEAR * equal_pairs)


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
    copy = dup_of.notna().to_numpy(bool) & ~equals(dup_of, "")
    if run_id is None or not copy.any():
        return copy
    original = dup_of.where(copy, run_id).astype(object)
    runs = pd.DataFrame({"original": original, "run": run_id.astype(object), "copy": copy})[alive].drop_duplicates()
    first = runs.sort_values("copy", kind="stable").drop_duplicates("original").set_index("original")["run"]
    kept = original.map(first)
    return alive & (kept != run_id.astype(object)).to_numpy(bool)
