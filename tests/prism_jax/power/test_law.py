"""The law of power: closed forms, its inverse, monotony, derivatives, and figures that are refused."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.system.power import PowerLaw, slowdown

LAW = PowerLaw(idle_share=0.2, exponent=3.0, floor_clock=0.5, busy={"gemm": 1.0}, bound={"gemm": 1.0}, lowest_clock=0.1)


def test_power_is_idle_and_a_power_of_the_clock_and_a_line_below_the_floor() -> None:
    clock = np.array([1.0, 0.8, 0.5, 0.25])
    np.testing.assert_allclose(LAW.share(clock, 1.0), 0.2 + 0.8 * np.array([1.0, 0.512, 0.125, 0.0625]))


@pytest.mark.parametrize("busy", [0.3, 1.0, 1.4])
def test_the_clock_under_a_limit_is_the_inverse_of_power(busy: float) -> None:
    clock = np.linspace(0.1, 1.0, 50)
    np.testing.assert_allclose(LAW.clock_under(LAW.share(clock, busy), busy), clock, rtol=1e-12)


def test_a_limit_above_what_is_drawn_holds_nothing_back_and_one_below_idle_leaves_the_lowest_clock() -> None:
    np.testing.assert_array_equal(LAW.clock_under(np.array([1.0, 0.9, 0.1, 0.2]), 0.5), [1.0, 1.0, 0.1, 0.1])


def test_power_and_clock_grow_with_clock_and_limit() -> None:
    x = np.linspace(0.1, 1.0, 200)
    assert (np.diff(LAW.share(x, 1.0)) > 0).all()
    assert (np.diff(LAW.clock_under(x, 1.0)) >= 0).all()


def test_energy_of_compute_is_least_at_the_floor_of_the_voltage() -> None:
    """Above it dynamic energy falls faster with the clock than idle energy grows; below, only the latter is left."""
    law = PowerLaw(idle_share=0.1, exponent=3.0, floor_clock=0.7, busy={}, bound={})
    clock = np.linspace(0.3, 1.0, 701)
    energy = law.share(clock, 1.0) * slowdown(1.0, clock)
    assert clock[energy.argmin()] == pytest.approx(0.7, abs=0.002)


def test_seconds_follow_the_clock_as_far_as_they_are_bound_to_it() -> None:
    assert slowdown(0.0, 0.5) == 1.0
    assert slowdown(1.0, 0.5) == 2.0
    assert slowdown(0.5, 0.5) == 1.5


@pytest.mark.parametrize("limit", [0.27, 0.6])
def test_derivatives_agree_with_finite_differences(limit: float) -> None:
    def clock(at: Any) -> Any:
        law = PowerLaw(at[1], at[2], 0.5, busy={}, bound={}, lowest_clock=0.1)
        return law.clock_under(at[0], 1.0)

    with jax.enable_x64(True):
        at, h = np.array([limit, 0.2, 3.0]), 1e-6
        found = jax.grad(clock)(jnp.asarray(at))
        for place in range(3):
            step = h * np.eye(3)[place]
            expected = (clock(at + step) - clock(at - step)) / (2 * h)
            assert float(found[place]) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize(
    ("figure", "message"),
    [
        ({"idle_share": 1.0}, "idle_share = 1.0, but it must be between 0 and 0.99"),
        ({"idle_share": float("nan")}, "idle_share = nan"),
        ({"exponent": 0.5}, "exponent = 0.5, but it must be between 1 and 10"),
        ({"floor_clock": 0.0}, "floor_clock = 0.0"),
        ({"busy": {"gemm": -0.1}}, "busy of gemm = -0.1"),
        ({"bound": {"gemm": 1.1}}, "bound of gemm = 1.1"),
    ],
)
def test_impossible_figures_are_refused(figure: dict[str, Any], message: str) -> None:
    good: dict[str, Any] = {"idle_share": 0.2, "exponent": 3.0, "floor_clock": 0.5, "busy": {}, "bound": {}}
    with pytest.raises(SpecError, match=message):
        PowerLaw(**(good | figure))
