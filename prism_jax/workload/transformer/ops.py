"""Kernels and communication of one device for one layer, for the embedding and for the head, per micro-batch.

Rows follow Megatron-LM (column-parallel then row-parallel products; norms, dropout and residuals on the tokens of the
sequence-parallel region). The backward pass of a product is two products of the same size: B (gradient of the input)
and W (gradient of the weight). Activations are 2 bytes wide except in fp32.

Source: FLOP counts arXiv 2104.04473 appendix, flash traffic arXiv 2205.14135 and 2307.08691, MLA arXiv 2405.04434.
"""

from __future__ import annotations

from ...framework.software import ALL_GATHER, ALL_REDUCE, ONCE_PER_NODE
from ...plan.fields import FP8_FAMILY, precision_of
from ...plan.plan import ParallelPlan
from ..base.kernels import Kernel, KernelTable, stream
from ..base.workload import Comm
from .adapters import adapter_comms, adapter_ops
from .loss import loss_kernels
from .op_lists import (
    attention_core,
    expert_tokens,
    expert_width,
    mixer_ops,
    mlp_meets_tp,
    mlp_ops,
    moe_ops,
    norm_kernels,
    rope_kernels,
)
from .shard import Shard, gemm
from .sizes import TransformerSizes


def layer_ops(model: TransformerSizes, plan: ParallelPlan, layer: int) -> KernelTable:
    """Ops of layer `layer` on one device for one micro-batch, without recomputation."""
    shard = Shard.of(model, plan)
    if (mixer := model.mixer_in(layer)) is not None:
        ops = mixer_ops(model, plan, shard, mixer)
    else:
        ops = _projections(model, shard) + attention_core(model, plan, shard, layer) + _attention_out(model, shard)
    around, is_moe = _norms_and_residuals(model, shard), model.is_moe_layer(layer)
    if not model.has_mlp_in(layer):
        return KernelTable.of(
            ops + [op._replace(hbm_bytes=op.hbm_bytes / 2, n_launch=op.n_launch / 2) for op in around]
        )
    ops += around
    ops += moe_ops(model, plan, shard) if is_moe else mlp_ops(model, shard, "mlp", model.ffn_hidden)
    return KernelTable.of(ops + adapter_ops(model, plan, shard, is_moe))


def embedding_ops(model: TransformerSizes, plan: ParallelPlan) -> KernelTable:
    """Table lookup (with learned positions and dropout) and the scatter of its gradient."""
    shard = Shard.of(model, plan)
    rows = shard.tokens * model.hidden
    per_element = 2.0 + (1.0 if model.position == "learned" else 0.0)
    ops = [
        stream("embedding", "F", per_element * shard.element_bytes * rows, 3.0),
        stream("embedding", "W", 3.0 * shard.element_bytes * rows, 2.0),
    ]
    return KernelTable.of(ops if shard.trains else ops[:1])


def head_ops(model: TransformerSizes, plan: ParallelPlan) -> KernelTable:
    """Final norm, logits over the device's share of the vocabulary, cross entropy in fp32."""
    return KernelTable.of(_logits(model, Shard.of(model, plan)))


def mtp_ops(model: TransformerSizes, plan: ParallelPlan) -> KernelTable:
    """One multi-token-prediction module: its input projection, a layer like the last one, logits and loss of its own."""
    shard = Shard.of(model, plan)
    table = KernelTable.of(_logits(model, shard)) + layer_ops(model, plan, model.n_layers - 1)
    return table + KernelTable.of(gemm("mtp_in", shard.local_tokens, model.hidden, 2 * model.hidden, shard))


def _projections(model: TransformerSizes, shard: Shard) -> list[Kernel]:
    if model.mla is not None:
        return _mla_projections(model, shard)
    q_width = model.query_width / shard.tp
    width = q_width + 2 * model.kv_dim / shard.tp
    if model.kv_heads < shard.tp:  # key-value heads are copied where there are fewer of them than tp ranks
        width = q_width + 2 * model.qk_head_dim
    return gemm("qkv", shard.tokens, width, model.hidden, shard) + _rope(model, shard)


