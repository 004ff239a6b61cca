"""The Trainer of Hugging Face and what is built on it (ms-swift, LLaMA-Factory), with DeepSpeed or FSDP.

The truth of the model is in overrides and in the configuration that the log prints, else in the name of the checkpoint. Batches
are those that the Trainer prints when it starts; banners of wrappers are not read.
"""

from __future__ import annotations

from .head import Head, SaidValue
from .hf_adapters import OFF, put_adapters
from .models import put_head_model
from .said import HF, LLAMA_FACTORY, OPENRLHF, SWIFT
from .stated import StatedJob, dtype_of, is_true, literal, optimizer_of, whole

NAMES = {SWIFT: "ms-swift", LLAMA_FACTORY: "llama-factory"}
BLOCK_SIZE = 1024  # of run_clm.py, unless a model has fewer positions
CUTOFF = {SWIFT: None, LLAMA_FACTORY: 2048}  # tokens, where none is said
PER_DEVICE = {HF: 8, LLAMA_FACTORY: 8, SWIFT: 1}  # sequences, where none is said
RECOMPUTES = (LLAMA_FACTORY, SWIFT)  # unless they are told not to
LENGTHS = (
    "training.block_size", "training.max_length", "training.max_seq_length", "training.cutoff_len",
    "training.sequence_len", "training.max_len", "training.model_max_length", "training.max_seq_len",
)  # fmt: skip
# Arguments that change a step where they are set, and that no field describes.
NOT_MODELLED = (
    "packing", "sample_packing", "neat_packing", "packing_samples", "multipack_real_batches", "use_galore", "use_badam",
    "use_apollo", "use_adam_mini", "use_llama_pro", "use_unsloth_gc", "mixture_of_depths", "use_kt", "group_by_length",
    "lisa_n_layers", "neftune_noise_alpha", "neftune_alpha", "relora_steps", "unfrozen_parameters", "dynamic_batching",
    "tensor_parallel", "batching_strategy", "use_dynamic_batch", "vision_tower", "speech_encoder", "image_folder",
)  # fmt: skip


