"""How far a measured step may be from its prediction because of what the cost model does not know: factors, one per draw.

The corrections of every draw go through the outline of the step, not through its simulation: of their ratio, what the outline
leaves out cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from .._typing import Floats
from ..cost.correction import CostCorrection
from ..cost.efficiency import efficiency
from ..framework import Framework
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload
from .calibration import Calibration
from .key import CalibrationKey
from .surrogate import StepSurrogate, stack, surrogate_of, surrogate_seconds


def model_factors(
    model: Workload,
    cluster: Cluster,
    plan: ParallelPlan,
    calibration: Calibration,
    framework: str | Framework,
    seed: int = 0,
) -> Floats:
    """[draw] factors between the median step that would be measured and the predicted one.

    Args:
        framework: training software, empty if it is not known.
        seed: of what members and sites never seen deviate by.

    Raises:
        SpecError: no constants for the device.
    """
    one = stack([surrogate_of(model, cluster, plan, efficiency(cluster.device.generation))])
    return outline_factors(one, CalibrationKey.of(cluster.device, framework), model.has_experts, calibration, seed)


def outline_factors(
    one: StepSurrogate, setting: CalibrationKey, has_experts: bool, calibration: Calibration, seed: int = 0
) -> Floats:
    """[draw] the same of a step whose outline is at hand: stacked, one row."""
    return row_factors(one, setting, [has_experts], calibration, seed)[:, 0]


def row_factors(
    rows: StepSurrogate,
    setting: CalibrationKey,
    has_experts: Sequence[bool],
    calibration: Calibration,
    seed: int = 0,
) -> Floats:
    """[draw, row] the same of stacked outlines; rows of one draw share its correction and its deviations."""
    drawn = calibration.corrections(setting, seed)
    wide: dict[str, Any] = {
        item.name: np.asarray(getattr(drawn, item.name))[:, None] for item in fields(CostCorrection)
    }
    middle = surrogate_seconds(rows, calibration.correction(setting))
    own = np.stack([calibration.deviations(has, seed) for has in has_experts], axis=-1)
    return surrogate_seconds(rows, CostCorrection(**wide)) / middle * np.exp(own)
