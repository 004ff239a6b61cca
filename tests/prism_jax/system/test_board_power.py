"""Boards with fewer watts for their peak: the law, and where it holds."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.kernel_laws import cuda_core_device
from prism_jax.system.catalog import device
from prism_jax.system.hardware import Device
from prism_jax.system.likeness import board_speed, device_like
from prism_jax.system.power import power_law
from prism_jax.workload.base.kernels import Kernel, KernelTable

MEASURED = ("v100-32gb", "a100-80gb", "h100-sxm", "b200", "l40s", "a40")
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
