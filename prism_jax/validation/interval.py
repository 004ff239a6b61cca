"""Intervals that hold 90 % of what would be measured, given all that the calibration of the cost model leaves open."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from zlib import crc32

import numpy as np

from .._core.content import content_hash
from .._typing import Floats
from ..calibration.band import repeated_factors
from ..calibration.surrogate import stack
from ..job import Job
from ..progress import Progress, silent
from .costed import CostedJob

N_REPEAT = 8  # draws of a calibration, with other deviations: bounds err by 3 % of the width of the interval
OUTSIDE = (0.05, 0.95)  # probabilities of the bounds
ROWS_AT_ONCE = 32
LINE = re.compile(r" line [0-9]{1,12}\Z")


def intervals(jobs: Sequence[CostedJob], seed: int = 0, progress: Progress = silent) -> Floats:
    """[job, 2] bounds over the prediction; jobs have deviations of their own by what they are, whatever their place."""
    groups: dict[object, list[int]] = defaultdict(list)
    for number, one in enumerate(jobs):
        groups[id(one.job.effective_calibration), one.setting].append(number)
    found, done = np.zeros((len(jobs), 2)), 0
    for members in groups.values():
        for first in range(0, len(members), ROWS_AT_ONCE):
            some = members[first : first + ROWS_AT_ONCE]
            found[some] = _bounds([jobs[i] for i in some], seed)
            done += len(some)
            progress(done / len(jobs))
    return found


def _bounds(jobs: Sequence[CostedJob], seed: int) -> Floats:
    """[job, 2] of jobs with one setting and one calibration."""
    factors = repeated_factors(
        stack([one.outline for one in jobs]),
        jobs[0].setting,
        [one.job.model.has_experts for one in jobs],
        jobs[0].job.effective_calibration,
        [crc32(_own_name(one.job).encode()) + N_REPEAT * seed for one in jobs],
        N_REPEAT,
        seed,
        [one.job.open_fields + one.doubts for one in jobs],
    )
    return np.quantile(factors, OUTSIDE, axis=0).T


def _own_name(job: Job) -> str:
    """The name of a job; of one that is called after its line in a table, what it consists of instead."""
    name, n_line = LINE.subn("", job.name)
    return f"{name} {content_hash(job.model, job.cluster, job.plan)}" if n_line else name
