"""Kernels of the dense part of a recommendation model on one device: layers, interaction, cross network, loss; bytes and FLOPs.

Layers are fused with bias and activation (HugeCTR's fused MLP, Apex); a cross layer's product with `x0` is a kernel of its own.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..kernels import Kernel
from .sizes import DLRMSizes

JOINING = 1.0 / 0.79  # bandwidth of concatenations over that of other passes (arXiv 2404.12674)


def dense_kernels(model: DLRMSizes, samples: float, wide: float) -> Iterator[Kernel]:
    """Kernels of `samples` samples with elements of `wide` bytes."""
    for part, k, n in model.products:
        yield from product_kernels(part, samples, k, n, wide)
    yield from _join(model, samples, wide)
    yield from _interaction(model, samples, wide)
    yield Kernel("loss", "F", "memory", 0.0, samples * model.top[-1] * (2.0 * wide + 4.0))


def product_kernels(name: str, rows: float, k: float, n: float, wide: float) -> Iterator[Kernel]:
    """One layer: output, gradient of the input, gradient of the weights."""
    flops, moved = 2.0 * rows * k * n, wide * (rows * k + k * n + rows * n)
    forward = Kernel(name, "F", "gemm", flops, moved, 1.0, rows, n, k)
    yield forward
    yield forward._replace(phase="B", n=k, k=n)
    yield forward._replace(phase="W", m=k, k=rows)


def _join(model: DLRMSizes, samples: float, wide: float) -> Iterator[Kernel]:
    """Vectors that came by sender are put side by side by sample, and their gradients by receiver."""
    moved = 2.0 * wide * samples * model.joined_width * JOINING
    yield Kernel("concatenation", "F", "memory", 0.0, moved)
    yield Kernel("concatenation", "B", "memory", 0.0, moved)


def _interaction(model: DLRMSizes, samples: float, wide: float) -> Iterator[Kernel]:
    """Products of all pairs of vectors, or the cross layers' product with the first input."""
    if model.interaction == "dot":
        read, written = wide * samples * model.joined_width, wide * samples * model.top_width
        flops = 2.0 * samples * model.n_vector * model.joined_width
        yield Kernel("interaction", "F", "memory", flops, read + written)
        yield Kernel("interaction", "B", "memory", 2.0 * flops, 2.0 * read + written)
    if model.dcn is not None:
        one = wide * samples * model.joined_width
        layers = float(
            model.dcn.layers
        )  # reads x0, x and the product; backward the gradient and x0 again, and adds up theirs
        yield Kernel("cross product", "F", "memory", 0.0, 4.0 * one, count=layers)
        yield Kernel("cross product", "B", "memory", 0.0, 6.0 * one, count=layers)
