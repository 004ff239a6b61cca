"""Power: the law of clocks, steps of GPUs at their limit, boards."""

from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from prism_jax.core.errors import SpecError
from prism_jax.cost.compute import op_seconds, uncorrected_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.kernel_laws import cuda_core_device
from prism_jax.system.catalog import device, device_names
from prism_jax.system.hardware import Device
from prism_jax.system.likeness import board_speed, device_like
from prism_jax.system.power import KIND_OF, PowerLaw, StepPower, power_law, slowdown, step_power
from prism_jax.workload.base.kernels import CAST, Kernel, KernelTable

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


# --- Power of a step: sums, limits, derivatives, published anchors, and phases that are refused ----------------------


H100 = device("h100-sxm")
H100_LAW = cast("PowerLaw", power_law(H100))
PHASES = {"gemm": 0.6, "attention": 0.1, "memory": 0.2, "slowed": 0.05, "dp_comm": 0.2, "bubble": 0.1, "stalls": 0.01}


def power(phases: dict[str, Any], **options: Any) -> StepPower:
    return cast("StepPower", step_power(phases, H100, **options))


def test_energy_is_the_sum_over_phases_and_mean_power_times_time() -> None:
    found = power(PHASES)
    parts = [found.phase_s[name] * found.phase_watts[name] for name in PHASES]
    assert found.joules == pytest.approx(sum(parts))
    assert found.joules == pytest.approx(found.watts * found.step_s)
    assert found.step_s == pytest.approx(sum(PHASES.values()))
    assert found.clock == 1.0


def test_one_phase_draws_what_the_law_says() -> None:
    assert power({"gemm": 2.0}).watts == pytest.approx(H100.power_watts)
    assert power({"tp_comm": 2.0}).joules == pytest.approx(
        2.0 * 700 * H100_LAW.share(1.0, H100_LAW.busy["communication"])
    )


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
    clock, bound = H100_LAW.clock_under(450 / 700, H100_LAW.busy["gemm"]), H100_LAW.bound["gemm"]
    slower = 1.0 - bound + bound / clock
    assert found.phase_s["gemm"] == pytest.approx(slower)
    assert found.phase_s["bubble"] == pytest.approx(0.25 * slower)
    assert found.phase_s["dp_comm"] == 0.5


def test_derivative_in_the_limit_agrees_with_finite_differences() -> None:
    def joules(watts: Any) -> Any:
        return power(PHASES, power_limit_watts=watts).joules

    with jax.enable_x64(True):
        found = jax.grad(joules)(jnp.asarray(500.0))
        assert float(found) == pytest.approx((joules(500.001) - joules(499.999)) / 0.002, rel=1e-5)


def test_waiting_for_the_network_draws_what_published_changes_imply() -> None:
    """-37.22% throughput and -5.87% power with compute shares of .8 to .9: P_comm / P_compute of .81 to .83 (2411.13055)."""
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
    assert set(KIND_OF.values()) <= set(H100_LAW.busy)
    assert set(KIND_OF.values()) <= set(H100_LAW.bound)
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


# --- Boards with fewer watts for their peak: the law, and where it holds ---------------------------------------------


MEASURED = ("v100-32gb", "a100-80gb", "h100-sxm", "b200", "gb200", "l40s", "a40")
SIZE = 8192.0
PRODUCT = KernelTable.of([Kernel("p", "F", "gemm", 2.0 * SIZE**3, 12.0 * SIZE**2, 1.0, SIZE, SIZE, SIZE)])


@pytest.mark.parametrize("name", [*MEASURED, "a800", "h800", "h200", "mi300x", "tpu-v5p", "p100-pcie"])
def test_boards_that_were_measured_and_those_without_a_law_keep_their_shares(name: str):
    assert board_speed(device(name)) == 1.0


def test_a_board_that_is_held_back_runs_at_the_clock_of_its_power():
    pcie, sxm = device("a100-pcie"), device("a100-80gb")
    law = power_law(sxm)
    assert law is not None
    drawn = law.dynamic(board_speed(pcie)) * sxm.power_watts
    assert drawn == pytest.approx(pcie.power_watts)


