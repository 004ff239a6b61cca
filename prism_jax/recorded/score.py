"""How predictions and replays of recorded jobs fare against recorded steps, as reports have it; plain data, no JAX."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Annotated, Any

import numpy as np

from .._typing import Floats
from ..report.codec import INLINE

LEVEL = 0.9  # of the intervals


@dataclass(frozen=True)
class Quantiles:
    """p50, p95 and p99, in the unit of the field that holds them."""

    p50: float
    p95: float
    p99: float

    @classmethod
    def of(cls, quantile: Callable[[float], float]) -> Quantiles:
        """From the function that says the quantile of a probability."""
        return cls(quantile(0.5), quantile(0.95), quantile(0.99))


@dataclass(frozen=True)
class MeasuredQuantiles:
    """Of the held-out steps, seconds."""

    p50: float
    p95: float


@dataclass(frozen=True)
class NaiveScore:
    """How a simpler way fared."""

    p95_error: float
    ks_distance: float


@dataclass(frozen=True)
class HeldOutScore:
    """How a prediction fared on steps that were held out; errors relative and signed.

    Attributes:
        p95_covered: whether the interval holds the p95 of the held-out steps; of several splits, the share.
        p50_error, p95_error: predicted over measured, minus one.
        ks_distance: of the predicted distribution to the held-out steps.
        ks_floor: the same of the recorded step times that were fitted on, re-used as they are.
        predicted_s: expected of as many steps as were held out.
        long_run_s: of the predicted distribution itself.
        p95_interval_s: holds the p95 of the held-out steps with probability 0.9, says the prediction.
        naive: simpler way -> how it fared.
    """

    p95_covered: bool | float
    p50_error: float
    p95_error: float
    ks_distance: float
    ks_floor: float
    measured_s: MeasuredQuantiles
    predicted_s: Quantiles
    long_run_s: Quantiles
    p95_interval_s: tuple[float, float]
    naive: Mapping[str, NaiveScore]


@dataclass(frozen=True)
class SplitScore:
    """One split of the recorded steps: how many were fitted on and held out, and how the prediction fared."""

    n_train: int
    n_test: int
    score: Annotated[HeldOutScore, INLINE]


@dataclass(frozen=True)
class CriticalShares:
    """Shares of the critical path of the recorded steps, largest first; each sums to one.

    Attributes:
        by_op_type: op type, or host gaps -> share.
        by_rank: global rank -> share.
    """

    by_op_type: Mapping[str, float]
    by_rank: Mapping[str, float]


@dataclass(frozen=True)
class MedianError:
    """Median absolute error of replayed steps, relative."""

    median_abs_error: float


@dataclass(frozen=True)
class ReplayErrors:
    """Relative errors of replayed steps against recorded ones.

    Attributes:
        median_abs_error, p90_abs_error: by the rules of the schedule alone, without host gaps.
        with_observed_waits: with the waits that are read off the recording.
        with_host_gaps: with host gaps too.
    """

    median_abs_error: float
    p90_abs_error: float
    with_observed_waits: MedianError
    with_host_gaps: MedianError


@dataclass(frozen=True)
class MomentMatch:
    """What drawn steps are multiplied by to agree with recorded ones: their mean, and their deviations from it."""

    mean: float = 1.0
    spread: float = 1.0

    def applied(self, step_s: Floats) -> Floats:
        """Drawn step times that agree."""
        mean = step_s.mean()
        return self.mean * mean + self.spread * (step_s - mean)


def mean_of_splits(scores: Sequence[SplitScore]) -> HeldOutScore:
    """Averages over splits, field by field."""
    return _mean([split.score for split in scores])


def _mean(values: list[Any]) -> Any:
    first = values[0]
    if is_dataclass(first) and not isinstance(first, type):
        return type(first)(**{item.name: _mean([getattr(one, item.name) for one in values]) for item in fields(first)})
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    if isinstance(first, tuple):
        return tuple(_mean([value[index] for value in values]) for index in range(len(first)))
    return float(np.mean(values))