def hugging_face_job(head: Head) -> StatedJob:
    """Fields of the job that a head of the Trainer states.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    put_head_model(head, job, *MODEL)
    _degrees(head, job)
    _batch(head, job)
    _sharding(head, job)
    _precision(head, job)
    _recompute(head, job)
    put_adapters(head, job)
    name = head.said("training.optim", "training.optimizer", "ds.optimizer.type")
    job.put("plan.optimizer", optimizer_of(name) or "adamw", name)
    if optimizer_of(name) is None:
        job.leave_out(name)
    if name is not None and "fused" in name.text.lower():
        job.put("software.optimizer", "fused", name)
    job.put_set("software.compile", head.said("training.torch_compile"))
    _attention(head, job)
    job.put("framework", _framework(head), why=f"who wrote the {head.source}")
    job.leave_out(*(head.said(f"training.{name}") for name in NOT_MODELLED), unless=OFF)
    _method(head, job)
    return job


def _framework(head: Head) -> str:
    has_stage = head.said("ds.zero_optimization.stage", "ds.stage") is not None
    return NAMES.get(head.trainer, "deepspeed" if head.trainer == OPENRLHF and has_stage else "hf-trainer")


METHODS = {
    "dpo": "pairs of sequences and a reference model",
    "orpo": "pairs of sequences",
    "simpo": "pairs of sequences",
    "kto": "a reference model",
    "rm": "pairs of sequences",
    "reward": "pairs of sequences",
    "ppo": "generation, rewards and several models",
    "grpo": "generation and rewards",
    "gkd": "a teacher",
    "kd": "a teacher",
}


def _method(head: Head, job: StatedJob) -> None:
    """Says what is trained besides a model of language on sequences."""
    pairs, rolled = head.said("training.beta"), head.said("training.num_generations")
    if rolled is not None and (whole(rolled) or 0) > 1:
        job.not_modelled.append(rolled)
        job.notes.append(
            f"line {rolled.line}: {rolled.name} = {rolled.text}: the job is the training step alone, without generation"
        )
    elif pairs is not None and head.said("training.max_prompt_length") is not None:
        job.not_modelled.append(pairs)
        what = "is of pairs of sequences; the job is one model on single ones"
        job.notes.append(f"line {pairs.line}: {pairs.name} {what}")
    for name in ("training.stage", "training.rl", "training.rlhf_type", "training.method", "training.trainer"):
        said = head.said(name)
        if said is not None and (what := METHODS.get(said.text.lower())):
            job.not_modelled.append(said)
            job.notes.append(f"line {said.line}: {said.name} = {said.text}: {what}; the job is the training of one model on "
                             "single sequences alone")  # fmt: skip


MODEL = (
    "training.model", "hf_name", "training.model_name_or_path", "training.base_model", "training.pretrain",
    "training.actor_model_name_or_path", "training.model_id_or_path", "training.model_path", "training.model_id",
    "training.model_name", "config._name_or_path",
)  # fmt: skip


ATTENTION = {
    **dict.fromkeys(("fa2", "flash_attention_2", "True", "true"), "flash2"),
    **dict.fromkeys(("fa3", "flash_attention_3"), "flash3"),
    **dict.fromkeys(("eager", "disabled"), "eager"),
}


def _attention(head: Head, job: StatedJob) -> None:
    kind = head.said(
        "training.flash_attn", "training.attn_implementation", "training.flash_attention", "training.attn_impl"
    )
    job.put("software.attention", ATTENTION.get(kind.text) if kind is not None else None, kind)
    head.said("training.sdp_attention", "training.xformers_attention")  # nothing follows: kernels of PyTorch


def _recompute(head: Head, job: StatedJob) -> None:
    names = ("override.gradient_checkpointing", "training.gradient_checkpointing", "training.activation_checkpointing",
             "training.actor.gradient_checkpointing", "training.enable_gradient_checkpointing")  # fmt: skip
    recompute, enabled = head.said(*names), head.said("checkpointing")
    of_fsdp = head.said("accelerate.fsdp_config.fsdp_activation_checkpointing", "training.fsdp_config.activation_checkpointing",
                        "training.fsdp_config.fsdp_activation_checkpointing")  # fmt: skip
    absent = head.said("training.disable_gradient_checkpointing")
    if any(head.said(f"training.{name}_model_parallel_size") for name in ("tensor", "pipeline", "expert")):
        kind = head.said("training.recompute_granularity")  # LLaMA-Factory on Megatron-Core
        job.put(
            "plan.recompute", kind.text if kind is not None and kind.text in ("full", "selective") else "none", kind
        )
        job.put_flag("plan.sequence_parallel", head.said("training.sequence_parallel"))
        n = head.said("training.virtual_pipeline_model_parallel_size")
        job.put_whole("plan.virtual_stages", n)
        job.put("plan.schedule", "interleaved" if (whole(n, 1) or 1) > 1 else None, n)
    elif is_true(of_fsdp) or (recompute is not None and recompute.text in ("unsloth", "offload", "offload_disk")):
        job.put("plan.recompute", "full", of_fsdp if is_true(of_fsdp) else recompute)
        if recompute is not None and recompute.text.startswith("offload"):
            job.not_modelled.append(recompute)
    elif recompute is None and enabled is None and head.source != "log" and head.trainer in RECOMPUTES:
        job.put(
            "plan.recompute",
            "none" if is_true(absent) else "full",
            absent,
            why="" if absent else "default of the trainer",
        )
    else:
        job.put("plan.recompute", "full" if is_true(recompute) or enabled else "none", enabled or recompute)


DEGREES = {
    "plan.tp": (
        "accelerate.parallelism_config.parallelism_config_tp_size",
        "training.tensor_parallel_size",
        "training.tensor_model_parallel_size",
        "training.tp_size",
        "ds.tensor_parallel.autotp_size",
        "training.ds_tensor_parallel_size",
    ),
    "plan.pp": ("training.pipeline_model_parallel_size",),
    "plan.cp": (
        "accelerate.parallelism_config.parallelism_config_cp_size",
        "accelerate.parallelism_config.parallelism_config_sp_size",
        "training.context_parallel_size",
        "training.cp_size",
        "training.sequence_parallel_size",
        "training.sequence_parallel_degree",
        "training.ring_attn_size",
    ),
    "plan.ep": ("training.expert_model_parallel_size", "training.expert_parallel_size", "training.dist_config.ep_size"),
}
REPLICATED = ("accelerate.parallelism_config.parallelism_config_dp_replicate_size", "training.dp_replicate_size")
SHARDED = ("accelerate.parallelism_config.parallelism_config_dp_shard_size", "training.dp_shard_size")


def _degrees(head: Head, job: StatedJob) -> None:
    for path, names in DEGREES.items():
        said = head.said(*names)
        job.put(path, whole(said, 0) or None, said)
    if job.get("plan.ep", 1) > 1 and job.get("model.moe.n_experts") is None:
        job.fields.pop("plan.ep")


def _n_devices(head: Head, job: StatedJob) -> tuple[int | None, SaidValue | None]:
    """Number of GPUs, and where it is said: by the launcher, or by all degrees together."""
    said = head.said("world_size", "accelerate.num_processes", "training.world_size", "training.ray_num_workers")
    if said is not None and whole(said) != 0:
        return whole(said, 1), said
    degrees = [head.said(*names) for names in (SHARDED, REPLICATED)]
    if degrees[0] is not None:
        sizes = [whole(one, 1) or 1 for one in degrees]
        return sizes[0] * sizes[1] * job.get("plan.tp", 1) * job.get("plan.cp", 1), degrees[0]
    return None, None


def _batch(head: Head, job: StatedJob) -> None:
    micro = head.said(
        "per_device",
        "training.per_device_train_batch_size",
        "training.micro_train_batch_size",
        "training.micro_batch_size",
        "training.per_device_batch_size",
        "ds.train_micro_batch_size_per_gpu",
    )
    own = ("training.train_batch_size",) if head.trainer == OPENRLHF else ("training.global_batch_size",)
    total = head.said("total_batch", *own, "ds.train_batch_size")
    steps = head.said(
        "accumulation",
        "training.gradient_accumulation_steps",
        "ds.gradient_accumulation_steps",
        "accelerate.gradient_accumulation_steps",
        "accelerate.deepspeed_config.gradient_accumulation_steps",
    )
    n, world = _n_devices(head, job)
    size, every = whole(micro, 1), whole(steps, 1) or 1
    whole_batch = whole(total, 1)
    if size is None and head.source != "log" and head.trainer in PER_DEVICE and _is_of_trainer(head):
        size = PER_DEVICE[head.trainer]
        job.assumed.append(f"{size} sequences per GPU, the default of the trainer")
    job.put("plan.micro_batch", size, micro, why="" if micro else "default of the trainer")
    if n is None and size and whole_batch and steps is not None and whole_batch % (size * every) == 0:
        n, world = whole_batch // (size * every) * job.model_ranks, total
    job.put("cluster.n_devices", n, world)
    dp = max(n // job.model_ranks, 1) if n else None
    job.put("plan.dp", dp, world)
    job.put("plan.global_batch", whole_batch or (size * every * dp if size and dp else None), total or micro or world)
    length = head.said(*LENGTHS)
    positions = job.get("model.max_seq_len")
    parts = [head.said(f"training.max_{part}_length") for part in ("prompt", "completion")]
    if length is None and parts[0] is not None and parts[1] is not None:
        job.put("plan.seq_len", sum(whole(one, 1) or 0 for one in parts), *parts)
    elif length is not None:
        job.put_whole("plan.seq_len", length)
    elif head.trainer in CUTOFF:
        usual = CUTOFF[head.trainer]
        if usual is not None:
            job.put("plan.seq_len", usual, why="default of the trainer")
            job.assumed.append(f"sequences of {usual} tokens, the default of the trainer")
    elif positions and (head.source == "log" or "run_clm" in getattr(head.facts.get("program"), "text", "")):
        job.put("plan.seq_len", min(positions, BLOCK_SIZE), why="default of run_clm.py")


def _is_of_trainer(head: Head) -> bool:
    """Whether a trainer's own arguments are there, whose defaults count then."""
    return any(name.startswith("training.") for name in head.arguments)


