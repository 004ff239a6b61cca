"""How far a measured step may be from its prediction because of what the cost model does not know: factors, one per draw.

The corrections of every draw go through the outline of the step, not through its simulation: of their ratio, what the outline
leaves out cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import Any
from zlib import crc32

import numpy as np

from .._typing import Floats
from ..cost.correction import CostCorrection
from ..framework import Framework
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload
from .calibration import Calibration
from .key import CalibrationKey
from .measured_spread import table_factors
from .open_fields import OpenField
from .surrogate import StepSurrogate, stack, surrogate_of, surrogate_seconds


def model_factors(
    model: Workload,
    cluster: Cluster,
    plan: ParallelPlan,
    calibration: Calibration,
    framework: str | Framework,
    seed: int = 0,
    open_fields: Sequence[OpenField] = (),
) -> Floats:
    """[draw] factors between the median step that would be measured and the predicted one.

    Args:
        framework: training software, empty if it is not known.
        seed: of what members and sites never seen deviate by.
        open_fields: what the job leaves unsaid.

    Raises:
        SpecError: no constants for the device.
    """
    setting = CalibrationKey.of(cluster.device, framework, plan.software, model)
    one = stack([surrogate_of(model, cluster, plan, calibration.constants(setting.generation))])
    of_tables = table_factors(model, cluster, [plan], one, calibration, setting)[:, 0]
    return outline_factors(one, setting, model.has_experts, calibration, seed, open_fields) * of_tables


def outline_factors(
    one: StepSurrogate,
    setting: CalibrationKey,
    has_experts: bool,
    calibration: Calibration,
    seed: int = 0,
    open_fields: Sequence[OpenField] = (),
) -> Floats:
    """[draw] the same of a step whose outline is at hand: stacked, one row."""
    left = unsaid(open_fields, calibration.n_draw, seed)
    return row_factors(one, setting, [has_experts], calibration, seed)[:, 0] * np.exp(left)


def unsaid(open_fields: Sequence[OpenField], n_draw: int, seed: int) -> Floats:
    """[draw] log factors of what is left unsaid, to its mean."""
    return sum((each.drawn(n_draw, seed) for each in open_fields), np.zeros(n_draw))


def row_factors(
    rows: StepSurrogate,
    setting: CalibrationKey,
    has_experts: Sequence[bool],
    calibration: Calibration,
    seed: int = 0,
) -> Floats:
    """[draw, row] the same of stacked outlines; rows of one draw share its correction and its deviations."""
    own = np.stack([calibration.deviations(setting, has, seed) for has in has_experts], axis=-1)
    return corrected(rows, setting, calibration, seed) * np.exp(own)


def repeated_factors(
    rows: StepSurrogate,
    setting: CalibrationKey,
    has_experts: Sequence[bool],
    calibration: Calibration,
    seeds: Sequence[int],
    n_repeat: int,
    seed: int = 0,
    open_fields: Sequence[Sequence[OpenField]] = (),
) -> Floats:
    """[n_repeat * draw, row] the same of rows that have nothing in common: every row has a site and deviations of its own.

    Args:
        seeds: [row] of what is a row's own.
        n_repeat: times that every draw of the calibration is taken, with other deviations.
        seed: of what members never seen deviate by, which rows of one setting share.
        open_fields: [row] what each leaves unsaid; nothing if empty.
    """
    own = [calibration.deviations(setting, has, at, n_repeat) for has, at in zip(has_experts, seeds, strict=True)]
    left = [unsaid(given, len(own[0]), at) for given, at in zip(open_fields or ((),) * len(own), seeds, strict=True)]
    repeats = [corrected(rows, setting, calibration, n_repeat * seed + k) for k in range(n_repeat)]
    return np.concatenate(repeats) * np.exp(np.stack(own, axis=-1) + np.stack(left, axis=-1))


def corrected(
    rows: StepSurrogate, setting: CalibrationKey, calibration: Calibration, seed: int, device: str = ""
) -> Floats:
    """[draw, row] seconds under every draw of the correction, over those under the one that predictions use.

    A device that is only like a known one is off by a factor of its own on top, the same for all rows; `device` names it where
    there are several.
    """
    drawn = calibration.corrections(setting, seed)
    wide: dict[str, Any] = {
        item.name: np.asarray(getattr(drawn, item.name))[:, None] for item in fields(CostCorrection)
    }
    seconds = surrogate_seconds(rows, CostCorrection(**wide))
    return (
        likeness(setting, calibration, seed, device)[:, None]
        * seconds
        / surrogate_seconds(rows, calibration.correction(setting))
    )


def likeness(setting: CalibrationKey, calibration: Calibration, seed: int = 0, device: str = "") -> Floats:
    """[draw] factors by which a device that is only alike may differ; 1 where its own site was measured, or nothing is drawn."""
    if setting.likeness_sd == 0.0 or calibration.site is not None or calibration.n_draw == 1:
        return np.ones(calibration.n_draw)
    rng = np.random.default_rng([seed, 4, crc32(device.encode())])
    return np.exp(setting.likeness_sd * rng.normal(size=calibration.n_draw))
