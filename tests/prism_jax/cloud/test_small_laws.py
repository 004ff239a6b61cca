"""Laws of step time and start-up: limits, identities, and figures that are refused."""

import numpy as np
import pytest

from prism_jax.cloud.laws import LadderLaw, StartUpLaw
from prism_jax.core.errors import SpecError

ONE = np.ones(1)


def test_a_ladder_is_a_line() -> None:
    law = LadderLaw(0.02 * ONE, 1e-3 * ONE, 0.01 * ONE, (8.0, 128.0))
    assert law.seconds(64.0) - law.seconds(32.0) == pytest.approx(0.032)
    assert law.interval(10.0) == pytest.approx((0.03, 0.03, 0.03))
    with pytest.raises(SpecError, match="batch"):
        law.seconds(0.0)


def test_the_last_of_many_machines_is_late() -> None:
    rng = np.random.default_rng(0)
    parts = np.exp(0.1 * rng.standard_normal((4000, 3))) * np.array([2.0, 30.0, 40.0])
    law = StartUpLaw(parts)
    alone, of_many = law.last_of(1, rng), law.last_of(64, rng)
    assert np.median(alone) == pytest.approx(law.quantile(0.5), rel=0.02)
    assert np.median(of_many) == pytest.approx(law.quantile(0.5 ** (1 / 64)), rel=0.02)
    with pytest.raises(SpecError, match="n_nodes"):
        law.last_of(0, rng)


def test_wrong_figures_are_refused() -> None:
    with pytest.raises(SpecError, match="s_per_sample"):
        LadderLaw(ONE, np.ones(2), ONE, (1.0, 2.0))
    with pytest.raises(SpecError, match="floor_s"):
        LadderLaw(-ONE, ONE, ONE, (1.0, 2.0))
    with pytest.raises(SpecError, match="part_s"):
        StartUpLaw(np.ones((3, 2)))
