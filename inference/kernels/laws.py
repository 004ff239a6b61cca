"""Kernel shapes as numbers, and laws of fp32 kernels that carry over between GPUs.

Axes of a matrix product: m, n, k, groups x batch. Of fused attention: rows of a sequence, batch x heads, head width, heads per
key-value head. Of a pass over memory: bytes read and written. Of a convolution: the fields of
`cost.kernel_laws.Convolution`. Of an element-wise kernel or one over rows: rows, values in a row. Further axes are ones. Features
of the smooth part of log efficiency are fixed functions of the shape, in doublings along its axes, and of the number of
multiprocessors; nothing of them is fitted.

A class (op and dtype) has a law, log seconds from a device's datasheet and constants that GPUs share, where its kernels run
without tensor cores: products, convolutions and element-wise kernels in fp32. The constants are pooled over the GPUs of the
class (robust least squares, every GPU with the same weight, priors below); the deviations of single GPUs are what the model's
coefficients say: the features of such a class are the slopes of the law in its constants, so that a GPU that was not measured
deviates by the spread that the measured ones show.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from prism_jax.core.arrays import Floats
from prism_jax.cost.compute import gemm_s, stream_s
from prism_jax.cost.efficiency import Efficiency
from prism_jax.cost.kernel_laws import (
    VECTOR_OPS,
    Convolution,
    convolution_s,
    convolution_ways,
    cuda_core_efficiency,
    relative_flop_joules,
    vector_constants,
    vector_s,
)
from prism_jax.system import catalog
from prism_jax.system.hardware import Device

# Doublings: the middle of common shapes, and how far they reach.
CENTRE = {
    "gemm": (12.0, 12.5, 12.5, 0.0),
    "attention": (12.0, 5.0, 7.0, 0.0),
    "memory": (26.0, 0.0, 0.0, 0.0),
}
WIDTH = {"gemm": (2.5, 2.5, 2.5, 4.0), "attention": (2.5, 2.0, 1.0, 3.0), "memory": (3.0, 1.0, 1.0, 1.0)}
# Operations per element moved at which the memory roof meets the compute roof, from fp32 to 4-bit types.
RIDGES = (50.0, 150.0, 500.0)
LAUNCH_WORK = (1e9, 1e10, 1e11)  # multiply-adds that take as long as launching a kernel, from small to large GPUs
LONG_SUMS = (128.0, 1024.0)  # inner dimension at which prologue and epilogue of a tile cost as much as its body
TILES = ((128, 128), (128, 256), (256, 256), (64, 128))  # output tiles of CUTLASS and cuBLAS kernels
BLOCK_ROWS = 128  # query rows per block of fused attention (arXiv 2307.08691 section 3.3)
LIKELY_N_SM = 132  # where the GPU is not known: a Hopper
MEMORY_OPS = ("memory", "copy", "stream", "elementwise")
CONVOLUTIONS = ("conv", "conv2d", "convolution")
FULL = "_full"  # end of the name of attention ops without a causal mask
BLOCKS = ("level", "shape", "roofline", "waves")
"""Kinds of features; each has its own prior scale."""


def family(op: str) -> str:
    """Family of an op, which says which axes it has, such as "gemm", "attention", "memory", "convolution" or "vector"."""
    if op in MEMORY_OPS:
        return "memory"
    if op in CONVOLUTIONS or op in VECTOR_OPS:
        return "convolution" if op in CONVOLUTIONS else "vector"
    return "attention" if any(word in op for word in ("attention", "sdp", "attn", "fmha")) else "gemm"


def is_backward(op: str) -> bool:
    """Whether an attention op is the backward pass."""
    return op.removesuffix(FULL).endswith(("bwd", "backward"))


def is_causal(op: str) -> bool:
    """Whether an attention op leaves out keys behind a query, as training does unless a table says otherwise."""
    return not op.endswith(FULL)


@cache
def _device(gpu: str) -> Device | None:
    """The preset device of that name, if there is one."""
    return None if catalog.known_device(gpu) is None else catalog.device(gpu)


def n_sm(gpu: str) -> int:
    """Multiprocessors of a GPU by name; a Hopper's where the name says nothing."""
    device = _device(gpu)
    return LIKELY_N_SM if device is None else device.n_sm


