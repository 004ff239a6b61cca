"""How a prediction fared on held-out steps; plain data, no JAX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

LEVEL = 0.9  # of the intervals


@dataclass(frozen=True)
class SplitScore:
    """One split: measured, predicted, and what simpler ways said. Times in seconds, errors relative and signed.

    Attributes:
        measured: quantile -> of the held-out steps.
        predicted: quantile -> expected of as many steps.
        long_run: quantile -> of the predicted distribution itself.
        p95_interval: contains the p95 of the held-out steps with probability 0.9, says the prediction.
        p95_covered: whether it did.
        p95_error, p50_error: predicted over measured, minus one.
        ks_distance: of the predicted distribution to the held-out steps.
        ks_floor: the same of the recorded step times that were fitted on, re-used as they are.
        naive: way -> (p95_error, ks_distance).
    """

    n_train: int
    n_test: int
    measured: dict[str, float]
    predicted: dict[str, float]
    long_run: dict[str, float]
    p95_interval: tuple[float, float]
    p95_covered: bool
    p50_error: float
    p95_error: float
    ks_distance: float
    ks_floor: float
    naive: dict[str, tuple[float, float]]


def mean_of_splits(scores: Sequence[SplitScore]) -> dict[str, Any]:
    """Averages over splits, field by field."""
    return {item.name: _mean([getattr(score, item.name) for score in scores]) for item in fields(SplitScore)}


def _mean(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(_mean([value[index] for value in values]) for index in range(len(first)))
    mean = float(np.mean(values))
    return int(mean) if isinstance(first, int) and not isinstance(first, bool) else mean
