"""Ski rental: identities and the competitive ratio."""

import numpy as np
import pytest

from experiments.slow_phases.run import least_s, paid_s
from prism_jax.watch.phases import act_at


def test_it_acts_when_the_loss_reaches_the_cost():
    lost_s = np.full(10, 3.0)
    assert act_at(lost_s, 9.0) == 2
    assert act_at(lost_s, 30.1) is None


@pytest.mark.parametrize("cost_s", [1.0, 60.0, 600.0])
def test_it_pays_at_most_twice_the_best_decision_and_one_step(cost_s):
    rng = np.random.default_rng(0)
    for _ in range(500):
        lost_s = rng.exponential(rng.exponential(10.0), int(rng.integers(1, 300)))
        assert paid_s(lost_s, cost_s) <= 2.0 * least_s(lost_s, cost_s) + lost_s.max() + 1e-9


def test_the_ratio_of_two_is_reached():
    lost_s = np.full(1000, 1.0)
    assert paid_s(lost_s, 1000.0) / least_s(lost_s, 1000.0) == 2.0
