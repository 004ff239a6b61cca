"""Sums the seconds of the kernels of one rank by class."""

from __future__ import annotations

import numpy as np

from ..trace.trace import BusyClass
from .annotated import placed
from .events import RankProfile, Spans, What, codes_of
from .names import CLASSES, kernel_class
from .ops import steps_of

US = 1e-6


def busy_by_class(profile: RankProfile, rank: int) -> tuple[BusyClass, ...]:
    """Time of kernels by class, of the whole recording and in its steps; communication by its kind.

    Collectives that were written down without their kernels (flight recorder) count as such; operations of a host do not.
    """
    kinds = [found.kind for found in profile.communications]
    named = sorted({*kinds, *CLASSES})
    place = {name: index for index, name in enumerate(named)}
    works = codes_of(profile.works, lambda work: place[kernel_class(work.name)])
    communication = np.array([place[kind] for kind in kinds], dtype=np.int64)
    sums = np.zeros((3, len(named)))
    steps = steps_of(profile)
    is_recorder = profile.header.by_time and len(profile.spans[What.KERNEL]) == 0
    for what, classes in (
        (What.KERNEL, works),
        (What.GPU_COMMUNICATION, communication),
        *(((What.COMMUNICATION, communication),) if is_recorder else ()),
    ):
        spans = profile.spans[what]
        inside = placed(profile, spans, steps).spans if what != What.COMMUNICATION else spans
        for row, kept, weights in ((0, spans, None), (1, spans, spans.duration_us), (2, inside, inside.duration_us)):
            sums[row] += _summed(kept, classes, weights, len(named))
    return tuple(
        BusyClass(rank, name, int(sums[0, at]), float(sums[1, at]) * US, float(sums[2, at]) * US)
        for at, name in enumerate(named)
        if sums[0, at]
    )


def _summed(spans: Spans, classes: np.ndarray, weights: np.ndarray | None, n: int) -> np.ndarray:
    """Sum of the weights by class; number of spans where there are none."""
    return np.bincount(classes[spans.code] if len(spans) else np.zeros(0, np.int64), weights=weights, minlength=n)
