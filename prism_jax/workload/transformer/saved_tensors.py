"""Tensors that the backward pass keeps (bytes, per device and micro-batch, each by name), and those that recomputation drops.

For the dense GPT layer the list adds up to the closed forms of arXiv 2205.05198 (section 4, equations 1, 2 and 4 and table 2):
`sbh (34 + 5as/h)`, with tensor parallelism `sbh (10 + 24/t + 5as/(ht))`, with sequence parallelism everything `/ t`,
`34 sbh/t` under selective and `2 sbh` under full recomputation. FlashAttention (arXiv 2205.14135) drops the `5as/h`
term and keeps one fp32 log-sum-exp per row instead. Gated MLP, GQA, MLA and MoE follow by the same bookkeeping.

A module that runs again is named as Megatron-LM names it (`--recompute-modules`). Under `moe_act` the router's weights multiply
what is computed again, as in Megatron-Core's weighted activations, so that outputs of experts are not kept for the gradients of
these weights; under `mla_up_proj` the norms of the latents run again with the projections that they are part of. `mlp_act` is the
same for dense MLPs and shared experts, and has no name in Megatron-LM: xFormers' SwiGLU keeps the two inputs of the product and
makes it again in its backward kernel (`silu_bw_fused`). torchtitan's `selective_op` saves the
results of attention and of every other matrix product in the order in which a Llama layer runs them (query, value, gate,
down), and computes everything else again, a mixture of experts as a whole. Source: Megatron-LM, megatron/core/transformer
(`recompute_modules`); torchtitan, distributed/activation_checkpoint.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from ...framework.base import FIRST_WEIGHTED, MEGATRON, MemoryOptions
from ...framework.software import FUSED, Software
from ...plan.fields import layers_per_checkpoint, recomputed_modules, saved_bytes, share_of_layers
from ...plan.plan import ParallelPlan
from ..base.workload import Comm, SavedTensor
from .adapters import adapted_saved_tensors
from .loss import loss_saved_tensors
from .mixers import MixerSpec
from .op_lists import CORE, expert_tokens, mlp_meets_tp
from .shard import Shard, has_dropout
from .sizes import MLASpec, MoESpec, TransformerSizes

LAYER_INPUT, MLP_OUTPUT = "layer input", "mlp output"
_CORE_TENSORS = ("attention log-sum-exp", "softmax output", "softmax dropout mask", "softmax dropout output")
_EVERYTHING = "*"
FREED_FIRST = ("mlp down projection input", "expert down projection input")


def _whole(*names: str) -> dict[str, float]:
    return dict.fromkeys(names, 1.0)


def _inner(prefix: str) -> dict[str, float]:
    return _whole(f"{prefix} activation input", f"{prefix} gate output", f"{prefix} down projection input")


@dataclass(frozen=True)
class Again:
    """Shares, 1 for the whole; "*" stands for every name.

    Attributes:
        kernels: of forward kernels that run again.
        dropped: of saved tensors that are not saved.
        comms: of forward collectives that run again, by axis, or by axis and kind.
        added: tensors that are saved only because of it.
        unneeded: tensors that nothing reads under it: neither saved nor brought back.
    """

    kernels: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, float] = field(default_factory=dict)
    comms: Mapping[str, float] = field(default_factory=dict)
    added: tuple[str, ...] = ()
    unneeded: tuple[str, ...] = ()

    def kernel_share(self, name: str) -> float:
        """Returns the share of a forward kernel that runs again."""
        return self.kernels.get(name, self.kernels.get(_EVERYTHING, 0.0))

    def saved_share(self, name: str) -> float:
        """Returns the share of a tensor that is saved."""
        return 0.0 if name in self.unneeded else 1.0 - self.dropped.get(name, self.dropped.get(_EVERYTHING, 0.0))

    def comm_share(self, comm: Comm) -> float:
        """Returns the share of a forward collective that runs again."""
        by_kind = self.comms.get(f"{comm.axis} {comm.kind}", self.comms.get(comm.axis, 0.0))
        return self.comms.get(_EVERYTHING, by_kind)

    def __or__(self, other: Again) -> Again:
        """Combines both; parts that both name count once."""
        return Again(
            {**self.kernels, **other.kernels},
            {**self.dropped, **other.dropped},
            {**self.comms, **other.comms},
            (*self.added, *other.added),
            (*self.unneeded, *other.unneeded),
        )


_MOE_KERNELS = _whole("router", "permute", "unpermute", "experts_in", "experts_act", "experts_out")
_SHARED = Again(_whole("shared_in", "shared_act", "shared_out"), _inner("shared expert"))
_MOE = _SHARED | Again(
    _MOE_KERNELS,
    _whole("router scores", "permuted tokens", "expert output") | _inner("expert"),
    {"tp": 0.5, "ep": 1.0},  # of attention and MLP, one
)
_MLP = Again(_whole("mlp_in", "mlp_act", "mlp_out"), _inner("mlp"), {"tp": 0.5})


def _activation(kernel: str, prefix: str) -> Again:
    """Returns the recomputation of an MLP's activation: the product of gate and values, which the second projection reads."""
    return Again(_whole(kernel), _whole(f"{prefix} gate output", f"{prefix} down projection input"))


