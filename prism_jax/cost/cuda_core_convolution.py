"""Convolutions in fp32 without TF32: constants of products on CUDA cores, and what Winograd's algorithm saves.

`efficiency` holds for products on tensor cores, which need long inner dimensions; CUDA cores do not. Convolutions of 3 x 3 at
stride 1 run as Winograd's F(4x4, 3x3): 4 times fewer multiplications, at a lower speed and with transforms around them.

Source: fits to products and convolutions in fp32 on seven GPUs (experiments/kernels2); Lavin and Gray, arXiv 1509.09308.
"""

from __future__ import annotations

from dataclasses import replace

from ..workload.kernels import CONVOLUTION, TENSOR_CORES, WINOGRAD, Kernel
from .efficiency import Efficiency

_TILES = (
    (128.0, 128.0, 1.0),
    (128.0, 64.0, 1.0),
    (64.0, 64.0, 0.8),
    (32.0, 128.0, 0.7),
    (128.0, 32.0, 0.7),
    (32.0, 32.0, 0.7),
)
# Speed over that of the plain product: 4 times fewer multiplications at .68 of its speed; edges and transforms take a third.
_WINOGRAD_GAIN = 1.9


def is_on_cuda_cores(kernel: Kernel, dtype: str) -> bool:
    """Whether it is a convolution whose multiplications run in `dtype` outside of tensor cores."""
    return dtype == "fp32" and kernel.variant in (CONVOLUTION, WINOGRAD)


def is_left_out(kernel: Kernel, dtype: str) -> bool:
    """Whether it exists for tensor cores alone, and products run in `dtype` outside of them."""
    return dtype == "fp32" and kernel.variant == TENSOR_CORES


def gain(kernel: Kernel) -> float:
    """Speed of a convolution over that of a plain product of its sizes."""
    return _WINOGRAD_GAIN if kernel.variant == WINOGRAD else 1.0


def cuda_core_constants(eff: Efficiency) -> Efficiency:
    """`eff` with what products in fp32 reach."""
    return replace(eff, gemm_max=0.92, gemm_k_half=30.0, gemm_misaligned=1.1, gemm_tiles=_TILES)
