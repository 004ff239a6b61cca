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
from .residual_gp import SHARED, alike, sensitivities
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
    own = np.stack([calibration.deviations(has, seed) for has in has_experts], axis=-1)
    return _corrected(rows, setting, calibration, seed) * np.exp(own)


def plan_factors(
    model: Workload,
    cluster: Cluster,
    plans: Sequence[ParallelPlan],
    calibration: Calibration,
    framework: str | Framework,
    seed: int = 0,
) -> Floats:
    """[draw, plan] the same of plans of one job at one site: what they have in common cancels in their ratios.

    Of a draw they share the correction and the site. Their own deviations are as much alike as the parts that their steps
    are made of (`residual_gp.py`); those of equal plans are equal.

    Raises:
        SpecError: no constants for the device.
    """
    setting = CalibrationKey.of(cluster.device, framework)
    eff = efficiency(cluster.device.generation)
    rows = stack([surrogate_of(model, cluster, plan, eff) for plan in plans])
    parts = sensitivities(rows, calibration.correction(setting))
    equal = np.array([[plan == other for other in plans] for plan in plans])
    correlation = np.where(equal, 1.0, SHARED * alike(parts, parts))
    own = calibration.joint_deviations(correlation, model.has_experts, seed)
    return _corrected(rows, setting, calibration, seed) * np.exp(own)


def _corrected(rows: StepSurrogate, setting: CalibrationKey, calibration: Calibration, seed: int) -> Floats:
    """[draw, row] seconds under every draw of the correction, over those under the one that predictions use."""
    drawn = calibration.corrections(setting, seed)
    wide: dict[str, Any] = {
        item.name: np.asarray(getattr(drawn, item.name))[:, None] for item in fields(CostCorrection)
    }
    return surrogate_seconds(rows, CostCorrection(**wide)) / surrogate_seconds(rows, calibration.correction(setting))