_MODULES = {
    "core_attn": Again(dict.fromkeys(CORE, 1.0), _whole(*_CORE_TENSORS)),
    "mlp_act": _activation("mlp_act", "mlp") | _activation("shared_act", "shared expert"),
    "moe_act": _activation("experts_act", "expert") | Again(unneeded=("expert output",)),
    "layernorm": Again(_whole("norms"), _whole("qkv projection input", "mlp input", "router input")),
    "mlp": _MLP,
    "shared_experts": _SHARED,
}
_LATENT = Again(
    _whole("q_up", "kv_up", "rope", "assemble_kv", "latent_norms"),
    _whole("query", "key", "value")
    | dict.fromkeys(("query latent and its norm", "key-value latent and its norm"), 0.5),
)
FULL = Again({_EVERYTHING: 1.0}, {_EVERYTHING: 1.0}, {_EVERYTHING: 1.0}, (LAYER_INPUT,))
NOTHING = Again()


def recomputed(model: TransformerSizes, plan: ParallelPlan, is_moe: bool) -> Again:
    """Returns the recomputed parts of a layer that recomputes under `plan`; see `share_of_layers` for how many layers do."""
    match plan.recompute:
        case "full" | "selective_layer":
            return FULL
        case "selective_op":
            return _alternate_products(model) | (_moe(model, plan) if is_moe else NOTHING)
        case _:
            total = NOTHING
            for name in recomputed_modules(plan):
                total = total | _module(model, plan, name)
            return total


def recomputing_share(model: TransformerSizes, plan: ParallelPlan) -> float:
    """Share of the layers that recompute as `recomputed` states."""
    return share_of_layers(plan, model.n_layers)


def _moe(model: TransformerSizes, plan: ParallelPlan) -> Again:
    """Experts as a whole, with their part of the layer's tensor-parallel communication."""
    meets = model.moe is not None and mlp_meets_tp(model, plan)
    return _MOE if meets else replace(_MOE, comms={**_MOE.comms, "tp": 0.0})


def _module(model: TransformerSizes, plan: ParallelPlan, name: str) -> Again:
    if name == "moe":
        return _moe(model, plan)
    if name == "mla_up_proj":
        return _LATENT if model.mla is not None else NOTHING
    return _MODULES[name]


def _alternate_products(model: TransformerSizes) -> Again:
    """Query, value, gate and down projection are saved; key, output and up projection run again."""
    width = model.q_dim + 2 * model.kv_dim
    gated = model.gated
    kernels = _whole("norms", "residuals", "rope", "qk_norm", "latent_norms", "assemble_kv", "attention_out", "mlp_act")
    kernels |= {"qkv": model.kv_dim / width, "q_up": 1.0, "kv_up": 1.0}
    kernels |= {"mlp_in": 0.5, "mlp_out": 0.0} if gated else {"mlp_in": 0.0, "mlp_out": 1.0}
    dropped = _whole("qkv projection input", "key", "mlp norm input", "mlp input", "router input")
    dropped |= _whole("mlp gate output", "mlp down projection input", "query before norm", "key before norm")
    dropped |= _whole("output norm inputs")
    dropped |= {"mlp activation input": 0.5 if gated else 0.0}
    return Again(kernels, dropped, {"tp all_gather": 1.0, "tp all_reduce": 1.0}, (MLP_OUTPUT,) if gated else ())


_FP32_BYTES = 4.0
_PRE_NORMS = 2  # norms whose input and output are both listed; OLMo 2 has two after its products and saves as much


