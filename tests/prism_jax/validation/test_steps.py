"""Measured steps beside predicted ones, and the typical step that stands for a job."""

import pickle
from dataclasses import fields, replace

import jax
import numpy as np
import pytest
from scipy.stats import t as student

from prism_jax.calibration.calibration import DEGREES, Calibration, shipped, uncalibrated
from prism_jax.core.errors import DataError
from prism_jax.core.executor import Workers
from prism_jax.cost.step import StepCost, step_cost, step_cost_of
from prism_jax.job.job import Job
from prism_jax.plan.plan import ParallelPlan
from prism_jax.simulate.predict import predict
from prism_jax.system.catalog import cluster
from prism_jax.validation import steps
from prism_jax.validation.costed import ASSUMED_SD, PARTS, CostedJob, costed, evidence_of, job_of_row, step_times
from prism_jax.validation.score import GROUPS, MeasuredRow, group_of
from prism_jax.validation.steps import _Asked, _calibrated, _part, validate_steps
from prism_jax.variability.config import preset
from prism_jax.workload.catalog import model
from tests.support.measured_rows import SITES, measured_rows, only_misfit, with_measured

ROWS = measured_rows()
FEW = ROWS[::5]


def test_rows_measured_where_the_calibration_holds_have_the_error_of_the_outline():
    outcome = validate_steps(ROWS, deterministic_only=True)
    assert outcome.overall.n == len(ROWS)
    assert (outcome.overall.p90_ape or 1.0) < 0.03
    assert set(outcome.by_source) == set(SITES)


def test_blanks_that_one_rule_fills_are_one_guess():
    filled = [
        "n_layers 32 assumed: usual shape",
        "hidden 4096 assumed: usual shape",
        "micro_batch 1 assumed: a usual one",
    ]
    job = job_of_row(ROWS[0])
    doubts = [[one.sd for one in costed(job, filled[at:]).doubts] for at in range(3)]
    assert doubts[0] == doubts[1] == [pytest.approx(ASSUMED_SD)] * 2
    assert doubts[2] == doubts[0][:1]


def test_a_measured_time_changes_the_error_and_nothing_else():
    once = validate_steps(FEW, deterministic_only=True).rows
    twice = validate_steps(
        [with_measured(row, 2.0 * (row.measured_s or 0.0)) for row in FEW], deterministic_only=True
    ).rows
    for a, b in zip(once, twice, strict=True):
        assert (a.predicted_s, a.low_s, a.high_s) == (b.predicted_s, b.low_s, b.high_s)
        assert b.error == pytest.approx(0.5 * (1.0 + (a.error or 0.0)) - 1.0)


def test_intervals_follow_the_law_of_the_calibration():
    """Student's t, 1,024 draws a row, three rows: a bound has an error of 0.12 scales, the mean of three 0.07."""
    scale = 0.05
    rows = validate_steps(FEW, calibration_of=lambda row: only_misfit(scale), deterministic_only=True).rows
    high = np.mean([np.log((row.high_s or 0.0) / (row.predicted_s or 1.0)) for row in rows])
    low = np.mean([np.log((row.low_s or 0.0) / (row.predicted_s or 1.0)) for row in rows])
    expected = scale * float(student(DEGREES).ppf(0.95))
    assert high == pytest.approx(expected, abs=4 * 0.07 * scale)
    assert low == pytest.approx(-expected, abs=4 * 0.07 * scale)


def test_inside_says_whether_the_measured_time_lies_in_the_interval():
    base = validate_steps(FEW[:1], deterministic_only=True).rows[0]
    assert base.low_s is not None
    assert base.high_s is not None
    tries = {0.99 * base.low_s: False, 1.01 * base.low_s: True, 0.99 * base.high_s: True, 1.01 * base.high_s: False}
    for seconds, expected in tries.items():
        assert validate_steps([with_measured(FEW[0], seconds)], deterministic_only=True).rows[0].inside is expected


