"""What the overlap model reads: rows of kernels timed alone and beside communication, and their standardised features.

A feature is log(seconds alone) or a hardware counter in percent of its peak. Features are centred and scaled by the rows of the
fit, blanks become the centre, and values outside +-3 standard deviations count as 3: the linear form is not carried further.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from prism_jax.errors import DataError

from ...data.columns import Column

COUNTERS = (
    Column("compute_throughput_percent", ("Compute throughput", "compute_throughput", "sm_throughput")),
    Column("memory_throughput_percent", ("Memory throughput", "memory_throughput")),
    Column("dram_throughput_percent", ("DRAM throughput", "dram_throughput")),
    Column("achieved_occupancy_percent", ("Achieved occupancy", "achieved_occupancy", "occupancy")),
    Column("l1_hit_rate_percent", ("L1 hit rate", "l1_hit_rate")),
    Column("l2_hit_rate_percent", ("L2 hit rate", "l2_hit_rate")),
)
COLUMNS = (
    # The coarser of the names a profiler gives: templates of one kernel behave alike and must be left out together.
    Column("kernel", ("kShortName", "Kernel Name", "kernel_name"), required=True, text=True, may_be_blank=False),
    # Echo-slowdown's names (nanoseconds): its "ground_truth" is the time alone, its "duration" the time under overlap.
    Column(
        "duration_s",
        ("ground_truth", "alone", "duration_alone", "duration_s"),
        required=True,
        positive=True,
        may_be_blank=False,
    ),
    Column(
        "overlapped_s",
        ("overlapped", "duration_overlapped", "duration"),
        required=True,
        positive=True,
        may_be_blank=False,
    ),
    Column("overlap_ratio", ("overlap",), required=True, may_be_blank=False),
    Column("gpu", ("gpu_name", "gpu_model"), text=True),
    *COUNTERS,
)
FEATURES = ("log_duration", *(column.name for column in COUNTERS))
REACH = 3.0  # standard deviations: 1.5 times what a uniform feature spans
REFERENCE_S = 50e-6  # a typical kernel of a transformer layer; only centres the noise's dependence on duration


@dataclass(frozen=True)
class OverlapData:
    """Rows of the likelihood, and what the internal leave-one-kernel-out found.

    Attributes:
        kernels: names, in the order of `kernel`.
        kernel: index into `kernels`, [row].
        log_factor: log(seconds under overlap / seconds alone), [row].
        overlap_ratio: share of the kernel's run during which communication ran, 0-1, [row].
        log_duration: log(seconds alone / 50 us), [row].
        features: standardised, [row, feature].
        centre, spread: what standardised them, [feature].
        used: whether a row enters the likelihood, [row].
        n_judged: kernels that took part in the decision.
        mape_model, mape_none: mean |predicted / measured - 1| of kernels left out, with the model and without slowdown.
        gain, gain_error: their difference and its standard error over kernels.
        beats: whether the model is used for kernels that were not measured.
        gpus: that the kernels were measured on, as far as the table names them.
    """

    AXES: ClassVar[Mapping[str, str]] = {
        "kernel": "kernels",
        "row": "log_factor overlap_ratio log_duration used",
        "row -> kernel": "kernel",
        f"row {len(FEATURES)}": "features",
        f"{len(FEATURES)}": "centre spread",
    }

    kernels: tuple[str, ...]
    kernel: np.ndarray
    log_factor: np.ndarray
    overlap_ratio: np.ndarray
    log_duration: np.ndarray
    features: np.ndarray
    centre: np.ndarray
    spread: np.ndarray
    used: np.ndarray
    n_judged: int = 0
    mape_model: float = np.nan
    mape_none: float = np.nan
    gain: float = np.nan
    gain_error: float = np.nan
    beats: bool = False
    gpus: tuple[str, ...] = ()


def from_frame(frame: pd.DataFrame) -> OverlapData:
    """Rows of a checked table; nothing decided yet.

    Raises:
        DataError: an overlap ratio outside 0-1, or fewer than two kernels.
    """
    ratio = frame["overlap_ratio"].to_numpy(dtype=np.float64)
    if np.any((ratio < 0.0) | (ratio > 1.0)):
        worst = float(ratio[np.argmax(np.abs(ratio - 0.5))])
        raise DataError(
            f"column overlap_ratio: {worst:g} is not within 0-1. It is the share of the kernel that ran beside it."
        )
    names, kernel = np.unique(frame["kernel"].astype(str).to_numpy(), return_inverse=True)
    if len(names) < 2:
        raise DataError(
            f"column kernel: {len(names)} kernel. The overlap model compares kernels; give it at least two."
        )
    alone = frame["duration_s"].to_numpy(dtype=np.float64)
    log_duration = np.log(alone / REFERENCE_S)
    raw = raw_features(log_duration, {c.name: frame[c.name].to_numpy() for c in COUNTERS if c.name in frame})
    centre, spread = _moments(raw)
    return OverlapData(
        kernels=tuple(str(name) for name in names),
        kernel=kernel.astype(np.int64),
        log_factor=np.log(frame["overlapped_s"].to_numpy(dtype=np.float64) / alone),
        overlap_ratio=ratio,
        log_duration=log_duration,
        features=standardised(raw, centre, spread),
        centre=centre,
        spread=spread,
        used=np.ones(len(frame), dtype=bool),
        gpus=_gpus(frame),
    )


def _gpus(frame: pd.DataFrame) -> tuple[str, ...]:
    named = frame["gpu"].dropna().astype(str).unique() if "gpu" in frame else []
    return tuple(sorted(str(name) for name in named if str(name).strip()))


def raw_features(log_duration: np.ndarray, counters: Mapping[str, ArrayLike]) -> np.ndarray:
    """Unscaled features [row, feature]; counters that are not there are NaN."""
    blank = np.full(len(log_duration), np.nan)
    columns = [
        np.broadcast_to(np.asarray(counters.get(c.name, blank), dtype=np.float64), blank.shape) for c in COUNTERS
    ]
    return np.stack([log_duration, *columns], axis=1)


def standardised(raw: np.ndarray, centre: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Features in standard deviations from the centre, within +-3; blanks at the centre."""
    return np.clip(np.nan_to_num((raw - centre) / spread, nan=0.0), -REACH, REACH)


def _moments(raw: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard deviation of the values that are there; (0, 1) for a column without any, spread 1 without spread."""
    there = np.isfinite(raw)
    n = np.maximum(there.sum(axis=0), 1)
    centre = np.where(there, raw, 0.0).sum(axis=0) / n
    spread = np.sqrt(np.where(there, (raw - centre) ** 2, 0.0).sum(axis=0) / n)
    return centre, np.where(spread > 1e-9, spread, 1.0)
