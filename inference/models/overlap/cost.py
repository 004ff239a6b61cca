"""Seconds that compute loses per second of communication beside it, from an overlap fit: the cost model's `overlap_slowdown`.

    slowdown = sum_k d_k (f_k - 1) / sum_k r_k d_k f_k

over the measured kernels that ran beside communication: d seconds alone, f the fitted factor, r the share of the run with
communication beside it. Each kernel counts as often as it was measured, so a table of whole steps has the mix of a step.
"""

from __future__ import annotations

import jax
import numpy as np

from prism_jax.cost.measured import MeasuredCost, MeasuredTables
from prism_jax.errors import DataError
from prism_jax.system import catalog
from prism_jax.system.hardware import Device

from ...model import Draws
from .data import REFERENCE_S, OverlapData
from .predict import measured_factors


def measured_slowdown(
    data: OverlapData, draws: Draws, device: Device, n_draw: int, rng: np.random.Generator
) -> MeasuredTables:
    """The constant with draws.

    Raises:
        DataError: no kernel ran beside communication, or all did on another device.
    """
    unnamed = not data.gpus
    if not all(catalog.is_called(gpu, device) for gpu in data.gpus):
        raise DataError(
            f"kernels of {', '.join(data.gpus)}, but the job runs on {device.name}. Fit kernels that were measured on "
            f"{device.name} (`prism-jax fit overlap TABLE --where gpu=NAME`)."
        )
    beside = np.flatnonzero(data.overlap_ratio > 0.0)
    if not len(beside):
        raise DataError("no kernel of this fit ran beside communication (overlap_ratio is 0 everywhere).")
    factors = measured_factors(data, draws, beside, jax.random.key(int(rng.integers(2**31))))
    alone_s = REFERENCE_S * np.exp(data.log_duration[beside])
    lost_s = (alone_s * (factors - 1.0)).sum(axis=1)
    slowdown = np.maximum(lost_s / (data.overlap_ratio[beside] * alone_s * factors).sum(axis=1), 0.0)
    pick = np.linspace(0, len(slowdown) - 1, n_draw).round().astype(int)
    note = f"the table names no GPU: taken as measured on {device.name}"
    return MeasuredTables(
        MeasuredCost({"overlap_slowdown": float(slowdown.mean())}),
        tuple(MeasuredCost({"overlap_slowdown": float(one)}) for one in slowdown[pick]),
        covers=("slowdown of compute beside communication",),
        notes=(note,) if unnamed else (),
    )
