"""Widths by evidence: what makes a job less sure, what it does to the band, and what cancels."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.calibration.band import case_of, joint_factors, model_factors, unsaid
from prism_jax.calibration.calibration import Calibration, uncalibrated
from prism_jax.calibration.evidence import FEW_ALIKE, REASONS, WidthLaw, class_of, log_factor, why, width_law
from prism_jax.calibration.key import CalibrationKey
from prism_jax.calibration.open_fields import doubtful
from tests.prism_jax.calibration.test_band import JOB

KEY = CalibrationKey("hopper", "fsdp")
COUNTS = {"hopper": 9, "hopper fsdp": 8}
LAW = WidthLaw(-0.5, dict.fromkeys(REASONS, 0.25), COUNTS)


def scattered(law: WidthLaw | None) -> Calibration:
    """Sites and configurations that are off by a tenth, and nothing else."""
    tenth = np.full(500, 0.1)
    return replace(uncalibrated(), site_sd=tenth, misfit=tenth, misfit_sd=0.0 * tenth, width=law)


def test_a_job_with_little_reason_is_known_and_every_reason_widens_by_its_effect():
    third = {"framework": pytest.approx(1.0 / 3.0)}
    assert LAW.reasons(KEY, False, 0.0) == third
    assert class_of(LAW.reasons(KEY, False, 0.0)) == "known"
    assert LAW.factors(KEY, [False], np.zeros(1)) == pytest.approx([np.exp(-0.5 + 0.25 / 3.0)])
    cases = {
        "framework": (KEY._replace(framework="jax"), False, 0.0),
        "adapters": (KEY._replace(has_adapters=True), False, 0.0),
        "experts": (KEY, True, 0.0),
        "network": (KEY, False, 0.5),
    }
    for name, (key, has_experts, share) in cases.items():
        held = third | {name: 1.0}
        assert LAW.reasons(key, has_experts, share) == held
        widened = 0.25 * (1.0 if name == "framework" else 4.0 / 3.0)
        assert LAW.factors(key, [has_experts], np.array([share])) == pytest.approx([np.exp(-0.5 + widened)])
    assert set(LAW.reasons(CalibrationKey("new"), False, 0.0)) == {"generation", "framework"}


def test_a_framework_is_doubted_as_the_mean_of_its_sources_is_and_known_from_the_fourth_on():
    found = [replace(LAW, n_sources=COUNTS | {"hopper fsdp": n}).reasons(KEY, False, 0.0) for n in range(30)]
    assert [one["framework"] for one in found] == pytest.approx([(1 + n) ** -0.5 for n in range(30)])
    assert [class_of(one) for one in found[:6]] == ["near"] * FEW_ALIKE + ["known"] * 2


def test_the_network_counts_more_and_more_not_from_one_plan_to_the_next():
    shares = np.linspace(0.0, 0.3, 301)
    found = np.log(LAW.factors(KEY, [False] * 301, shares))
    assert (np.diff(found) >= 0.0).all()
    assert np.diff(found).max() < 0.003
    assert LAW.reasons(KEY, False, 0.10)["network"] == pytest.approx(0.5)


def test_the_farthest_reason_makes_the_class_and_is_said_first():
    assert (class_of({}), class_of({"adapters": 1.0}), class_of({"adapters": 1.0, "experts": 1.0})) == (
        "known",
        "near",
        "far",
    )
    assert class_of({"network": 0.4}) == "known"
    assert why({"adapters": 1.0, "experts": 1.0}) == (REASONS["experts"][1], REASONS["adapters"][1])
    assert why({"framework": 1.0, "generation": 1.0}) == (REASONS["generation"][1],)


def test_other_kinds_of_model_keep_their_own_widths():
    assert LAW.factors(KEY._replace(workload="dlrm"), [False], np.zeros(1)) == 1.0


def test_the_band_is_wider_by_the_factor_and_a_measured_site_is_not():
    law = replace(LAW, n_sources={}, effects=dict(LAW.effects) | {"network": 0.0})
    without, wide = (np.log(model_factors(*JOB, scattered(one), "fsdp")) for one in (None, law))
    np.testing.assert_allclose(wide, without * np.exp(-0.5 + 0.25 * 2))
    site = np.zeros(500)
    without, under_law = (model_factors(*JOB, replace(scattered(one), site=site), "fsdp") for one in (None, law))
    np.testing.assert_array_equal(without, under_law)


def test_what_a_job_leaves_unsaid_has_a_factor_of_its_own_but_at_a_measured_site():
    left, law = [doubtful("a batch", 0.2)], replace(LAW, unsaid=0.5)
    plain = unsaid(left, scattered(LAW), 500, 0)
    assert plain.std() == pytest.approx(0.2, rel=0.1)
    np.testing.assert_allclose(unsaid(left, scattered(law), 500, 0), 0.5 * plain)
    np.testing.assert_array_equal(unsaid(left, replace(scattered(law), site=np.zeros(500)), 500, 0), plain)


def test_equal_jobs_of_one_site_have_no_ratio_left_under_the_law():
    case = case_of(*JOB, scattered(LAW), "fsdp")
    factors = joint_factors([case, case], scattered(LAW), 3)
    np.testing.assert_allclose(factors[:, 0], factors[:, 1])


def test_a_source_left_out_takes_its_counts_and_its_part_in_the_fit_along():
    every = width_law()
    assert width_law("nobody") == every
    left = width_law("VIA-Research/vTrain (MICRO 2024)")
    assert left.n_sources["ampere"] == every.n_sources["ampere"] - 1
    assert left.n_sources["hopper"] == every.n_sources["hopper"]


def test_many_reasons_widen_as_the_two_largest():
    effects = {"framework": 0.2, "experts": 0.5, "network": 0.4}
    assert log_factor(-0.1, effects, {"experts": 1.0}) == pytest.approx(0.4)
    assert log_factor(-0.1, effects, dict.fromkeys(effects, 1.0)) == pytest.approx(-0.1 + 0.9)
