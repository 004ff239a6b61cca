"""Arguments of Megatron-LM, its forks and Megatron-DeepSpeed, and which fields of a job they are.

`NAMES` holds those that are a field as they stand; the functions below it hold those that are one together with others, those
of the model in `megatron_model`.
Source: the parsers of arguments of Megatron-LM (2021 to Megatron-Core 0.15) and of Megatron-DeepSpeed (bigscience, microsoft).
"""

from __future__ import annotations

from typing import NamedTuple

from .head import Head, SaidValue
from .megatron_model import put_experts_plan, put_model
from .models import put_head_model
from .pipeline_layout import put_layer_split
from .stated import BY_HAND, NO_FIELD, StatedJob, dtype_of, first_true, is_true, literal, whole


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
    ArgumentName("plan.micro_batch", ("micro_batch_size", "train_micro_batch_size_per_gpu", "batch_size")),
    ArgumentName("plan.global_batch", ("global_batch_size", "train_batch_size")),
    ArgumentName("plan.tp", ("tensor_model_parallel_size", "model_parallel_size")),
    ArgumentName("plan.pp", ("pipeline_model_parallel_size", "pipe_parallel_size")),
    ArgumentName("plan.cp", ("context_parallel_size", "ds_sequence_parallel_size")),
    ArgumentName("plan.ep", ("expert_model_parallel_size", "moe_expert_parallel_size")),
)
NEUTRAL = ("None", "False", "0", "0.0", "[]", "1", "1.0", "none", "")
# Arguments that change a step where they are set, and that no field describes.
NOT_MODELLED = (
    "embed_layernorm", "fp32_residual_connection", "apply_query_key_layer_scaling",
    "scatter_gather_tensors_in_pipeline_off", "partition_activations", "distribute_saved_activations",
    "distribute_checkpointed_activations", "checkpoint_in_cpu", "cpu_offloading_num_layers", "rampup_batch_size",
    "hybrid_context_parallel", "overlap_moe_expert_parallel_comm", "delay_wgrad_compute", "moe_layer_recompute",
    "curriculum_learning", "random_ltd", "create_moe_param_group", "num_experts_teacher", "kd", "mos",
    "memory_centric_tiled_linear", "retro_add_retriever", "num_layers_teacher", "squared_relu_off",
    "parallel_residual",
)  # fmt: skip
# What makes another model of it than a decoder of text: argument -> what it says.
OTHER_MODELS = {
    "hybrid_override_pattern": f"layers with Mamba or others in a pattern, {BY_HAND}",
    "hybrid_layer_pattern": f"layers with Mamba or others in a pattern, {BY_HAND}",
    "is_hybrid_model": f"layers with Mamba or others in a pattern, {BY_HAND}",
    "decoder_num_layers": f"an encoder and a decoder, {BY_HAND}",
    "retro_add_retriever": f"retrieval, {NO_FIELD}",
    "vision_pretraining": f"images, {BY_HAND}",
    "experimental_attention_variant": f"an attention of its own, {NO_FIELD}",
}