def peak_flops_per_s(gpu: str, dtype: str) -> float:
    """Datasheet peak (dense) by names; NaN where it is not known."""
    known_as = {"fp8_block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "mxfp8": "fp8"}
    device = _device(gpu)
    return np.nan if device is None else device.peak_flops_per_s.get(known_as.get(dtype, dtype), np.nan)


def hbm_bytes_per_s(gpu: str) -> float:
    """Datasheet bandwidth of the memory by name; NaN where it is not known."""
    device = _device(gpu)
    return np.nan if device is None else device.hbm_bytes_per_s


def flops(op: str, size: Floats) -> Floats:
    """Operations of kernels, [row], from sizes [row, axis]; bytes of passes over memory and of element-wise kernels.

    Attention counts the full square, its backward 2.5 times that.
    """
    if family(op) == "memory":
        return size[:, 0]
    if family(op) == "vector":
        return 4.0 * VECTOR_OPS[op].moved * size[:, 0] * size[:, 1]
    if family(op) == "convolution":
        return Convolution(*size.T[: len(Convolution._fields)]).flops
    if family(op) == "attention":
        rows, heads, width = size[:, 0], size[:, 1], size[:, 2]
        return 4.0 * heads * rows**2 * width * (2.5 if is_backward(op) else 1.0)
    return 2.0 * size.prod(axis=1) * (2.0 if op == "gemm_backward_pair" else 1.0)


def features(kind: str, size: Floats, multiprocessors: Floats) -> tuple[Floats, NDArray[np.int64]]:
    """Features [row, feature] and the block of each, [feature], of shapes [row, axis]; `kind` is the family."""
    size = size[:, :4]
    u = (np.log2(size) - np.array(CENTRE[kind])) / np.array(WIDTH[kind])
    parts = [np.ones((len(u), 1)), _polynomial(u), _roofline(kind, size), _waves(kind, size, multiprocessors)]
    block = np.concatenate([np.full(part.shape[1], index) for index, part in enumerate(parts)])
    return np.concatenate(parts, axis=1), block.astype(np.int64)


def n_features() -> int:
    """Number of features, the same for both families."""
    return features("gemm", np.ones((1, 4)), np.ones(1))[0].shape[1]


def _polynomial(u: Floats) -> Floats:
    """All products of up to three of the first three axes, and the fourth."""
    columns = [u[:, 3]]
    for i in range(3):
        columns.append(u[:, i])
        for j in range(i, 3):
            columns.append(u[:, i] * u[:, j])
            columns += [u[:, i] * u[:, j] * u[:, k] for k in range(j, 3)]
    return np.stack(columns, axis=1)


def _roofline(kind: str, size: Floats) -> Floats:
    """Slowdown by memory, by launching, and by short sums; for attention, whose intensity is its row count, the same terms."""
    m, n, k = (size[:, 0], size[:, 2], size[:, 0]) if kind == "attention" else (size[:, 0], size[:, 1], size[:, 2])
    intensity = m * n * k / (m * n + n * k + m * k)
    work = size.prod(axis=1) * (size[:, 0] if kind == "attention" else 1.0)
    columns = [np.log1p(ridge / intensity) for ridge in RIDGES]
    columns += [np.log1p(scale / work) for scale in LAUNCH_WORK]
    columns += [np.log1p(scale / k) for scale in LONG_SUMS]
    return np.stack(columns, axis=1)


def _waves(kind: str, size: Floats, multiprocessors: Floats) -> Floats:
    """Log of the filled share of the last wave and of edge tiles, per tile shape."""
    columns = []
    for rows, width in TILES:
        if kind == "attention":
            tiles = np.ceil(size[:, 0] / BLOCK_ROWS) * size[:, 1] * (rows / TILES[0][0])
            edge = np.ones(len(size))
        else:
            across, down = np.ceil(size[:, 0] / rows), np.ceil(size[:, 1] / width)
            tiles = across * down * size[:, 3]
            edge = size[:, 0] * size[:, 1] / (across * rows * down * width)
        filled = tiles / multiprocessors
        columns += [np.log(filled / np.ceil(filled)), np.log(edge)]
    return np.stack(columns, axis=1)


Values = Mapping[str, float]
MOST_CONSTANTS = 16
MOST_CELLS = 500  # of one GPU for the pooled constants, evenly chosen
UNEVEN = 0.1  # log seconds: farther from the law than this, a shape counts less
PRIOR_WEIGHT = 9.0  # shapes that a prior standard deviation counts for
# Prior standard deviations per unit of a coefficient: GPUs, whose coefficients spread by 0.1, by half of one
PRIORS = 5.0
STEP = 1e-3


@dataclass(frozen=True)
class Law:
    """Constants (name, centre, standard deviation of the logarithm) and log seconds [row] of sizes [row, axis] with them."""

    constants: tuple[tuple[str, float, float], ...]
    log_seconds: Callable[[str, Floats, Device, Values], Floats]

    @property
    def names(self) -> list[str]:
        """Names of the constants."""
        return [name for name, *_ in self.constants]

    def at(self, op: str, size: Floats, device: Device, logs: Floats) -> Floats:
        """Log seconds with constants whose logarithms are `logs`."""
        return self.log_seconds(op, size, device, self.values(logs))

    def values(self, logs: Floats) -> dict[str, float]:
        """Constants by name, from their logarithms."""
        return dict(zip(self.names, np.exp(logs[: len(self.constants)]).tolist(), strict=True))

    def slopes(self, op: str, size: Floats, device: Device, logs: Floats) -> Floats:
        """Derivatives of minus the log seconds in the log constants, [row, constant]."""
        columns = []
        for c in range(len(self.constants)):
            step = np.zeros(len(logs))
            step[c] = 20.0 * STEP
            high, low = (self.at(op, size, device, logs + sign * step) for sign in (1.0, -1.0))
            columns.append((low - high) / (40.0 * STEP))
        return np.stack(columns, axis=1)


def law_of(name: str) -> Law | None:
    """Law of a class "op | dtype"; None where the class is described by its measured shapes alone."""
    op, _, dtype = name.partition(" | ")
    return LAWS.get(family(op)) if dtype == "fp32" else None


def pooled(law: Law, op: str, parts: Sequence[tuple[Device, Floats, Floats]]) -> Floats:
    """Logarithms of the constants, filled up with zeros to `MOST_CONSTANTS`, from (device, sizes, log seconds) of every GPU."""
    centre = np.log([value for _, value, _ in law.constants])
    sd = np.array([own for *_, own in law.constants])
    thin = [(d, s[:: -(-len(s) // MOST_CELLS)], t[:: -(-len(t) // MOST_CELLS)]) for d, s, t in parts]
    most = max(len(t) for *_, t in thin)

    def off(x: Floats) -> Floats:
        weights = [np.sqrt(min(most / len(t), 4.0)) for *_, t in thin]
        parts = [w * (law.at(op, s, d, centre + x) - t) / UNEVEN for w, (d, s, t) in zip(weights, thin, strict=True)]
        return np.concatenate([*parts, np.sqrt(PRIOR_WEIGHT) * x / sd])

    found = least_squares(off, np.zeros(len(sd)), loss="soft_l1", diff_step=STEP, x_scale=sd, max_nfev=20).x
    out = np.zeros(MOST_CONSTANTS)
    out[: len(found)] = centre + found
    return out


def efficiency_of(device: Device, values: Values) -> Efficiency:
    """Constants of fp32 kernels on a device; what `values` does not hold is as in `cost/presets/cuda_cores.toml`."""
    base = cuda_core_efficiency(device)
    is_amd = device.generation.startswith(("cdna", "gcn"))
    own: dict[str, float] = {}
    for name in ("gemm_max", "gemm_k_half", "gemm_misaligned", "memory", "memory_half_bytes", "cache_speed"):
        if name in values:
            own[name] = values[name] * (values.get(f"amd_{name}", 1.0) if is_amd else 1.0)
    if "flop_joules" in values:
        own["flop_joules"] = values["flop_joules"] * relative_flop_joules(device.generation)
    small = {64: values.get("tile_64", 0.8), 32: values.get("tile_32", 0.7)}
    tiles = tuple(
        (r, c, small.get(int(min(r, c) if min(r, c) == 32 else max(r, c)), 1.0)) for r, c, _ in base.gemm_tiles
    )
    return replace(base, **own, **({"gemm_tiles": tiles} if "tile_64" in values else {}))


def _start_s(device: Device, values: Values) -> float:
    return values["start_s"] * (values.get("amd_start", 1.0) if device.generation.startswith(("cdna", "gcn")) else 1.0)


def _product(op: str, size: Floats, device: Device, values: Values) -> Floats:
    m, n, k, batch = size.T[:4]
    eff = efficiency_of(device, values)
    busy = gemm_s(m, n, k, batch, device.peak("fp32"), device, eff)
    moved = stream_s(4.0 * batch * (m * k + k * n + m * n), 1.0, device.hbm_bytes_per_s, eff)
    return np.log(_longer(busy, moved) + _start_s(device, values))


def _convolution(op: str, size: Floats, device: Device, values: Values) -> Floats:
    eff = efficiency_of(device, values)
    known = {name: values[name] for name in vars(convolution_ways()) if name in values}
    ways = replace(convolution_ways(), **known)
    return np.log(convolution_s(Convolution(*size.T[:9]), device, eff, ways) + _start_s(device, values))


def _vector(op: str, size: Floats, device: Device, values: Values) -> Floats:
    eff = efficiency_of(device, values)
    known = {name: values[name] for name in vars(vector_constants()) if name in values}
    busy = vector_s(VECTOR_OPS[op], size[:, 0], size[:, 1], device, eff, replace(vector_constants(), **known))
    # The host hands over the next event while the kernel runs: what is measured of a short kernel is that alone.
    return np.log(_start_s(device, values) + _longer(busy, np.full(len(size), values["beside_s"])))


def _longer(one: Floats, other: Floats) -> Floats:
    """The longer of two, smooth where they are alike, as roofs are not sharp."""
    return (one**4 + other**4) ** 0.25


_GEMM = (
    ("gemm_max", 0.92, 0.10),
    ("gemm_k_half", 20.0, 1.0),
    ("tile_64", 0.8, 0.3),
    ("tile_32", 0.7, 0.3),
    ("gemm_misaligned", 1.1, 0.2),
    ("memory", 0.80, 0.15),
    ("flop_joules", 18e-12, 0.15),
    ("start_s", 25e-6, 0.4),
    ("amd_gemm_max", 0.78, 0.2),
    ("amd_gemm_k_half", 1.0, 0.5),
    ("amd_memory", 1.0, 0.15),
    ("amd_start", 0.6, 0.4),
)
_CONVOLUTION = (
    ("gemm_k_half", 20.0, 0.7),
    ("tile_64", 0.8, 0.2),
    ("tile_32", 0.75, 0.2),
    ("flop_joules", 18e-12, 0.1),
    ("start_s", 60e-6, 0.7),
    ("implicit", 0.8, 0.3),
    ("winograd", 0.6, 0.3),
    ("winograd_apart", 0.7, 0.3),
    ("fft", 0.5, 0.5),
    ("transformed", 0.4, 0.5),
)
_VECTOR = (
    ("memory", 0.82, 0.1),
    ("memory_half_bytes", 0.3e6, 0.7),
    ("cache_speed", 2.5, 0.3),
    ("start_s", 18e-6, 0.3),
    ("beside_s", 11e-6, 0.3),
    ("softmax_passes", 1.2, 0.2),
    ("norm_passes", 1.4, 0.2),
    ("softmax_row_s", 2e-9, 0.7),
    ("norm_row_s", 8e-9, 0.7),
    ("power_operations", 300.0, 0.5),
    ("amd_start", 0.7, 0.3),
)
LAWS = {"gemm": Law(_GEMM, _product), "convolution": Law(_CONVOLUTION, _convolution), "vector": Law(_VECTOR, _vector)}
"""By the family of an op."""
