"""The shipped calibration: its law, its evidence, and spread that was measured."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from prism_jax.calibration.band import case_of, joint_factors, model_factors
from prism_jax.calibration.calibration import KNOBS, MISFIT, Calibration, Term, calibration_from, shipped, uncalibrated
from prism_jax.calibration.evidence import Cell, CellScore, cell_of, evidence, shipped_cells
from prism_jax.calibration.key import BEYOND, NEWEST, SINCE, STEP, UNDATED_SD, CalibrationKey, Level
from prism_jax.calibration.surrogate import stack, surrogate_of, surrogate_seconds
from prism_jax.core.errors import DataError
from prism_jax.cost.efficiency import NEUTRAL, CostCorrection, MeasuredCost, MeasuredTables, efficiency
from prism_jax.framework.frameworks import FRAMEWORKS, style_of
from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.catalog import cluster, default_cluster
from prism_jax.workload import catalog as workload_catalog
from prism_jax.workload.catalog import model
from tests.support.measured_rows import PLANS

N = 400
HOPPER = CalibrationKey("hopper")
rng = np.random.default_rng(0)


def made(**changes: object) -> Calibration:
    """Products 10% longer on Hopper, one framework 20% shorter on top; a host that nobody knows."""
    terms = (
        Term("gemm", "generation", 0.05, ("hopper",), np.full((N, 1), np.log(1.1))),
        Term("gemm", "framework", 0.05, ("fsdp", "nanotron"), np.log([[0.8, 1.0]]) + np.zeros((N, 1))),
        Term("host", "style", 0.3, ("fused",), 0.1 * rng.normal(size=(N, 1))),
    )
    base = uncalibrated()
    zero = np.zeros(N)
    kept: dict[str, Any] = {"terms": terms, "site_sd": zero + 0.1, "misfit": zero + 0.05, "misfit_sd": zero, **changes}
    return replace(base, **kept)


def test_deviations_of_all_levels_add_up() -> None:
    assert made().correction(CalibrationKey("hopper", "nanotron")).gemm == pytest.approx(1.1)
    assert made().correction(CalibrationKey("hopper", "fsdp")).gemm == pytest.approx(1.1 * 0.8)
    assert made().correction(CalibrationKey("ampere", "nanotron")).gemm == pytest.approx(1.0)


def slope(per_year: float = -0.1) -> Calibration:
    return made(terms=(Term(STEP, Level.DATE, 0.03, ("dense",), np.full((N, 1), per_year)),))


def dated(date: str, framework: str = "fsdp") -> CalibrationKey:
    return CalibrationKey("hopper", framework, software=Software(date=date))


def test_a_year_of_software_is_a_factor_of_every_second() -> None:
    """Of the step as a whole: exp(-0.1 x 1 year) of whatever it is made of."""
    plan = ParallelPlan(1, 64, 4096, tp=8, dp=4)
    outline = stack([surrogate_of(model("llama-2-7b"), cluster("dgx-h100", 32), plan, efficiency("hopper"))])
    seconds = [surrogate_seconds(outline, slope().correction(dated(date)))[0] for date in ("2025-03", "2026-03")]
    assert seconds[1] / seconds[0] == pytest.approx(np.exp(-0.1))


def test_dates_beyond_the_evidence_change_nothing() -> None:
    """Older than pairs of releases, and newer than a year after the newest of them."""
    factor = {date: slope().correction(dated(date)).gemm for date in ("2018", "2022-05", "2027-07", "2031")}
    assert factor["2018"] == factor["2022-05"] == pytest.approx(1.0)
    assert factor["2031"] == pytest.approx(np.exp(-0.1 * (NEWEST + BEYOND - SINCE)))
    assert factor["2027-07"] == pytest.approx(factor["2031"], rel=0.01)


def test_software_without_a_date_is_as_new_as_the_evidence_and_wider() -> None:
    current = slope().correction(dated(""))
    assert current.gemm == pytest.approx(np.exp(-0.1 * (NEWEST - SINCE)))
    assert slope().correction(dated("", "megatron-2021")).gemm == pytest.approx(1.0)  # its name dates it
    drawn = np.log(np.asarray(slope().corrections(dated("")).gemm))
    assert drawn.std() == pytest.approx(0.1 * UNDATED_SD, rel=0.2)
    assert np.asarray(slope().corrections(dated("2026")).gemm).std() == pytest.approx(0.0, abs=1e-12)


def test_a_framework_that_is_not_stated_is_one_of_those_measured() -> None:
    """The geometric mean of both; in the draws one or the other, as often (400 draws: 4 standard errors)."""
    setting = CalibrationKey("hopper", "")
    assert made().correction(setting).gemm == pytest.approx(1.1 * 0.8**0.5)
    drawn = np.asarray(made().corrections(setting).gemm)
    assert {*drawn.round(6)} == {1.1, 0.88}
    assert (drawn < 1.0).mean() == pytest.approx(0.5, abs=0.1)


@pytest.mark.parametrize("cluster", ["dgx-a100", "dgx-h100", "b200", "dgx-v100"])
def test_a_framework_that_is_not_stated_does_not_beat_all(cluster: str) -> None:
    """By the outline of the step of three plans, under the shipped calibration."""
    own, spec = catalog.cluster(cluster, 32), model("llama-2-7b")
    for plan in (
        ParallelPlan(1, 64, 2048, dp=32, dtype="fp16"),
        ParallelPlan(1, 64, 2048, dp=32, dtype="fp16", sharding="fsdp", recompute="full"),
        ParallelPlan(1, 64, 2048, tp=4, pp=2, dp=4, dtype="fp16"),
    ):
        rows = surrogate_of(spec, own, plan, efficiency(own.device.generation))
        keys = {name: CalibrationKey.of(own.device, name) for name in ("", *FRAMEWORKS.names)}
        seconds = {name: float(surrogate_seconds(rows, shipped().correction(key))) for name, key in keys.items()}
        assert min(seconds, key=lambda name: seconds[name]) != ""
        assert max(seconds, key=lambda name: seconds[name]) != ""


def test_a_device_may_deviate_where_a_generation_is_a_line_of_chips() -> None:
    """Of TPUs; two devices of Hopper differ by their figures alone, but how far a device may be off is in the draws of both."""
    term = Term("gemm", "device", 0.05, ("h200", "tpu-v5p"), np.full((N, 2), np.log(0.9)))
    own = made(terms=(*made().terms, term))
    assert own.correction(CalibrationKey.of(catalog.device("tpu-v5p"), "nanotron")).gemm == pytest.approx(0.9)
    assert own.correction(CalibrationKey.of(catalog.device("tpu-v6e"), "nanotron")).gemm == pytest.approx(1.0)
    assert own.correction(CalibrationKey.of(catalog.device("h200"), "nanotron")).gemm == pytest.approx(1.1)
    for name in ("h100", "h200", "tpu-v6e"):
        assert np.log(own.corrections(CalibrationKey.of(catalog.device(name), "fsdp")).gemm).std() > 0.03


def test_what_was_never_measured_is_as_wide_as_assumed() -> None:
    unseen = made().corrections(CalibrationKey("hopper", "fsdp")).host  # eager: no member of that style
    seen = made().corrections(CalibrationKey("hopper", "megatron-core")).host
    assert np.log(unseen).std() == pytest.approx(0.3, rel=0.15)  # 400 draws: 4 standard errors
    assert np.log(seen).std() == pytest.approx(0.1, rel=0.15)


def test_same_seed_same_draws() -> None:
    one, two = (made().corrections(CalibrationKey("ampere", ""), seed=3) for _ in range(2))
    assert all(np.array_equal(getattr(one, knob), getattr(two, knob)) for knob in KNOBS)
    assert not np.array_equal(one.gemm, made().corrections(CalibrationKey("ampere", ""), seed=4).gemm)


def test_deviations_of_sites_and_configurations() -> None:
    free = made().deviations(HOPPER, has_experts=False)
    # two Student-t of four degrees, whose variance is 2; by the quartiles, since tails that heavy have no stable variance
    reference = 0.1 * rng.standard_t(4.0, 400_000) + 0.05 * rng.standard_t(4.0, 400_000)
    assert np.ptp(np.quantile(free, [0.25, 0.75])) == pytest.approx(
        np.ptp(np.quantile(reference, [0.25, 0.75])), rel=0.3
    )
    known = made(site=np.full(N, 0.3)).deviations(HOPPER, has_experts=False)
    assert np.median(known) == pytest.approx(0.3, abs=0.02)


def test_configurations_of_one_kind_of_model_may_deviate_more() -> None:
    wider = Term(MISFIT, Level.WORKLOAD, 0.5, ("dlrm",), np.full((N, 1), np.log(3.0)))
    known = made(terms=(wider,), site=np.zeros(N))
    plain, dlrm, other = (
        known.deviations(HOPPER._replace(workload=kind), has_experts=False) for kind in ("", "dlrm", "cnn")
    )
    assert np.allclose(dlrm, 3.0 * plain)
    joint, alone = (
        known.joint_deviations([HOPPER._replace(workload=kind)], np.eye(1), [False]) for kind in ("dlrm", "")
    )
    assert np.allclose(joint, 3.0 * alone)
    assert not np.allclose(other, plain)  # nobody has measured it: a fresh draw of how wide
    assert np.median(np.log(other / plain)) == pytest.approx(0.0, abs=0.1)
    assert known.correction(HOPPER._replace(workload="dlrm")) == known.correction(HOPPER)


def test_neutral_where_nothing_was_calibrated() -> None:
    found = uncalibrated().correction(CalibrationKey("hopper", ""))
    for knob in KNOBS:
        assert getattr(found, knob) == pytest.approx(getattr(NEUTRAL, knob), abs=1e-11)


def test_round_trip() -> None:
    again = calibration_from(made().as_dict()).correction(CalibrationKey("hopper", "fsdp"))
    for knob in KNOBS:
        assert getattr(again, knob) == pytest.approx(
            getattr(made().correction(CalibrationKey("hopper", "fsdp")), knob), rel=1e-4, abs=1e-11
        )


@pytest.mark.parametrize("damage", [{"format": 99}, {"terms": None}, {"site_sd": "wide"}, {"centre": {}}])
def test_damaged_calibrations_are_refused(damage: dict[str, object]) -> None:
    with pytest.raises(DataError):
        calibration_from(made().as_dict() | damage)


def test_shipped_calibration_covers_every_knob_and_stays_near_the_kernels() -> None:
    """Kernels were measured: whole steps may not say that products take half or twice as long."""
    for generation in ("ampere", "hopper", "blackwell"):
        for framework in (*FRAMEWORKS.names, ""):
            correction = shipped().correction(CalibrationKey(generation, framework))
            assert isinstance(correction, CostCorrection)
            assert 0.8 < correction.gemm < 1.3
            assert 0.0 < correction.overlap_window < 1.0
            assert min(getattr(correction, knob) for knob in KNOBS) > 0.0
    record = shipped().record
    assert record is not None
    assert record["rows"] > 3000


def test_every_framework_has_at_most_one_style() -> None:
    assert {style_of(name) for name in (*FRAMEWORKS.names, "")} == {"fused", "eager", ""}


# --- Which measured rows are called near a job, and what is said of them ---------------------------------------------


OWN = Cell("hopper", "fsdp", "eager", "16 bits", False, "full", False, False, True, 1, 1)


def cell(rows: int, error: float, inside: float = 0.9, **changes: object) -> CellScore:
    return CellScore(OWN._replace(**changes), (rows,), (error,), (inside,))


def test_rows_like_the_job_are_taken_before_others() -> None:
    found = evidence(OWN, [cell(5, 0.3, pipeline=True), cell(6, 0.1), cell(7, 0.2)])
    assert (found.n_rows, found.n_sources, found.differs) == (13, 2, ())
    assert found.median_error == pytest.approx(0.15)
    assert not found.is_extrapolated


def test_others_are_taken_where_there_are_too_few_and_said() -> None:
    found = evidence(OWN, [cell(3, 0.1, size=2), cell(20, 0.3, size=2, length=0)])
    assert (found.n_rows, found.n_sources) == (23, 2)
    assert found.differs == ("number of GPUs",)
    assert found.is_extrapolated  # two differences that weigh four together


def test_another_generation_is_an_extrapolation_and_only_a_last_resort() -> None:
    other = cell(50, 0.2, generation="blackwell")
    assert evidence(OWN, [cell(1, 0.1), other]).n_rows == 1
    alone = evidence(OWN, [other])
    assert (alone.n_rows, alone.is_extrapolated, alone.differs) == (50, True, ("device generation",))
    assert "extrapolated" in alone.sentence


def test_nothing_measured_is_said() -> None:
    found = evidence(OWN, [])
    assert (found.n_rows, found.median_error) == (0, None)
    assert "no measured run" in found.sentence


def test_the_cell_of_a_job() -> None:
    plan = ParallelPlan(micro_batch=1, global_batch=64, seq_len=4096, tp=2, dp=32, sharding="fsdp")
    found = cell_of(workload_catalog.model("llama-3-8b"), default_cluster("h100-sxm", 64), plan, "fsdp")
    assert found == OWN._replace(tensor=True)
    longer = cell_of(
        workload_catalog.model("llama-3-8b"), default_cluster("h100-sxm", 64), replace(plan, seq_len=65536), "fsdp"
    )
    assert longer.length == 3


def test_shipped_cells_hold_no_rows_of_their_own_but_counts_and_scores() -> None:
    for one in shipped_cells():
        assert len(one.rows) == len(one.errors) == len(one.inside)
        assert min(one.rows) >= 1
        assert all(0.0 <= share <= 1.0 for share in one.inside)


# --- Measured tables in a calibration: constants and knobs that they replace, and the band that their draws make -----


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
