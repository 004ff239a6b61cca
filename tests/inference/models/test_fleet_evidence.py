"""Whether a second component of a fleet is asked for by the data, and what the verdict then looks at."""

import numpy as np
import pytest

from inference.fleet.data import FleetData, fleet_data
from inference.fleet.model import FleetModel
from inference.fleet.predict import POSITIVE, Component

from .fleets import fleet_table

N_DRAW = 4000
COMPONENT = {"slow_shift", "slow_spread"}


@pytest.fixture(scope="module")
def data() -> FleetData:
    return fleet_data(fleet_table(np.random.default_rng(0), n_node=8, gpus_per_node=8, n_run=3))


def draws_with(slow_prob: np.ndarray) -> dict[str, np.ndarray]:
    """Draws [draw, ...] of a fleet whose only question is the share of slow chips."""
    rng = np.random.default_rng(1)
    n = len(slow_prob)
    spreads = ("gpu_spread", "node_spread", "run_spread", "rest_spread")
    return {
        "typical_log_s": rng.normal(-7.0, 0.001, (n, 1)),
        **{name: rng.lognormal(np.log(0.01), 0.05, (n, 1)) for name in spreads},
        "slow_prob": slow_prob,
        "slow_half": 2.0 * slow_prob,
        "slow_shift": rng.normal(0.0, 4.0, n),
        "slow_spread": rng.lognormal(0.4, 0.7, n),
        "far_prob": 0.5 * rng.beta(1.0, 9.0, n),
        "far_spread": 1.0 + rng.lognormal(0.7, 0.9, n),
    }


def test_data_that_say_nothing_have_a_bayes_factor_of_one() -> None:
    """Draws of the prior. P(share < 1/64) = 0.249, so that the standard error of the factor is 2.7 %."""
    share = 0.5 * np.random.default_rng(2).beta(1.0, 9.0, N_DRAW)
    assert Component(share, 64).bayes_factor == pytest.approx(1.0, abs=4 * 0.027)


def test_shares_that_are_never_small_are_evidence_as_far_as_the_draws_reach() -> None:
    found = Component(np.full(N_DRAW, 0.06), 64)
    assert found.bayes_factor == pytest.approx(0.2487 * N_DRAW, rel=1e-3)
    assert found.is_found


def test_shares_that_are_always_small_are_evidence_against() -> None:
    found = Component(np.full(N_DRAW, 0.001), 64)
    assert found.bayes_factor == pytest.approx(0.2487, rel=1e-3)
    assert not found.is_found


def test_a_component_that_is_not_found_is_neither_judged_nor_reported(data: FleetData) -> None:
    draws = draws_with(0.5 * np.random.default_rng(3).beta(1.0, 9.0, N_DRAW))
    assert not COMPONENT & set(FleetModel().judged(data, draws))
    said = FleetModel().describe(data, draws)
    assert said["slow_chips"]["shift_in_bulk_spreads"] is None
    assert said["slow_chips"]["prob"]["p95"] > 0.0
    assert any("no slow chips stand out" in note for note in said["notes"])


def test_a_component_that_is_found_is_judged_and_reported(data: FleetData) -> None:
    draws = draws_with(np.random.default_rng(4).uniform(0.03, 0.1, N_DRAW))
    assert set(FleetModel().judged(data, draws)) >= COMPONENT
    said = FleetModel().describe(data, draws)
    assert said["slow_chips"]["bayes_factor"] > POSITIVE
    assert said["slow_chips"]["shift_in_bulk_spreads"] is not None
    assert not any("slow chips" in note for note in said["notes"])


def test_the_spread_of_all_chips_is_judged_chain_by_chain(data: FleetData) -> None:
    draws = {name: value.reshape(4, -1, *value.shape[1:]) for name, value in draws_with(np.full(N_DRAW, 0.05)).items()}
    judged = FleetModel().judged(data, draws)
    p, shift, spread = 0.05, draws["slow_shift"], draws["slow_spread"]
    expected = draws["gpu_spread"][..., 0] * np.sqrt(1.0 - p + p * spread**2 + p * (1.0 - p) * shift**2)
    np.testing.assert_allclose(judged["spread_of_all_gpus"][..., 0], expected)
    assert "slow_half" not in judged, "only what is reported"
