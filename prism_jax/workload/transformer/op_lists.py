"""Kernels of the parts of a layer on one device: attention core, passes over memory, MLP and experts, layers with a state.

*Attention.* Flash: FLOPs of the causal half, of the window of it that a layer sees, or of the whole square without a mask;
traffic of queries, keys, values and output; the backward kernel runs five products, not two, one recomputing the scores
(arXiv 2307.08691). Unfused (Megatron-LM 2021-22): two batched products over the whole square, whatever the mask; a fused
scale-mask-softmax, dropout with a one-byte mask; every pass through device memory (arXiv 2205.05198 section 4.1). Eager:
scale, mask and softmax apart, as in Megatron-LM's `forward_torch_softmax` (fused_softmax.py) without
`attention_softmax_in_fp32`. A product is that of one head, or with `plan.grouped_queries` that of all heads which share keys
and values.

*Passes over memory*, in bytes per element of an activation that is `e` bytes wide; an operation reads its inputs and writes its
output, in 4 bytes where eager code works in fp32:

| | fused | separate operations (eager) |
|---|---|---|
| RMSNorm, forward | 2e | cast e+4, square 8, mean 4, scale 8, cast 4+e, weight 2e: 4e + 28 |
| RMSNorm, backward | 4e | weight and its gradient 4e, cast e+4, products 20, square and mean 12, sum 12, cast 4+e: 6e + 52 |
| rotary embedding, each way | 2e | two halves 2e, join 2e, two products 4e, sum 3e: 11e |
| gated activation, forward | 3e | SiLU 2e, product 3e: 5e |
| gated activation, backward | 5e | product 5e, SiLU 3e, join 2e: 10e |
| plain activation, forward, backward | 2e, 3e | bias 2e more, each |

LayerNorm is one kernel in PyTorch, too. Source: the operations of Hugging Face transformers' `LlamaRMSNorm`,
`apply_rotary_pos_emb` and `LlamaMLP`, counted; fused kernels as in Apex, Transformer Engine and Liger.

*Experts.* The busiest expert rank carries `imbalance` times the mean load, and everybody waits for it, so the grouped
products are those of that rank. Source: arXiv 2401.04088 (top-k routing), 2401.06066 (shared experts), 2412.19437 section
2.1.2.

*State.* The scan is several batched products over chunks, with states written between them; its traffic is that of its inputs and
outputs, states of every chunk in fp32, and decays. The backward pass runs it twice over.
"""

from __future__ import annotations

from dataclasses import replace

from ...framework.software import APART, STREAMS
from ...plan.packing import mean_over_lengths
from ...plan.plan import ParallelPlan
from ..base.kernels import ROUTED, Kernel, stream
from .mixers import MixerSpec
from .routing import DroppedTokens, ExpertGroup, dropped_tokens
from .shard import Shard, gemm
from .sizes import TransformerSizes

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
    seen = mean_over_lengths(plan, lambda length: model.mean_keys(length, layer))
    return _flash(model, plan, shard, plan.seq_len, seen)


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


# Host time of one operation of a chain over that of a listed kernel, which stands for several launches.
HOST_SHARE = 0.25
# Of one more call of a library from compiled code, about 7 us: products of experts, and casts of their inputs, beyond the first.
CALL_SHARE = 0.1


def norm_kernels(name: str, elements: float, shard: Shard, count: float = 1.0) -> list[Kernel]:
    """`count` norms over `elements` activations each."""
    e = shard.element_bytes
    if not (shard.rms and shard.software.is_eager("norm")):
        return [
            stream(name, "F", count * 2 * e * elements, count),
            stream(name, "B", count * 4 * e * elements, 2 * count),
        ]
    return [
        _chain(name, "F", count * (4 * e + 28) * elements, 6 * count),
        _chain(name, "B", count * (6 * e + 52) * elements, 12 * count),
    ]


def rope_kernels(elements: float, shard: Shard) -> list[Kernel]:
    """Rotary embedding of queries and keys, `elements` of both together."""
    e = shard.element_bytes
    if not shard.software.is_eager("rope"):
        return [stream("rope", phase, 2 * e * elements, 2.0) for phase in ("F", "B")]
    return [_chain("rope", phase, 11 * e * elements, 12.0) for phase in ("F", "B")]


