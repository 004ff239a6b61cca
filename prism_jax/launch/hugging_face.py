"""The Trainer of Hugging Face and what is built on it (ms-swift, LLaMA-Factory), with DeepSpeed or FSDP; and verl.

The truth of the model is in overrides and in the configuration that the log prints, else in the name of the checkpoint. Batches
are those that the Trainer prints when it starts; banners of wrappers are not read.
"""

from __future__ import annotations

from .head import Head, SaidValue
from .models import put_configured_model, put_named_model
from .said import LLAMA_FACTORY, SWIFT
from .stated import StatedJob, dtype_of, is_true, optimizer_of, whole

NAMES = {SWIFT: "ms-swift", LLAMA_FACTORY: "llama-factory"}
BLOCK_SIZE = 1024  # of run_clm.py, unless a model has fewer positions
CUTOFF = {SWIFT: None, LLAMA_FACTORY: 2048}  # tokens, where none is said


def hugging_face_job(head: Head, generation: str = "") -> StatedJob:
    """Fields of the job that a head of the Trainer states.

    Args:
        generation: of the device; not needed.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    _model(head, job)
    _batch(head, job)
    _sharding(head, job)
    _precision(head, job)
    recompute, enabled = (
        head.said("override.gradient_checkpointing", "training.gradient_checkpointing"),
        head.said("checkpointing"),
    )
    job.put("plan.recompute", "full" if is_true(recompute) or enabled else "none", enabled or recompute)
    _adapters(head, job)
    name = head.said("training.optim")
    job.put("plan.optimizer", optimizer_of(name) or "adamw", name)
    if name is not None and "fused" in name.text.lower():
        job.put("software.optimizer", "fused", name)
    job.put_set("software.compile", head.said("training.torch_compile"))
    job.put("framework", NAMES.get(head.trainer, "hf-trainer"), why="who wrote the log")
    return job


def _model(head: Head, job: StatedJob) -> None:
    if put_configured_model(head, job):
        return
    named = head.said(
        "training.model", "hf_name", "training.model_name_or_path", "training.model_id_or_path", "config._name_or_path"
    )
    if named is not None and put_named_model(job, named.text, named):
        return
    what = "names a model that is not known here" if named is not None else "does not say which model it is of"
    job.refused.append(f"the log {what}")


LORA = ("lora", "qlora", "dora")
TARGETS = {"all-linear": "all", "all": "all", "all_linear": "all", "q_proj,v_proj": ["q_proj", "v_proj"]}


def _adapters(head: Head, job: StatedJob) -> None:
    """Low-rank adapters, where few of the parameters are trained."""
    method = head.said(
        "training.train_type", "training.tuner_type", "training.sft_type", "training.finetuning_type", "method"
    )
    if method is None or method.text.lower() not in LORA:
        return
    rank, targets = (
        head.said("training.lora_rank", "training.r"),
        head.said("training.target_modules", "training.lora_target"),
    )
    job.put("model.adapters.rank", whole(rank, 1) or 8, rank or method, why="" if rank else "default of the trainer")
    kinds = TARGETS.get(targets.text.strip("[]'\"")) if targets is not None else "all"
    job.put("model.adapters.targets", [kinds] if isinstance(kinds, str) else kinds or ["all"], targets or method)
    if rank is None:
        job.assumed.append("adapters of rank 8")


def _batch(head: Head, job: StatedJob) -> None:
    micro = head.said("per_device", "training.per_device_train_batch_size", "ds.train_micro_batch_size_per_gpu")
    total = head.said("total_batch", "ds.train_batch_size")
    steps = head.said("accumulation", "training.gradient_accumulation_steps", "ds.gradient_accumulation_steps")
    world = head.said("world_size")
    size, every, n = whole(micro, 1), whole(steps, 1) or 1, whole(world, 1)
    whole_batch = whole(total, 1)
    job.put("plan.micro_batch", size, micro)
    if n is None and size and whole_batch and whole_batch % (size * every) == 0:
        n, world = whole_batch // (size * every), total
    job.put("cluster.n_devices", n, world)
    job.put("plan.dp", n, world)
    job.put("plan.global_batch", whole_batch or (size * every * n if size and n else None), total or micro)
    length = head.said(
        "training.block_size",
        "training.max_length",
        "training.max_seq_length",
        "training.cutoff_len",
        "training.model_max_length",
    )
    positions = job.get("model.max_seq_len")
    if length is not None:
        job.put("plan.seq_len", whole(length, 1), length)
    elif head.trainer in CUTOFF:
        usual = CUTOFF[head.trainer]
        if usual is not None:
            job.put("plan.seq_len", usual, why="default of the trainer")
            job.assumed.append(f"sequences of {usual} tokens, the default of the trainer")
    elif positions:
        job.put("plan.seq_len", min(positions, BLOCK_SIZE), why="default of run_clm.py")


def _sharding(head: Head, job: StatedJob) -> None:
    stage = head.said("ds.zero_optimization.stage", "ds.stage")
    stage = stage or head.engine.get("zero_optimization_stage")
    fsdp = head.said("training.fsdp")
    if stage is not None:
        job.put("plan.zero_stage", whole(stage, 0, 3), stage)
        optimizer, parameters = head.said("ds.offload_optimizer.device"), head.said("ds.offload_param.device")
        job.put(
            "plan.offload_optimizer",
            1.0 if optimizer is not None and optimizer.text in ("cpu", "nvme") else None,
            optimizer,
        )
        job.put(
            "plan.offload_parameters",
            True if parameters is not None and parameters.text in ("cpu", "nvme") else None,
            parameters,
        )
        job.put_flag("plan.overlap.dp", head.said("ds.overlap_comm"))
        return
    if fsdp is not None and fsdp.text not in ("[]", "False", "''"):
        job.put("plan.sharding", "fsdp", fsdp)
        job.put("plan.zero_stage", 3, fsdp)
        return
    other = head.said("training.deepspeed")
    if other is not None:
        _stage_of_name(other, job)


def _stage_of_name(said: SaidValue, job: StatedJob) -> None:
    """The stage that the name of a configuration gives away: zero3, ds_z3, stage2."""
    text = said.text.lower()
    for stage in (3, 2, 1, 0):
        if any(f"{word}{stage}" in text for word in ("zero", "zero_", "zero-", "_z", "-z", "stage", "stage_")):
            job.put("plan.zero_stage", stage, said, why="by the name of the configuration")
            job.put("plan.offload_optimizer", 1.0 if "offload" in text else None, said)
            job.assumed.append(f"ZeRO stage {stage}, by the name of DeepSpeed's configuration")
            return


def _precision(head: Head, job: StatedJob) -> None:
    kind = head.said("compute_dtype")
    flags = (("bf16", "training.bf16"), ("fp16", "training.fp16"))
    for name, flag in flags:
        if is_true(said := head.said(flag)):
            job.put("plan.dtype", name, said)
            return
    if kind is not None:
        job.put("plan.dtype", dtype_of(kind) or "bf16", kind)
        return
    torch = head.said("config.torch_dtype", "config.dtype", "training.torch_dtype")
    found = dtype_of(torch)
    job.put("plan.dtype", found or "bf16", torch, why="" if found else "not said")
    if found is None:
        job.assumed.append("precision bf16")


# --- verl ------------------------------------------------------------------------------------------------------------

ACTOR = "verl.actor_rollout_ref.actor."


def verl_job(head: Head, generation: str = "") -> StatedJob:
    """Fields of the update of the actor: one training step of verl.

    Args:
        generation: of the device; not needed.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    path = head.said("verl.actor_rollout_ref.model.path")
    if path is None or not put_named_model(job, path.text, path):
        job.refused.append("the log names no model that is known here")
    nodes, each = head.said("verl.trainer.nnodes"), head.said("verl.trainer.n_gpus_per_node")
    n = (whole(nodes, 1) or 1) * (whole(each, 1) or 1)
    job.put("cluster.n_devices", n, each, nodes)
    strategy = head.said(f"{ACTOR}strategy")
    degrees = {"plan.tp": "tensor", "plan.pp": "pipeline", "plan.cp": "context", "plan.ep": "expert"}
    model = 1
    if strategy is not None and strategy.text == "megatron":
        for field, name in degrees.items():
            said = head.said(f"{ACTOR}megatron.{name}_model_parallel_size", f"{ACTOR}megatron.{name}_parallel_size")
            job.put(field, whole(said, 1), said)
            model *= 1 if field == "plan.ep" else job.get(field, 1)
        job.put("plan.zero_stage", 1, strategy)
    else:
        ulysses = head.said(f"{ACTOR}ulysses_sequence_parallel_size")
        job.put("plan.cp", whole(ulysses, 1), ulysses)
        model *= job.get("plan.cp", 1)
        job.put("plan.sharding", "fsdp", strategy)
        job.put("plan.zero_stage", 3, strategy)
    job.put("plan.dp", max(n // model, 1), each)
    _verl_batch(head, job)
    offload = head.said(f"{ACTOR}fsdp_config.optimizer_offload")
    job.put("plan.offload_optimizer", 1.0 if is_true(offload) else None, offload)
    recompute = head.said("verl.actor_rollout_ref.model.enable_gradient_checkpointing")
    job.put("plan.recompute", "full" if is_true(recompute) else "none", recompute)
    job.put("plan.dtype", "bf16", head.said("verl.actor_rollout_ref.rollout.dtype"))
    job.put("plan.optimizer", "adamw", why="default of verl")
    job.put("framework", "verl", why="who wrote the log")
    job.notes.append("the steps of this log hold generation and rewards, too: compare the update of the actor alone")
    return job


def _verl_batch(head: Head, job: StatedJob) -> None:
    lengths = [head.said(f"verl.data.max_{kind}_length") for kind in ("prompt", "response")]
    if all(lengths):
        job.put("plan.seq_len", sum(whole(one, 1) or 0 for one in lengths), *lengths)
    mini, micro = head.said(f"{ACTOR}ppo_mini_batch_size"), head.said(f"{ACTOR}ppo_micro_batch_size_per_gpu")
    times = whole(head.said("verl.actor_rollout_ref.rollout.n"), 1) or 1
    dp = job.get("plan.dp", 1)
    total = head.said(f"{ACTOR}ppo_micro_batch_size")
    size = whole(micro, 1)
    if size is None and total is not None:
        size = max((whole(total, 1) or 1) // dp, 1)
    job.put("plan.micro_batch", size, micro or total)
    if (batch := whole(mini, 1)) is not None:
        job.put("plan.global_batch", batch * times, mini)