@pytest.mark.parametrize(("name", "of", "faster"), [("gb300", "gb200", (1.11, 1.19)), ("b300", "b200", (1.06, 1.15))])
def test_a_blackwell_board_with_more_watts_is_faster(name: str, of: str, faster: tuple[float, float]):
    """Large products of aiconfigurator, in bf16, fp8 and fp8 by blocks; and as much by watts alone."""
    more, less = device(name), device(of)
    assert faster[0] <= board_speed(more) * more.peak("bf16") / less.peak("bf16") <= faster[1]
    given = device_like(of, power_watts=more.power_watts)
    assert given.peak_flops_per_s == less.peak_flops_per_s
    assert board_speed(given) == pytest.approx(board_speed(more))
    assert board_speed(device_like(of, power_watts=5000.0)) == pytest.approx(1.26)  # the power holds nothing back


def test_a_peak_that_more_watts_do_not_pay_for_is_not_reached():
    """GB300 has 1.5 times the fp4 peak of GB200 and 1.17 times its watts; large products gain 1.18 to 1.27 (aiconfigurator)."""
    more, less = device("gb300"), device("gb200")
    assert 1.18 <= board_speed(more, "fp4") * more.peak("fp4") / less.peak("fp4") <= 1.27


def test_cut_tensor_cores_leave_the_rest_of_attention_as_it_is():
    """H20 has a quarter of H100's peak on every multiprocessor: attention reaches more of it than products lose."""
    eff = efficiency("hopper")
    fused = Kernel("a", "F", "attention", 1e15, 1e9, 1.0, 65536.0, 65536.0, 128.0, 512.0)
    table = KernelTable.of([fused])
    h100, h20 = (
        1e15 / float(uncorrected_seconds(table, own, "bf16", eff)[0]) / own.peak("bf16") / board_speed(own)
        for own in (H100, device("h20"))
    )
    assert eff.attention_forward * eff.in_step * 0.9 < h100 < h20 < eff.gemm_max * eff.in_step


def test_casts_on_cdna_move_what_separate_passes_move():
    eff, own = efficiency("cdna4"), device("mi355x")
    cast = Kernel("c", "F", "memory", 0.0, 4e9, 1.0, variant=CAST)
    plain = KernelTable.of([cast._replace(variant="")])
    ratio = uncorrected_seconds(KernelTable.of([cast]), own, "fp8", eff) / uncorrected_seconds(plain, own, "fp8", eff)
    assert ratio[0] == pytest.approx(7 / 3, rel=0.02)


def test_a_board_with_room_gains_what_power_held_back_and_no_more():
    assert board_speed(device("rtx-4090")) == pytest.approx(1.39)
    assert 1.0 < board_speed(device("l40")) < 1.39


def test_speed_is_continuous_and_grows_with_power():
    base = replace(device("l40s"), name="own board")
    watts = np.linspace(60.0, 900.0, 500)
    speeds = np.array([float(board_speed(replace(base, power_watts=w))) for w in watts])
    assert (np.diff(speeds) >= 0.0).all()
    assert np.diff(speeds).max() < 0.02
    assert board_speed(replace(base, power_watts=350.0)) == pytest.approx(1.0)


def test_more_peak_on_the_same_watts_is_never_slower():
    base = replace(device("h100-nvl"), name="own board")
    peaks = base.peak("fp16") * np.geomspace(0.2, 8.0, 200)
    reached = [peak * float(board_speed(replace(base, peak_flops_per_s={"fp16": peak}))) for peak in peaks.tolist()]
    assert (np.diff(reached) > -1e-6 * np.array(reached[1:])).all()


def test_a_power_limit_of_the_user_counts_once():
    limited = device_like("h100-sxm", power_watts=500.0)  # its peaks are those at the lower clock
    assert board_speed(limited) == 1.0
    assert board_speed(device_like("h100-pcie", power_watts=300.0)) == board_speed(device("h100-pcie"))


def test_tensor_cores_slow_down_and_cuda_cores_do_not():
    own = replace(device("l4"), name="own board")
    roomy, eff = replace(own, power_watts=1000.0), efficiency("ada")

    def product_s(board: Device, dtype: str) -> float:
        return float(op_seconds(PRODUCT, board, dtype, eff)[0])

    gap = eff.launch_s
    ratio = (product_s(own, "bf16") - gap) / (product_s(roomy, "bf16") - gap)
    assert ratio == pytest.approx(1.39 / float(board_speed(own)))
    assert product_s(cuda_core_device(own), "fp32") == product_s(cuda_core_device(roomy), "fp32")
