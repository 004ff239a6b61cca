"""What one device communicates inside the kernels of a layer, of the embedding and of the head, per micro-batch."""

from __future__ import annotations

from ...plan.plan import ParallelPlan
from ...plan.precision import FP8_FAMILY, QUANTISED
from ..base import Comm
from .adapters.ops import adapter_comms
from .op_lists.mlp import expert_tokens
from .shard import Shard
from .sizes import TransformerSizes

FP32_BYTES = 4.0


def layer_comms(model: TransformerSizes, plan: ParallelPlan, layer: int) -> list[Comm]:
    """Communication of one layer, without recomputation and without gathering of sharded parameters."""
    mixer = model.mixer_in(layer)
    if mixer is not None and not mixer.has_mlp:
        return _tensor_parallel(model, plan, 1.0)
    comms = _tensor_parallel(model, plan, 2.0) + (_context_parallel(model, plan) if mixer is None else [])
    comms += adapter_comms(model, plan, model.is_moe_layer(layer))
    return comms + (_expert_parallel(model, plan) if model.is_moe_layer(layer) else [])


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
    """Per block (attention, MLP) an all-reduce per pass, or the all-gather and reduce-scatter it splits into.

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
    """Keys and values go once around the ring, with their gradients on the way back, under the attention of the part at hand."""
    if plan.cp == 1:
        return []
    shard = Shard.of(model, plan)
    width = (model.qk_head_dim + model.v_head_dim) * max(model.kv_heads / plan.tp, 1.0)
    gathered = shard.element_bytes * shard.tokens * plan.cp * width
    comm = Comm("cp", "all_gather", "F", gathered, plan.stride("cp"), plan.cp, "attention")
    return [comm, comm._replace(phase="B"), comm._replace(phase="B", kind="reduce_scatter")]


def _dispatch_bytes(plan: ParallelPlan) -> float:
    """Of an element that goes to its experts; formats of 4 bits are made where they are multiplied."""
    return QUANTISED[plan.dtype].input_bytes if plan.dtype in FP8_FAMILY else plan.element_bytes


def _expert_parallel(model: TransformerSizes, plan: ParallelPlan) -> list[Comm]:
    """Dispatch and combine, forward and back; the graph lets a schedule that pairs F and B (DualPipe) hide them.

    Notes:
        The busiest rank's load sets the pace; fp8 plans dispatch in fp8 and combine in bf16 (arXiv 2412.19437 section 3.3.2).
    """
    if plan.ep == 1:
        return []
    shard = Shard.of(model, plan)
    stride, _ = plan.data_group
    pairs = expert_tokens(model, plan, shard) * shard.local_tokens / shard.tokens * model.hidden
    dispatch = Comm("ep", "all_to_all", "F", _dispatch_bytes(plan) * pairs, stride, plan.ep, fan_out=model.top_k)
    combine = dispatch._replace(n_bytes=shard.element_bytes * pairs)
    return [dispatch, combine, dispatch._replace(phase="B"), combine._replace(phase="B")]
