"""Kernel shapes as numbers: doublings along four axes, and features of the smooth part of log efficiency.

Axes of a matrix product: m, n, k, groups x batch. Of fused attention: rows of a sequence, batch x heads, head width, heads per
key-value head. Of a pass over memory: bytes read and written. Of a convolution: the fields of
`cost.laws.convolution.Convolution`. Of an element-wise kernel or one over rows: rows, values in a row. Further axes are ones.
Features are fixed functions of the shape and of the number of multiprocessors; nothing here is fitted.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from prism_jax._typing import Floats
from prism_jax.cost.laws.convolution import Convolution
from prism_jax.cost.laws.vector import VECTOR_OPS
from prism_jax.errors import SpecError
from prism_jax.system import catalog

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
    """As "gemm", "attention", "memory", "convolution" or "vector": which axes an op has."""
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
def n_sm(gpu: str) -> int:
    """Multiprocessors of a GPU by name; a Hopper's where the name says nothing."""
    try:
        return catalog.device(gpu).n_sm
    except SpecError:
        return LIKELY_N_SM


@cache
def peak_flops_per_s(gpu: str, dtype: str) -> float:
    """Datasheet peak (dense) by names; NaN where it is not known."""
    known_as = {"fp8_block": "fp8", "nvfp4": "fp4", "mxfp4": "fp4", "mxfp8": "fp8"}
    try:
        return catalog.device(gpu).peak_flops_per_s.get(known_as.get(dtype, dtype), np.nan)
    except SpecError:
        return np.nan


@cache
def hbm_bytes_per_s(gpu: str) -> float:
    """Datasheet bandwidth of the memory by name; NaN where it is not known."""
    try:
        return catalog.device(gpu).hbm_bytes_per_s
    except SpecError:
        return np.nan


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
    """How many there are, the same for both families."""
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
