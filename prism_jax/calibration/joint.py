"""Factors between the steps that would be measured and those that are predicted, of several jobs on the same draws.

Most of what the cost model does not know is the same for all jobs of one user and cancels in their ratios. Of a draw, jobs share

correction     members of a level that both belong to (generation, framework, kernel), seen or not; of others each has its own
site           a user's jobs run at one site
own            as much as the parts are alike that their steps are made of (`residual_gp.py`); equal jobs share all of it
unsaid         a field that both leave open with the same odds has the same value
device         what a device that is only like a known one is off by, if both run on it
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._typing import Floats
from ..framework import Framework
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base import Workload
from .band import corrected, unsaid
from .calibration import Calibration
from .key import CalibrationKey
from .measured_spread import table_factors
from .open_fields import OpenField
from .residual_gp import SHARED, alike, sensitivities
from .surrogate import StepSurrogate, stack, surrogate_of


@dataclass(frozen=True)
class Case:
    """One of several jobs.

    Attributes:
        of: model, cluster and plan; cases of equal ones deviate alike.
        outline: of its step.
        setting: what its corrections depend on.
        open_fields: what it leaves unsaid.
        tables: [draw] factors of measured tables; None: nothing was measured.
    """

    of: tuple[Workload, Cluster, ParallelPlan]
    outline: StepSurrogate
    setting: CalibrationKey
    open_fields: tuple[OpenField, ...] = ()
    tables: Floats | None = None


def case_of(
    model: Workload,
    cluster: Cluster,
    plan: ParallelPlan,
    calibration: Calibration,
    framework: str | Framework,
    open_fields: Sequence[OpenField] = (),
) -> Case:
    """The case of one job.

    Raises:
        SpecError: no constants for the device.
        PlanError: `layer_split` does not fit.
    """
    setting = CalibrationKey.of(cluster.device, framework, plan.software, model)
    one = surrogate_of(model, cluster, plan, calibration.constants(setting.generation))
    tables = None
    if calibration.measured is not None:
        tables = table_factors(model, cluster, [plan], stack([one]), calibration, setting)[:, 0]
    return Case((model, cluster, plan), one, setting, tuple(open_fields), tables)


def joint_factors(cases: Sequence[Case], calibration: Calibration, seed: int = 0, n_repeat: int = 1) -> Floats:
    """[n_repeat * draw, case] factors between the median steps that would be measured and the predicted ones.

    Args:
        seed: of members and sites never seen, and of deviations.
        n_repeat: times that every draw of the calibration is taken, with other ones of these.

    Notes:
        Of one case alone the law of its factor is that of `band.model_factors`.
    """
    alike_in = _correlation(cases, calibration)
    has_experts = [case.of[0].has_experts for case in cases]
    fixed = np.stack([np.ones(calibration.n_draw) if case.tables is None else case.tables for case in cases], axis=-1)
    drawn = []
    for at in range(n_repeat * seed, n_repeat * (seed + 1)):
        own = calibration.joint_deviations([case.setting for case in cases], alike_in, has_experts, at)
        left = np.stack([unsaid(case.open_fields, calibration.n_draw, at) for case in cases], axis=-1)
        drawn.append(_of_corrections(cases, calibration, at) * np.exp(own + left) * fixed)
    return np.concatenate(drawn)


def _of_corrections(cases: Sequence[Case], calibration: Calibration, seed: int) -> Floats:
    """[draw, case] seconds under every draw of the corrections over those under the one that predictions use."""
    found = np.zeros((calibration.n_draw, len(cases)))
    for members in _settings(cases):
        first = cases[members[0]]
        rows = stack([cases[k].outline for k in members])
        found[:, members] = corrected(rows, first.setting, calibration, seed, first.of[1].device.name)
    return found


def _correlation(cases: Sequence[Case], calibration: Calibration) -> Floats:
    """[case, case] of what jobs deviate by on their own."""
    parts = np.concatenate([
        sensitivities(stack([cases[k].outline for k in members]), calibration.correction(cases[members[0]].setting))
        for members in _settings(cases)
    ])  # fmt: skip
    parts = parts[np.argsort(np.concatenate(_settings(cases)))]
    equal = np.array([[case.of == other.of and case.setting == other.setting for other in cases] for case in cases])
    return np.where(equal, 1.0, SHARED * alike(parts, parts))


def _settings(cases: Sequence[Case]) -> list[list[int]]:
    """Positions of the cases of each setting and device."""
    found: dict[tuple[CalibrationKey, str], list[int]] = {}
    for number, case in enumerate(cases):
        found.setdefault((case.setting, case.of[1].device.name), []).append(number)
    return list(found.values())
