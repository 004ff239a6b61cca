"""Arguments of Megatron-LM, its forks and Megatron-DeepSpeed, and which fields of a job they are.

`NAMES` holds those that are a field as they stand; the functions below it hold those that are one together with others.
Source: the parsers of arguments of Megatron-LM (2021 to Megatron-Core 0.15) and of Megatron-DeepSpeed (bigscience, microsoft).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from .head import Head, SaidValue
from .stated import StatedJob, is_true, literal, whole


class ArgumentName(NamedTuple):
    """An argument that is a field.

    Attributes:
        field: of a job file.
        names: what trainers call it, the surest first.
        least: of the number.
    """

    field: str
    names: tuple[str, ...]
    least: int = 1


NAMES = (
    ArgumentName("model.n_layers", ("num_layers", "encoder_num_layers")),
    ArgumentName("model.hidden", ("hidden_size",)),
    ArgumentName("model.n_heads", ("num_attention_heads",)),
    ArgumentName("model.head_dim", ("kv_channels",)),
    ArgumentName("model.ffn_hidden", ("ffn_hidden_size",)),
    ArgumentName("model.max_seq_len", ("max_position_embeddings",)),
    ArgumentName("plan.seq_len", ("seq_length", "encoder_seq_length")),
    ArgumentName("plan.micro_batch", ("micro_batch_size", "batch_size")),
    ArgumentName("plan.global_batch", ("global_batch_size",)),
    ArgumentName("plan.tp", ("tensor_model_parallel_size", "model_parallel_size")),
    ArgumentName("plan.pp", ("pipeline_model_parallel_size", "pipe_parallel_size")),
    ArgumentName("plan.cp", ("context_parallel_size", "ds_sequence_parallel_size")),
    ArgumentName("plan.ep", ("expert_model_parallel_size", "moe_expert_parallel_size")),
)
NEUTRAL = ("None", "False", "0", "0.0", "[]", "1", "1.0", "none", "")
# Arguments that change a step where they are set, and that no field describes.
NOT_MODELLED = (
    "embed_layernorm",
    "fp32_residual_connection",
    "apply_query_key_layer_scaling",
    "scatter_gather_tensors_in_pipeline_off",
    "partition_activations",
    "distribute_saved_activations",
    "distribute_checkpointed_activations",
    "checkpoint_in_cpu",
    "cpu_offloading_num_layers",
    "rampup_batch_size",
    "pipeline_model_parallel_layout",
    "hybrid_context_parallel",
    "overlap_moe_expert_parallel_comm",
    "delay_wgrad_compute",
    "moe_layer_recompute",
    "curriculum_learning",
    "random_ltd",
    "create_moe_param_group",
    "num_experts_teacher",
    "kd",
    "mos",
    "memory_centric_tiled_linear",
    "retro_add_retriever",
    "num_layers_teacher",
    "squared_relu_off",
)
# What makes another model of it than a decoder of text: argument -> what it says.
OTHER_MODELS = {
    "hybrid_override_pattern": "layers with Mamba or others in a pattern",
    "hybrid_layer_pattern": "layers with Mamba or others in a pattern",
    "is_hybrid_model": "layers with Mamba or others in a pattern",
    "decoder_num_layers": "an encoder and a decoder",
    "retro_add_retriever": "retrieval",
    "vision_pretraining": "images",
    "experimental_attention_variant": "an attention of its own",
}


def megatron_job(head: Head, generation: str = "") -> StatedJob:
    """Fields of the job that a block of arguments states.

    Args:
        generation: of the device, where it is known: decides which attention kernels there are.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    for one in NAMES:
        value = head.said(*one.names)
        job.put(one.field, whole(value, one.least), value)
    _refuse(head, job)
    _model(head, job)
    _experts(head, job)
    _latent(head, job)
    _layout(head, job)
    _precision(head, job)
    _states(head, job)
    _recompute(head, job)
    _kernels(head, job, generation)
    job.put("framework", framework_of(head))
    for name in NOT_MODELLED:
        found = head.arguments.get(name)
        if found is not None and found.text not in NEUTRAL and found.text != "[1]":
            job.not_modelled.append(found)
    return job


def framework_of(head: Head) -> str:
    """Megatron-DeepSpeed, Megatron-LM before 2022, or Megatron-Core and what is built on it."""
    if "zero_stage" in head.arguments or is_true(head.arguments.get("deepspeed")):
        return "megatron-deepspeed"
    return "megatron-core" if "sequence_parallel" in head.arguments else "megatron-2021"


