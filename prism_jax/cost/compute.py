"""Seconds of kernels on one device: a roofline whose two roofs depend on the size of the kernel.

    t = max(FLOPs / (peak b e), bytes / (bandwidth e_mem)) / in_step + launches x launch gap        b: `board_speed`

For a matrix product, `FLOPs / e` is the time of whole waves of output tiles over the multiprocessors, each tile with
`k + k_half` steps, for the best of a few tile shapes and of a few ways to split `k`: tile and wave quantisation as in NVIDIA's
"Matrix Multiplication Background User's Guide". Every function is arithmetic on arrays of any (broadcastable) shape. Sizes of
kernels are plain numbers; peaks, bandwidths and constants of the device may be traced by JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..core.arrays import Floats, Values, is_traced, namespace
from ..core.kernels import COMPUTE_CLASSES, KERNEL_CLASSES, PASSES, KernelSizes, Roof
from ..plan.fields import QUANTISED
from ..system import catalog
from ..system.hardware import RATE_OF, Device
from ..system.likeness import board_speed, tensor_core_cut
from ..workload.base.kernels import CAST, CONVOLUTION, TENSOR_CORES, WINOGRAD, KernelTable
from .efficiency import Efficiency, with_cuda_core_products

_BLOCK_ROWS = 128  # query rows of one block of a fused attention kernel (arXiv 2307.08691 section 3.3)
SPLITS = (1, 2, 3, 4, 6, 8)  # parts of the inner dimension that libraries cut a product into
ALIGNED = 16  # elements: 32 bytes, one sector of device memory
# Speed of a convolution in fp32 without TF32 over that of the plain product of its sizes. Winograd's F(4x4, 3x3): 4 times fewer
# multiplications at .68 of the speed of a product (cuda_cores.toml); edges and transforms take a third (arXiv 1509.09308).
_CUDA_CORE_GAIN = {CONVOLUTION: 1.0, WINOGRAD: 1.9}
_FULL_WIDTH = 128.0  # head width that the attention shares are stated for


def gemm_s(
    m: ArrayLike,
    n: ArrayLike,
    k: ArrayLike,
    batch: ArrayLike,
    peak_flops_per_s: ArrayLike,
    device: Device,
    eff: Efficiency,
) -> Floats:
    """Compute-bound seconds of `batch` products m x k times k x n, without launch; zero for an empty product.

    Notes:
        Where tiles are too few to fill the device the inner dimension is split (split-K): each part writes its sums in fp32, and
        a second kernel adds them up.
    """
    xp = namespace(peak_flops_per_s, device, eff)
    m, n, k, batch = (np.asarray(x, dtype=np.float64) for x in (m, n, k, batch))
    per_sm = xp.asarray(peak_flops_per_s, dtype=float) * eff.gemm_max / device.n_sm
    ways = [1] * max(m.ndim, n.ndim, k.ndim, batch.ndim, per_sm.ndim)
    per_sm = per_sm.reshape(*([1] * (2 + len(ways) - per_sm.ndim)), *per_sm.shape)
    rows, columns, relative = np.array(eff.gemm_tiles).T.reshape(3, -1, 1, *ways)
    parts = np.array(SPLITS, dtype=np.float64).reshape(1, -1, *ways)
    n_tile = np.ceil(m / rows) * np.ceil(n / columns) * batch
    n_wave = np.ceil(n_tile * parts / device.n_sm)
    tiled = n_wave * 2.0 * rows * columns * (k / parts + eff.gemm_k_half) / (per_sm * relative)
    if is_traced(eff.flop_joules) or eff.flop_joules:
        tiled = xp.maximum(tiled, n_tile * 2.0 * rows * columns * k * eff.flop_joules / device.power_watts)
    added = parts * 4.0 * m * n * batch / (device.hbm_bytes_per_s * eff.memory) + eff.launch_s
    best = (tiled + xp.where(parts > 1.0, added, 0.0)).min(axis=(0, 1))
    odd = (np.mod(n, ALIGNED) > 0.0) | (np.mod(k, ALIGNED) > 0.0)
    best = best * xp.where(odd, eff.gemm_misaligned, 1.0)
    return xp.where(m * n * k * batch > 0.0, best, 0.0)


def attention_s(
    flops: ArrayLike,
    rows: ArrayLike,
    heads: ArrayLike,
    width: ArrayLike,
    backward: ArrayLike,
    peak_flops_per_s: ArrayLike,
    n_sm: int,
    eff: Efficiency,
) -> Floats:
    """Compute-bound seconds of fused attention over `heads` (times sequences) of `rows` queries and `width` dimensions.

    Notes:
        `flops` say how many keys a query sees on average (causal: half of the sequence); a kernel with few of them spends its
        time on loading queries, masking the diagonal and writing outputs, and a backward pass on adding up their gradients.
    """
    xp = namespace(peak_flops_per_s, eff)
    waves = np.ceil(np.asarray(rows, dtype=np.float64) / _BLOCK_ROWS) * np.asarray(heads, dtype=np.float64) / n_sm
    backward = np.asarray(backward, dtype=bool)
    top = xp.where(backward, eff.attention_backward, eff.attention_forward)
    half = xp.where(backward, eff.attention_backward_half_waves, eff.attention_forward_half_waves)
    width, flops = np.asarray(width, dtype=np.float64), np.asarray(flops, dtype=np.float64)
    pairs = 4.0 * np.asarray(rows, dtype=np.float64) * np.asarray(heads, dtype=np.float64) * width
    keys = flops / np.where(backward, 2.0, 1.0) / np.where(pairs > 0.0, pairs, 1.0)
    half_keys = xp.where(backward, eff.attention_backward_half_keys, eff.attention_forward_half_keys)
    narrow = width / (width + eff.attention_half_width) * (_FULL_WIDTH + eff.attention_half_width) / _FULL_WIDTH
    reached = top * xp.minimum(narrow, 1.0) * waves / (waves + half) * keys / (keys + half_keys)
    peak = xp.asarray(peak_flops_per_s, dtype=float)
    return xp.where(flops > 0.0, flops / (peak * xp.where(reached > 0.0, reached, 1.0)), 0.0)


def stream_s(hbm_bytes: ArrayLike, n_launch: ArrayLike, hbm_bytes_per_s: float, eff: Efficiency) -> Floats:
    """Seconds of memory-bound passes over `hbm_bytes` in `n_launch` equal kernels, without launch gaps.

    Notes:
        `bytes / (B e s / (s + s_half))` with s the bytes of one kernel, which is `(bytes + n_launch s_half) / (B e)`. Of a
        kernel of s bytes a share `1 - s / cache` was left in the cache by the one before, and is read `cache_speed` as fast.
    """
    xp = namespace(hbm_bytes_per_s, eff)
    size = xp.asarray(hbm_bytes, dtype=float)
    launches = np.asarray(n_launch, dtype=np.float64)
    cached = xp.clip(1.0 - size / np.maximum(launches, 1.0) / eff.cache_bytes, 0.0, 1.0)
    filled = size * (1.0 - cached * (1.0 - 1.0 / eff.cache_speed)) + launches * eff.memory_half_bytes
    return xp.where(size > 0.0, filled / (hbm_bytes_per_s * eff.memory), 0.0)


def op_seconds(table: KernelTable, device: Device, dtype: str, eff: Efficiency) -> Floats:
    """Seconds of every op of `table` inside a step, without any overlap, shape [op]; `dtype` is the plan's."""
    return uncorrected_seconds(table, device, dtype, eff) * correction_factors(table, device, dtype, eff)