DEEPSPEED = (
    "training.deepspeed",
    "training.deepspeed_config",
    "training.dist_config.config_file",
    "accelerate.deepspeed_config.deepspeed_config_file",
)


def _sharding(head: Head, job: StatedJob) -> None:
    stage = head.said(
        "ds.zero_optimization.stage", "ds.stage", "accelerate.deepspeed_config.zero_stage", "training.zero_stage"
    )
    stage = stage or head.engine.get("zero_optimization_stage")
    if stage is not None:
        _zero(head, job, stage)
        return
    if _fsdp(head, job):
        return
    other = head.said(*DEEPSPEED)
    if other is not None and other.text not in (*OFF, "True"):
        _stage_of_name(other, job)
        if job.get("plan.zero_stage") is None and head.source != "log":
            job.open["plan.zero_stage"] = (
                f"{other.name} (line {other.line}) names {other.text[:80]}, which is not there"
            )
    job.put_set("plan.zero_stage", head.said("training.use_distributed_optimizer"), 1)


def _zero(head: Head, job: StatedJob, stage: SaidValue) -> None:
    job.put("plan.zero_stage", whole(stage, 0, 3), stage)
    optimizer = head.said("ds.zero_optimization.offload_optimizer.device", "ds.offload_optimizer.device",
                          "accelerate.deepspeed_config.offload_optimizer_device", "training.adam_offload")  # fmt: skip
    parameters = head.said("ds.zero_optimization.offload_param.device", "ds.offload_param.device",
                           "accelerate.deepspeed_config.offload_param_device")  # fmt: skip
    old = head.said("ds.zero_optimization.cpu_offload", "training.offload")
    if optimizer is None and is_true(old):
        optimizer = old
    for path, said, value in (("optimizer", optimizer, 1.0), ("parameters", parameters, True)):
        if said is not None and said.text in ("cpu", "nvme", "True"):
            job.put(f"plan.offload_{path}", value, said)
    job.put_flag("plan.overlap.dp", head.said("ds.zero_optimization.overlap_comm", "ds.overlap_comm"))
    shard = head.said("ds.zero_optimization.zero_hpz_partition_size", "training.zpg")
    job.leave_out(shard, head.said("ds.zero_optimization.mics_shard_size"), unless=(*OFF, "1"))


