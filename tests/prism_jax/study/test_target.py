"""Targets: what they accept, and their probability in closed form."""

import numpy as np
import pytest

from prism_jax.core.errors import DataError
from prism_jax.study.figures import target_of

FACTORS = np.array([0.8, 0.9, 1.0, 1.1])


def test_a_time_is_met_by_the_draws_below_its_bound() -> None:
    assert target_of("p95<=8s").prob(8.0, FACTORS) == 0.75
    assert target_of("p95 <= 8000 ms").prob(8.0, FACTORS) == 0.75


def test_a_rate_is_met_by_the_draws_above_its_bound() -> None:
    assert target_of("tokens_per_s>=5e6").prob(5e6, FACTORS) == 0.75


@pytest.mark.parametrize(
    "text", ["p95", "p95>=8s", "mfu<=0.4", "p95<=soon", "p95<=-1s", "p95<=0", "cash<=3", "p95<=nan", "p95<=1e999"]
)
def test_others_are_refused(text: str) -> None:
    with pytest.raises(DataError, match="--target"):
        target_of(text)
