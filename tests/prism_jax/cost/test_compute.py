"""Seconds of kernels: closed forms, limits, and laws of fp32."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import SpecError
from prism_jax.cost.compute import attention_s, class_seconds, gemm_s, op_seconds, stream_s
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

A100 = catalog.device("a100-80gb")
EFF = efficiency("ampere")
PEAK = A100.peak("bf16")
LARGE = st.integers(256, 16384)


def test_large_product_reaches_gemm_max() -> None:
    size = 256 * 108.0  # whole waves in both directions
    seconds = gemm_s(size, size, 1e6, 1, PEAK, A100, EFF)
    assert 2 * size**2 * 1e6 / (seconds * PEAK) == pytest.approx(EFF.gemm_max, rel=1e-3)


def test_one_tile_takes_as_long_as_a_full_wave() -> None:
    unsplit = replace(EFF, gemm_tiles=((256, 128, 1.0),), launch_s=1.0)  # a second kernel would never pay
    one = gemm_s(256, 128, 4096, 1, PEAK, A100, unsplit)
    assert one == gemm_s(256 * 108, 128, 4096, 1, PEAK, A100, unsplit)
    assert gemm_s(256, 128, 4096, 1, PEAK, A100, replace(unsplit, launch_s=0.0)) < one


def test_few_tiles_share_a_long_inner_dimension() -> None:
    tile = replace(EFF, gemm_tiles=((128, 128, 1.0),), gemm_k_half=0.0, launch_s=0.0)
    whole = 2.0 * 128 * 128 * 1e6 * A100.n_sm / (PEAK * EFF.gemm_max)
    added = 8 * 4.0 * 128 * 128 / (A100.hbm_bytes_per_s * EFF.memory)
    assert gemm_s(128, 128, 1e6, 1, PEAK, A100, tile) == pytest.approx(whole / 8 + added)  # 8 of 108 work
    full = gemm_s(128 * 108, 128, 1e6, 1, PEAK, A100, tile)
    assert full == pytest.approx(whole)  # no room: not split


@settings(deadline=None, derandomize=True, max_examples=40)
@given(LARGE, LARGE, LARGE)
def test_product_time_grows_with_every_size_and_never_beats_the_peak(m: int, n: int, k: int) -> None:
    seconds = gemm_s(m, n, k, 1, PEAK, A100, EFF)
    assert seconds >= 2.0 * m * n * k / PEAK
    for larger in ((2 * m, n, k), (m, 2 * n, k), (m, n, 2 * k)):
        assert gemm_s(*larger, 1, PEAK, A100, EFF) >= seconds


def test_functions_take_arrays() -> None:
    m = np.array([1024.0, 2048.0])
    seconds = gemm_s(m, 4096, 4096, 1, PEAK, A100, EFF)
    assert seconds.tolist() == [float(gemm_s(x, 4096, 4096, 1, PEAK, A100, EFF)) for x in m]


def test_nothing_takes_no_time() -> None:
    assert gemm_s(0, 128, 128, 1, PEAK, A100, EFF) == 0.0
    assert stream_s(0.0, 1.0, A100.hbm_bytes_per_s, EFF) == 0.0
    assert attention_s(0.0, 0.0, 0.0, 128, False, PEAK, A100.n_sm, EFF) == 0.0


def test_large_stream_reaches_its_share_of_bandwidth() -> None:
    assert 1e12 / stream_s(1e12, 1, A100.hbm_bytes_per_s, EFF) == pytest.approx(
        EFF.memory * A100.hbm_bytes_per_s, rel=1e-3
    )


def test_backward_attention_is_slower_per_flop() -> None:
    forward, backward = (attention_s(1e12, 4096, 64, 128, side, PEAK, A100.n_sm, EFF) for side in (False, True))
    assert backward > forward


# TFLOP/s of FlashAttention-3 on H100, heads of 128, by tokens of a sequence: arXiv 2407.08608 figures 5 and 6 (16k tokens of 16
# heads in all), facebookexperimental/triton PR 3582 (4 sequences of 48 heads). Backward tables count 2.5 times the forward.
PUBLISHED = [
    (False, 0.5, 16 * 16384, {1024: 423, 2048: 521, 4096: 579, 8192: 602, 16384: 616}),
    (False, 1.0, 16 * 16384, {512: 467, 1024: 565, 2048: 625, 4096: 638, 8192: 646, 16384: 648}),
    (True, 1.0, 16 * 16384, {512: 316, 1024: 424, 2048: 501, 4096: 542, 8192: 559, 16384: 561}),
    (False, 0.5, None, {1024: 364, 2048: 560, 4096: 667, 8192: 685}),
    (True, 0.5, None, {2048: 316, 4096: 444, 8192: 539}),
]


@pytest.mark.parametrize(("backward", "seen", "total", "table"), PUBLISHED)
def test_attention_is_faster_on_longer_sequences_as_published(
    backward: bool, seen: float, total: int | None, table: dict[int, float]
) -> None:
    h100, eff = catalog.device("h100-sxm"), efficiency("hopper")
    rates = []
    for length, published in table.items():
        heads = total / length if total else 4 * 48
        flops = 4.0 * heads * length**2 * 128 * seen * (2.0 if backward else 1.0)
        seconds = attention_s(flops, length, heads, 128, backward, h100.peak("bf16"), h100.n_sm, eff)
        rates.append(flops / seconds / 1e12 * (1.25 if backward else 1.0))
        assert rates[-1] == pytest.approx(published, rel=0.2)
    assert rates == sorted(rates)


def test_narrow_heads_are_slower() -> None:
    narrow, wide = (attention_s(1e12, 4096, 64, width, False, PEAK, A100.n_sm, EFF) for width in (64, 128))
    assert narrow > wide


def test_classes_add_up_to_the_ops() -> None:
    table = KernelTable.of(
        [
            Kernel("p", "F", "gemm", 2.0 * 1024**3, 6.0 * 1024**2, 1, 1024, 1024, 1024),
            Kernel("a", "B", "attention", 1e11, 1e8, 1, 2048, 2048, 128, 32, True, "bf16"),
            Kernel("s", "W", "memory", 0.0, 1e9),
        ]
    )
    by_class = class_seconds(table, A100, "bf16", EFF)
    assert by_class.sum() == pytest.approx(op_seconds(table, A100, "bf16", EFF).sum())
    assert np.count_nonzero(by_class) == 3


@pytest.mark.parametrize("name", catalog.device_names())
def test_every_preset_device_has_constants(name: str) -> None:
    assert 0.0 < efficiency(catalog.device(name).generation).in_step <= 1.0


def test_unknown_generation_names_the_known_ones() -> None:
    with pytest.raises(SpecError, match="ampere"):
        efficiency("fermi")


def test_the_factor_of_fp8_is_that_of_products_in_fp8_alone() -> None:
    h100, hopper = catalog.device("h100"), efficiency("hopper")
    ops = [
        Kernel("fp8", "F", "gemm", 1e12, 1e9, 1.0, 8192.0, 8192.0, 8192.0),
        Kernel("router", "F", "gemm", 1e12, 1e9, 1.0, 8192.0, 8192.0, 8192.0, dtype="bf16"),
        Kernel("cast", "F", "memory", 0.0, 1e9),
    ]
    slow = replace(hopper, correction=replace(hopper.correction, fp8=1.5))
    ratio = {
        dtype: op_seconds(KernelTable.of(ops), h100, dtype, slow) / op_seconds(KernelTable.of(ops), h100, dtype, hopper)
        for dtype in ("fp8", "bf16")
    }
    assert ratio["fp8"] == pytest.approx([1.5, 1.0, 1.0])
    assert ratio["bf16"] == pytest.approx([1.0, 1.0, 1.0])


# --- Convolutions, element-wise kernels and the power roof: limits that are known without a measurement --------------


V100 = catalog.device("v100-pcie")
FP32_LAWS_EFF = cuda_core_efficiency(V100)
WAYS = replace(convolution_ways(), implicit=1.0)


def test_a_convolution_of_one_pixel_is_the_matrix_product() -> None:
    pixels = Convolution(8.0, 512.0, 1024.0, 28.0, 28.0, 1.0, 1.0)
    product = gemm_s(8.0 * 28 * 28, 1024.0, 512.0, 1.0, V100.peak("fp32"), V100, FP32_LAWS_EFF)
    assert float(convolution_s(pixels, V100, FP32_LAWS_EFF, WAYS)) == pytest.approx(float(product))


@pytest.mark.parametrize(("filter_size", "stride"), [(3.0, 2.0), (5.0, 1.0), (1.0, 1.0)])
def test_winograd_is_for_three_by_three_with_stride_one_alone(filter_size: float, stride: float) -> None:
    sizes = Convolution(8.0, 64.0, 64.0, 28.0, 28.0, filter_size, filter_size, stride)
    assert np.isinf(ways_s(sizes, V100, FP32_LAWS_EFF, WAYS)[1:3]).all()


def test_winograd_exceeds_the_peak_of_the_direct_formula_but_not_its_saving() -> None:
    large = Convolution(64.0, 1024.0, 1024.0, 64.0, 64.0, 3.0, 3.0)
    rate = large.flops / convolution_s(large, V100, FP32_LAWS_EFF, replace(WAYS, winograd_apart=1.0))
    assert V100.peak("fp32") < rate < 4.0 * V100.peak("fp32")


def test_groups_divide_the_work() -> None:
    whole = Convolution(8.0, 64.0, 64.0, 28.0, 28.0, 3.0, 3.0)
    assert whole._replace(groups=4.0).flops == whole.flops / 4.0
    assert np.isinf(ways_s(whole._replace(groups=4.0), V100, FP32_LAWS_EFF, WAYS)[1:]).all()


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
    unlimited = replace(FP32_LAWS_EFF, flop_joules=0.0)
    tensor = op_seconds(table, a100, "fp32", unlimited)
    plain = op_seconds(table, cuda_core_device(a100), "fp32", unlimited)
    assert float(plain[0] / tensor[0]) > 4.0


@pytest.mark.parametrize("name", sorted(VECTOR_OPS))
def test_large_element_wise_kernels_take_the_time_of_their_bytes(name: str) -> None:
    op = VECTOR_OPS[name]
    rows = np.array([1e5, 2e5])
    seconds = vector_s(
        op, rows, np.array(4096.0), V100, FP32_LAWS_EFF, replace(vector_constants(), softmax_row_s=0, norm_row_s=0)
    )
    passes = {"softmax": vector_constants().softmax_passes, "norm": vector_constants().norm_passes}.get(op.kind, 1.0)
    bandwidth = V100.hbm_bytes_per_s * FP32_LAWS_EFF.memory
    assert seconds[1] - seconds[0] == pytest.approx(1e5 * 4096 * 4 * op.moved * passes / bandwidth, rel=1e-6)


def test_powers_are_bound_by_arithmetic_on_amd() -> None:
    mi210 = catalog.device("mi210")
    eff, sizes = cuda_core_efficiency(mi210), (np.array([1e5]), np.array([4096.0]))
    power, product = (
        float(vector_s(VECTOR_OPS[name], *sizes, mi210, eff, vector_constants())[0]) for name in ("pow", "mul")
    )
    assert power > 1.5 * product