_STRATEGIES = {"FULL_SHARD": 3, "SHARD_GRAD_OP": 2, "NO_SHARD": 0, "HYBRID_SHARD": 3, "HYBRID_SHARD_ZERO2": 2}
_STRATEGIES |= {str(number): level for number, level in enumerate(list(_STRATEGIES.values()), 1)}


def _fsdp(head: Head, job: StatedJob) -> bool:
    """FSDP by the Trainer's own argument, by accelerate or by axolotl; whether it is said."""
    flag = head.said("training.fsdp")
    of = head.said("accelerate.distributed_type", "training.dist_config.name", "training.fsdp_version")
    is_fsdp = flag is not None and flag.text not in ("[]", "False", "''", "None", "")
    is_fsdp |= any(
        one.startswith("training.fsdp_config.") and head.said(one) is not None for one in list(head.arguments)
    )
    is_fsdp |= of is not None and (of.text.lower().startswith("fsdp") or of.name == "fsdp_version")
    shard = head.said(*SHARDED)
    if not is_fsdp and not (shard is not None and (whole(shard) or 1) > 1):
        if of is not None and of.text in ("MULTI_GPU", "NO", "False", "MULTI_NPU", "MULTI_XPU"):
            job.put("plan.zero_stage", 0, of, why="copies of the model")
        return False
    config = ("accelerate.fsdp_config.", "training.fsdp_config.")
    names = ("fsdp_sharding_strategy", "sharding_strategy", "fsdp_reshard_after_forward", "reshard_after_forward")
    kind = head.said(*(front + name for front in config for name in names[:2])) or _old_strategy(flag)
    again = head.said(*(front + name for front in config for name in names[2:]))
    where = kind or again or (flag if is_fsdp and flag is not None else of) or shard
    if kind is None and again is not None and again.text in _STRATEGIES:
        kind = again
    level = _STRATEGIES.get(kind.text.rpartition(".")[2].upper(), 3) if kind is not None else 3
    if kind is None and again is not None and literal(again.text.lower()) is False:
        level = 2
    job.put("plan.zero_stage", level, where)
    replicas, dp = whole(head.said(*REPLICATED), 1) or 1, job.get("plan.dp", 1)
    if level and replicas > 1:
        job.put("plan.sharding", "hsdp", where)
        job.put("plan.dp_shard", max(dp // replicas, 1), head.said(*REPLICATED))
    elif kind is not None and kind.text.upper() in ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2", "4", "5"):
        nodes = whole(head.said("accelerate.num_machines")) or 1
        job.put("plan.sharding", "hsdp" if nodes > 1 else "fsdp", kind)
        job.put("plan.dp_shard", max(dp // nodes, 1) if nodes > 1 else None, kind)
    elif level:
        job.put("plan.sharding", "fsdp", where)
    offload = head.said(
        *(front + name for front in config for name in ("fsdp_offload_params", "offload_params", "cpu_offload"))
    )
    if is_true(offload) or (flag is not None and "offload" in flag.text):
        job.put("plan.offload_parameters", True, offload or flag)
    return True


def _old_strategy(flag: SaidValue | None) -> SaidValue | None:
    """The strategy within `full_shard auto_wrap`."""
    for name in ("hybrid_shard_zero2", "hybrid_shard", "full_shard", "shard_grad_op", "no_shard"):
        if flag is not None and name in flag.text:
            return flag._replace(text=name.upper())
    return None


def _stage_of_name(said: SaidValue, job: StatedJob) -> None:
    """The stage that the name of a configuration gives away: zero3, ds_z3, stage2."""
    text = said.text.lower()
    for stage in (3, 2, 1, 0):
        if any(f"{word}{stage}" in text for word in ("zero", "zero_", "zero-", "_z", "-z", "stage", "stage_")):
            job.put("plan.zero_stage", stage, said, why="by the name of the configuration")
            job.put("plan.offload_optimizer", 1.0 if "offload" in text else None, said)
            job.assumed.append(f"ZeRO stage {stage}, by the name of DeepSpeed's configuration")
            return


PRECISIONS = {  # flag -> format
    "training.bf16": "bf16",
    "training.fp16": "fp16",
    "training.pure_bf16": "bf16",
    "ds.bf16.enabled": "bf16",
    "ds.bfloat16.enabled": "bf16",
    "ds.fp16.enabled": "fp16",
    "training.bfloat16": "bf16",
}


def _precision(head: Head, job: StatedJob) -> None:
    kind = head.said("compute_dtype")
    low = head.said("training.fp8", "accelerate.fp8_config.backend")
    is_low = low is not None and low.text not in OFF
    for flag, name in PRECISIONS.items():
        if is_true(said := head.said(flag)) or (said is not None and said.text == "auto" and name == "bf16"):
            job.put("plan.dtype", "fp8" if is_low else name, *((low, said) if is_low else (said,)))
            return
    if is_low:
        job.put("plan.dtype", "fp8", low)
        return
    mixed = head.said("accelerate.mixed_precision", "training.mixed_precision", "training.param_dtype")
    if mixed is not None and mixed.text.lower() in ("bf16", "fp16", "fp8"):
        job.put("plan.dtype", mixed.text.lower(), mixed)
        return
    if kind is not None:
        job.put("plan.dtype", dtype_of(kind) or "bf16", kind)
        return
    own = ("training.torch_dtype", "training.dtype", "training.model_dtype")
    torch = (
        head.said(*own)
        if head.source != "log"
        else head.said("config.torch_dtype", "config.dtype", "training.torch_dtype")
    )
    found = dtype_of(torch)
    off = next(filter(None, map(head.said, PRECISIONS)), None)
    usual = (
        "fp32" if head.source != "log" and (off is not None or _is_of_trainer(head)) and head.trainer == HF else "bf16"
    )
    job.put("plan.dtype", found or usual, torch or off, why="" if found else "not said")
    if found is None:
        job.assumed.append(f"precision {usual}")
