"""Reads off a fit what its picture shows, small enough to be kept in a report: bandwidths by size, and replicated values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ..core.readable import evenly, short_numbers
from .report import CollectiveCurve, ReplicatedValues

MOST_PANELS, MOST_CURVES = 6, 9
MOST_SIZES, MOST_VALUES = 24, 80
N_BAND = 200  # replicated data sets behind the band


def bandwidth_curves(curves: Sequence[CollectiveCurve]) -> tuple[CollectiveCurve, ...]:
    """The curves of a fit of collectives; of many scales of a collective some, evenly.

    Args:
        curves: what `Fit.curves` returns.
    """
    ops = list(dict.fromkeys(curve.op for curve in curves))[:MOST_PANELS]
    return tuple(_thinned(one) for op in ops for one in evenly([c for c in curves if c.op == op], MOST_CURVES))


def _thinned(curve: CollectiveCurve) -> CollectiveCurve:
    """The curve at few of its sizes."""
    sizes = {name: evenly(range(len(getattr(curve, name))), MOST_SIZES) for name in ("measured_bytes", "n_bytes")}
    at = {"measured_bus": "measured_bytes", **dict.fromkeys(("low", "middle", "high"), "n_bytes")}
    kept = {name: short_numbers(np.asarray(getattr(curve, name))[sizes[at.get(name, name)]]) for name in (*sizes, *at)}
    return replace(curve, **kept)


def replicated_values(checked: Any, most: int = MOST_VALUES) -> ReplicatedValues:
    """Measured values in order, and the band of replicated ones (5 to 95%) at the same ranks.

    Args:
        checked: what `Fit.check` returns.
        most: ranks; of more values some, evenly.
    """
    measured = np.sort(checked.measured)
    ranks = np.array(evenly(range(len(measured)), most))
    replicated = np.sort(checked.predicted[:N_BAND], axis=1)[:, ranks]
    low, middle, high = np.quantile(replicated, [0.05, 0.5, 0.95], axis=0)
    level = (ranks + 0.5) / len(measured)
    return ReplicatedValues(
        checked.what, *(short_numbers(line) for line in (level, measured[ranks], low, middle, high))
    )