def test_an_answer_depends_on_the_seed_and_not_on_the_place_in_the_table():
    forth = validate_steps(FEW, deterministic_only=True, seed=3)
    back = validate_steps(FEW[::-1], deterministic_only=True, seed=3)
    assert forth.rows == back.rows[::-1]
    other = validate_steps(FEW, deterministic_only=True, seed=4)
    assert [row.low_s for row in forth.rows] != [row.low_s for row in other.rows]


def test_typical_step_is_longer_than_the_step_without_variability():
    quiet = validate_steps(FEW[:1], deterministic_only=True).rows[0]
    usual = validate_steps(FEW[:1]).rows[0]
    assert usual == validate_steps(FEW[:1]).rows[0]
    assert quiet.predicted_s is not None
    assert usual.predicted_s is not None
    assert 1.0 < usual.predicted_s / quiet.predicted_s < 1.2
    assert usual.parts_s == pytest.approx(quiet.parts_s, rel=1e-5, abs=1e-6)  # one stage has no bubble but for rounding


def test_every_row_has_its_own_calibration():
    def of(row: MeasuredRow) -> Calibration:
        return uncalibrated() if row.source == "site A" else shipped()

    mixed = {row.id: row.predicted_s for row in validate_steps(FEW, calibration_of=of, deterministic_only=True).rows}
    plain = {row.id: row.predicted_s for row in validate_steps(FEW, deterministic_only=True).rows}
    assert {name for name in plain if plain[name] != mixed[name]} == {row.id for row in FEW if row.source == "site A"}


def test_software_of_a_row_decides_its_prediction():
    fused = replace(FEW[0], framework="megatron-core")
    eager = replace(FEW[0], framework="fsdp")
    found = validate_steps([fused, eager], deterministic_only=True).rows
    assert found[0].predicted_s != found[1].predicted_s


def test_parts_add_up_to_the_step():
    for row in validate_steps(ROWS[:4], deterministic_only=True).rows:
        assert tuple(row.parts_s) == PARTS
        assert all(seconds >= 0.0 for seconds in row.parts_s.values())
        assert sum(row.parts_s.values()) == pytest.approx(row.predicted_s, rel=1e-5)
    assert row.parts_s["bubble"] > 0.0  # two stages
    assert row.dominant == "compute"


def test_a_slow_host_shows_as_host():
    slow = replace(shipped(), centre={**shipped().centre, "host": shipped().centre["host"] + 4.0})
    row = validate_steps(FEW[:1], calibration_of=lambda row: slow, deterministic_only=True).rows[0]
    assert row.dominant == "host"


def test_rows_that_cannot_be_predicted_say_why():
    def refuse(row: MeasuredRow) -> Calibration:
        if row.id.endswith("A 0"):
            raise DataError("of another device")
        if row.id.endswith("B 1"):
            raise ZeroDivisionError("of a fault")
        return shipped()

    rows = [*FEW, MeasuredRow("x", "site D", None, unsupported="device not stated"), with_measured(FEW[2], 0.0)]
    outcome = validate_steps(rows, calibration_of=refuse, left_out="source", deterministic_only=True)
    reasons = [row.unsupported for row in outcome.rows]
    assert reasons[0] == "cannot be simulated: of another device"
    assert reasons[1].startswith("fault of prism-jax")
    assert reasons[2:] == ["", "device not stated", "no measured time"]
    assert (outcome.overall.n, outcome.overall.n_unsupported) == (1, 4)


def test_groups_and_the_baseline_appear_where_groups_are_left_out():
    rows = [*FEW, replace(FEW[0], id="bad", defect="typo", measured_s=100.0)]
    outcome = validate_steps(rows, left_out="gpu", deterministic_only=True)
    assert [row.group for row in outcome.rows] == [group_of(row, "gpu") for row in rows]
    assert outcome.overall_baseline is not None
    assert outcome.overall_baseline.n == len(FEW)
    assert outcome.overall.n_defect == 1
    assert set(GROUPS) == {"source", "gpu", "model", "framework", "scale"}


