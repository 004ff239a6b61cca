"""The robust standard deviation is that of a normal law, whatever lies far away."""

import numpy as np
import pytest
from scipy.stats import norm

from prism_jax.core.robust import MAD_SD, robust_sd


def test_the_factor_is_that_of_a_normal_law():
    assert pytest.approx(1.0 / norm.ppf(0.75), abs=5e-5) == MAD_SD


def test_it_is_the_standard_deviation_of_a_normal_law_and_a_tenth_far_away_moves_it_little():
    values = np.random.default_rng(0).normal(3.0, 2.0, 20_001)
    assert robust_sd(values) == pytest.approx(2.0, rel=0.03)  # its standard error is 0.8%
    far = np.append(values, np.full(2000, 1e6))
    assert robust_sd(far) == pytest.approx(2.0, rel=0.2)  # an eleventh is far away
    assert far.std() > 1e5


def test_the_middle_may_be_given():
    assert robust_sd(np.array([5.0, 5.0, 5.0, 1e9])) == 0.0
    assert robust_sd(np.array([1.0, 3.0]), 0.0) == pytest.approx(2.0 * MAD_SD)