def _mla_projections(model: TransformerSizes, shard: Shard) -> list[Kernel]:
    """Projections of latent attention: down whole on every tp rank (tokens split under sequence parallelism), up split."""
    mla = model.mla
    assert mla is not None
    ops = gemm("kv_down", shard.local_tokens, mla.kv_lora_rank + mla.qk_rope_head_dim, model.hidden, shard)
    up_width = model.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim) / shard.tp
    ops += gemm("kv_up", shard.tokens, up_width, mla.kv_lora_rank, shard)
    q_width = model.q_dim / shard.tp
    if mla.q_lora_rank:
        ops += gemm("q_down", shard.local_tokens, mla.q_lora_rank, model.hidden, shard)
        ops += gemm("q_up", shard.tokens, q_width, mla.q_lora_rank, shard)
    else:
        ops += gemm("q", shard.tokens, q_width, model.hidden, shard)
    latent = shard.local_tokens * (mla.kv_lora_rank + mla.q_lora_rank)
    ops += norm_kernels("latent_norms", latent / 2, shard, count=2.0)
    # keys are assembled from the expanded latent part and the shared rope part
    assembled = shard.tokens * model.n_heads * model.qk_head_dim / shard.tp
    ops += [stream("assemble_kv", p, 2 * shard.element_bytes * assembled, 2.0) for p in ("F", "B")]
    return ops + _rope(model, shard)


def _rope(model: TransformerSizes, shard: Shard) -> list[Kernel]:
    if model.position != "rope":
        return []
    heads, dim = model.n_heads + model.kv_heads, model.qk_head_dim
    if model.mla is not None:
        heads, dim = model.n_heads + 1, model.mla.qk_rope_head_dim
    elements = shard.tokens * heads * dim / shard.tp
    ops = rope_kernels(elements, shard)
    if model.qk_norm:
        ops += norm_kernels("qk_norm", elements / 2, shard, count=2.0)
    return ops


def _attention_out(model: TransformerSizes, shard: Shard) -> list[Kernel]:
    ops = gemm("attention_out", shard.tokens, model.hidden, model.attention_out_dim / shard.tp, shard)
    if not model.attention_gate:
        return ops
    gate_bytes = shard.element_bytes * shard.tokens * model.attention_out_dim / shard.tp
    return [stream("attention_gate", "F", 3 * gate_bytes), stream("attention_gate", "B", 5 * gate_bytes), *ops]


def _norms_and_residuals(model: TransformerSizes, shard: Shard) -> list[Kernel]:
    """The norms and two (dropout and) additions of a layer, on the tokens of the sequence-parallel region."""
    row_bytes = shard.hidden_bytes
    mask = 1.0 / shard.element_bytes if shard.dropout else 0.0  # a dropout mask is one byte per element
    return [
        *norm_kernels("norms", shard.elements, shard, count=float(model.n_norms)),
        stream("residuals", "F", 2 * (3 + mask) * row_bytes, 2.0),
        stream("residuals", "B", 2 * ((2 + mask) if shard.dropout else 2) * row_bytes, 2.0),
    ]


def _logits(model: TransformerSizes, shard: Shard) -> list[Kernel]:
    ops = loss_kernels(shard.tokens, model.vocab / shard.tp, model.hidden, shard)
    return ops + norm_kernels("final_norm", shard.elements, shard)


FP32_BYTES = 4.0


def layer_comms(model: TransformerSizes, plan: ParallelPlan, layer: int) -> list[Comm]:
    """Communication of one layer, without recomputation and without gathering of sharded parameters."""
    is_moe = model.is_moe_layer(layer)
    meets_tp = model.has_mlp_in(layer) and (not is_moe or mlp_meets_tp(model, plan))
    comms = _tensor_parallel(model, plan, 2.0 if meets_tp else 1.0)
    comms += _context_parallel(model, plan) if model.mixer_in(layer) is None else []
    comms += adapter_comms(model, plan, is_moe)
    return comms + (_expert_parallel(model, plan) if is_moe else [])


