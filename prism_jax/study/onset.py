"""Onset: the number of GPUs at which the gathering of sharded parameters stops hiding behind compute, in closed form.

A ring over n members takes (n - 1)/n S/B + (n - 1) a for S bytes at B bytes/s and a seconds per hop; it hides behind a window W:

    n* = 1 + (W - S/B) / a                   of a ring,
    log2 n* = (W - S/B) / a                  of a tree, whose latency grows with the logarithm

The figures S/B and a are those of the network's own law, read off at two sizes, so that protocols and measured rates count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from .figures import Figures

KNEE = 0.05  # share of the step that is exposed


@dataclass(frozen=True)
class Onset:
    """Where the communication of one pass stops hiding.

    Attributes:
        window_s: compute that it may hide behind.
        n_star: GPUs; infinite where it never stops hiding.
    """

    name: str
    window_s: float
    n_star: float


def knee(sizes: Sequence[int], figures: Sequence[Figures | None], threshold: float = KNEE) -> int | None:
    """First of `sizes`, in their order, at which exposed data-parallel communication is more than a share of the step."""
    for n, own in zip(sizes, figures, strict=True):
        if own is not None and own.exposed_dp_s > threshold * own.mean_s:
            return n
    return None


def crossing(seconds_of: Callable[[int], float], window_s: float, largest: int = 1 << 20) -> float:
    """Smallest number of members, between doublings by its logarithm, at which a collective takes longer than its window."""
    before, n = 0.0, 1
    while n <= largest:
        now = seconds_of(n)
        if now > window_s:
            share = (window_s - before) / (now - before) if now > before else 1.0
            return float(n if n == 1 else 2.0 ** (np.log2(n) - 1.0 + share))
        before, n = now, 2 * n
    return float("inf")