def correction_factors(table: KernelTable, device: Device, dtype: str, eff: Efficiency) -> Values:
    """Factors [op] by which the correction of `eff` changes the seconds of every op."""
    if not len(table):
        return np.zeros(0)
    xp = namespace(device, eff)
    knobs = [getattr(eff.correction, KERNEL_CLASSES.named(name).knob) for name in table.kernel_classes]
    factor = xp.asarray(knobs, dtype=float)[table.kernel_index]
    if dtype in QUANTISED:
        factor = factor * xp.where(table.products_in_plan_dtype, eff.correction.fp8, 1.0)
    for knob, scaled in table.by_knob.items():
        factor = factor * xp.where(scaled, getattr(eff.correction, knob), 1.0)
    return factor if (measured := table.measured_in_step) is None else xp.where(measured, 1.0, factor)


def uncorrected_seconds(table: KernelTable, device: Device, dtype: str, eff: Efficiency) -> Floats:
    """Seconds [op] as those of `op_seconds`, without the correction of `eff`."""
    if not len(table):
        return np.zeros(0)
    xp = namespace(device, eff)
    classes = [KERNEL_CLASSES.named(name) for name in table.kernel_classes]
    is_gemm, is_attention = (table.is_of(name) for name in ("gemm", "attention"))
    flops, hbm = table.column("flops"), table.column("hbm_bytes")
    m, n, k, batch = (table.column(name) for name in ("m", "n", "k", "batch"))
    launches = table.column("n_launch")
    dtypes, variants = [_dtype_of(own, device, dtype) for own in table.values("dtype")], table.values("variant")
    peak = _peaks(dtypes, device, eff, xp)
    product = gemm_s(m, n, k, batch, peak, device, eff)
    recipes = dict(eff.gemm_recipes)
    product = product * np.array([recipes.get(variant, 1.0) for variant in variants])
    gains = np.array(
        [_CUDA_CORE_GAIN.get(own, 0.0) * (name == "fp32") for own, name in zip(variants, dtypes, strict=True)]
    )
    if gains.any():
        on_cores = gemm_s(m, n, k, batch, peak, device, with_cuda_core_products(eff))
        product = xp.where(gains > 0.0, on_cores / np.where(gains > 0.0, gains, 1.0), product)
    fused = attention_s(flops, m, batch, k, table.column("flash_backward"), peak, device.n_sm, eff)
    slower = dict(eff.attention_kernels)
    fused = fused * np.array([slower.get(variant, 1.0) for variant in variants])
    products = flops / (peak * eff.gemm_max)
    fused = products + xp.maximum(fused - products, 0.0) * tensor_core_cut(device)
    busy = xp.where(is_gemm, product, xp.where(is_attention, fused, 0.0))
    for each in classes:
        if each.busy_s is not None:
            is_own = table.is_of(each.name)
            rows = np.flatnonzero(is_own)
            own = _own_s(each.busy_s, table, rows, peak[rows], device, eff)
            busy = xp.where(is_own, own[np.cumsum(is_own) - 1], busy)
    moved = hbm * xp.where(np.array([variant == CAST for variant in variants]), eff.cast_traffic, 1.0)
    memory = stream_s(moved, launches, device.hbm_bytes_per_s, eff)
    alone = _with_laws(xp.maximum(busy, memory), table, device, eff, xp)
    runs = np.array([own != TENSOR_CORES or name != "fp32" for own, name in zip(variants, dtypes, strict=True)])
    measured = table.measured_in_step
    in_step = eff.in_step if measured is None else xp.where(measured, 1.0, eff.in_step)
    return (alone / in_step + launches * eff.launch_s) * (table.column("count") * runs)


