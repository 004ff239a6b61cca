"""Shard: how many tokens and which widths one device works on; `gemm`: a linear layer as kernels."""

from __future__ import annotations

from dataclasses import dataclass, replace

from ...framework.software import Software
from ...plan.fields import ELEMENT_BYTES, Precision, precision_of, share_in_bf16
from ...plan.plan import ParallelPlan
from ..base.kernels import CAST, Kernel, stream
from .sizes import DEQUANTISE_LAUNCHES, QUANTISED_BYTES, TransformerSizes


@dataclass(frozen=True)
class Shard:
    """Sizes on one device for one micro-batch.

    Attributes:
        tokens: inside the tensor-parallel region (after context parallelism).
        local_tokens: outside it; divided by tp under sequence parallelism.
        element_bytes: of activations and weights.
        gemm_bytes: of the inputs of matrix products; 1 in fp8.
        precision: how these inputs are quantised; None: not at all.
        bf16_share: share of the layers whose products are not.
        trains: weights have gradients; in a model with adapters they have none.
        weight_bytes: of a weight that is kept in fewer bits and brought back before every product; 0: weights are not quantised.
        dequantise_launches: kernels that this takes.
        accumulate_bytes: per weight, of adding its gradient to the sum in a pass of its own; 0: inside the product.
        grad_bytes: of an element of that sum.
        hidden: width of the hidden states.
        rms: norms are RMSNorm, which eager code runs as separate operations.
        dropout: the GPT recipe has it (as in the Megatron papers), Llama-style models do not.
        software: which kernels run.
    """

    tokens: float
    local_tokens: float
    tp: int
    element_bytes: float
    gemm_bytes: float
    precision: Precision | None
    bf16_share: float
    trains: bool
    weight_bytes: float
    dequantise_launches: float
    accumulate_bytes: float
    grad_bytes: float
    hidden: int
    rms: bool
    dropout: bool
    software: Software

    @classmethod
    def of(cls, model: TransformerSizes, plan: ParallelPlan) -> Shard:
        """Sizes on one device under `plan`."""
        tokens = plan.micro_batch * plan.seq_len / plan.cp
        element, precision = plan.element_bytes, precision_of(plan)
        base = model.adapters.quantised if model.adapters is not None else "none"
        return cls(
            tokens=tokens,
            local_tokens=tokens / plan.tp if plan.sequence_parallel else tokens,
            tp=plan.tp,
            element_bytes=element,
            gemm_bytes=precision.input_bytes if precision is not None else element,
            precision=precision,
            bf16_share=share_in_bf16(plan, model.n_layers),
            trains=model.adapters is None,
            weight_bytes=QUANTISED_BYTES[base] or 0.0,
            dequantise_launches=DEQUANTISE_LAUNCHES[base],
            accumulate_bytes=_accumulate_bytes(plan) if plan.fused_grad_accumulation is False else 0.0,
            grad_bytes=plan.grad_sum_bytes,
            hidden=model.hidden,
            rms=model.norm == "rms",
            dropout=has_dropout(model),
            software=plan.software,
        )

    @property
    def in_16_bits(self) -> Shard:
        """The shard with products and weights in the plan's wide format, as for logits, router and adapters."""
        return replace(self.with_wide_inputs, weight_bytes=0.0)

    @property
    def with_wide_inputs(self) -> Shard:
        """The shard with the inputs of products not quantised."""
        return replace(self, gemm_bytes=self.element_bytes, precision=None)

    @property
    def elements(self) -> float:
        """Hidden states of a device outside the tensor-parallel region."""
        return self.local_tokens * self.hidden

    @property
    def hidden_bytes(self) -> float:
        """Bytes of these."""
        return self.element_bytes * self.elements

    @property
    def saved_input_bytes(self) -> float:
        """Bytes of an input that a product saves, in the mean over the layers."""
        return (1.0 - self.bf16_share) * self.gemm_bytes + self.bf16_share * self.element_bytes


