"""Ops of the MLP on one device: dense, or a mixture of experts with permutation of tokens, grouped products, shared experts.

The busiest expert rank carries `imbalance` times the mean load, and everybody waits for it, so the grouped products are those of
that rank. Source: arXiv 2401.04088 (top-k routing), 2401.06066 (shared experts), 2412.19437 section 2.1.2.
"""

from __future__ import annotations

from ....plan.plan import ParallelPlan
from ...kernels import Kernel
from ..shard import Shard, gemm, stream
from ..sizes import TransformerSizes
from .elementwise import activation_kernels


def mlp_ops(model: TransformerSizes, shard: Shard, name: str, width: int) -> list[Kernel]:
    """A dense MLP of inner width `width` split over tp; SwiGLU if the model is gated."""
    rows = shard.tokens
    inner = width / shard.tp
    n_in = 2 if model.gated else 1
    ops = gemm(f"{name}_in", rows, n_in * inner, model.hidden, shard)
    ops += gemm(f"{name}_out", rows, model.hidden, inner, shard)
    return ops + activation_kernels(f"{name}_act", rows * inner, shard, gated=model.gated)


def moe_ops(model: TransformerSizes, plan: ParallelPlan, shard: Shard) -> list[Kernel]:
    """Router, dispatch and combine copies, routed and shared experts of one layer and micro-batch."""
    moe = model.moe
    assert moe is not None
    router = gemm("router", shard.local_tokens, moe.n_experts, model.hidden, shard.in_16_bits)
    ops = [op._replace(dtype="bf16") for op in router]
    ops += _permutation(model, shard, moe.top_k)
    ops += _experts(model, plan, shard)
    if moe.shared_width:
        ops += mlp_ops(model, shard, "shared", moe.shared_width)
    return ops


def expert_tokens(model: TransformerSizes, plan: ParallelPlan, shard: Shard) -> float:
    """Token-expert pairs that the busiest device of an expert-parallel group works on."""
    assert model.moe is not None
    return shard.tokens * model.moe.top_k * (model.moe.imbalance if plan.ep > 1 else 1.0)


def _experts(model: TransformerSizes, plan: ParallelPlan, shard: Shard) -> list[Kernel]:
    moe = model.moe
    assert moe is not None
    n_local = moe.n_experts / plan.ep
    rows = expert_tokens(model, plan, shard) / n_local
    inner = moe.ffn_hidden / shard.tp
    n_in = 2 if model.gated else 1
    ops = gemm("experts_in", rows, n_in * inner, model.hidden, shard, batch=n_local)
    ops += gemm("experts_out", rows, model.hidden, inner, shard, batch=n_local)
    return ops + activation_kernels("experts_act", rows * n_local * inner, shard, gated=model.gated)


def _permutation(model: TransformerSizes, shard: Shard, top_k: int) -> list[Kernel]:
    """Softmax and top-k of the router, copies into expert order and back (weighted sum), and their gradients."""
    rows = shard.element_bytes * shard.tokens * model.hidden
    copies = (1.0 + top_k) * rows
    return [
        stream("permute", "F", copies + 2 * top_k * rows, 6.0),
        stream("unpermute", "F", copies, 3.0),
        stream("permute", "B", copies + 2 * top_k * rows, 4.0),
        stream("unpermute", "B", copies + top_k * rows, 4.0),
    ]
