"""The power model: its series are the law's, laws that were put in are found again, and wrong tables are refused."""

from typing import Any

import jax
import numpy as np
import pandas as pd
import pytest

import experiments.extra_fits  # noqa: F401  (makes the fits known by name)
import inference
from experiments.power_fit.data import from_frame
from experiments.power_fit.predict import law_of, predicted
from experiments.power_fit.series import log_ratios
from prism_jax.core.errors import DataError, FitError
from prism_jax.system.power import PowerLaw, slowdown

LAW = PowerLaw(0.15, 2.5, 0.7, busy={}, bound={})
UNBOUND = 0.1


def sweep(rng: np.random.Generator, workload: str = "a", noise: float = 0.002) -> pd.DataFrame:
    """A 400 W device at twenty clocks, with instructions of 1 and 2 s at the top."""
    clock = np.linspace(700.0, 1400.0, 20)
    found = []
    for instruction, seconds in (("forward", 1.0), ("backward", 2.0)):
        c = clock / 1400.0
        time = seconds * slowdown(1.0 - UNBOUND, c) * np.exp(noise * rng.standard_normal(20))
        watts = 400.0 * LAW.share(c, 1.0) * np.exp(noise * rng.standard_normal(20))
        found.append(
            pd.DataFrame({"clock_mhz": clock, "duration_s": time, "energy_joules": time * watts}).assign(
                instruction=instruction, device="gpu", workload=workload
            )
        )
    return pd.concat(found, ignore_index=True)


def limits() -> pd.DataFrame:
    watts = np.array([100.0, 150.0, 200.0, 250.0])
    return pd.DataFrame(
        {
            "gpu": "gpu",
            "network": "net",
            "power_limit_w": watts,
            "epoch_s": [20.0, 13.0, 11.0, 10.0],
            "avg_power_w": [99.0, 145.0, 190.0, 230.0],
        }
    )


def site(n_device: int, n_kind: int) -> dict[str, Any]:
    """Parameters with clocks that are held as asked for."""
    of_device = {"idle": 0.15, "exponent": 2.5, "floor": 0.7, "held": 2.0, "clock_sharpness": 40.0, "unbound": UNBOUND}
    device = {name: np.full(n_device, value) for name, value in of_device.items()}
    return {**device, "limit_sharpness": np.full(n_device, 10.0), "duty": 0.4, "reach": 1.1, "shift": np.zeros(n_kind)}


def test_series_at_clocks_follow_the_law() -> None:
    data = from_frame(inference.measured(sweep(np.random.default_rng(0), noise=0.0), "power").frame)
    with jax.enable_x64(True):
        values = site(1, 2) | {"held": np.full(1, 1.0), "clock_sharpness": np.full(1, 4000.0)}
        log_time, log_power = log_ratios(data, values)
    np.testing.assert_allclose(log_time, data.log_time, atol=2e-3)
    np.testing.assert_allclose(log_power, data.log_power, atol=2e-3)


def test_a_limit_far_above_changes_nothing_and_lower_ones_take_longer_and_draw_less() -> None:
    data = from_frame(inference.measured(limits(), "power").frame)
    with jax.enable_x64(True):
        log_time, log_power = log_ratios(data, site(1, 1))
    order = np.argsort(data.control)
    assert (np.diff(np.asarray(log_time)[order]) < 0).all()
    assert (np.diff(np.asarray(log_power)[order]) > 0).all()
    assert (np.asarray(log_time) > 0).all()
    assert (np.exp(np.asarray(log_power)) * 230 <= data.control * 250).all()


@pytest.mark.slow
def test_a_law_that_was_put_in_is_found_and_predicts_a_workload_from_its_top_row() -> None:
    fit = inference.fit(sweep(np.random.default_rng(1)), model="power", method="map", key=jax.random.key(0))
    law = law_of(fit.data, fit.draws, "gpu")
    assert law.idle_share == pytest.approx(LAW.idle_share, abs=0.04)
    assert law.exponent == pytest.approx(LAW.exponent, abs=0.4)
    assert law != law_of(fit.data, fit.draws, "a device that was not measured")
    new = inference.measured(sweep(np.random.default_rng(2), "b"), "power").frame
    found = predicted(fit.data, fit.draws, new)
    assert np.median(np.abs(found.time - 1.0)) < 0.01
    assert np.median(np.abs(found.power - 1.0)) < 0.015
    assert fit.describe()["n_series"] == 2
    with pytest.raises(FitError, match="not how steps vary"):
        fit.to_variability(force=True)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"gpu": "a", "network": "b", "epoch_s": [1.0, 2.0], "avg_power_w": [1.0, 2.0]}, "clock_mhz or power_limit"),
        ({"gpu": "a", "network": "b", "epoch_s": [1.0, 2.0], "power_limit_w": [1.0, 2.0]}, "power_watts or energy"),
        (
            {"gpu": "a", "network": ["b", "c"], "epoch_s": 1.0, "avg_power_w": 1.0, "power_limit_w": 2.0},
            "no workload was measured at two",
        ),
    ],
)
def test_tables_that_say_nothing_are_refused(columns: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        from_frame(inference.measured(pd.DataFrame(columns), "power").frame)
