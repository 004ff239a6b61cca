"""Factors between measured steps and predictions because of what the cost model does not know, one per draw.

The corrections of every draw, and measured tables under each of their posterior draws, go through the outline of the step,
not through its simulation: of their ratio, what the outline leaves out cancels. Factors of several jobs are on the same
draws: most of what the cost model does not know is the same for all jobs of one user and cancels in their ratios. Of a draw,
jobs share

correction     members of a level that both belong to (generation, framework, kernel), seen or not; of others each has its own
site           a user's jobs run at one site
own            as much as the parts are alike that their steps are made of (`ResidualGP`); equal jobs share all of it
unsaid         a field that both leave open with the same odds has the same value
device         what a device that is only like a known one is off by, if both run on it

All of these but what is unsaid, which has a factor of its own, are as much wider as the evidence near a job is thin
(`evidence.WidthLaw`); between jobs of equal evidence they cancel as before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any
from zlib import crc32

import numpy as np

from ..core.arrays import Floats
from ..cost.efficiency import CostCorrection
from ..framework.base import Framework
from ..plan.plan import ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload
from .calibration import Calibration
from .key import CalibrationKey
from .open_fields import OpenField
from .surrogate import (
    SHARED,
    StepSurrogate,
    alike,
    network_share,
    sensitivities,
    stack,
    surrogate_of,
    surrogate_seconds,
)


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
    case = case_of(model, cluster, plan, calibration, framework, open_fields)
    own = outline_factors(stack([case.outline]), case.setting, model.has_experts, calibration, seed, open_fields)
    return own if case.tables is None else own * case.tables


def outline_factors(
    one: StepSurrogate,
    setting: CalibrationKey,
    has_experts: bool,
    calibration: Calibration,
    seed: int = 0,
    open_fields: Sequence[OpenField] = (),
) -> Floats:
    """[draw] factors between measured and predicted median step of an outline: stacked, one row."""
    left = unsaid(open_fields, calibration, calibration.n_draw, seed)
    return row_factors(one, setting, [has_experts], calibration, seed)[:, 0] * np.exp(left)


def evidence_of_rows(
    rows: StepSurrogate, setting: CalibrationKey, has_experts: Sequence[bool], calibration: Calibration
) -> list[tuple[dict[str, float] | None, float]]:
    """[row] what makes a job less sure than those that much is known of, and the factor of `widths`; None where no law says it.

    Args:
        rows: stacked outlines.
    """
    if calibration.width is None or calibration.site is not None:
        return [(None, 1.0)] * len(has_experts)
    share = _unmeasured_network(rows, setting, calibration)
    found = calibration.width.factors(setting, has_experts, share)
    found = np.maximum(found, 1.0) if setting.likeness_sd else found  # a device that is only alike is no known one
    if setting.workload:
        return [(None, factor) for factor in found.tolist()]
    own = zip(has_experts, share.tolist(), found.tolist(), strict=True)
    return [(calibration.width.reasons(setting, has, much), factor) for has, much, factor in own]


def why_wide(
    model: Workload, cluster: Cluster, plan: ParallelPlan, calibration: Calibration, framework: str | Framework
) -> dict[str, float] | None:
    """Reasons that make a job less sure than others, by how much each holds; None where no law gives them.

    Raises:
        SpecError: no constants for the device.
        PlanError: `layer_split` does not fit.
    """
    setting = CalibrationKey.of(cluster.device, framework, plan.software, model)
    one = stack([surrogate_of(model, cluster, plan, calibration.constants(setting.generation))])
    return evidence_of_rows(one, setting, [model.has_experts], calibration)[0][0]


def unsaid(open_fields: Sequence[OpenField], calibration: Calibration, n_draw: int, seed: int) -> Floats:
    """[draw] log factors of what is left unsaid, to its mean."""
    drawn = sum((each.drawn(n_draw, seed) for each in open_fields), np.zeros(n_draw))
    return unsaid_factor(calibration) * drawn


def unsaid_factor(calibration: Calibration) -> float:
    """Factor by which unstated fields prove wider than their odds."""
    return 1.0 if calibration.width is None or calibration.site is not None else calibration.width.unsaid


def row_factors(
    rows: StepSurrogate,
    setting: CalibrationKey,
    has_experts: Sequence[bool],
    calibration: Calibration,
    seed: int = 0,
) -> Floats:
    """[draw, row] the same of stacked outlines; rows of one draw share its correction and its deviations."""
    own = np.stack([calibration.deviations(setting, has, seed) for has in has_experts], axis=-1)
    return (corrected(rows, setting, calibration, [seed]) * np.exp(own)) ** widths(
        rows, setting, has_experts, calibration
    )


def widths(
    rows: StepSurrogate, setting: CalibrationKey, has_experts: Sequence[bool], calibration: Calibration
) -> Floats:
    """[row] factors of the logarithmic width of what the calibration leaves open, by the evidence near each."""
    return np.array([factor for _, factor in evidence_of_rows(rows, setting, has_experts, calibration)])


def _unmeasured_network(rows: StepSurrogate, setting: CalibrationKey, calibration: Calibration) -> Floats:
    """[row] share of the step that hangs on a network between nodes that was not measured."""
    is_measured = calibration.measured is not None and "network" in calibration.measured.knobs
    return network_share(rows, calibration.correction(setting)) * (not is_measured)


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
    every = zip(open_fields or ((),) * len(own), seeds, strict=True)
    left = [unsaid(given, calibration, len(own[0]), at) for given, at in every]
    repeats = corrected(rows, setting, calibration, range(n_repeat * seed, n_repeat * (seed + 1)))
    known = repeats * np.exp(np.stack(own, axis=-1))
    return known ** widths(rows, setting, has_experts, calibration) * np.exp(np.stack(left, axis=-1))


def corrected(
    rows: StepSurrogate, setting: CalibrationKey, calibration: Calibration, seeds: Sequence[int], device: str = ""
) -> Floats:
    """[seed x draw, row] seconds under every draw of the correction, over those under the one that predictions use.

    A device that is only like a known one is off by a factor of its own on top, the same for all rows; `device` names it where
    there are several.
    """
    drawn = [calibration.corrections(setting, seed) for seed in seeds]
    wide: dict[str, Any] = {
        item.name: np.concatenate([getattr(one, item.name) for one in drawn])[:, None]
        for item in fields(CostCorrection)
    }
    like = np.concatenate([likeness(setting, calibration, seed, device) for seed in seeds])
    seconds = surrogate_seconds(rows, CostCorrection(**wide))
    return like[:, None] * seconds / surrogate_seconds(rows, calibration.correction(setting))


def likeness(setting: CalibrationKey, calibration: Calibration, seed: int = 0, device: str = "") -> Floats:
    """[draw] factors by which a device that is only alike may differ; 1 where its own site was measured, or nothing is drawn."""
    if setting.likeness_sd == 0.0 or calibration.site is not None or calibration.n_draw == 1:
        return np.ones(calibration.n_draw)
    rng = np.random.default_rng([seed, 4, crc32(device.encode())])
    return np.exp(setting.likeness_sd * rng.normal(size=calibration.n_draw))


@dataclass(frozen=True)
class CalibrationCase:
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
) -> CalibrationCase:
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
    return CalibrationCase((model, cluster, plan), one, setting, tuple(open_fields), tables)


def joint_factors(
    cases: Sequence[CalibrationCase], calibration: Calibration, seed: int = 0, n_repeat: int = 1
) -> Floats:
    """[n_repeat * draw, case] factors between the median steps that would be measured and the predicted ones.

    Args:
        seed: of members and sites never seen, and of deviations.
        n_repeat: times that every draw of the calibration is taken, with other ones of these.

    Notes:
        Of one case alone the law of its factor is that of `band.model_factors`.
    """
    alike_in = _correlation(cases, calibration)
    has_experts = [case.of[0].has_experts for case in cases]
    wide = _widths(cases, calibration)
    fixed = np.stack([np.ones(calibration.n_draw) if case.tables is None else case.tables for case in cases], axis=-1)
    drawn = []
    for at in range(n_repeat * seed, n_repeat * (seed + 1)):
        own = calibration.joint_deviations([case.setting for case in cases], alike_in, has_experts, at)
        left = np.stack([unsaid(case.open_fields, calibration, calibration.n_draw, at) for case in cases], axis=-1)
        drawn.append((_of_corrections(cases, calibration, at) * np.exp(own)) ** wide * np.exp(left) * fixed)
    return np.concatenate(drawn)


def _widths(cases: Sequence[CalibrationCase], calibration: Calibration) -> Floats:
    """[case] see `widths`."""
    found = np.ones(len(cases))
    for members in _settings(cases):
        rows = stack([cases[k].outline for k in members])
        found[members] = widths(
            rows, cases[members[0]].setting, [cases[k].of[0].has_experts for k in members], calibration
        )
    return found


def _of_corrections(cases: Sequence[CalibrationCase], calibration: Calibration, seed: int) -> Floats:
    """[draw, case] seconds under every draw of the corrections over those under the one that predictions use."""
    found = np.zeros((calibration.n_draw, len(cases)))
    for members in _settings(cases):
        first = cases[members[0]]
        rows = stack([cases[k].outline for k in members])
        found[:, members] = corrected(rows, first.setting, calibration, [seed], first.of[1].device.name)
    return found


def _correlation(cases: Sequence[CalibrationCase], calibration: Calibration) -> Floats:
    """[case, case] of what jobs deviate by on their own."""
    parts = np.concatenate([
        sensitivities(stack([cases[k].outline for k in members]), calibration.correction(cases[members[0]].setting))
        for members in _settings(cases)
    ])  # fmt: skip
    parts = parts[np.argsort(np.concatenate(_settings(cases)))]
    equal = np.array([[case.of == other.of and case.setting == other.setting for other in cases] for case in cases])
    return np.where(equal, 1.0, SHARED * alike(parts, parts))


def _settings(cases: Sequence[CalibrationCase]) -> list[list[int]]:
    """Positions of the cases of each setting and device."""
    found: dict[tuple[CalibrationKey, str], list[int]] = {}
    for number, case in enumerate(cases):
        found.setdefault((case.setting, case.of[1].device.name), []).append(number)
    return list(found.values())
