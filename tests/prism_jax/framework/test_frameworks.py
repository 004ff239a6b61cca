"""Frameworks: their rules, their peak of memory, and what they usually choose."""

import pickle
from dataclasses import replace
from itertools import pairwise
from math import exp, hypot

import numpy as np
import pytest

from prism_jax.calibration.open_fields import RULES, usual_odds, usual_software
from prism_jax.core.errors import SpecError
from prism_jax.framework.base import AS_MEGATRON, MEGATRON, WITHOUT_PEAKS, Framework, PeakLaw, PlanDefaults
from prism_jax.framework.frameworks import FRAMEWORKS, MEGATRON_CORE, NANOTRON, UNKNOWN, framework_of, style_of
from prism_jax.framework.software import SOFTWARE_VALUES, Software, software_problems
from prism_jax.plan.plan import ParallelPlan


def test_frameworks_are_values() -> None:
    for framework in FRAMEWORKS:
        assert pickle.loads(pickle.dumps(framework)) == framework
        assert hash(framework) == hash(replace(framework))
        assert framework_of(framework.name) is framework
        assert framework_of(framework) is framework
    assert len(set(FRAMEWORKS)) == len(FRAMEWORKS) == 13


def test_what_is_not_known_is_as_megatron() -> None:
    """Where memory rules differ, the object says what they rest on."""
    assert framework_of("") is UNKNOWN
    for framework in (*FRAMEWORKS, UNKNOWN):
        is_own = framework.memory != MEGATRON
        assert not (is_own and framework.memory_source == AS_MEGATRON)
        assert is_own == (framework.name in ("fsdp", "deepspeed", "nanotron", "jax"))


def test_plan_defaults_are_fields_of_a_plan_that_may_be_open() -> None:
    plan = ParallelPlan(1, 8, 1024)
    assert all(getattr(plan, name) is None for name in PlanDefaults.__dataclass_fields__)


def test_unknown_names_and_styles_are_refused() -> None:
    with pytest.raises(SpecError, match=r"framework 'fspd' is unknown; known are megatron-core, .*did you mean fsdp\?"):
        framework_of("fspd")
    with pytest.raises(SpecError, match="style = 'lazy' of framework 'mine'"):
        Framework("mine", style="lazy")
    assert style_of("fspd") == ""


# --- The law of measured over predicted peaks: interval and probability against each other and against draws ---------


LAW = PeakLaw(1.02, 0.05, 1.05, 0.2)
GIB = 2.0**30


@pytest.mark.parametrize("has_experts", [False, True])
def test_interval_holds_90_percent_of_draws(has_experts: bool):
    median, sd = (1.05, 0.2) if has_experts else (1.02, 0.05)
    draws = 40 * GIB * median * np.exp(sd * np.random.default_rng(0).standard_normal(100_000))
    low, high = LAW.interval_bytes(40 * GIB, has_experts)
    inside = np.mean((draws >= low) & (draws <= high))
    assert abs(inside - 0.9) < 5 * np.sqrt(0.9 * 0.1 / draws.size)  # false alarms: 6e-7


@pytest.mark.parametrize("has_experts", [False, True])
def test_a_device_as_large_as_an_end_of_the_interval_is_exceeded_with_that_probability(has_experts: bool):
    low, high = LAW.interval_bytes(40 * GIB, has_experts)
    assert LAW.not_fit_prob(40 * GIB, low, has_experts) == pytest.approx(0.95, rel=1e-9)
    assert LAW.not_fit_prob(40 * GIB, high, has_experts) == pytest.approx(0.05, rel=1e-9)
    assert LAW.not_fit_prob(40 * GIB, 40 * GIB * (1.05 if has_experts else 1.02), has_experts) == pytest.approx(0.5)


def test_the_interval_scales_with_the_prediction():
    one, ten = (np.array(LAW.interval_bytes(n * GIB, False)) for n in (1, 10))
    assert ten == pytest.approx(10 * one, rel=1e-12)


def test_experts_widen_and_frameworks_without_peaks_are_widest():
    measured = (MEGATRON_CORE.peak_law, NANOTRON.peak_law)
    assert all(law.expert_log_sd > law.log_sd for law in (*measured, WITHOUT_PEAKS))
    assert all(WITHOUT_PEAKS.log_sd >= law.log_sd for law in measured)
    # what routing adds is another framework's
    both = hypot(NANOTRON.peak_law.log_sd, MEGATRON_CORE.peak_law.expert_log_sd)
    for law in (NANOTRON.peak_law, WITHOUT_PEAKS):
        assert law.expert_log_sd == pytest.approx(both, abs=5e-4)
    low, high = WITHOUT_PEAKS.interval_bytes(GIB, False)
    assert low * high == pytest.approx(GIB**2, rel=1e-9)
    assert high / GIB == pytest.approx(exp(1.6448536 * WITHOUT_PEAKS.log_sd), rel=1e-6)


# --- What software usually does where nobody says: odds that add up, dates, and what is stated stays -----------------


GENERATIONS = ("volta", "ampere", "hopper", "blackwell", "cdna3", "tpu", "anything")
DATES = ("", "2020", "2022-05", "2022-06", "2023-07", "2024-03", "2026")


@pytest.mark.parametrize("name", SOFTWARE_VALUES)
def test_odds_are_probabilities_of_known_values_for_every_framework_device_and_date(name: str) -> None:
    for framework in ("", *FRAMEWORKS.names):
        for generation in GENERATIONS:
            for date in DATES:
                odds = usual_odds(name, framework_of(framework), generation, Software(date=date))
                assert sum(share for _, share in odds) == pytest.approx(1.0)
                assert {value for value, _ in odds} <= set(SOFTWARE_VALUES[name])
                assert all(one >= other for (_, one), (_, other) in pairwise(odds))  # most likely first


def test_no_rule_is_out_of_reach() -> None:
    for index, rule in enumerate(RULES):
        settings = (
            (framework_of(framework), generation, Software(date=date, cross_entropy=loss, tuning=tuning))
            for framework in ("", *FRAMEWORKS.names)
            for generation in GENERATIONS
            for date in ("2020", "2022-06", "2023-08", "2023-10", "2024-04", "2025-06")
            for loss in (None, "linear")
            for tuning in (None, "vendor")
        )
        earlier = [other for other in RULES[:index] if other.field == rule.field]
        assert any(rule.holds(*one) and not any(other.holds(*one) for other in earlier) for one in settings), rule


def test_kernels_come_into_use_when_they_are_published() -> None:
    megatron = framework_of("megatron-core")
    dates = ("2021", "2022-12", "2023-10", "2025")
    found = [usual_odds("attention", megatron, "hopper", Software(date=date))[0][0] for date in dates]
    assert found == ["fused_softmax", "flash1", "flash2", "flash3"]
    assert usual_odds("attention", megatron, "ampere")[0][0] == "flash2"


def test_what_is_stated_stays() -> None:
    stated = Software(norm="fused", compile=True)
    full = usual_software(stated, framework_of("fsdp"), "hopper")
    assert (full.norm, full.compile) == ("fused", True)
    assert full.open_fields == ()


@pytest.mark.parametrize(("date", "is_one"), [("", True), ("2024", True), ("2024-05-17", True), ("2024-13", False)])
def test_a_date_that_is_none_is_refused_before_it_is_read(date: str, is_one: bool):
    assert (list(software_problems(Software(date=date))) == []) is is_one
