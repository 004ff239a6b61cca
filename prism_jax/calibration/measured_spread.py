"""What measured tables leave open of a step: its outline under each of their posterior draws, over that under their mean."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from .._typing import Floats
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload
from .calibration import Calibration
from .key import CalibrationKey
from .surrogate import StepSurrogate, stack, surrogate_of, surrogate_seconds


def table_factors(
    model: Workload,
    cluster: Cluster,
    plans: Sequence[ParallelPlan],
    rows: StepSurrogate,
    calibration: Calibration,
    setting: CalibrationKey,
) -> Floats:
    """[draw, plan] factors of the seconds of plans; draws of tables are fewer than those of the calibration and repeat.

    Args:
        rows: outlines of the plans under the mean of the tables.

    Raises:
        SpecError: no constants for the device.
    """
    tables = calibration.measured
    if tables is None or not tables.draws:
        return np.ones((calibration.n_draw, len(plans)))
    correction = calibration.correction(setting)
    mean_s = surrogate_seconds(rows, correction)
    preset = calibration.constants(setting.generation)
    drawn = []
    for one in tables.draws:
        own, eff = one.on(cluster), one.constants_of(preset)
        drawn.append(surrogate_seconds(stack([surrogate_of(model, own, plan, eff) for plan in plans]), correction))
    return (np.stack(drawn) / mean_s)[np.arange(calibration.n_draw) % len(drawn)]
