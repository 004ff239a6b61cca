"""Number formats of matrix products with fewer than 16 bits: bytes of an input, and the passes that make it of a 16-bit tensor.

A format with block scales has one scale per 16 or 32 neighbours along the dimension that is summed over. That dimension is not
the same in a product and in that of its weight gradient, so a tensor that both read is quantised twice: by rows and by columns.

- fp8: one scale per tensor; one pass writes the copy, the transposed one is fused into other passes.
- mxfp8, mxfp4: an 8-bit scale per 32 elements; one pass reads the tensor and writes both copies.
- nvfp4: an 8-bit scale per 16 elements and one fp32 scale per tensor, which needs the largest element first (a pass that only
  reads). What enters a weight gradient goes through a random Hadamard transform, a pass of its own; gradients are rounded
  stochastically within these passes.

Source: Transformer Engine (`cast_transpose`, `hadamard_transform`); OCP Microscaling Formats 1.0; arXiv 2509.25149.
"""

from __future__ import annotations

from math import ceil
from typing import NamedTuple, Protocol


class Precision(NamedTuple):
    """A format of the inputs of matrix products.

    Attributes:
        input_bytes: of one element, with its share of the block scales.
        n_copies: of a tensor that a product and a weight gradient read: 2 if quantised by rows and by columns.
        n_scan: passes that read the tensor before it can be quantised.
        is_fused: one pass writes both copies.
    """

    input_bytes: float
    n_copies: int
    n_scan: int = 0
    is_fused: bool = True

    def copies(self, in_weight_gradient: bool) -> int:
        """Copies of a tensor that a pass writes."""
        return self.n_copies if in_weight_gradient else 1

    def passes(self, in_weight_gradient: bool) -> int:
        """Kernels that make them; every one reads the tensor."""
        return self.n_scan + (1 if self.is_fused else self.copies(in_weight_gradient))


QUANTISED = {
    "fp8": Precision(1.0, 1),
    "mxfp8": Precision(1.0 + 1 / 32, 2),
    "mxfp4": Precision(0.5 + 1 / 32, 2),
    "nvfp4": Precision(0.5 + 1 / 16, 2, n_scan=1, is_fused=False),
}
"""Plan dtypes whose products read quantised inputs."""
FP8_FAMILY = ("fp8", "mxfp8")
DTYPES = ("bf16", "fp16", *QUANTISED, "fp32")

# Blocks whose products stay in bf16: the first 2 and the last 8 of 62 (arXiv 2509.25149, section 3 and appendix A).
_NVFP4_IN_BF16, _OF_BLOCKS = 10, 62


class HasPrecision(Protocol):
    """Fields of a plan; see `ParallelPlan`."""

    @property
    def dtype(self) -> str: ...
    @property
    def bf16_layers(self) -> int | None: ...


def share_in_bf16(plan: HasPrecision, n_layers: int) -> float:
    """Share of a model's layers whose products stay in 16 bits under a quantised dtype.

    Notes:
        None: as the recipe has it: in nvfp4 10 of 62 layers, rounded up; in other formats no layer.
    """
    if plan.dtype not in QUANTISED:
        return 0.0
    n = plan.bf16_layers
    if n is None:
        n = ceil(n_layers * _NVFP4_IN_BF16 / _OF_BLOCKS) if plan.dtype == "nvfp4" else 0
    return min(n / n_layers, 1.0)
