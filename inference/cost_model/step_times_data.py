"""Measured steps as the calibration wants them: outlines of the jobs, and which member of every level a row belongs to."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from prism_jax.calibration.calibration import KNOBS
from prism_jax.calibration.key import LEVELS, CalibrationKey, Level
from prism_jax.calibration.open_fields import OpenField
from prism_jax.calibration.surrogate import StepSurrogate

from .step_times_terms import CENTRE, MAX_ROWS, SHIFT

Index = NDArray[np.int64]


@dataclass(frozen=True)
class StepTimesData(StepSurrogate):
    """Stacked outlines [row], and per row:

    Attributes:
        log_measured: logarithm of the measured seconds.
        straggler: logarithm of the median step over the noise-free one, under the device's usual variability.
        weight: how many independent rows it counts for, at most one.
        open_mean, open_sd: of the logarithm of the step over the one that the row's assumptions give; see `open_fields`.
        has_experts: 1 where the model has experts.
        centre: [row, knob] of `KNOBS`, on the link's scale: what deviations are counted from.
        all, generation, device, style, generation_style, framework, attention, norm, compile, graphs, tuning, workload, site:
            [row] index into `names` of that level; one past the last name where the row has none.
        names: level -> names of its members.
    """

    log_measured: NDArray[np.float64]
    straggler: NDArray[np.float64]
    weight: NDArray[np.float64]
    open_mean: NDArray[np.float64]
    open_sd: NDArray[np.float64]
    has_experts: NDArray[np.float64]
    centre: NDArray[np.float64]
    all: Index
    generation: Index
    device: Index
    style: Index
    generation_style: Index
    framework: Index
    attention: Index
    norm: Index
    compile: Index
    graphs: Index
    tuning: Index
    workload: Index
    site: Index
    names: Mapping[str, tuple[str, ...]]


def field_of(level: str) -> str:
    """Field of `StepTimesData` that holds the members of a level, or of the sites."""
    return level.name.lower() if isinstance(level, Level) else level


def step_times_data(
    stacked: StepSurrogate,
    measured_s: ArrayLike,
    straggler: ArrayLike,
    has_experts: Sequence[bool],
    settings: Sequence[CalibrationKey],
    sites: Sequence[str],
    open_fields: Sequence[tuple[OpenField, ...]] = (),
) -> StepTimesData:
    """Rows side by side; all sequences have one entry per row; without `open_fields` everything is stated."""
    own = [setting.members() for setting in settings]
    labels = {level: [one[level] for one in own] for level in LEVELS} | {"site": list(sites)}
    names = {
        level: tuple(sorted({label for label in found if label} | known_of(level))) for level, found in labels.items()
    }
    index = {
        level: np.array([names[level].index(x) if x else len(names[level]) for x in found], dtype=np.int64)
        for level, found in labels.items()
    }
    count = np.bincount(index["site"], minlength=len(names["site"]))[index["site"]]
    arrays: dict[str, Any] = {item.name: getattr(stacked, item.name) for item in fields(StepSurrogate)}
    arrays |= {field_of(level): value for level, value in index.items()}
    return StepTimesData(
        **arrays,
        log_measured=np.log(np.asarray(measured_s, dtype=float)),
        straggler=np.asarray(straggler, dtype=float),
        weight=np.minimum(1.0, MAX_ROWS / count),
        open_mean=np.array([sum(one.mean for one in own) for own in open_fields or ((),) * len(settings)]),
        open_sd=np.array([math.hypot(*(one.sd for one in own)) for own in open_fields or ((),) * len(settings)]),
        has_experts=np.asarray(has_experts, dtype=float),
        centre=np.tile([CENTRE[knob] for knob in KNOBS], (len(settings), 1)).astype(float),
        names=names,
    )


def known_of(level: str) -> set[str]:
    """Members of a level that something is known of before any run; they stay members where no row has them."""
    return {member for _, own, member in SHIFT if own == level}
