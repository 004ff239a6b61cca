"""Convolutions, element-wise kernels and the power roof: limits that are known without a measurement."""

from dataclasses import replace

import numpy as np
import pytest

from prism_jax.cost.compute import gemm_s, op_seconds
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.kernel_laws import (
    VECTOR_OPS,
    Convolution,
    convolution_s,
    convolution_ways,
    cuda_core_device,
    cuda_core_efficiency,
    vector_constants,
    vector_s,
    ways_s,
)
from prism_jax.system import catalog
from prism_jax.workload.base.kernels import Kernel, KernelTable

V100 = catalog.device("v100-pcie")
EFF = cuda_core_efficiency(V100)
WAYS = replace(convolution_ways(), implicit=1.0)


def test_a_convolution_of_one_pixel_is_the_matrix_product() -> None:
    pixels = Convolution(8.0, 512.0, 1024.0, 28.0, 28.0, 1.0, 1.0)
    product = gemm_s(8.0 * 28 * 28, 1024.0, 512.0, 1.0, V100.peak("fp32"), V100, EFF)
    assert float(convolution_s(pixels, V100, EFF, WAYS)) == pytest.approx(float(product))


@pytest.mark.parametrize(("filter_size", "stride"), [(3.0, 2.0), (5.0, 1.0), (1.0, 1.0)])
def test_winograd_is_for_three_by_three_with_stride_one_alone(filter_size: float, stride: float) -> None:
    sizes = Convolution(8.0, 64.0, 64.0, 28.0, 28.0, filter_size, filter_size, stride)
    assert np.isinf(ways_s(sizes, V100, EFF, WAYS)[1:3]).all()


def test_winograd_exceeds_the_peak_of_the_direct_formula_but_not_its_saving() -> None:
    large = Convolution(64.0, 1024.0, 1024.0, 64.0, 64.0, 3.0, 3.0)
    rate = large.flops / convolution_s(large, V100, EFF, replace(WAYS, winograd_apart=1.0))
    assert V100.peak("fp32") < rate < 4.0 * V100.peak("fp32")


def test_groups_divide_the_work() -> None:
    whole = Convolution(8.0, 64.0, 64.0, 28.0, 28.0, 3.0, 3.0)
    assert whole._replace(groups=4.0).flops == whole.flops / 4.0
    assert np.isinf(ways_s(whole._replace(groups=4.0), V100, EFF, WAYS)[1:]).all()


def test_no_large_product_outruns_the_power_limit() -> None:
    t4 = catalog.device("t4")
    eff = cuda_core_efficiency(t4)
    n = 8192.0
    rate = 2.0 * n**3 / float(gemm_s(n, n, n, 1.0, t4.peak("fp32"), t4, eff))
    assert rate == pytest.approx(t4.power_watts / eff.flop_joules, rel=1e-6)
    assert rate < 0.6 * t4.peak("fp32")


@pytest.mark.parametrize("generation", ["volta", "ampere", "hopper", "cdna3"])
def test_presets_of_training_steps_have_no_power_roof(generation: str) -> None:
    assert efficiency(generation).flop_joules == 0.0


def test_a_plan_in_fp32_runs_as_tf32_unless_the_device_has_none() -> None:
    a100 = catalog.device("a100-pcie")
    table = KernelTable.of([Kernel("p", "F", "gemm", 2.0 * 8192**3, 12.0 * 8192**2, 1.0, 8192.0, 8192.0, 8192.0)])
    unlimited = replace(EFF, flop_joules=0.0)
    tensor = op_seconds(table, a100, "fp32", unlimited)
    plain = op_seconds(table, cuda_core_device(a100), "fp32", unlimited)
    assert float(plain[0] / tensor[0]) > 4.0


@pytest.mark.parametrize("name", sorted(VECTOR_OPS))
def test_large_element_wise_kernels_take_the_time_of_their_bytes(name: str) -> None:
    op = VECTOR_OPS[name]
    rows = np.array([1e5, 2e5])
    seconds = vector_s(
        op, rows, np.array(4096.0), V100, EFF, replace(vector_constants(), softmax_row_s=0, norm_row_s=0)
    )
    passes = {"softmax": vector_constants().softmax_passes, "norm": vector_constants().norm_passes}.get(op.kind, 1.0)
    bandwidth = V100.hbm_bytes_per_s * EFF.memory
    assert seconds[1] - seconds[0] == pytest.approx(1e5 * 4096 * 4 * op.moved * passes / bandwidth, rel=1e-6)


def test_powers_are_bound_by_arithmetic_on_amd() -> None:
    mi210 = catalog.device("mi210")
    eff, sizes = cuda_core_efficiency(mi210), (np.array([1e5]), np.array([4096.0]))
    power, product = (
        float(vector_s(VECTOR_OPS[name], *sizes, mi210, eff, vector_constants())[0]) for name in ("pow", "mul")
    )
    assert power > 1.5 * product