def _refuse(head: Head, job: StatedJob) -> None:
    for name, about in OTHER_MODELS.items():
        value = head.said(name)
        if value is not None and value.text not in NEUTRAL:
            job.refused.append(
                f"line {value.line}: {name} = {value.text[:40]}: {about}, which no field of a job describes"
            )


# --- The model -------------------------------------------------------------------------------------------------------


def _model(head: Head, job: StatedJob) -> None:
    hidden, heads = job.get("model.hidden", 0), job.get("model.n_heads", 1)
    gate = next(
        (one for one in map(head.said, ("swiglu", "glu_activation", "geglu", "quick_geglu")) if _is_set(one)), None
    )
    job.put("model.gated", gate is not None, gate)
    if job.get("model.ffn_hidden") is None and hidden:
        usual = (4 * hidden * 2 // 3) // 64 * 64 if gate is not None and gate.name == "swiglu" else 4 * hidden
        job.put("model.ffn_hidden", usual, why="not said: as Megatron-LM takes it")
    groups = head.said("num_key_value_heads")
    if is_true(head.said("group_query_attention")):  # without it num_query_groups is not read
        groups = head.said("num_query_groups")
    job.put("model.n_kv_heads", whole(groups, 1) if groups is not None else heads, groups)
    _norm_and_position(head, job)
    untied = head.said("untie_embeddings_and_output_weights")
    job.put("model.tied_embeddings", not is_true(untied), untied)
    _biases(head, job)
    vocab = head.said("padded_vocab_size", "vocab_padded")
    job.put("model.vocab", whole(vocab, 1), vocab, why="padded")
    if vocab is None:
        _pad_vocab(head, job)
    dropout = [one for one in map(head.said, ("hidden_dropout", "attention_dropout")) if one is not None]
    if dropout:
        job.put("model.dropout", any(literal(one.text) for one in dropout), *dropout)
    window = head.said("window_size")
    if window is not None and isinstance(size := literal(window.text), list) and size and isinstance(size[0], int):
        _window(head, job, window, size[0])
    layers = head.said("mtp_num_layers")
    job.put("model.n_mtp", whole(layers), layers)


def _is_set(value: SaidValue | None) -> bool:
    return value is not None and literal(value.text) not in (False, None, 0)


def _norm_and_position(head: Head, job: StatedJob) -> None:
    norm = head.said("normalization", "norm")
    job.put("model.norm", "rms" if norm is not None and "rms" in norm.text.lower() else "layer", norm)
    position = head.said("position_embedding_type")
    rotary = head.said("use_rotary_position_embeddings")
    kind = position.text.lower().rpartition(".")[2] if position is not None else "learned"
    kind = next((known for words, known in _POSITIONS.items() if words in kind), "learned")
    if is_true(rotary):
        job.put("model.position", "rope", rotary)
    else:
        absent = head.said("add_position_embedding")
        off = position is None and absent is not None and literal(absent.text) is False
        job.put("model.position", "none" if off else kind, absent if off else position)
    norms = head.said("qk_layernorm")
    job.put("model.qk_norm", True if is_true(norms) else None, norms)


_POSITIONS = {"rope": "rope", "rotary": "rope", "alibi": "alibi", "none": "none", "learned": "learned"}


def _biases(head: Head, job: StatedJob) -> None:
    linear, no_linear = head.said("add_bias_linear"), head.said("disable_bias_linear")
    off = is_true(no_linear) or (linear is not None and literal(linear.text) is False)
    job.put("model.bias", not off, linear or no_linear)
    own = head.said("add_qkv_bias", "qkv_bias")
    job.put("model.qkv_bias", True if is_true(own) else None, own)


def _pad_vocab(head: Head, job: StatedJob) -> None:
    size, multiple = head.said("vocab_size"), head.said("make_vocab_size_divisible_by")
    if size is None:
        return
    step = (whole(multiple, 1) or 128) * job.get("plan.tp", 1)
    job.put("model.vocab", -(-(whole(size, 1) or 0) // step) * step, size, multiple, why="padded as Megatron-LM does")


def _window(head: Head, job: StatedJob, window: SaidValue, size: int) -> None:
    job.put("model.window.size", size, window)
    skip = head.said("window_attn_skip_freq")
    every = literal(skip.text) if skip is not None else None
    if isinstance(every, int) and every > 1:
        job.put("model.window.pattern", [*["sliding"] * (every - 1), "full"], skip)


def _experts(head: Head, job: StatedJob) -> None:
    said = head.said("num_experts")
    number = whole(said) if said is not None and not _many(said) else None
    if said is not None and _many(said):
        job.refused.append(
            f"line {said.line}: num_experts = {said.text[:40]}: layers with different numbers of experts"
        )
    if said is None or number is None or number <= 1:
        for path in ("plan.ep",):
            job.fields.pop(path, None)
        return
    job.put("model.moe.n_experts", number, said)
    top, width = head.said("moe_router_topk", "topk", "moe_top_k"), head.said("moe_ffn_hidden_size")
    job.put("model.moe.top_k", whole(top, 1) or 1, top)
    job.put("model.moe.ffn_hidden", whole(width, 1) or job.get("model.ffn_hidden"), width)
    shared = head.said("moe_shared_expert_intermediate_size")
    if shared is not None:
        job.put("model.moe.n_shared", 1, shared)
        job.put("model.moe.shared_ffn_hidden", whole(shared, 1), shared)
        gate = head.said("moe_shared_expert_gate")
        job.put("model.moe.shared_gate", True if is_true(gate) else None, gate)
    _which_layers(head, job)
    latent, bias = head.said("moe_latent_size"), head.said("moe_router_enable_expert_bias")
    job.put("model.moe.latent", whole(latent), latent)
    job.put("model.moe.router_bias", True if is_true(bias) else None, bias)
    capacity = head.said("moe_expert_capacity_factor")
    if capacity is not None and isinstance(factor := literal(capacity.text), (int, float)) and factor > 0:
        job.put("model.moe.capacity_factor", float(factor), capacity)
    tensor = head.said("expert_tensor_parallel_size")
    job.put("plan.etp", whole(tensor, 1), tensor)
    _dispatcher(head, job)


def _many(said: SaidValue) -> bool:
    found = literal(said.text)
    return isinstance(found, list) and len(found) > 1


def _which_layers(head: Head, job: StatedJob) -> None:
    said = head.said("moe_layer_freq", "expert_interval")
    found = literal(said.text) if said is not None else 1
    if isinstance(found, list) and all(one in (0, 1) for one in found) and 1 in found:
        first = found.index(1)
        if all(found[first:]):
            job.put("model.moe.n_dense_first", first, said)
        else:
            job.not_modelled.append(said or SaidValue("", 0))
    elif isinstance(found, int) and found > 1:
        job.put("model.moe.every", found, said)
    elif isinstance(found, str) and said is not None:
        job.not_modelled.append(said)


def _dispatcher(head: Head, job: StatedJob) -> None:
    kind, backend = head.said("moe_token_dispatcher_type"), head.said("moe_flex_dispatcher_backend")
    deep = head.said("moe_enable_deepep")
    if is_true(deep):
        job.put("software.dispatcher", "deepep", deep)
    elif kind is not None and kind.text in ("alltoall", "alltoall_seq", "allgather"):
        job.put("software.dispatcher", kind.text.removesuffix("_seq"), kind)
    elif kind is not None and kind.text == "flex" and backend is not None and backend.text in ("deepep", "hybridep"):
        job.put("software.dispatcher", backend.text, backend)
    grouped = head.said("moe_grouped_gemm")
    if grouped is not None and literal(grouped.text) is False:
        job.put("software.expert_products", "apart", grouped)


def _latent(head: Head, job: StatedJob) -> None:
    if not is_true(head.said("multi_latent_attention")):
        return
    names = {
        "kv_lora_rank": "kv_lora_rank",
        "qk_nope_head_dim": "qk_head_dim",
        "qk_rope_head_dim": "qk_pos_emb_head_dim",
        "v_head_dim": "v_head_dim",
    }
    rank = head.said("q_lora_rank")
    job.put("model.mla.q_lora_rank", whole(rank) or 0, rank)
    for field, name in names.items():
        value = head.said(name)
        job.put(f"model.mla.{field}", whole(value, 1), value)
    for path in ("model.head_dim", "model.n_kv_heads"):
        job.fields.pop(path, None)


# --- The plan --------------------------------------------------------------------------------------------------------


def _layout(head: Head, job: StatedJob) -> None:
    world = head.said("world_size")
    n_devices = whole(world, 1)
    job.put("cluster.n_devices", n_devices, world)
    model = job.get("plan.tp", 1) * job.get("plan.pp", 1) * job.get("plan.cp", 1)
    said = head.said("data_parallel_size")
    if n_devices and n_devices % model == 0:
        job.put("plan.dp", n_devices // model, said or world)
    if job.get("plan.global_batch") is None and job.get("plan.micro_batch"):
        steps = whole(head.facts.get("grad_accum")) or 1
        job.put(
            "plan.global_batch",
            job.get("plan.micro_batch") * job.get("plan.dp", 1) * steps,
            head.facts.get("grad_accum"),
        )
    ulysses = head.said("ds_sequence_parallel_size")
    if (whole(ulysses) or 1) > 1:
        job.assumed.append("sequence parallelism of DeepSpeed (Ulysses) is costed as context parallelism")
    parallel = head.said("sequence_parallel")
    job.put("plan.sequence_parallel", is_true(parallel) if parallel is not None else None, parallel)
    _stages(head, job)
    _overlap(head, job)


def _stages(head: Head, job: StatedJob) -> None:
    pp, layers = job.get("plan.pp", 1), job.get("model.n_layers", 0)
    per, count = head.said("num_layers_per_virtual_pipeline_stage"), head.said("num_virtual_stages_per_pipeline_rank")
    stages = head.said("virtual_pipeline_model_parallel_size")
    n = whole(count, 1) or whole(stages, 1) or 1
    n = max(layers // pp // (whole(per, 1) or 1), 1) if per is not None else n
    if pp > 1 and n > 1:
        job.put("plan.virtual_stages", n, count or stages or per)
        job.put("plan.schedule", "interleaved", count or stages or per)
    first, last = head.said("decoder_first_pipeline_num_layers"), head.said("decoder_last_pipeline_num_layers")
    if pp > 1 and n == 1 and (first or last):
        ends = [whole(first, 0), whole(last, 0)]
        inner = pp - sum(one is not None for one in ends)
        rest = layers - sum(one or 0 for one in ends)
        if inner > 0 and rest % inner == 0:
            middle = [rest // inner] * inner
            split = [*([ends[0]] if ends[0] is not None else []), *middle, *([ends[1]] if ends[1] is not None else [])]
            job.put("plan.layer_split", split, first, last)


def _overlap(head: Head, job: StatedJob) -> None:
    grads = head.said("overlap_grad_reduce", "overlap_comm")
    if grads is not None:
        job.put("plan.overlap.dp", is_true(grads), grads)
    elif framework_of(head) == "megatron-2021":
        implementation = head.said("DDP_impl")
        job.put("plan.overlap.dp", False, implementation, why="gradients are reduced after the backward pass")
    tensor = head.said("tp_comm_overlap")
    job.put("plan.overlap.tp", is_true(tensor) if tensor is not None else None, tensor)
    stages = head.said("overlap_p2p_comm")
    if stages is not None and job.get("plan.virtual_stages", 1) > 1:
        job.put("plan.overlap.pp", is_true(stages), stages)


def _precision(head: Head, job: StatedJob) -> None:
    low, lower = head.said("fp8", "fp8_format"), head.said("fp4", "fp4_format")
    for name, value in (("bf16", head.said("bf16")), ("fp16", head.said("fp16"))):
        if is_true(value):
            job.put("plan.dtype", name, value)
    if job.get("plan.dtype") is None:
        kind = head.said("params_dtype")
        named = {"torch.bfloat16": "bf16", "torch.float16": "fp16", "torch.half": "fp16"}
        job.put("plan.dtype", named.get(kind.text, "fp32") if kind else "fp32", kind)
    if lower is not None:
        job.put("plan.dtype", "nvfp4", lower)
    elif low is not None and literal(low.text) is not False:
        recipe = head.said("fp8_recipe")
        kind = recipe.text.rpartition(".")[2].lower() if recipe is not None else "delayed"
        job.put("plan.dtype", "mxfp8" if kind == "mxfp8" else "fp8", low, recipe)
        if kind in ("delayed", "tensorwise", "blockwise"):
            job.put("plan.fp8_recipe", kind, recipe)
    if job.get("plan.dtype") in ("fp8", "mxfp8", "nvfp4") and is_true(ends := head.said("first_last_layers_bf16")):
        counts = [whole(head.said(f"num_layers_at_{end}_in_bf16")) for end in ("start", "end")]
        job.put("plan.bf16_layers", sum(1 if one is None else one for one in counts), ends)


def _states(head: Head, job: StatedJob) -> None:
    """How optimizer states are kept and sharded."""
    stage, shared = head.said("zero_stage"), head.said("use_distributed_optimizer")
    zero = whole(stage, 0, 3) if stage is not None and framework_of(head) == "megatron-deepspeed" else None
    if zero == 0 and job.get("plan.dtype") == "bf16" and job.get("plan.dp", 1) > 1:
        job.put("plan.zero_stage", 1, stage, why="DeepSpeed's BF16 optimizer shards its states")
    elif zero is not None:
        job.put("plan.zero_stage", zero, stage)
    elif shared is not None:
        job.put("plan.zero_stage", int(is_true(shared)), shared)
    if is_true(own := head.said("use_megatron_fsdp", "use_custom_fsdp")) or is_true(
        own := head.said("use_torch_fsdp2")
    ):
        kind = head.said("data_parallel_sharding_strategy")
        levels = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}
        job.put(
            "plan.zero_stage", levels.get(kind.text, 3) if kind and own and "torch" not in own.name else 3, own, kind
        )
    _optimizer(head, job)
    fused = head.said("gradient_accumulation_fusion")
    job.put("plan.fused_grad_accumulation", is_true(fused) if fused is not None else None, fused)
    _formats(head, job)


def _optimizer(head: Head, job: StatedJob) -> None:
    kind = head.said("optimizer")
    named = {"adam": "adam", "adamw": "adamw", "sgd": "sgd_momentum", "muon": "muon", "lion": "lion", "lamb": "lamb"}
    if kind is not None and kind.text not in named:
        job.not_modelled.append(kind)
    job.put("plan.optimizer", named.get(kind.text) if kind else "adam", kind)
    host = next((one for one in map(head.said, ("cpu_optimizer", "optimizer_cpu_offload")) if is_true(one)), None)
    if host is not None:
        share = head.said("optimizer_offload_fraction")
        part = literal(share.text) if share is not None and host.name == "optimizer_cpu_offload" else 1.0
        job.put("plan.offload_optimizer", float(part) if isinstance(part, (int, float)) else 1.0, host)


def _formats(head: Head, job: StatedJob) -> None:
    """Number formats of gradients and states."""
    reduce = head.said("grad_reduce_in_bf16")
    wide = head.said("accumulate_allreduce_grads_in_fp32")
    if is_true(reduce):
        job.put("plan.state_dtypes.grad_reduce", "bf16", reduce)
    elif is_true(wide):
        job.put("plan.state_dtypes.grad_reduce", "fp32", wide)
    elif wide is not None and job.get("plan.dtype") == "fp16":
        job.put("plan.state_dtypes.grad_reduce", "fp16", wide)
    if is_true(head.said("use_precision_aware_optimizer")):
        for field, name in _STATES.items():
            value = head.said(name)
            kind_of = _DTYPES.get(value.text.rpartition(".")[2]) if value is not None else None
            job.put(f"plan.state_dtypes.{field}", kind_of, value)


_STATES = {
    "main_grads": "main_grads_dtype",
    "main_params": "main_params_dtype",
    "exp_avg": "exp_avg_dtype",
    "exp_avg_sq": "exp_avg_sq_dtype",
}
_DTYPES = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16", "uint8": "fp8", "fp32": "fp32", "bf16": "bf16"}


def _recompute(head: Head, job: StatedJob) -> None:
    kind = head.said("recompute_granularity", "checkpoint_granularity")
    old = head.said("checkpoint_activations")
    some = head.said("recompute_activations")
    if kind is not None and kind.text in ("full", "selective"):
        job.put("plan.recompute", kind.text, kind)
    elif is_true(old):
        job.put("plan.recompute", "full", old)
    elif is_true(some):
        job.put("plan.recompute", "selective", some)
    else:
        job.put("plan.recompute", "none", kind or old or some)
    if job.get("plan.recompute") == "full":
        method = head.said("recompute_method", "checkpoint_method", "activations_checkpoint_method")
        number = head.said("recompute_num_layers", "checkpoint_num_layers")
        if method is not None and method.text in ("uniform", "block"):
            job.put("plan.recompute_method", method.text, method)
        if (n := whole(number)) is not None and method is not None:
            job.put("plan.recompute_num_layers", n, number)
    modules = head.said("recompute_modules")
    if job.get("plan.recompute") == "selective" and modules is not None:
        named = literal(modules.text)
        names = named if isinstance(named, list) else modules.text.split()
        known = {"moe_act": "moe_act", "core_attn": "core_attn", "layernorm": "layernorm", "mla_up_proj": "mla_up_proj"}
        known |= {"mlp": "mlp", "moe": "moe", "shared_experts": "shared_experts"}
        job.put("plan.recompute_modules", [known[one] for one in names if one in known] or None, modules)


# --- Kernels ---------------------------------------------------------------------------------------------------------

FLASH_ON = (
    "ampere",
    "ga10x",
    "ada",
    "hopper",
    "blackwell",
    "blackwell-rtx",
)  # FlashAttention 2 and cuDNN: from sm80 on
NO_FLASH = ("volta", "turing", "pascal", "maxwell", "kepler")


def _kernels(head: Head, job: StatedJob, generation: str) -> None:
    _attention(head, job, generation)
    graphs, old = head.said("cuda_graph_impl"), head.said("enable_cuda_graph")
    if graphs is not None and graphs.text.lower() in ("none", "local", "transformer_engine", "full_iteration"):
        scope = head.said("cuda_graph_scope")
        whole_step = "full_iteration" in (graphs.text, *([scope.text] if scope else []))
        job.put("software.cuda_graphs", "none" if graphs.text == "none" else "step" if whole_step else "layers", graphs)
    elif is_true(old):
        job.put("software.cuda_graphs", "layers", old)
    fused = head.said("cross_entropy_loss_fusion")
    job.put("software.cross_entropy", "fused" if is_true(fused) else None, fused)
    rope = head.said("apply_rope_fusion")
    if rope is not None and job.get("model.position") == "rope":
        job.put("software.rope", "fused" if is_true(rope) else "eager", rope)
    gates = head.said("bias_swiglu_fusion" if job.get("model.gated") else "bias_gelu_fusion")
    if gates is not None and framework_of(head) != "megatron-core":
        job.put("software.activation", "fused" if is_true(gates) else "eager", gates)


def _attention(head: Head, job: StatedJob, generation: str) -> None:
    masked = head.said("masked_softmax_fusion")
    unfused = "fused_softmax" if masked is None or is_true(masked) else "eager"
    flash = next((one for one in map(head.said, _FLASH) if is_true(one)), None)
    backend = head.said("attention_backend")
    kind = backend.text.lower().rpartition(".")[2] if backend is not None else ""
    engine = head.said("transformer_impl")
    has_engine = engine is not None and engine.text == "transformer_engine"
    if generation in NO_FLASH:
        job.put("software.attention", unfused, masked, why=f"no flash attention on {generation}")
    elif flash is not None:
        first = "v1" in flash.name or "triton" in flash.name
        job.put("software.attention", "flash1" if first else "flash2", flash)
    elif kind in ("unfused", "local"):
        job.put("software.attention", unfused, backend)
    elif kind == "flash":
        job.put("software.attention", "flash2" if generation not in ("hopper", "blackwell") else None, backend)
    elif kind == "fused":
        job.put("software.attention", "flash3" if generation in ("hopper", "blackwell") else "flash2", backend)
    elif not has_engine:
        job.put("software.attention", unfused, engine or masked, why="no kernel of flash attention is asked for")
    _softmax(head, job)


_FLASH = ("use_flash_attn", "use_flash_attn_v2", "use_flash_attn_v1", "use_flash_attn_triton", "use_flash_attn_builder")


def _softmax(head: Head, job: StatedJob) -> None:
    kind = head.said("softmax_type")
    if kind is None or kind.text in ("vanilla", "None"):
        return
    if kind.text == "learnable":
        job.put("model.attention_sinks", True, kind)
    if (
        job.get("software.attention") is None
    ):  # kernels have such a softmax from Transformer Engine 2.8 and cuDNN 9.13 on
        job.either.append(("attention", "eager"))


def log_interval(head: Head) -> int | None:
    """Steps between two entries of the log."""
    return whole(head.said("log_interval"), 1)


def arguments_of(pairs: Mapping[str, Any], of: Callable[[Any], str] = str) -> dict[str, SaidValue]:
    """Arguments from a mapping, as a block of them: for configurations that are no log."""
    return {name: SaidValue(of(value), 0, name) for name, value in pairs.items()}