def test_a_process_finds_the_same_of_pickled_rows():
    """What processes are given and give back, without starting one."""

    def of(row: MeasuredRow) -> Calibration:
        if row.source == "site B":
            raise DataError("no calibration")
        return shipped()

    alone = validate_steps(FEW, calibration_of=of, deterministic_only=True).rows
    part = pickle.loads(pickle.dumps(_calibrated(FEW, of)))
    assert len(part.unlike) == 2
    assert pickle.loads(pickle.dumps(_part(part, asked=_Asked("", True, 0)))) == list(alone)


@pytest.mark.slow
def test_the_answer_is_the_same_with_any_number_of_processes(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(steps, "LEAST_SHARED", 1)
    assert validate_steps(ROWS, workers=Workers(2)) == validate_steps(ROWS)


# --- Steps of many jobs together: those of `predict`, whatever jobs stand beside a job and in which order ------------


PLANS = {
    "one stage, one device per op": ParallelPlan(1, 64, 2048, dp=16),
    "sharded parameters": ParallelPlan(1, 64, 2048, dp=32, sharding="fsdp"),
    "pipeline": ParallelPlan(1, 32, 2048, tp=4, pp=4, dp=2, zero_stage=1),
    "interleaved": ParallelPlan(1, 32, 2048, tp=2, pp=4, dp=2, schedule="interleaved", virtual_stages=2),
}


def job(name: str) -> Job:
    return Job(
        model("llama-2-7b"), cluster("dgx-h100", PLANS[name].n_devices), PLANS[name], preset("h100-default"), name
    )


@pytest.fixture(scope="module")
def jobs() -> list[CostedJob]:
    return [costed(job(name)) for name in PLANS]


@pytest.mark.parametrize("name", PLANS)
def test_typical_step_is_the_median_of_predict(name: str, jobs: list[CostedJob]) -> None:
    """0.3% of the step: five times what 256 columns of both err by."""
    place = list(PLANS).index(name)
    found = predict(job(name), key=jax.random.key(1), n_samples=1024, pad=True)
    steps = step_times(jobs)
    assert steps.typical_s[place] == pytest.approx(found.quantile(0.5), rel=3e-3)
    assert steps.noise_free_s[place] == pytest.approx(found.deterministic_s, rel=1e-5)


def test_a_step_does_not_depend_on_the_jobs_beside_it(jobs: list[CostedJob]) -> None:
    together = step_times([*jobs, *jobs], 3)
    alone = [step_times([one], 3) for one in jobs]
    for own, all_of_them in zip(zip(*alone, strict=True), together, strict=True):
        np.testing.assert_allclose(np.concatenate(own * 2), all_of_them, rtol=1e-6)


def test_the_evidence_of_a_job_does_not_depend_on_the_jobs_beside_it(jobs: list[CostedJob]) -> None:
    assert evidence_of([*jobs, *jobs]) == [evidence_of([one])[0] for one in jobs] * 2


def test_a_job_is_costed_alike_whether_its_open_fields_were_asked_for_before_or_not(jobs: list[CostedJob]) -> None:
    for one in jobs:
        again = replace(one.job)
        assert again.open_fields == one.job.open_fields
        for cost in (step_cost_of(again.blocks()), step_cost(again.model, again.cluster, again.plan, again.efficiency)):
            assert all(
                np.array_equal(getattr(cost, item.name), getattr(one.cost, item.name)) for item in fields(StepCost)
            )


def test_another_seed_gives_another_median_and_the_same_noise_free_step(jobs: list[CostedJob]) -> None:
    one, other = step_times(jobs, 1), step_times(jobs, 2)
    assert (one.typical_s != other.typical_s).all()
    assert np.array_equal(one.noise_free_s, other.noise_free_s)


def test_without_variability_the_median_is_the_noise_free_step() -> None:
    quiet = [costed(replace(job(name), variability=preset("none"))) for name in PLANS]
    steps = step_times(quiet)
    np.testing.assert_allclose(steps.typical_s, steps.noise_free_s, rtol=1e-6)


def test_nothing_to_do_is_nothing() -> None:
    assert step_times([]).typical_s.shape == (0,)