def has_dropout(model: TransformerSizes) -> bool:
    """The GPT recipe (LayerNorm, plain MLP, learned positions) has dropout, Llama-style models do not."""
    if model.dropout is not None:
        return model.dropout
    return model.norm == "layer" and not model.gated and model.position == "learned"


def gemm(name: str, m: float, n: float, k: float, shard: Shard, batch: float = 1.0) -> list[Kernel]:
    """`batch` products of an m x k activation with a k x n weight, and the two products of their backward pass.

    Notes:
        The weight gradient is added into a buffer inside the product (Megatron-LM gradient accumulation fusion), which
        reads and writes 4 bytes per weight in fp32, or it is written as it is and added in a pass of its own. A frozen weight has
        none. Layers that stay in 16 bits under a narrower plan count as a share of every product.
    """
    own = _products(name, m, n, k, shard, batch)
    if shard.precision is None:
        return own
    own += _casts(name, m * k * batch, m * n * batch, shard, shard.precision)
    share = shard.bf16_share
    if not share:
        return own
    wide = [op._replace(dtype="bf16") for op in _products(name, m, n, k, shard.with_wide_inputs, batch)]
    return [op._replace(count=1.0 - share) for op in own] + [op._replace(count=share) for op in wide]


def _products(name: str, m: float, n: float, k: float, shard: Shard, batch: float) -> list[Kernel]:
    flops = 2.0 * m * n * k * batch
    a, w, out = m * k * batch, k * n * batch, m * n * batch
    read, write = shard.gemm_bytes, shard.element_bytes
    kernel = shard.precision.kernel if shard.precision is not None else ""
    ops = _dequantised(name, w, shard) + [
        Kernel(name, "F", "gemm", flops, read * (a + w) + write * out, 1.0, m, n, k, batch, variant=kernel),
        Kernel(name, "B", "gemm", flops, read * (out + w) + write * a, 1.0, m, k, n, batch, variant=kernel),
    ]
    if not shard.trains:
        return ops
    is_fused = shard.accumulate_bytes == 0.0
    summed = 2.0 * shard.grad_bytes if is_fused else write
    ops.append(Kernel(name, "W", "gemm", flops, read * (a + out) + summed * w, 1.0, k, n, m, batch, variant=kernel))
    return ops if is_fused else [*ops, stream(f"{name}_accumulate", "W", shard.accumulate_bytes * w)]


def _dequantised(name: str, w: float, shard: Shard) -> list[Kernel]:
    """`w` weights are read as they are kept and written as the product reads them, before both passes."""
    if not shard.weight_bytes:
        return []
    n_bytes = (shard.weight_bytes + shard.element_bytes) * w
    return [stream(f"{name} dequantise", phase, n_bytes, shard.dequantise_launches) for phase in ("F", "B")]


def _accumulate_bytes(plan: ParallelPlan) -> float:
    """The gradient is read and added to an fp32 sum; code for fp16 adds in fp16 (DeepSpeed `FP16_Optimizer`, plain autograd)."""
    own = "fp16" if plan.dtype == "fp16" else "fp32"
    return plan.element_bytes + 2.0 * ELEMENT_BYTES[plan.state_dtypes.grad_reduce or own]


def _casts(name: str, a: float, out: float, shard: Shard, precision: Precision) -> list[Kernel]:
    """The input and the output's gradient are read in 16 bits and written in fewer; see `plan.precision`.

    Notes:
        Weights are cast once per step, for all micro-batches, and not counted.
    """
    n_pass = precision.passes(shard.trains)
    per_element = n_pass * shard.element_bytes + precision.copies(shard.trains) * precision.input_bytes
    return [
        stream(f"{name}_cast", "F", per_element * a, float(n_pass))._replace(variant=CAST),
        stream(f"{name}_cast", "B", per_element * out, float(n_pass))._replace(variant=CAST),
    ]
