"""Arguments of Megatron-LM (Megatron-Core 0.9 and on) for a job, as a script of bash: what `megatron` and `megatron_model` read.

Arguments that are a field as they stand follow from the table of the reader, `megatron.NAMES`; functions write those that follow
from several fields. A value that no argument can say is left out here; it is found when the script is read back.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..cost.partition import layers_of_chunks
from ..job.job import Job
from ..plan.plan import AXES, ParallelPlan
from ..workload.transformer.sizes import MoESpec
from ..workload.transformer.spec import TransformerSpec
from .job_fields import fields_that_matter, node_shape
from .megatron import MEGATRON_FSDP, NAMES, OPTIMIZERS, RECOMPUTE_MODULES, STAGES_FIRST, STATE_DTYPES
from .megatron_model import LATENT, POSITIONS
from .pipeline_layout import layout_text

Fields = Mapping[str, Any]
Pairs = Iterator[tuple[str, Any]]  # name of an argument and its value; True: the flag alone
PROGRAMS = {True: "pretrain_gpt.py", False: "pretrain_bert.py"}  # whether a token sees those before it alone
PADDINGS = (128, 64, 32, 16, 8, 4, 2, 1)
NO_FLAG = {
    "plan.fused_grad_accumulation": "no-gradient-accumulation-fusion",
    "software.rope": "no-rope-fusion",
}  # a field that is off -> the flag that switches it off
SCRIPT = """\
#!/bin/bash
{comments}
# Data, tokenizer, checkpoints and learning rates are yours: give them behind the name of this script.
ARGUMENTS=(
{arguments}
)
torchrun --nnodes {nodes} --nproc_per_node {per_node} --rdzv_backend c10d \\
    --rdzv_endpoint "${{MASTER_ADDR:-localhost}}:${{MASTER_PORT:-29500}}" {program} "${{ARGUMENTS[@]}}" "$@"
