"""verl: the update of the actor, as one training step; from its printed configuration, its YAML, and command lines of Hydra.

The actor is trained by FSDP (with Ulysses) or by Megatron-LM. A command line states only what differs from the defaults of verl's
own configuration, so `DEFAULTS` stands for those that decide a step.
Source: verl/trainer/config (ppo_trainer.yaml, ppo_megatron_trainer.yaml, sft_trainer.yaml).
"""

from __future__ import annotations

import re

from ..tables.document import Document
from .config_files import Carrier, ConfigFiles
from .head import Head, SaidValue, without_line
from .launch_line import LaunchLine, LaunchProgram
from .megatron import put_dynamic_batch, put_recompute
from .megatron_model import put_experts_plan
from .megatron_programs import STEP_ALONE
from .models import put_head_model
from .pipeline_layout import put_layer_split
from .said import VERL
from .stated import StatedJob, dtype_of, is_true, whole

ACTOR = "verl.actor_rollout_ref.actor."
MODEL = "verl.actor_rollout_ref.model."
DEFAULTS = {  # of verl/trainer/config, by their names there
    "trainer.nnodes": "1",
    "trainer.n_gpus_per_node": "8",
    "data.max_prompt_length": "512",
    "data.max_response_length": "512",
    "data.train_batch_size": "1024",
    "actor_rollout_ref.actor.ppo_mini_batch_size": "256",
    "actor_rollout_ref.rollout.n": "1",
    "actor_rollout_ref.model.enable_gradient_checkpointing": "True",
}
SFT_DEFAULTS = {
    "data.train_batch_size": "256",
    "data.max_length": "1024",
    "model.enable_gradient_checkpointing": "True",
}
TRAINERS = (
    r"verl\.trainer\.main_ppo|main_(?:dapo|ppo|spin|sppo|prime|gspo|gigpo|eval_ppo)\b|recipe\.\w+\.main_|\bmain_ppo"
)
MOST_BY_CHANCE = 3  # keys of an actor on a command line of another program
SFT = r"verl\.trainer\.(?:fsdp_)?sft_trainer|fsdp_sft_trainer"
NO_STEP = r"main_generation|main_eval|model_merger|data_preprocess"


