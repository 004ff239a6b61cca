"""What software usually does where nobody says: odds that add up, dates, and what is stated stays."""

from itertools import pairwise

import pytest

from prism_jax.calibration.open_fields import RULES, usual_odds, usual_software
from prism_jax.framework.frameworks import FRAMEWORKS, framework_of
from prism_jax.framework.software import SOFTWARE_VALUES, Software

GENERATIONS = ("volta", "ampere", "hopper", "blackwell", "cdna3", "tpu", "anything")
DATES = ("", "2020", "2022-05", "2022-06", "2023-07", "2024-03", "2026")


@pytest.mark.parametrize("name", SOFTWARE_VALUES)
def test_odds_are_probabilities_of_known_values_for_every_framework_device_and_date(name: str) -> None:
    for framework in ("", *FRAMEWORKS.names):
        for generation in GENERATIONS:
            for date in DATES:
                odds = usual_odds(name, framework_of(framework), generation, date)
                assert sum(share for _, share in odds) == pytest.approx(1.0)
                assert {value for value, _ in odds} <= set(SOFTWARE_VALUES[name])
                assert all(one >= other for (_, one), (_, other) in pairwise(odds))  # most likely first


def test_no_rule_is_out_of_reach() -> None:
    for index, rule in enumerate(RULES):
        settings = (
            (framework_of(framework), generation, date)
            for framework in ("", *FRAMEWORKS.names)
            for generation in GENERATIONS
            for date in ("2020", "2022-06", "2023-08", "2023-10", "2024-04", "2025-06")
        )
        earlier = [other for other in RULES[:index] if other.field == rule.field]
        assert any(rule.holds(*one) and not any(other.holds(*one) for other in earlier) for one in settings), rule


def test_kernels_come_into_use_when_they_are_published() -> None:
    megatron = framework_of("megatron-core")
    found = [usual_odds("attention", megatron, "hopper", date)[0][0] for date in ("2021", "2022-12", "2023-10", "2025")]
    assert found == ["fused_softmax", "flash1", "flash2", "flash3"]
    assert usual_odds("attention", megatron, "ampere")[0][0] == "flash2"


def test_what_is_stated_stays() -> None:
    stated = Software(norm="fused", compile=True)
    full = usual_software(stated, framework_of("fsdp"), "hopper")
    assert (full.norm, full.compile) == ("fused", True)
    assert full.open_fields == ()