def megatron_job(head: Head) -> StatedJob:
    """Fields of the job that a block of arguments states.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    for one in NAMES:
        value = head.said(*one.names)
        job.put(one.field, whole(value, one.least), value)
    _refuse(head, job)
    if head.config is not None or (job.get("model.n_layers") is None and head.said("model_name") is not None):
        put_head_model(head, job, "model_name")
        put_experts_plan(head, job)
    else:
        put_model(head, job)
    _layout(head, job)
    _precision(head, job)
    _states(head, job)
    put_recompute(head, job)
    _kernels(head, job)
    _adapters(head, job)
    job.put("framework", _framework(head))
    job.leave_out(*map(head.arguments.get, NOT_MODELLED), unless=(*NEUTRAL, "[1]"))
    return job


def _framework(head: Head) -> str:
    """Megatron-DeepSpeed, Megatron-LM before 2022, or Megatron-Core and what is built on it."""
    if "zero_stage" in head.arguments or is_true(head.arguments.get("deepspeed")):
        return "megatron-deepspeed"
    return "megatron-core" if "sequence_parallel" in head.arguments else "megatron-2021"


def _refuse(head: Head, job: StatedJob) -> None:
    for name, about in OTHER_MODELS.items():
        value = head.said(name)
        if value is not None and value.text not in NEUTRAL:
            job.refused.append(f"line {value.line}: {name} = {value.text[:40]}: {about}")


# --- The plan --------------------------------------------------------------------------------------------------------


STAGES_FIRST = ("tp", "cp", "pp", "dp")  # stages next to each other, replicas far apart


def _layout(head: Head, job: StatedJob) -> None:
    world = head.said("world_size", "global_num_gpus")
    n_devices = whole(world, 1)
    job.put("cluster.n_devices", n_devices, world)
    said = head.said("data_parallel_size")
    if n_devices and n_devices % job.model_ranks == 0:
        job.put("plan.dp", n_devices // job.model_ranks, said or world)
    if is_true(head.said("use_dynamic_batch_size")):
        put_dynamic_batch(job, head.said("max_tokens_per_gpu"), None, None)
    if job.get("plan.global_batch") is None and job.get("plan.micro_batch"):
        steps = head.facts.get("grad_accum")
        each = job.get("plan.micro_batch") * (whole(steps) or 1)
        job.put("plan.global_batch", each * job.get("plan.dp", 1), steps)
    ulysses = head.said("ds_sequence_parallel_size")
    if (whole(ulysses) or 1) > 1:
        job.assumed.append("sequence parallelism of DeepSpeed (Ulysses) is costed as context parallelism")
    job.put_flag("plan.sequence_parallel", head.said("sequence_parallel"))
    job.put_set("plan.axis_order", head.said("use_tp_pp_dp_mapping"), list(STAGES_FIRST))
    put_layer_split(head, job)
    _overlap(head, job)


def put_dynamic_batch(job: StatedJob, tokens: SaidValue | None, size: int | None, micro: SaidValue | None) -> None:
    """States micro-batches that are filled up to a number of tokens per GPU: as many of the longest sequences as fit in.

    Args:
        size: sequences of a micro-batch, where they are stated all the same.
    """
    length = job.get("plan.seq_len")
    most = whole(tokens, 1)
    if size is None and most and length:
        share = max(job.get("plan.global_batch", 1) // job.get("plan.dp", 1), 1)
        fits = max(most * job.get("plan.cp", 1) // length, 1)
        size = next(one for one in range(min(fits, share), 0, -1) if share % one == 0)
    job.put("plan.micro_batch", size or 1, micro or tokens)
    job.assumed.append(
        "micro-batches that are filled by tokens are costed as whole sequences of the greatest length: an upper bound of the step"
    )


def _overlap(head: Head, job: StatedJob) -> None:
    grads, gathered = head.said("overlap_grad_reduce", "overlap_comm"), head.said("overlap_param_gather")
    is_sharded = is_true(head.said("use_distributed_optimizer"))
    is_known = gathered is not None or head.source != "log"  # logs of 2023 do not print it
    if grads is not None:
        is_hidden = is_true(grads)
        job.put("plan.overlap.dp", is_hidden, grads, gathered if is_true(gathered) == is_hidden else None)
        if is_sharded and is_known and grads.name == "overlap_grad_reduce" and is_true(gathered) != is_hidden:
            job.leave_out(gathered or grads._replace(name="overlap_param_gather", text="False"))  # one field has both
    elif _framework(head) == "megatron-2021":
        implementation = head.said("DDP_impl")
        job.put("plan.overlap.dp", False, implementation, why="gradients are reduced after the backward pass")
    job.put_flag("plan.overlap.tp", head.said("tp_comm_overlap"))
    stages = head.said("overlap_p2p_comm")
    if stages is not None and job.get("plan.virtual_stages", 1) > 1:
        job.put("plan.overlap.pp", is_true(stages), stages)
    if is_true(apart := head.said("no_overlap_p2p_communication")) and job.get("plan.virtual_stages", 1) > 1:
        job.put("plan.overlap.pp", False, apart)


def _precision(head: Head, job: StatedJob) -> None:
    low, lower = head.said("fp8", "fp8_format"), head.said("fp4", "fp4_format")
    for name, value in (("bf16", head.said("bf16")), ("fp16", head.said("fp16"))):
        if is_true(value):
            job.put("plan.dtype", name, value)
    if job.get("plan.dtype") is None:
        kind = head.said("precision", "params_dtype")
        job.put("plan.dtype", dtype_of(kind) or "fp32", kind)
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


MEGATRON_FSDP = {"no_shard": 0, "optim": 1, "optim_grads": 2, "optim_grads_params": 3}  # -> plan.zero_stage
OPTIMIZERS = {"adam": "adam", "adamw": "adamw", "sgd": "sgd_momentum", "muon": "muon", "lion": "lion", "lamb": "lamb"}


def _states(head: Head, job: StatedJob) -> None:
    """Storage and sharding of optimizer states."""
    stage, shared = head.said("zero_stage"), head.said("use_distributed_optimizer")
    zero = whole(stage, 0, 3) if stage is not None and _framework(head) == "megatron-deepspeed" else None
    if zero == 0 and job.get("plan.dtype") == "bf16" and job.get("plan.dp", 1) > 1:
        job.put("plan.zero_stage", 1, stage, why="DeepSpeed's BF16 optimizer shards its states")
    elif zero is not None:
        job.put("plan.zero_stage", zero, stage)
    elif shared is not None:
        job.put("plan.zero_stage", int(is_true(shared)), shared)
    own = first_true(head, "use_megatron_fsdp", "use_custom_fsdp", "use_torch_fsdp2")
    if own is not None:
        kind = head.said("data_parallel_sharding_strategy")
        level = MEGATRON_FSDP.get(kind.text, 3) if kind and "torch" not in own.name else 3
        job.put("plan.zero_stage", level, own, kind)
    _optimizer(head, job)
    job.put_flag("plan.fused_grad_accumulation", head.said("gradient_accumulation_fusion"))
    _formats(head, job)


def _optimizer(head: Head, job: StatedJob) -> None:
    kind = head.said("optimizer", "optimizer_type")
    known = OPTIMIZERS.get(kind.text.lower()) if kind else "adam"
    if known is None:
        job.leave_out(kind)
    job.put("plan.optimizer", known, kind)
    host = first_true(head, "cpu_optimizer", "optimizer_cpu_offload")
    if host is not None:
        share = head.said("optimizer_offload_fraction")
        part = literal(share.text) if share is not None and host.name.endswith("optimizer_cpu_offload") else 1.0
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
    job.put_set("plan.state_dtypes.fp8_params", head.said("fp8_param_gather"))
    if is_true(head.said("use_precision_aware_optimizer")):
        for field, name in STATE_DTYPES.items():
            value = head.said(name)
            job.put(f"plan.state_dtypes.{field}", dtype_of(value), value)


STATE_DTYPES = {
    "main_grads": "main_grads_dtype",
    "main_params": "main_params_dtype",
    "exp_avg": "exp_avg_dtype",
    "exp_avg_sq": "exp_avg_sq_dtype",
}


RECOMPUTE_MODULES = ("moe_act", "core_attn", "layernorm", "mla_up_proj", "mlp", "moe", "shared_experts")


def put_recompute(head: Head, job: StatedJob) -> None:
    """States which activations are computed again.

    Raises:
        DataError: a value is no number.
    """
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
        job.put("plan.recompute_modules", [one for one in names if one in RECOMPUTE_MODULES] or None, modules)


def _adapters(head: Head, job: StatedJob) -> None:
    """Low-rank adapters of ms-swift on Megatron."""
    kind = head.said("train_type", "tuner_type")
    if kind is None or kind.text == "full":
        return
    if kind.text != "lora":
        job.not_modelled.append(kind)
        return
    rank, targets = head.said("lora_rank"), head.said("target_modules")
    job.put("model.adapters.rank", whole(rank, 1) or 8, rank or kind)
    named = [one for name in (targets.text.split() if targets else []) for one in _MATRICES.get(name, ())]
    job.put("model.adapters.targets", list(dict.fromkeys(named)) or ["all"], targets or kind)


_MATRICES = {
    "linear_qkv": ("q_proj", "k_proj", "v_proj"),
    "linear_proj": ("o_proj",),
    "linear_fc1": ("gate_proj", "up_proj"),
    "linear_fc2": ("down_proj",),
}


# --- Kernels ---------------------------------------------------------------------------------------------------------

BEFORE_AMPERE = ("volta", "turing", "pascal", "maxwell", "kepler")  # have no flash attention and no bf16


def _kernels(head: Head, job: StatedJob) -> None:
    _attention(head, job)
    graphs, old = head.said("cuda_graph_impl"), head.said("enable_cuda_graph")
    if graphs is not None and graphs.text.lower() in ("none", "local", "transformer_engine", "full_iteration"):
        scope = head.said("cuda_graph_scope")
        whole_step = "full_iteration" in (graphs.text, *([scope.text] if scope else []))
        job.put("software.cuda_graphs", "none" if graphs.text == "none" else "step" if whole_step else "layers", graphs)
    elif is_true(old):
        job.put("software.cuda_graphs", "layers", old)
    job.put_set("software.cross_entropy", head.said("cross_entropy_loss_fusion"), "fused")
    rope = head.said("apply_rope_fusion", "rope_fusion")
    if rope is not None and job.get("model.position") == "rope":
        job.put("software.rope", "fused" if is_true(rope) else "eager", rope)
    gates = head.said("bias_swiglu_fusion" if job.get("model.gated") else "bias_gelu_fusion")
    if gates is not None and _framework(head) != "megatron-core":
        job.put("software.activation", "fused" if is_true(gates) else "eager", gates)


def _attention(head: Head, job: StatedJob) -> None:
    masked = head.said("masked_softmax_fusion", "scaled_upper_triang_masked_softmax_fusion")
    unfused = "fused_softmax" if masked is None or is_true(masked) else "eager"
    flash = first_true(head, *_FLASH)
    backend = head.said("attention_backend")
    kinds = head.said("attention_config")
    if kinds is not None and "flash" in kinds.text:
        flash = flash or kinds
    kind = backend.text.lower().rpartition(".")[2] if backend is not None else ""
    engine = head.said("transformer_impl")
    has_engine = engine is not None and engine.text == "transformer_engine"
    if head.generation in BEFORE_AMPERE:
        job.put("software.attention", unfused, masked, why=f"no flash attention on {head.generation}")
    elif flash is not None:
        first = "v1" in flash.name or "triton" in flash.name
        job.put("software.attention", "flash1" if first else "flash2", flash)
    elif kind in ("unfused", "local"):
        job.put("software.attention", unfused, backend)
    elif kind == "flash":
        job.put("software.attention", "flash2" if head.generation not in ("hopper", "blackwell") else None, backend)
    elif kind == "fused":
        job.put("software.attention", "flash3" if head.generation in ("hopper", "blackwell") else "flash2", backend)
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
    if job.get("software.attention") is None:  # kernels have it from Transformer Engine 2.8 and cuDNN 9.13 on
        job.either.append(("attention", "eager"))


def log_interval(head: Head) -> int | None:
    """Steps between two entries of the log."""
    return whole(head.said("log_interval"), 1)