@dataclass(frozen=True)
class _Layout(Shard):
    """Shard with the sizes of saved tensors that depend on the framework.

    Attributes:
        linear_in_tokens: rows kept of the input of a column-parallel matrix product.
        activation_input_bytes, attention_output_bytes: of an element of these; see `plan.fields.SavedDtypes`.
    """

    linear_in_tokens: float
    activation_input_bytes: float
    attention_output_bytes: float

    @classmethod
    def under(cls, model: TransformerSizes, plan: ParallelPlan, options: MemoryOptions) -> _Layout:
        """Returns the sizes of the tensors that `options` keep."""
        shard = Shard.of(model, plan)
        dropout = has_dropout(model) if options.dropout is None else options.dropout
        rows = shard.tokens if options.keeps_gathered_inputs else shard.local_tokens
        return cls(
            **{**vars(shard), "dropout": dropout},
            linear_in_tokens=rows,
            activation_input_bytes=_narrow_bytes(plan.saved_dtypes.activation_input, shard),
            attention_output_bytes=_narrow_bytes(plan.saved_dtypes.attention_output, shard),
        )


def _narrow_bytes(dtype: str | None, shard: Shard) -> float:
    """Bytes of an element that is saved in `dtype`: in fp8 with its share of the scales that inputs of products have."""
    own = saved_bytes(dtype, shard.element_bytes)
    return max(own, shard.precision.input_bytes) if dtype == "fp8" and shard.precision is not None else own


def _attention_core(model: TransformerSizes, plan: ParallelPlan, lay: _Layout, keys: float) -> list[SavedTensor]:
    """Scores of unfused attention (5 a s^2 b bytes with dropout), or the log-sum-exp of FlashAttention."""
    rows = lay.tokens * model.n_heads / lay.tp
    if plan.is_flash:
        return [SavedTensor("attention log-sum-exp", _FP32_BYTES * rows)]
    scores = lay.element_bytes * rows * keys
    saved = [SavedTensor("softmax output", scores)]
    if lay.dropout:
        saved += [
            SavedTensor("softmax dropout mask", rows * keys),
            SavedTensor("softmax dropout output", scores),
        ]
    return saved


def _standard_qkv(model: TransformerSizes, lay: _Layout) -> list[SavedTensor]:
    width = model.qk_head_dim
    q = lay.element_bytes * lay.tokens * width * model.n_heads / lay.tp
    kv = lay.element_bytes * lay.tokens * width * max(model.kv_heads / lay.tp, 1.0)
    saved = [SavedTensor("query", q), SavedTensor("key", kv), SavedTensor("value", kv)]
    if model.qk_norm:
        saved += [SavedTensor("query before norm", q), SavedTensor("key before norm", kv)]
    if model.attention_gate:
        saved += [SavedTensor("attention gate", q), SavedTensor("attention output before its gate", q)]
    return [*saved, SavedTensor("attention output", q * lay.attention_output_bytes / lay.element_bytes)]


def _mla_qkv(model: TransformerSizes, mla: MLASpec, lay: _Layout) -> list[SavedTensor]:
    """Latents before and after their norms, then the per-head query, key and value they are expanded to."""
    heads = lay.element_bytes * lay.tokens * model.n_heads / lay.tp
    latents = lay.element_bytes * lay.local_tokens
    qk_dim = mla.qk_nope_head_dim + mla.qk_rope_head_dim
    return [
        SavedTensor("query latent and its norm", 2 * latents * mla.q_lora_rank),
        SavedTensor("key-value latent and its norm", 2 * latents * mla.kv_lora_rank),
        SavedTensor("query", heads * qk_dim),
        SavedTensor("key", heads * qk_dim),
        SavedTensor("value", heads * mla.v_head_dim),
        SavedTensor("attention output", heads * mla.v_head_dim * lay.attention_output_bytes / lay.element_bytes),
    ]


def _attention(model: TransformerSizes, plan: ParallelPlan, lay: _Layout) -> list[SavedTensor]:
    hidden = lay.hidden_bytes
    qkv = _mla_qkv(model, model.mla, lay) if model.mla else _standard_qkv(model, lay)
    saved = [
        SavedTensor("attention norm input", hidden),
        SavedTensor("qkv projection input", lay.saved_input_bytes * lay.linear_in_tokens * model.hidden),
        *qkv,
        *_attention_core(model, plan, lay, plan.seq_len),
    ]
    if lay.dropout:
        saved.append(SavedTensor("attention dropout mask", lay.elements))
    if model.n_norms > _PRE_NORMS:  # further norms follow attention and MLP, whose outputs are their inputs
        saved.append(SavedTensor("output norm inputs", (model.n_norms - _PRE_NORMS) * hidden))
    return saved


