"""Power of a step: sums, limits, derivatives, published anchors, and phases that are refused."""

from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.system.catalog import device, device_names
from prism_jax.system.power import KIND_OF, PowerLaw, StepPower, power_law, step_power

H100 = device("h100-sxm")
PHASES = {"gemm": 0.6, "attention": 0.1, "memory": 0.2, "slowed": 0.05, "dp_comm": 0.2, "bubble": 0.1, "stalls": 0.01}


def power(phases: dict[str, Any], **options: Any) -> StepPower:
    found = step_power(phases, H100, **options)
    assert found is not None
    return found


def test_energy_is_the_sum_over_phases_and_mean_power_times_time() -> None:
    found = power(PHASES)
    parts = [found.phase_s[name] * found.phase_watts[name] for name in PHASES]
    assert found.joules == pytest.approx(sum(parts))
    assert found.joules == pytest.approx(found.watts * found.step_s)
    assert found.step_s == pytest.approx(sum(PHASES.values()))
    assert found.clock == 1.0


def test_one_phase_draws_what_the_law_says() -> None:
    law = power_law(H100)
    assert law is not None
    assert power({"gemm": 2.0}).watts == pytest.approx(H100.power_watts)
    assert power({"tp_comm": 2.0}).joules == pytest.approx(2.0 * 700 * law.share(1.0, law.busy["communication"]))


def test_power_and_seconds_of_a_step_scale_with_its_length() -> None:
    one, twice = power(PHASES), power({name: 2.0 * value for name, value in PHASES.items()})
    assert twice.watts == pytest.approx(one.watts)
    assert twice.joules == pytest.approx(2.0 * one.joules)


def test_a_lower_limit_never_takes_less_time_nor_more_power() -> None:
    found = [power(PHASES, power_limit_watts=watts) for watts in range(150, 900, 25)]
    assert all(a.step_s >= b.step_s for a, b in pairwise(found))
    assert all(a.watts <= b.watts for a, b in pairwise(found))
    assert found[-1] == power(PHASES)
    assert all(watts <= 400.0 * (1 + 1e-9) for watts in power(PHASES, power_limit_watts=400.0).phase_watts.values())


def test_a_limit_slows_compute_and_those_who_wait_for_it_but_not_communication() -> None:
    found = power({"gemm": 1.0, "dp_comm": 0.5, "bubble": 0.25}, power_limit_watts=450)
    law = power_law(H100)
    assert law is not None
    clock = law.clock_under(450 / 700, law.busy["gemm"])
    slower = 1.0 - law.bound["gemm"] + law.bound["gemm"] / clock
    assert found.phase_s["gemm"] == pytest.approx(slower)
    assert found.phase_s["bubble"] == pytest.approx(0.25 * slower)
    assert found.phase_s["dp_comm"] == 0.5


def test_derivative_in_the_limit_agrees_with_finite_differences() -> None:
    def joules(watts: Any) -> Any:
        found = step_power(PHASES, H100, power_limit_watts=watts)
        assert found is not None
        return found.joules

    with jax.enable_x64(True):
        found = jax.grad(joules)(jnp.asarray(500.0))
        assert float(found) == pytest.approx((joules(500.001) - joules(499.999)) / 0.002, rel=1e-5)


def test_waiting_for_the_network_draws_what_published_changes_imply() -> None:
    """-37.22 % throughput and -5.87 % power with compute shares of .8 to .9: P_comm / P_compute of .81 to .83 (2411.13055)."""
    found = power({"compute": 1.0, "dp_comm": 1.0}).phase_watts
    assert 0.81 <= found["dp_comm"] / found["compute"] <= 0.83
    before = power({"compute": 0.85, "dp_comm": 0.15})
    after = power({"compute": 0.85, "dp_comm": 0.15 + 1.0 / (1 - 0.3722) - 1.0})
    assert after.watts / before.watts - 1.0 == pytest.approx(-0.0587, abs=0.01)


def test_of_what_is_no_gpu_nothing_is_said() -> None:
    assert step_power({"compute": 1.0}, device("tpu-v5p")) is None
    for name in device_names():
        found = step_power({"compute": 1.0}, device(name))
        assert found is None or 0.8 < found.watts / device(name).power_watts <= 1.0


def test_every_kind_of_work_has_figures_and_rounding_below_zero_is_none() -> None:
    law = power_law(H100)
    assert law is not None
    assert set(KIND_OF.values()) <= set(law.busy)
    assert set(KIND_OF.values()) <= set(law.bound)
    assert power({"compute": 1.0, "waiting_for_stragglers": -1e-9}).watts == pytest.approx(
        power({"compute": 1.0}).watts
    )


@pytest.mark.parametrize(
    ("phases", "options", "message"),
    [
        ({"computing": 1.0}, {}, "is no phase of a step.*did you mean compute"),
        ({"compute": 1.0, "bubble": -0.1}, {}, "bubble = -0.1 s, but it must not be negative"),
        ({"compute": 0.0}, {}, "they must take some"),
        ({"compute": float("nan")}, {}, "they must take some"),
        ({}, {}, "they must take some"),
        ({"compute": 1.0}, {"power_limit_watts": 0.0}, "power_limit_watts = 0.0, but it must be finite and greater"),
        ({"compute": 1.0}, {"power_limit_watts": float("nan")}, "power_limit_watts = nan"),
    ],
)
def test_impossible_steps_are_refused(phases: dict[str, float], options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        step_power(phases, H100, **options)


def test_a_law_of_ones_own_is_used() -> None:
    law = PowerLaw(0.5, 2.0, 0.5, busy={"compute": 0.5}, bound={"compute": 1.0})
    assert power({"compute": 1.0}, law=law).watts == pytest.approx(0.75 * 700)