def _with_laws(seconds: Floats, table: KernelTable, device: Device, eff: Efficiency, xp: Any) -> Floats:
    """Returns `seconds` [op], replaced for ops that have a law of their own."""
    laws = table.values("law")
    if not any(law is not None for law in laws):
        return seconds
    own = [0.0 if law is None else law.seconds(device, eff.cache_bytes) for law in laws]
    return xp.where(np.array([law is None for law in laws]), seconds, xp.asarray(own, dtype=float))


def _peaks(dtypes: list[str], device: Device, eff: Efficiency, xp: Any) -> Values:
    """FLOP/s that products reach at most, by the dtype of each op, [op]."""
    names = sorted(set(dtypes))
    own = xp.asarray([_reached(name, device, eff) for name in names], dtype=float)
    return own[np.array([names.index(name) for name in dtypes])]


def _reached(dtype: str, device: Device, eff: Efficiency) -> Values:
    """Returns the FLOP/s that products of one format reach."""
    peak = device.peak(dtype) * (eff.gemm_fp8 if dtype in QUANTISED else 1.0)
    return peak if dtype == "fp32" else peak * board_speed(device, RATE_OF.get(dtype, dtype))


def peak_shares(name: str, eff: Efficiency) -> tuple[float, float, float]:
    """Returns the shares of the peak reached in a step by endless products, those in 8 bits and attention; smaller factors would
    exceed the peak.

    Args:
        name: of a preset, for the speed of its board; that of the generation's measured board for any other.
    """
    device = catalog.device(name) if catalog.known_device(name) else None
    speed = eff.in_step * (1.0 if device is None else float(board_speed(device)))
    cut = 1.0 if device is None else float(tensor_core_cut(device))
    whole = max(eff.attention_forward, eff.attention_backward)
    attention = 1.0 / (1.0 / eff.gemm_max + max(1.0 / whole - 1.0 / eff.gemm_max, 0.0) * cut)
    return speed * eff.gemm_max, speed * eff.gemm_max * eff.gemm_fp8, speed * attention


def _own_s(
    law: Callable[[KernelSizes, Roof], Floats],
    table: KernelTable,
    rows: NDArray[np.intp],
    peak: Floats,
    device: Device,
    eff: Efficiency,
) -> Floats:
    """Seconds by the law of a caller's class of the ops at `rows`, whose peaks are `peak` [row]."""
    sizes = KernelSizes(*(table.column(field)[rows] for field in KernelSizes._fields))

    def product_s(m: ArrayLike, n: ArrayLike, k: ArrayLike, batch: ArrayLike) -> Floats:
        return gemm_s(m, n, k, batch, peak, device, eff)

    return law(sizes, Roof(peak, device.hbm_bytes_per_s, device.n_sm, product_s))


def _dtype_of(own: str, device: Device, dtype: str) -> str:
    """Format in which an op of dtype `own` runs: TF32 for fp32 plans where there is one, 16 bits for ops that leave fp8."""
    if dtype == "fp32":
        return device.product_dtype(dtype)
    if own == "plan" or dtype in ("fp16", "bf16"):
        return dtype
    return "bf16" if "bf16" in device.peak_flops_per_s else "fp16"


def class_seconds(
    table: KernelTable,
    device: Device,
    dtype: str,
    eff: Efficiency,
    classes: Sequence[str] = COMPUTE_CLASSES,
    uncorrected_s: Values | None = None,
) -> Floats:
    """Seconds by phase and kernel class, shape [kind, compute_class] in the order of `classes`.

    Args:
        uncorrected_s: [op] `uncorrected_seconds` where they are known.

    Raises:
        SpecError: a kernel is of none of the classes.
    """
    shape = len(PASSES), len(classes)
    if not len(table):
        return np.zeros(shape)
    alone_s = uncorrected_seconds(table, device, dtype, eff) if uncorrected_s is None else uncorrected_s
    seconds = alone_s * correction_factors(table, device, dtype, eff)
    return namespace(seconds).where(table.cells(classes), seconds[None, :], 0.0).sum(axis=-1).reshape(shape)
