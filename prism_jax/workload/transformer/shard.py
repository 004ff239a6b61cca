"""Shard: how many tokens and which widths one device works on, and the two building blocks every op list is made of."""

from __future__ import annotations

from dataclasses import dataclass

from ...plan.plan import ParallelPlan
from ...plan.state_dtypes import ELEMENT_BYTES
from ..kernels import Kernel
from .sizes import TransformerSizes


@dataclass(frozen=True)
class Shard:
    """Sizes on one device for one micro-batch.

    Attributes:
        tokens: inside the tensor-parallel region (after context parallelism).
        local_tokens: outside it; divided by tp under sequence parallelism.
        element_bytes: of activations and weights.
        gemm_bytes: of the inputs of matrix products; 1 in fp8.
        accumulate_bytes: per weight, of adding its gradient to the sum in a pass of its own; 0: inside the product.
        grad_bytes: of an element of that sum.
        dropout: the GPT recipe has it (as in the Megatron papers), Llama-style models do not.
    """

    tokens: float
    local_tokens: float
    tp: int
    element_bytes: float
    gemm_bytes: float
    accumulate_bytes: float
    grad_bytes: float
    dropout: bool

    @classmethod
    def of(cls, model: TransformerSizes, plan: ParallelPlan) -> Shard:
        """Sizes on one device under `plan`."""
        tokens = plan.micro_batch * plan.seq_len / plan.cp
        element = plan.element_bytes
        return cls(
            tokens=tokens,
            local_tokens=tokens / plan.tp if plan.sequence_parallel else tokens,
            tp=plan.tp,
            element_bytes=element,
            gemm_bytes=1.0 if plan.dtype == "fp8" else element,
            accumulate_bytes=_accumulate_bytes(plan) if plan.fused_grad_accumulation is False else 0.0,
            grad_bytes=plan.grad_sum_bytes,
            dropout=has_dropout(model),
        )


def has_dropout(model: TransformerSizes) -> bool:
    """The GPT recipe (LayerNorm, plain MLP, learned positions) has dropout, Llama-style models do not."""
    return model.norm == "layer" and not model.gated and model.position == "learned"


def gemm(name: str, m: float, n: float, k: float, shard: Shard, batch: float = 1.0) -> list[Kernel]:
    """`batch` products of an m x k activation with a k x n weight, and the two products of their backward pass.

    Notes:
        The weight gradient is added into a buffer inside the product (Megatron-LM gradient accumulation fusion), which
        reads and writes 4 bytes per weight in fp32, or it is written as it is and added in a pass of its own.
    """
    flops = 2.0 * m * n * k * batch
    a, w, out = m * k * batch, k * n * batch, m * n * batch
    read, write = shard.gemm_bytes, shard.element_bytes
    is_fused = shard.accumulate_bytes == 0.0
    summed = 2.0 * shard.grad_bytes if is_fused else write
    apart = [] if is_fused else [stream(f"{name}_accumulate", "W", shard.accumulate_bytes * w)]
    return _fp8_casts(name, a, out, shard) + [
        Kernel(name, "F", "gemm", flops, read * (a + w) + write * out, 1.0, m, n, k, batch),
        Kernel(name, "B", "gemm", flops, read * (out + w) + write * a, 1.0, m, k, n, batch),
        Kernel(
            name,
            "W",
            "gemm",
            flops,
            read * (a + out) + summed * w,
            1.0,
            k,
            n,
            m,
            batch,
        ),
        *apart,
    ]


def _accumulate_bytes(plan: ParallelPlan) -> float:
    """The gradient is read and added to an fp32 sum; code for fp16 adds in fp16 (DeepSpeed `FP16_Optimizer`, plain autograd)."""
    own = "fp16" if plan.dtype == "fp16" else "fp32"
    return plan.element_bytes + 2.0 * ELEMENT_BYTES[plan.state_dtypes.grad_reduce or own]


def _fp8_casts(name: str, a: float, out: float, shard: Shard) -> list[Kernel]:
    """In fp8 the input and the output's gradient are read in 16 bits and written in 8.

    Source: Transformer Engine, `cast_transpose` kernels; the transposed copies that Hopper needs are fused into other passes.
    """
    if shard.gemm_bytes >= shard.element_bytes:
        return []
    per_element = shard.element_bytes + shard.gemm_bytes
    return [stream(f"{name}_cast", "F", per_element * a), stream(f"{name}_cast", "B", per_element * out)]


def stream(name: str, phase: str, hbm_bytes: float, n_launch: float = 1.0) -> Kernel:
    """A memory-bound pass over `hbm_bytes` bytes."""
    return Kernel(name, phase, "memory", 0.0, hbm_bytes, n_launch)
