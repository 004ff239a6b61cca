"""Ops of the attention core (scores, softmax, values) on one device: one fused kernel, or the chain it replaced.

Flash: FLOPs of the causal half, of the window of it that a layer sees, or of the whole square without a mask; traffic of queries,
keys, values and output; the backward kernel runs five products, not two, one of them recomputing the scores (arXiv 2307.08691).
Unfused (Megatron-LM 2021-22): two batched products over the whole square, whatever the mask; a fused scale-mask-softmax, dropout
with a one-byte mask; every pass through device memory (arXiv 2205.05198 section 4.1). Eager: scale, mask and softmax apart, as in
Megatron-LM's `forward_torch_softmax` (fused_softmax.py) without `attention_softmax_in_fp32`. A product is that of one head, or
with `plan.grouped_queries` that of all heads which share keys and values.
"""

from __future__ import annotations

from ....plan.plan import ParallelPlan
from ...kernels import Kernel
from ..shard import Shard, stream
from ..sizes import TransformerSizes

# What selective recomputation runs again: everything between the projections (arXiv 2205.05198, section 5).
CORE = frozenset({"scores", "softmax", "attention_dropout", "values", "flash"})


def attention_core(
    model: TransformerSizes, plan: ParallelPlan, shard: Shard, layer: int, memory: float = 0.0
) -> list[Kernel]:
    """Ops between the projections, for layer `layer` and one micro-batch.

    Args:
        memory: tokens of another sequence whose keys are read (cross attention); 0: the sequence's own.
    """
    if not plan.is_flash:
        return _unfused(model, plan, shard, memory or float(plan.seq_len))
    if memory:
        return _flash(model, plan, shard, memory, memory)
    return _flash(model, plan, shard, plan.seq_len, model.mean_keys(plan.seq_len, layer))


def _flash(model: TransformerSizes, plan: ParallelPlan, shard: Shard, keys: float, seen: float) -> list[Kernel]:
    rows = plan.seq_len / plan.cp
    heads = plan.micro_batch * model.n_heads / shard.tp
    width = model.qk_head_dim + model.v_head_dim
    kv_heads = _kv_heads(model, plan, shard)
    # causal: a query sees (s + 1) / 2 keys on average, in a window fewer; context parallelism splits the area evenly
    flops = 2.0 * heads * rows * seen * width
    traffic = shard.element_bytes * width * (heads * rows + kv_heads * keys)
    forward = Kernel("flash", "F", "attention", flops, traffic, 1.0, rows, keys, width / 2, heads, dtype="bf16")
    forward = forward._replace(variant=plan.attention_kernel)
    # model FLOPs of the backward are twice the forward; the recomputed scores are inside the kernel's efficiency
    backward = forward._replace(
        phase="B", flops=2.0 * flops, hbm_bytes=2.5 * traffic, n_launch=3.0, flash_backward=True
    )
    return [forward, backward]


def _kv_heads(model: TransformerSizes, plan: ParallelPlan, shard: Shard) -> float:
    """Heads of keys and values of a device and micro-batch."""
    return plan.micro_batch * max(model.kv_heads / shard.tp, 1.0)


def _unfused(model: TransformerSizes, plan: ParallelPlan, shard: Shard, keys: float) -> list[Kernel]:
    rows = plan.seq_len / plan.cp
    heads = plan.micro_batch * model.n_heads / shard.tp
    n_score = heads * rows * keys
    element = shard.element_bytes
    together = heads / _kv_heads(model, plan, shard) if plan.grouped_queries else 1.0
    ops: list[Kernel] = []
    for name, dim in (("scores", model.qk_head_dim), ("values", model.v_head_dim)):
        flops = 2.0 * n_score * dim
        traffic = element * (n_score + heads * (rows + keys / together) * dim)
        k, n = (float(dim), keys) if name == "scores" else (keys, float(dim))
        m, batch = rows * together, heads / together
        product = Kernel(name, "F", "gemm", flops, traffic, 1.0, m, n, k, batch, dtype="bf16")
        ops += [
            product,
            product._replace(phase="B", flops=2.0 * flops, hbm_bytes=2.0 * traffic, batch=2.0 * batch, n_launch=2.0),
        ]
    ops += _softmax(plan.attention_kernel, element, n_score)
    if shard.dropout:
        ops += [stream("attention_dropout", phase, (2 * element + 1) * n_score) for phase in ("F", "B")]
    return ops


def _softmax(kernel: str, element: float, n_score: float) -> list[Kernel]:
    """Scale, mask and softmax of `n_score` scores: in one kernel, or one after another."""
    if kernel == "fused_softmax":
        return [stream("softmax", "F", 2 * element * n_score), stream("softmax", "B", 3 * element * n_score)]
    apart = 2 * element + 2 * element + 2 * element  # scale, mask, softmax
    back = 3 * element + element + 2 * element  # softmax, mask, scale
    return [stream("softmax", "F", apart * n_score, 3.0), stream("softmax", "B", back * n_score, 3.0)]