def activation_kernels(name: str, elements: float, shard: Shard, *, gated: bool) -> list[Kernel]:
    """Activation of an MLP with `elements` inner values."""
    e = shard.element_bytes
    forward, backward = (3 * e, 5 * e) if gated else (2 * e, 3 * e)
    if not shard.software.is_eager("activation"):
        return [stream(name, "F", forward * elements), stream(name, "B", backward * elements)]
    more = (2 * e, 5 * e, 2.0, 4.0) if gated else (2 * e, 2 * e, 2.0, 2.0)
    return [
        _chain(name, "F", (forward + more[0]) * elements, more[2]),
        _chain(name, "B", (backward + more[1]) * elements, more[3]),
    ]


def _chain(name: str, phase: str, hbm_bytes: float, n_launch: float) -> Kernel:
    """Operations one after another, each with a launch of its own."""
    return stream(name, phase, hbm_bytes, n_launch)._replace(host_share=HOST_SHARE)


def mlp_ops(model: TransformerSizes, shard: Shard, name: str, width: int) -> list[Kernel]:
    """A dense MLP of inner width `width` split over tp; SwiGLU if the model is gated."""
    rows = shard.tokens
    inner = width / shard.tp
    n_in = 2 if model.gated else 1
    ops = gemm(f"{name}_in", rows, n_in * inner, model.hidden, shard)
    ops += gemm(f"{name}_out", rows, model.hidden, inner, shard)
    return ops + activation_kernels(f"{name}_act", rows * inner, shard, gated=model.gated)


def moe_ops(model: TransformerSizes, plan: ParallelPlan, shard: Shard) -> list[Kernel]:
    """Router, dispatch and combine copies, routed and shared experts of one layer and micro-batch.

    Notes:
        Where the host waits for the loads of experts, what follows is started kernel by kernel, whatever graphs hold the rest.
    """
    moe = model.moe
    assert moe is not None
    router = gemm("router", shard.local_tokens, moe.n_experts, model.hidden, shard.in_16_bits)
    ops = [op._replace(dtype="bf16", knob=ROUTED) for op in router]
    if moe.latent:  # whole on every tensor-parallel rank, as the router is
        ops += gemm("latent_down", shard.local_tokens, moe.latent, model.hidden, shard)
        ops += gemm("latent_up", shard.local_tokens, model.hidden, moe.latent, shard)
    routed = _permutation(model, shard, _routed(plan, shard), moe.top_k) + _experts(model, plan, shard)
    if waits_for_counts(model, plan):
        share = plan.software.outside_graphs
        routed = [op._replace(host_share=share * op.host_share) for op in routed]
    ops += [op._replace(knob=ROUTED) for op in routed]
    if moe.shared_width:
        ops += mlp_ops(model, shard, "shared", moe.shared_width)
    return ops


def expert_tokens(model: TransformerSizes, plan: ParallelPlan, shard: Shard) -> float:
    """Token-expert pairs that the busiest device of an expert-parallel group works on.

    Notes:
        Of the tokens of its tensor-parallel ranks each takes the share that its own experts are whole: all of them where experts
        are split over all of tp, 1/tp where none is.
    """
    assert model.moe is not None
    return _routed(plan, shard) * model.moe.top_k * model.moe.busiest(expert_group(model, plan))


def expert_group(model: TransformerSizes, plan: ParallelPlan) -> ExpertGroup:
    """The ranks that share out the experts of a layer, and the tokens of a micro-batch that they route to each other."""
    assert model.moe is not None
    tokens = plan.micro_batch * plan.seq_len / plan.cp * max(1.0, plan.expert_split)
    return ExpertGroup(model.moe.n_experts, model.moe.top_k, plan.ep, round(tokens))


def dropped_by_experts(model: TransformerSizes, plan: ParallelPlan) -> DroppedTokens | None:
    """Shares of a device's routed tokens that find an expert full; None: none is dropped, or popularity is not stated."""
    moe = model.moe
    if moe is None or moe.routing is None or not moe.capacity_factor:
        return None
    tokens = plan.micro_batch * plan.seq_len / plan.cp / (plan.tp if plan.sequence_parallel else 1)
    return dropped_tokens(moe.routing, ExpertGroup(moe.n_experts, moe.top_k, 1, round(tokens)), moe.capacity_factor)


def waits_for_counts(model: TransformerSizes, plan: ParallelPlan) -> bool:
    """Whether the host waits in layers with experts until it knows how many tokens each gets: where none are dropped."""
    return model.moe is not None and not model.moe.capacity_factor and plan.software.waits_for_counts


def mlp_meets_tp(model: TransformerSizes, plan: ParallelPlan) -> bool:
    """Whether the MLP of a layer with experts communicates over tp in addition to the exchange of tokens with experts.

    Notes:
        Under sequence parallelism every rank sends its own tokens to experts, so that shared experts alone gather them, or all
        where there is no expert parallelism. Without it all ranks have all tokens, and add up what experts made of them.
    """
    assert model.moe is not None
    is_dense_like = plan.ep == 1 and plan.expert_tp > 1
    return bool(model.moe.shared_width) or is_dense_like or not plan.sequence_parallel