def verl_job(head: Head) -> StatedJob:
    """Fields of the update of the actor: one training step of verl.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    put_head_model(head, job, f"{MODEL}path", "verl.model.partial_pretrain", "verl.model.path")
    nodes, each = head.said("verl.trainer.nnodes"), head.said("verl.trainer.n_gpus_per_node")
    world = head.said("world_size")
    n = whole(world, 1) or (whole(nodes, 1) or 1) * (whole(each, 1) or 1)
    job.put("cluster.n_devices", n, *([world] if world else [each, nodes]))
    _sharding(head, job)
    job.put("plan.dp", max(n // job.model_ranks, 1), world or each)
    if head.said("verl.data.max_length") is not None:
        _sft_batch(head, job)
    else:
        _batch(head, job)
    _offload(head, job)
    _precision(head, job)
    job.put("plan.optimizer", "adamw", why="default of verl")
    job.put("framework", "verl", why=f"who wrote the {head.source}")
    if head.source == "log":
        job.notes.append(
            "the steps of this log hold generation and rewards, too: compare the update of the actor alone"
        )
    return job


def _sharding(head: Head, job: StatedJob) -> None:
    """States how the actor is divided."""
    strategy = head.said(f"{ACTOR}strategy", "verl.model.strategy")
    recompute = head.said(f"{MODEL}enable_gradient_checkpointing", "verl.model.enable_gradient_checkpointing")
    if strategy is not None and strategy.text == "megatron":
        _megatron(head, job, strategy)
        return
    job.put_whole("plan.cp", head.said(f"{ACTOR}ulysses_sequence_parallel_size", "verl.ulysses_sequence_parallel_size"))
    if job.get("plan.cp", 1) > 1:
        job.assumed.append("sequence parallelism of DeepSpeed (Ulysses) is costed as context parallelism")
    job.put("plan.sharding", "fsdp", strategy)
    job.put("plan.zero_stage", 3, strategy)
    job.put("plan.recompute", "full" if is_true(recompute) else "none", recompute)
    job.leave_out(head.said(f"{ACTOR}fsdp_config.fsdp_size"), unless=("-1", "1"))


def _megatron(head: Head, job: StatedJob, strategy: SaidValue) -> None:
    front = f"{ACTOR}megatron."
    for path, name in (("plan.tp", "tensor"), ("plan.pp", "pipeline"), ("plan.cp", "context"), ("plan.ep", "expert")):
        job.put_whole(path, head.said(f"{front}{name}_model_parallel_size", f"{front}{name}_parallel_size"))
    own = {
        "expert_tensor_parallel_size": f"{front}expert_tensor_parallel_size",
        "virtual_pipeline_model_parallel_size": f"{front}virtual_pipeline_model_parallel_size",
    }
    of = "override_transformer_config."
    for name in head.facts:  # names of Megatron-Core's configuration
        if name.startswith(front + of):
            leaf = name[len(front + of) :]
            own[_RENAMED.get(leaf, leaf)] = name
    for argument, name in own.items():
        if name in head.facts and argument not in head.arguments:
            head.arguments[argument] = head.facts[name]
    put_experts_plan(head, job)
    put_layer_split(head, job)
    put_recompute(head, job)
    sequence = head.said(f"{front}sequence_parallel")
    job.put("plan.sequence_parallel", is_true(sequence) if sequence else job.get("plan.tp", 1) > 1, sequence)
    shared = head.said(f"{front}use_distributed_optimizer")
    job.put("plan.zero_stage", int(is_true(shared)) if shared else 1, shared or strategy)


_RENAMED = {
    "num_layers_in_first_pipeline_stage": "decoder_first_pipeline_num_layers",
    "num_layers_in_last_pipeline_stage": "decoder_last_pipeline_num_layers",
}


def _offload(head: Head, job: StatedJob) -> None:
    names = [f"{ACTOR}{part}.optimizer_offload" for part in ("fsdp_config", "megatron")]
    offload = head.said(*names)
    if is_true(offload):
        # verl moves states between steps of the loop, and has them on the GPU while the actor is updated
        job.notes.append("states of the optimizer are on the host between updates: moving them is not in this step")
    job.put_set("plan.offload_optimizer", head.said(f"{ACTOR}fsdp_config.offload_policy"), 1.0)


def _precision(head: Head, job: StatedJob) -> None:
    kind = head.said(f"{ACTOR}fsdp_config.dtype", f"{ACTOR}fsdp_config.mixed_precision.param_dtype", f"{ACTOR}dtype")
    job.put("plan.dtype", dtype_of(kind) or "bf16", kind or head.said("verl.actor_rollout_ref.rollout.dtype"))


def _batch(head: Head, job: StatedJob) -> None:
    lengths = [head.said(f"verl.data.max_{kind}_length") for kind in ("prompt", "response")]
    if all(lengths):
        job.put("plan.seq_len", sum(whole(one, 1) or 0 for one in lengths), *lengths)
    mini, micro = head.said(f"{ACTOR}ppo_mini_batch_size"), head.said(f"{ACTOR}ppo_micro_batch_size_per_gpu")
    times = head.said("verl.actor_rollout_ref.rollout.n")
    n_times, dp = whole(times, 1) or 1, job.get("plan.dp", 1)
    total = head.said(f"{ACTOR}ppo_micro_batch_size")
    size = whole(micro, 1)
    if size is None and total is not None:
        size = max((whole(total, 1) or 1) // dp, 1)
    batch = whole(mini, 1)
    job.put("plan.global_batch", batch * n_times if batch else None, mini, times)
    tokens = head.said(f"{ACTOR}ppo_max_token_len_per_gpu")
    dynamic = head.said(f"{ACTOR}use_dynamic_bsz")
    if is_true(dynamic):
        put_dynamic_batch(job, tokens, size, micro or total)
    else:
        job.put("plan.micro_batch", size, micro or total)


def _sft_batch(head: Head, job: StatedJob) -> None:
    job.put_whole("plan.seq_len", head.said("verl.data.max_length"))
    job.put_whole("plan.micro_batch", head.said("verl.data.micro_batch_size_per_gpu", "verl.data.micro_batch_size"))
    job.put_whole("plan.global_batch", head.said("verl.data.train_batch_size"))


# --- Files and command lines -------------------------------------------------------------------------------------------


def _take(head: Head, said: dict[str, SaidValue], defaults: dict[str, str]) -> Head:
    head.facts |= {f"verl.{name}": one for name, one in (without_line(defaults, named=False) | said).items()}
    head.notes.append(STEP_ALONE)
    return head


def _of_files(files: ConfigFiles) -> Head:
    return _take(files.head(VERL), files.said(), DEFAULTS)


def _is_config(document: Document) -> bool:
    return isinstance(document.data.get("actor_rollout_ref"), dict)


def _of_line(line: LaunchLine) -> Head:
    """Reads a command line of verl.

    Raises:
        NoTrainingError: it trains nothing.
    """
    if re.search(NO_STEP, line.text):
        raise line.no_training(f"{line.parts.program} is no training")
    head = line.head(VERL)
    said = dict(line.pairs)
    if re.search(SFT, line.text):
        return _take(head, said, SFT_DEFAULTS)
    config, engine = line.flags.get("config_name"), said.get("model_engine")
    named = config if config is not None and "megatron" in config.text else engine
    if named is not None and (named is config or named.text == "megatron"):
        said.setdefault("actor_rollout_ref.actor.strategy", named._replace(text="megatron"))
    if line.n_devices is None:
        head.arguments.pop("world_size", None)  # a cluster of Ray: the trainer says its size
    return _take(head, said, DEFAULTS)


def _is_mine(line: LaunchLine) -> bool:
    """Whether a command line is of verl, or of a program that builds on it and takes the keys of its actor."""
    if sum(name.startswith("actor_rollout_ref.actor.") for name in line.pairs) >= MOST_BY_CHANCE:
        return True
    return re.search(f"{TRAINERS}|{SFT}", line.text) is not None and any(
        name.startswith(("actor_rollout_ref.", "data.")) for name in line.pairs
    )


VERL_CARRIERS = (Carrier("verl", _is_config, _of_files),)
VERL_PROGRAMS = (LaunchProgram("verl (python -m verl.trainer.main_ppo)", _is_mine, _of_line),)
