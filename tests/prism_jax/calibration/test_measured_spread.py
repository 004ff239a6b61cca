"""Measured tables in a calibration: constants and knobs that they replace, and the band that their draws make."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.calibration.band import case_of, joint_factors, model_factors
from prism_jax.calibration.calibration import Calibration, Term, uncalibrated
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.surrogate import stack, surrogate_of, surrogate_seconds
from prism_jax.cost.efficiency import MeasuredCost, MeasuredTables, efficiency
from prism_jax.system.catalog import cluster
from prism_jax.workload.catalog import model
from tests.support.measured_rows import PLANS

PLAN = PLANS[0]
JOB = (model("llama-2-7b"), cluster("dgx-a100", PLAN.n_devices), PLAN)
KEY = CalibrationKey("ampere", "fsdp")
PRESET = efficiency("ampere")


def share(factor: float) -> MeasuredCost:
    return MeasuredCost({"gemm_max": factor * PRESET.gemm_max})


def measured(*factors: float, knobs: frozenset[str] = frozenset({"gemm"})) -> MeasuredTables:
    return MeasuredTables(share(1.0), tuple(share(factor) for factor in factors), knobs)


def test_only_the_hardware_part_of_a_measured_knob_goes():
    """all 0.1, generation 0.2, framework 0.4 (logarithms): what is left of gemm is all and framework."""
    terms = [("all", "all", 0.1), ("generation", "ampere", 0.2), ("framework", "fsdp", 0.4)]
    made = tuple(
        Term(knob, level, 0.3, (name,), np.array([[value]]))
        for knob in ("gemm", "memory")
        for level, name, value in terms
    )
    whole = replace(uncalibrated(), terms=made)
    found = replace(whole, measured=measured(1.0)).correction(KEY)
    assert np.log(found.gemm) == pytest.approx(0.5)
    assert np.log(found.memory) == pytest.approx(0.7)


def test_a_measured_generation_that_no_run_has_seen_leaves_nothing_open():
    unseen = Term("gemm", "generation", 0.3, ("hopper",), np.zeros((50, 1)))
    none = np.zeros(50)
    wide = replace(uncalibrated(), terms=(unseen,), site_sd=none, misfit=none, misfit_sd=none)
    assert np.ptp(wide.corrections(KEY).gemm) > 0.1
    assert np.ptp(replace(wide, measured=measured(1.0)).corrections(KEY).gemm) == 0.0


def test_tables_that_say_what_the_presets_say_change_nothing():
    same = replace(uncalibrated(), measured=measured(1.0, 1.0))
    assert same.efficiency(KEY) == uncalibrated().efficiency(KEY)
    assert model_factors(*JOB, same, "fsdp") == pytest.approx([1.0], rel=1e-12)


def four_draws(tables: MeasuredTables) -> Calibration:
    none = np.zeros(4)
    return replace(uncalibrated(), site_sd=none, misfit=none, misfit_sd=none, measured=tables)


def test_the_band_is_the_outline_under_every_draw_of_the_tables():
    factors = (0.8, 0.9, 1.1, 1.2)
    found = model_factors(*JOB, four_draws(measured(*factors)), "fsdp")
    correction = uncalibrated().correction(KEY)

    def seconds(factor: float) -> float:
        one = surrogate_of(*JOB, share(factor).constants_of(PRESET))
        return float(surrogate_seconds(stack([one]), correction)[0])

    assert found == pytest.approx([seconds(one) / seconds(1.0) for one in factors], rel=1e-12)
    assert found[0] > 1.0 > found[-1]


def test_plans_of_a_search_move_with_the_same_draws():
    tables = four_draws(measured(0.8, 0.9, 1.1, 1.2))
    found = joint_factors([case_of(*JOB, tables, "fsdp")] * 2, tables)
    assert found[:, 0] == pytest.approx(found[:, 1])
    assert found[:, 0] == pytest.approx(model_factors(*JOB, tables, "fsdp"), rel=1e-12)


def test_tables_of_two_kinds_go_together():
    overlap = MeasuredTables(MeasuredCost({"overlap_slowdown": 0.4}), (MeasuredCost({"overlap_slowdown": 0.5}),))
    both = overlap.over(measured(0.9))
    assert both.mean.constants == {"gemm_max": PRESET.gemm_max, "overlap_slowdown": 0.4}
    assert both.draws[0].constants == {"gemm_max": 0.9 * PRESET.gemm_max, "overlap_slowdown": 0.5}
    assert both.knobs == {"gemm"}