def _mixing(model: TransformerSizes, lay: _Layout, mixer: MixerSpec) -> list[SavedTensor]:
    """Inputs of norm, projection, convolution, scan, gate and output; states between chunks are computed again."""
    element, tokens = lay.element_bytes, lay.tokens / lay.tp
    return [
        SavedTensor("attention norm input", lay.hidden_bytes),
        SavedTensor("mixer projection input", lay.saved_input_bytes * lay.linear_in_tokens * model.hidden),
        SavedTensor("mixer projection output", element * tokens * mixer.in_width),
        SavedTensor("mixer convolution output", element * tokens * mixer.conv_width),
        SavedTensor("mixer scan output", element * tokens * mixer.width),
        SavedTensor("mixer output projection input", lay.saved_input_bytes * tokens * mixer.width),
    ]


def _fused_gate(software: Software, options: MemoryOptions) -> bool:
    """Whether gate and product are one kernel, by itself or as compiled, that saves its two inputs only."""
    return options.fused_gate or software.activation == FUSED or bool(software.compile)


def _weighted_experts(software: Software, options: MemoryOptions) -> bool:
    """Whether the router's weights multiply activations of experts, and not their outputs."""
    return options.weighted_experts and not "" < software.date < FIRST_WEIGHTED


def in_place_activation(plan: ParallelPlan, options: MemoryOptions) -> bool:
    """Whether the activation's gradients overwrite its inputs, as fused kernels for plain PyTorch modules do (Liger, unsloth)."""
    return not options.fused_gate and plan.software.activation == FUSED


def _mlp_inner(
    prefix: str, rows: float, ffn: float, gated: bool, lay: _Layout, options: MemoryOptions
) -> list[SavedTensor]:
    """Tensors between the two projections of an MLP of inner width `ffn` on this device, for `rows` tokens."""
    one = lay.element_bytes * rows * ffn
    own = lay.activation_input_bytes * rows * ffn
    saved = [SavedTensor(f"{prefix} activation input", 2 * own if gated else own)]
    if gated and not _fused_gate(lay.software, options):
        saved.append(SavedTensor(f"{prefix} gate output", one))
    return [*saved, SavedTensor(f"{prefix} down projection input", lay.saved_input_bytes * rows * ffn)]


def _dense_mlp(model: TransformerSizes, lay: _Layout, options: MemoryOptions) -> list[SavedTensor]:
    saved = [
        SavedTensor("mlp norm input", lay.hidden_bytes),
        SavedTensor("mlp input", lay.saved_input_bytes * lay.linear_in_tokens * model.hidden),
        *_mlp_inner("mlp", lay.tokens, model.ffn_hidden / lay.tp, model.gated, lay, options),
    ]
    if lay.dropout:
        saved.append(SavedTensor("mlp dropout mask", lay.elements))
    return saved


def _moe_mlp(
    model: TransformerSizes, plan: ParallelPlan, moe: MoESpec, lay: _Layout, options: MemoryOptions
) -> list[SavedTensor]:
    """Router, permuted copies of each token for its `top_k` experts, what is multiplied by the router's weights, shared experts.

    The permuted tokens of all ranks that an expert is split over pass each of them.
    """
    routed, width = expert_tokens(model, plan, lay), moe.token_width(model.hidden)
    saved = [
        SavedTensor("mlp norm input", lay.hidden_bytes),
        SavedTensor("router input", lay.hidden_bytes),
        SavedTensor("router scores", _FP32_BYTES * lay.local_tokens * moe.n_experts),
        SavedTensor("permuted tokens", lay.saved_input_bytes * routed * width),
        *_mlp_inner("expert", routed, moe.ffn_hidden / plan.expert_tp, model.gated, lay, options),
    ]
    if not _weighted_experts(lay.software, options):
        saved.append(SavedTensor("expert output", lay.element_bytes * routed * width))
    elif not model.gated:
        saved.append(SavedTensor("expert gate output", lay.element_bytes * routed * moe.ffn_hidden / plan.expert_tp))
    if moe.shared_width:
        saved += _mlp_inner("shared expert", lay.tokens, moe.shared_width / lay.tp, model.gated, lay, options)
    return saved