def embedding_comms(model: TransformerSizes, plan: ParallelPlan) -> list[Comm]:
    """Sum over the shares of the vocabulary; with sequence parallelism every rank keeps its tokens only."""
    if plan.tp == 1:
        return []
    forward, backward = ("reduce_scatter", "all_gather") if plan.sequence_parallel else ("all_reduce", "")
    comms = [_tp(plan, forward, "F", _activation_bytes(model, plan))]
    if backward:
        comms.append(_tp(plan, backward, "B", _activation_bytes(model, plan)))
    return comms


def head_comms(model: TransformerSizes, plan: ParallelPlan) -> list[Comm]:
    """Input of the logits and its gradient; maximum, sum and target logit of the vocabulary-parallel cross entropy."""
    comms: list[Comm] = []
    if plan.tp > 1:
        size = _activation_bytes(model, plan)
        beside = "weight_grad" if plan.overlap.tp else ""
        tokens = Shard.of(model, plan).tokens
        comms.append(_tp(plan, "all_reduce", "F", FP32_BYTES * tokens)._replace(count=3.0))
        if plan.sequence_parallel:
            comms += [_tp(plan, "all_gather", "F", size), _tp(plan, "reduce_scatter", "B", size, beside)]
        else:
            comms.append(_tp(plan, "all_reduce", "B", size, beside))
    return comms


def _tp(plan: ParallelPlan, kind: str, phase: str, n_bytes: float, beside: str = "") -> Comm:
    return Comm("tp", kind, phase, n_bytes, plan.stride("tp"), plan.tp, beside)


def _activation_bytes(model: TransformerSizes, plan: ParallelPlan) -> float:
    shard = Shard.of(model, plan)
    return shard.element_bytes * shard.tokens * model.hidden


def _tensor_parallel(model: TransformerSizes, plan: ParallelPlan, n_block: float) -> list[Comm]:
    """Returns, per block (attention, MLP), an all-reduce per pass, or the all-gather and reduce-scatter it splits into.

    Notes:
        `overlap.tp` stands for what Megatron-Core calls `tp_comm_overlap`: forward and output gradient are cut up with their
        products (sequence parallelism only), the input is gathered again under the input gradient, and what follows the
        input gradient runs under the weight gradient. Without it all of it shows.

    Source: arXiv 1909.08053 section 3; 2205.05198 section 4.2.2.
    """
    if plan.tp == 1:
        return []
    size = _activation_bytes(model, plan)
    cut, input_grad, weight_grad = ("product", "input_grad", "weight_grad") if plan.overlap.tp else ("", "", "")
    if not plan.sequence_parallel:
        comms = [_tp(plan, "all_reduce", "F", size), _tp(plan, "all_reduce", "B", size, weight_grad)]
    else:
        comms = [
            _tp(plan, "all_gather", "F", size, cut),
            _tp(plan, "reduce_scatter", "F", size, cut),
            _tp(plan, "all_gather", "B", size, cut),
            _tp(plan, "all_gather", "B", size, input_grad),
            _tp(plan, "reduce_scatter", "B", size, weight_grad),
        ]
    return [comm._replace(count=n_block) for comm in comms]


def cross_comms(model: TransformerSizes, plan: ParallelPlan, memory: ParallelPlan) -> list[Comm]:
    """Attention to another sequence, whose length `memory` has: one tensor-parallel block more, keys and values of all ranks."""
    return _tensor_parallel(model, plan, 1.0) + _context_parallel(model, memory)


def _context_parallel(model: TransformerSizes, plan: ParallelPlan) -> list[Comm]:
    """Exchange of keys and values: once around the ring during attention to the part that is there, gradients on the way back."""
    if plan.cp == 1:
        return []
    shard = Shard.of(model, plan)
    width = (model.qk_head_dim + model.v_head_dim) * max(model.kv_heads / plan.tp, 1.0)
    gathered = shard.element_bytes * shard.tokens * plan.cp * width
    comm = Comm("cp", "all_gather", "F", gathered, plan.stride("cp"), plan.cp, "attention")
    return [comm, comm._replace(phase="B"), comm._replace(phase="B", kind="reduce_scatter")]