"""


def megatron_files(job: Job, comments: Sequence[str]) -> dict[str, str]:
    """Script that starts the job.

    Args:
        comments: lines above its arguments.
    """
    words = [
        f"    --{name.replace('_', '-')}" + ("" if value is True else f" {shlex.quote(str(value))}")
        for name, value in arguments_of(job)
    ]
    nodes, per_node = node_shape(job)
    text = SCRIPT.format(
        comments="\n".join(f"# {line}" for line in comments),
        arguments="\n".join(words),
        nodes=nodes,
        per_node=per_node,
        program=PROGRAMS[bool(getattr(job.model, "causal", True))],
    )
    return {"megatron.sh": text}


def arguments_of(job: Job) -> Pairs:
    """Yields the arguments in the order of the model, the plan, the states and the kernels."""
    assert isinstance(job.model, TransformerSpec)
    fields = fields_that_matter(job)
    latent = job.model.mla is not None
    for one in NAMES:
        value = fields.get(one.field)
        if value is not None and not (latent and one.field == "model.head_dim"):
            yield one.names[0], value
    yield from _sizes(job.model, fields, job.plan.tp)
    yield from _experts(job.model, fields)
    yield from _layout(job, fields)
    yield from _precision(fields)
    yield from _states(fields)
    yield from _recompute(fields)
    yield from _kernels(fields, job.cluster.device.generation)


# --- The model -------------------------------------------------------------------------------------------------------


def _sizes(model: TransformerSpec, fields: Fields, tp: int) -> Pairs:
    if model.kv_heads != model.n_heads and model.mla is None:
        yield "group_query_attention", True
        yield "num_query_groups", model.kv_heads
    if model.gated:
        yield "swiglu", True
    yield "normalization", "RMSNorm" if model.norm == "rms" else "LayerNorm"
    kind = next((name for name, known in POSITIONS.items() if known == model.position and known != "alibi"), None)
    if kind is not None:
        yield "position_embedding_type", "learned_absolute" if kind == "learned" else kind
    flags = {
        "qk_layernorm": model.qk_norm and model.qk_norm_weight == "head",
        "untie_embeddings_and_output_weights": not model.tied_embeddings,
        "disable_bias_linear": not model.bias,
        "add_qkv_bias": bool(model.has_qkv_bias and not model.bias),
    }
    yield from ((name, True) for name, is_set in flags.items() if is_set)
    yield "vocab_size", model.vocab
    yield "make_vocab_size_divisible_by", next(one for one in PADDINGS if model.vocab % (one * tp) == 0 or one == 1)
    dropout = "0.1" if fields["model.dropout"] else "0.0"
    yield "hidden_dropout", dropout
    yield "attention_dropout", dropout
    if model.window is not None:
        yield from _window(model.window.size, model.window.pattern)
    if model.n_mtp:
        yield "mtp_num_layers", model.n_mtp
    if model.attention_sinks:
        yield "softmax_type", "learnable"
    if model.mla is not None:
        yield "multi_latent_attention", True
        if model.mla.q_lora_rank:
            yield "q_lora_rank", model.mla.q_lora_rank
        yield from ((name, getattr(model.mla, field)) for field, name in LATENT.items())


def _window(size: int, pattern: Sequence[str]) -> Pairs:
    n = len(pattern)
    if tuple(pattern) in (("sliding",), (*["sliding"] * (n - 1), "full")):
        yield "window_size", f"({size},0)"
        if n > 1:
            yield "window_attn_skip_freq", n


def _experts(model: TransformerSpec, fields: Fields) -> Pairs:
    moe = model.moe
    if moe is None:
        return
    yield "num_experts", moe.n_experts
    yield "moe_router_topk", moe.top_k
    yield "moe_ffn_hidden_size", moe.ffn_hidden
    if moe.n_shared:
        yield "moe_shared_expert_intermediate_size", moe.shared_width
        if moe.shared_gate:
            yield "moe_shared_expert_gate", True
    yield from _layers_of_experts(moe, model.n_layers)
    optional = {
        "moe_latent_size": moe.latent,
        "moe_router_enable_expert_bias": moe.router_bias,
        "moe_expert_capacity_factor": moe.capacity_factor,
    }
    yield from ((name, value) for name, value in optional.items() if value)
    yield "expert_tensor_parallel_size", fields["plan.etp"]
    yield from _dispatcher(fields)


def _layers_of_experts(moe: MoESpec, n_layers: int) -> Pairs:
    if moe.n_dense_first and moe.every == 1:
        layers = [int(layer >= moe.n_dense_first) for layer in range(n_layers)]
        yield "moe_layer_freq", "[" + ",".join(map(str, layers)) + "]"
    elif moe.every > 1:
        yield "moe_layer_freq", moe.every


def _dispatcher(fields: Fields) -> Pairs:
    if fields.get("software.expert_products") != "apart":
        yield "moe_grouped_gemm", True
    kind = fields.get("software.dispatcher")
    if kind in ("alltoall", "allgather"):
        yield "moe_token_dispatcher_type", kind
    elif kind in ("deepep", "hybridep"):
        yield "moe_token_dispatcher_type", "flex"
        yield "moe_flex_dispatcher_backend", kind


# --- The plan --------------------------------------------------------------------------------------------------------


def _layout(job: Job, fields: Fields) -> Pairs:
    plan = job.plan
    if fields.get("plan.sequence_parallel"):
        yield "sequence_parallel", True
    if (
        fields["plan.axis_order"]
        == [axis for axis in STAGES_FIRST if getattr(plan, axis) > 1]
        != [axis for axis in AXES if getattr(plan, axis) > 1]
    ):
        yield "use_tp_pp_dp_mapping", True
    if plan.pp > 1:
        yield from _stages(job.plan, layers_of_chunks(getattr(job.model, "n_layers", 0), plan), fields)
    if fields.get("plan.overlap.dp"):
        yield "overlap_grad_reduce", True
        if plan.zero_stage:
            yield "overlap_param_gather", True
    if fields.get("plan.overlap.tp"):
        yield "tp_comm_overlap", True


def _stages(plan: ParallelPlan, chunks: Sequence[range], fields: Fields) -> Pairs:
    sizes = [len(one) for one in chunks]
    v = plan.virtual_stages if plan.schedule_name == "interleaved" else 1
    if len(set(sizes)) > 1:
        yield "pipeline_model_parallel_layout", layout_text(sizes)
    elif v > 1:
        yield "num_layers_per_virtual_pipeline_stage", sizes[0]
    if v > 1 and not fields.get("plan.overlap.pp", True):
        yield "no_overlap_p2p_communication", True


def _precision(fields: Fields) -> Pairs:
    dtype, recipe = fields["plan.dtype"], fields.get("plan.fp8_recipe")
    if dtype == "fp32":
        return
    yield ("fp16" if dtype == "fp16" else "bf16"), True
    if dtype in ("fp8", "mxfp8"):
        yield "fp8_format", "e4m3" if recipe == "blockwise" else "hybrid"
        kind = (
            "mxfp8" if "mxfp8" in (dtype, recipe) else {"current": "tensorwise"}.get(recipe or "", recipe or "delayed")
        )
        if kind != "rowwise":
            yield "fp8_recipe", kind
    elif dtype == "nvfp4":
        yield "fp4_format", "e2m1"
    n = fields.get("plan.bf16_layers")
    if n:
        yield "first_last_layers_bf16", True
        yield "num_layers_at_start_in_bf16", n - n // 2
        yield "num_layers_at_end_in_bf16", n // 2
    if fields.get("plan.state_dtypes.fp8_params"):
        yield "fp8_param_gather", True


def _states(fields: Fields) -> Pairs:
    stage = fields.get("plan.zero_stage", 0)
    if stage:
        yield "use_distributed_optimizer", True
    if stage > 1:
        yield "use_megatron_fsdp", True
        yield "data_parallel_sharding_strategy", next(name for name, one in MEGATRON_FSDP.items() if one == stage)
    name = next((name for name, own in OPTIMIZERS.items() if own == fields["plan.optimizer"]), None)
    if name is not None:
        yield "optimizer", "adam" if name == "adamw" else name  # whose weight decay is decoupled by default
    share = fields.get("plan.offload_optimizer", 0.0)
    if share:
        yield "optimizer_cpu_offload", True
        yield "optimizer_offload_fraction", share
    if fields.get("plan.fused_grad_accumulation") is False:
        yield NO_FLAG["plan.fused_grad_accumulation"], True
    reduce = fields.get("plan.state_dtypes.grad_reduce")
    if reduce in ("bf16", "fp32"):
        yield ("grad_reduce_in_bf16" if reduce == "bf16" else "accumulate_allreduce_grads_in_fp32"), True
    own = {name: fields.get(f"plan.state_dtypes.{field}") for field, name in STATE_DTYPES.items()}
    stated = {name: one for name, one in own.items() if one in ("fp16", "bf16", "fp8", "fp32")}
    if set(stated.values()) - {"fp32"}:
        yield "use_precision_aware_optimizer", True
        yield from stated.items()


def _recompute(fields: Fields) -> Pairs:
    kind = fields["plan.recompute"]
    if kind not in ("full", "selective"):
        return
    yield "recompute_granularity", kind
    if kind == "full":
        yield "recompute_method", fields["plan.recompute_method"]
        yield "recompute_num_layers", fields.get("plan.recompute_num_layers", 1)
    else:
        named = [one for one in fields["plan.recompute_modules"] if one in RECOMPUTE_MODULES]
        yield from [("recompute_modules", " ".join(named))] if named else []


# --- Kernels ---------------------------------------------------------------------------------------------------------


def _kernels(fields: Fields, generation: str) -> Pairs:
    attention = fields.get("software.attention")
    if attention in ("eager", "fused_softmax"):
        yield "attention_backend", "unfused"
        if attention == "eager":
            yield "no_masked_softmax_fusion", True
    elif attention == "flash2":
        yield "use_flash_attn", True
    elif attention == "flash3" and generation in ("hopper", "blackwell"):
        yield "attention_backend", "fused"
    graphs = fields.get("software.cuda_graphs")
    if graphs is not None:
        yield "cuda_graph_impl", {"none": "none", "layers": "transformer_engine", "step": "local"}[graphs]
        if graphs == "step":
            yield "cuda_graph_scope", "full_iteration"
    if fields.get("software.cross_entropy") == "fused":
        yield "cross_entropy_loss_fusion", True
    if fields.get("software.rope") == "eager":
        yield NO_FLAG["software.rope"], True