def layer_saved_tensors(
    model: TransformerSizes,
    plan: ParallelPlan,
    *,
    is_moe: bool = False,
    options: MemoryOptions = MEGATRON,
    again: Again | None = None,
    beside: Sequence[SavedTensor] = (),
    mixer: MixerSpec | None = None,
    has_mlp: bool = True,
) -> tuple[SavedTensor, ...]:
    """The tensors one layer saves per micro-batch on one device, in the mean over the layers of its kind.

    Args:
        is_moe: the layer has experts in place of the dense MLP.
        again: parts that the layer recomputes; None: as the plan says, for the share of the layers that recompute.
        beside: tensors of the layer's other parts.
        mixer: in place of attention; None: the layer has attention.
        has_mlp: an MLP or experts follow.

    Source: arXiv 2205.05198, sections 4.1 to 4.2 and table 2.
    """
    lay = _Layout.under(model, plan, options)
    share = recomputing_share(model, plan) if again is None else 1.0
    again = recomputed(model, plan, is_moe) if again is None else again
    mlp = _moe_mlp(model, plan, model.moe, lay, options) if is_moe and model.moe else _dense_mlp(model, lay, options)
    mlp = mlp if has_mlp else []
    if mixer is None:
        tensors = adapted_saved_tensors(model, plan, lay, is_moe, _attention(model, plan, lay) + mlp)
    else:
        tensors = _mixing(model, lay, mixer) + mlp
    tensors = [*tensors, *beside]
    kept = [(tensor, 1.0 - share * (1.0 - again.saved_share(tensor.name))) for tensor in tensors]
    kept += [(_added(name, model, plan, lay), share) for name in again.added]
    return tuple(SavedTensor(name, part * size) for (name, size), part in kept if part)


def cross_saved_tensors(
    model: TransformerSizes, plan: ParallelPlan, memory: ParallelPlan, options: MemoryOptions = MEGATRON
) -> tuple[SavedTensor, ...]:
    """Returns the tensors that cross attention adds to a layer's own; `memory` is the plan with the length of the other sequence.

    Notes:
        The states that are attended to are the same for all layers, and saved by the stack that made them.
    """
    lay, other = _Layout.under(model, plan, options), _Layout.under(model, memory, options)
    hidden = lay.hidden_bytes
    q = lay.element_bytes * lay.tokens * model.q_dim / lay.tp
    kv = lay.element_bytes * other.tokens * model.qk_head_dim * max(model.kv_heads / lay.tp, 1.0)
    saved = [
        SavedTensor("cross norm input", hidden),
        SavedTensor("cross query projection input", lay.saved_input_bytes * lay.linear_in_tokens * model.hidden),
        SavedTensor("cross query", q),
        SavedTensor("cross key and value", 2.0 * kv),
        *_attention_core(model, plan, lay, memory.seq_len),
        SavedTensor("cross attention output", q),
    ]
    return (*saved, SavedTensor("cross dropout mask", lay.elements)) if lay.dropout else tuple(saved)


def _added(name: str, model: TransformerSizes, plan: ParallelPlan, lay: _Layout) -> SavedTensor:
    """Returns the tensor saved in place of a recomputed part: the input of a checkpoint, or the result of a product."""
    hidden = lay.element_bytes * model.hidden
    if name == LAYER_INPUT:
        return SavedTensor(name, hidden * lay.local_tokens / layers_per_checkpoint(plan))
    return SavedTensor(name, hidden * lay.tokens)


def embedding_saved_tensors(
    model: TransformerSizes, plan: ParallelPlan, options: MemoryOptions = MEGATRON
) -> tuple[SavedTensor, ...]:
    """Tensors that the first stage adds to its layers', per micro-batch: token ids and the mask of dropout (section 4.3)."""
    lay = _Layout.under(model, plan, options)
    ids = SavedTensor("token ids", 8.0 * plan.micro_batch * plan.seq_len / plan.cp)
    if not lay.dropout:
        return (ids,)
    return (ids, SavedTensor("embedding dropout mask", lay.elements))


def head_saved_tensors(
    model: TransformerSizes, plan: ParallelPlan, options: MemoryOptions = MEGATRON
) -> tuple[SavedTensor, ...]:
    """Tensors that the last stage adds to its layers': `4 sbh/t (1 + v/h)` in all (section 4.3) with logits in fp32."""
    lay = _Layout.under(model, plan, options)
    hidden = lay.hidden_bytes
    loss = loss_saved_tensors(lay.tokens, model.vocab / lay.tp, model.hidden, lay.linear_in_tokens, lay)
    return (SavedTensor("final norm input", hidden), *loss)