def _dispatch_bytes(plan: ParallelPlan) -> float:
    """Returns the bytes of an element that goes to its experts; formats of 4 bits are made where they are multiplied."""
    precision = precision_of(plan) if plan.dtype in FP8_FAMILY and plan.software.dispatcher in ONCE_PER_NODE else None
    return precision.input_bytes if precision is not None else plan.element_bytes


def _expert_parallel(model: TransformerSizes, plan: ParallelPlan) -> list[Comm]:
    """Dispatch and combine, forward and back; the graph lets a schedule that pairs F and B (DualPipe) hide them.

    Notes:
        The busiest rank's load sets the pace. Behind an all-to-all tokens are quantised where they are multiplied; DeepEP and
        HybridEP dispatch in fp8 where products are, and combine in bf16 (arXiv 2412.19437 section 3.3.2).
    """
    if plan.ep == 1:
        return []
    if plan.software.dispatcher in (ALL_GATHER, ALL_REDUCE):
        return _everywhere(model, plan)
    shard = Shard.of(model, plan)
    _, stride = plan.expert_layout
    fan_out = model.top_k if plan.software.dispatcher in ONCE_PER_NODE else 0
    pairs = expert_tokens(model, plan, shard) / (plan.expert_tp if plan.sequence_parallel else 1) * expert_width(model)
    dispatch = Comm("ep", "all_to_all", "F", _dispatch_bytes(plan) * pairs, stride, plan.ep, fan_out=fan_out)
    combine = dispatch._replace(n_bytes=shard.element_bytes * pairs)
    back = dispatch._replace(phase="B"), combine._replace(phase="B")
    return [dispatch, combine, *back] + _expert_tensor_parallel(model, plan)


def _everywhere(model: TransformerSizes, plan: ParallelPlan) -> list[Comm]:
    """Tokens of all ranks that experts are shared out among go to each of them, which adds up what its experts make of them.

    Source: Megatron-Core, `MoEAllGatherTokenDispatcher`: all-gather and reduce-scatter over the ranks of ep and etp; where
        results are summed by an all-reduce every rank keeps those of all tokens.
    """
    shard = Shard.of(model, plan)
    stride, _ = plan.expert_layout
    size = plan.ep * plan.expert_tp
    n_bytes = shard.element_bytes * size * shard.tokens / shard.tp * expert_width(model)
    gather = Comm("ep", "all_gather", "F", n_bytes, stride, size)
    sums = gather._replace(kind="all_reduce" if plan.software.dispatcher == ALL_REDUCE else "reduce_scatter")
    return [gather, sums, gather._replace(phase="B"), sums._replace(phase="B")]


def _expert_tensor_parallel(model: TransformerSizes, plan: ParallelPlan) -> list[Comm]:
    """Tokens go to all ranks that their expert is split over, and the parts of its result are added up.

    Notes:
        Without sequence parallelism they have the same tokens; the sum is that of the layer (`_tensor_parallel`).

    Source: Megatron-Core, `MoEAlltoAllTokenDispatcher`: all-gather over these ranks behind the all-to-all, reduce-scatter in
        front of the one back.
    """
    if plan.expert_tp == 1 or not plan.sequence_parallel:
        return []
    shard = Shard.of(model, plan)
    stride, _ = plan.expert_layout
    pairs = expert_tokens(model, plan, shard) * expert_width(model)
    gather = Comm("ep", "all_gather", "F", _dispatch_bytes(plan) * pairs, stride, plan.expert_tp)
    scatter = gather._replace(kind="reduce_scatter", n_bytes=shard.element_bytes * pairs)
    back = gather._replace(phase="B", n_bytes=shard.element_bytes * pairs), scatter._replace(phase="B")
    return [gather, scatter, *back]