def _routed(plan: ParallelPlan, shard: Shard) -> float:
    """Tokens that pass a device on their way to experts, in the mean."""
    return shard.tokens * plan.expert_tp / shard.tp


def expert_width(model: TransformerSizes) -> int:
    """Width of a token on its way to the routed experts."""
    assert model.moe is not None
    return model.moe.token_width(model.hidden)


def _experts(model: TransformerSizes, plan: ParallelPlan, shard: Shard) -> list[Kernel]:
    moe = model.moe
    assert moe is not None
    n_local = moe.n_experts / plan.ep
    rows = expert_tokens(model, plan, shard) / n_local
    inner = moe.ffn_hidden / plan.expert_tp
    n_in = 2 if model.gated else 1
    together = 1.0 if plan.software.expert_products == APART else n_local
    ops = gemm("experts_in", rows, n_in * inner, expert_width(model), shard, batch=together)
    ops += gemm("experts_out", rows, expert_width(model), inner, shard, batch=together)
    if plan.software.expert_products == STREAMS:
        calls = 1.0 + CALL_SHARE * (n_local - 1.0)
        ops = [op._replace(host_share=calls * op.host_share) for op in ops]
    ops = [op._replace(count=n_local / together * op.count) for op in ops]
    return ops + activation_kernels("experts_act", rows * n_local * inner, shard, gated=model.gated)


def _permutation(model: TransformerSizes, shard: Shard, tokens: float, top_k: int) -> list[Kernel]:
    """Softmax and top-k of the router, copies into expert order and back (weighted sum), and their gradients."""
    rows = shard.element_bytes * tokens * expert_width(model)
    copies = (1.0 + top_k) * rows
    return [
        stream("permute", "F", copies + 2 * top_k * rows, 6.0),
        stream("unpermute", "F", copies, 3.0),
        stream("permute", "B", copies + 2 * top_k * rows, 4.0),
        stream("unpermute", "B", copies + top_k * rows, 4.0),
    ]


_FP32_BYTES = 4.0
_SCAN_LAUNCHES = 5.0  # mamba_ssm: cumulative decays, states, passing, keys against queries, outputs


def mixer_ops(model: TransformerSizes, plan: ParallelPlan, shard: Shard, mixer: MixerSpec) -> list[Kernel]:
    """Returns the kernels of a mixer, which stands in place of attention."""
    tp, tokens = shard.tp, shard.tokens
    ops = gemm("mixer_in", tokens, mixer.in_width / tp, model.hidden, shard)
    conv_bytes = shard.element_bytes * tokens * mixer.conv_width / tp
    ops += [stream("mixer_conv", "F", 2 * conv_bytes), stream("mixer_conv", "B", 4 * conv_bytes, 2.0)]
    ops += _scan(plan, shard, mixer)
    elements = tokens * mixer.width / tp
    ops += norm_kernels("mixer_norm", elements, replace(shard, rms=True))
    gate_bytes = shard.element_bytes * elements
    ops += [stream("mixer_gate", "F", 3 * gate_bytes), stream("mixer_gate", "B", 5 * gate_bytes)]
    return ops + gemm("mixer_out", tokens, model.hidden, mixer.width / tp, shard)


def _scan(plan: ParallelPlan, shard: Shard, mixer: MixerSpec) -> list[Kernel]:
    chunk = min(float(mixer.chunk), plan.seq_len)
    n_chunk = shard.tokens / chunk
    inner = (mixer.width * 2 + mixer.key_width * 2) / shard.tp
    states = 2.0 * _FP32_BYTES * n_chunk * mixer.width * mixer.state / shard.tp
    traffic = shard.element_bytes * shard.tokens * inner + states
    flops = shard.tokens * mixer.scan_flops(plan.seq_len) / shard.tp
    heads = n_chunk * mixer.n_heads / shard.tp
    sizes = {
        "m": chunk,
        "n": float(mixer.head_dim),
        "k": (chunk + 2 * mixer.state) / 2,
        "batch": heads,
        "dtype": "bf16",
    }
    forward = Kernel("mixer_scan", "F", "gemm", flops, traffic, _SCAN_LAUNCHES, **sizes)
    back = {"phase": "B", "flops": 2.0 * flops, "hbm_bytes": 2.5 * traffic, "batch": 2.0 * heads}
    return [forward, forward._replace(n_launch=2.0 * _SCAN_LAUNCHES, **back)]
