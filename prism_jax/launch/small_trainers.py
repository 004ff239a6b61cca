"""MaxText, nanochat, modded-nanogpt and LitGPT: which fields of a job their lines are."""

from __future__ import annotations

import re
from math import prod

from .config_blocks import BlockOpener
from .head import Head, SaidValue
from .models import put_configured_model, put_head_model, put_named_model
from .said import Begin, LogTrainer
from .stated import StatedJob, dtype_of, is_true, literal, optimizer_of, whole

# --- MaxText ---------------------------------------------------------------------------------------------------------

MAXTEXT = {
    "model.n_layers": ("num_decoder_layers", "base_num_decoder_layers"),
    "model.hidden": ("emb_dim", "base_emb_dim"),
    "model.n_heads": ("num_query_heads", "base_num_query_heads"),
    "model.n_kv_heads": ("num_kv_heads", "base_num_kv_heads"),
    "model.head_dim": ("head_dim",),
    "model.ffn_hidden": ("mlp_dim", "base_mlp_dim"),
    "model.vocab": ("vocab_size",),
    "plan.seq_len": ("max_target_length",),
}
AXES = {
    "tensor": "plan.tp",
    "tensor_transpose": "plan.tp",
    "tensor_sequence": "plan.tp",
    "pipeline": "plan.pp",
    "stage": "plan.pp",
    "context": "plan.cp",
    "sequence": "plan.cp",
    "expert": "plan.ep",
}
REMAT = {"full": "full", "minimal": "selective_op", "none": "none", "minimal_flash": "selective_op"}
QUANTIZED = {"int8": "fp8", "fp8": "fp8", "nanoo_fp8": "fp8", "fp8_full": "fp8", "te_fp8_delayedscaling": "fp8"}

MAXTEXT_OPTIMIZERS = {"adamw": "adamw", "adam_pax": "adam", "sgd": "sgd", "muon": "muon"}


def maxtext_job(head: Head) -> StatedJob:
    """Fields of the job that a head of MaxText states.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    named = head.said("model_name")
    if head.config is not None:
        put_configured_model(head, job)
    elif named is not None and named.text != "default":
        put_named_model(job, named.text, named)
    for path, names in MAXTEXT.items():
        said = head.said(*names)
        is_latent = job.get("model.mla.kv_lora_rank") is not None
        if said is not None and not (is_latent and path in ("model.n_kv_heads", "model.head_dim")):
            job.put_whole(path, said)
    if named is not None and job.get("model.n_layers") is None and named.text != "default":
        job.refused.append(
            f"line {named.line}: model_name = {named.text[:60]} is not known here; --model config.json gives it"
        )
    _maxtext_model(head, job)
    _maxtext_mesh(head, job)
    _maxtext_batch(head, job)
    _maxtext_precision(head, job)
    flash, optimizer = head.said("attention"), head.said("opt_type")
    job.put("software.attention", "eager" if flash is not None and flash.text == "dot_product" else None, flash)
    job.put("plan.optimizer", MAXTEXT_OPTIMIZERS.get(optimizer.text) if optimizer else "adamw", optimizer)
    job.put("framework", "maxtext", why=f"who wrote the {head.source}")
    return job


def _maxtext_batch(head: Head, job: StatedJob) -> None:
    size, parts = head.said("per_device_batch_size"), head.said("num_pipeline_microbatches")
    share = literal(size.text) if size is not None else None
    n, pp = job.get("cluster.n_devices"), job.get("plan.pp", 1)
    steps = whole(head.said("gradient_accumulation_steps"), 1) or 1
    if not isinstance(share, (int, float)):
        return
    n_micro = max(whole(parts, -1) or 1, pp) if pp > 1 else 1  # at least one per stage
    batch = max(round(share * n), 1) if n else None
    each = batch // job.get("plan.dp", 1) if batch else round(share * job.model_ranks)
    job.put("plan.micro_batch", max(each // n_micro, 1), size)
    job.put("plan.global_batch", batch * steps if batch else None, size)


def _maxtext_precision(head: Head, job: StatedJob) -> None:
    remat, kind, low = head.said("remat_policy"), head.said("dtype"), head.said("quantization")
    job.put("plan.recompute", REMAT.get(remat.text, "selective_op") if remat is not None else None, remat)
    if remat is not None and ("offload" in remat.text or remat.text == "custom"):
        job.not_modelled.append(remat)
    job.put("plan.dtype", dtype_of(kind) or "bf16", kind)
    if low is not None and low.text in QUANTIZED:
        job.put("plan.dtype", QUANTIZED[low.text], low)
        if "int8" in low.text:
            job.assumed.append("products in int8 at the rate of fp8")
    elif low is not None:
        job.not_modelled.append(low)


def _maxtext_model(head: Head, job: StatedJob) -> None:
    gates, block = head.said("mlp_activations"), head.said("decoder_block")
    is_gpt = block is not None and block.text == "gpt3"
    gated = gates is not None and isinstance(found := literal(gates.text), list) and len(found) > 1
    if job.get("model.gated") is None:
        job.put("model.gated", gated, gates)
    if job.get("model.norm") is None:
        job.put("model.norm", "layer" if is_gpt else "rms", block or head.said("normalization_layer_epsilon"))
        job.put("model.position", "learned" if is_gpt else "rope", block)
        job.put("model.bias", is_gpt, block)
    tied = head.said("logits_via_embedding")
    if tied is not None:
        job.put("model.tied_embeddings", is_true(tied), tied)
    job.put_set("model.qk_norm", head.said("use_qk_norm"))
    experts, top = head.said("num_experts"), head.said("num_experts_per_tok")
    if (whole(experts) or 1) > 1 and job.get("model.moe.n_experts") is None:
        job.put_whole("model.moe.n_experts", experts, least=0)
        job.put("model.moe.top_k", whole(top, 1) or 1, top)
        width = head.said("base_moe_mlp_dim", "moe_mlp_dim")
        has_width = width is not None and literal(width.text) != -1
        job.put("model.moe.ffn_hidden", whole(width, 1) if has_width else job.get("model.ffn_hidden"), width)
        shared, dense = head.said("shared_experts"), head.said("first_num_dense_layers")
        job.put("model.moe.n_shared", whole(shared) or None, shared)
        job.put("model.moe.n_dense_first", whole(dense) or None, dense)
    _maxtext_attention(head, job)


def _maxtext_attention(head: Head, job: StatedJob) -> None:
    """Latent attention, and windows of the kinds of Gemma."""
    kind, block, window = head.said("attention_type"), head.said("decoder_block"), head.said("sliding_window_size")
    if kind is not None and kind.text == "mla" and job.get("model.mla.kv_lora_rank") is None:
        for name in ("q_lora_rank", "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim"):
            job.put_whole(f"model.mla.{name}", head.said(name), least=0)
        for path in ("model.head_dim", "model.n_kv_heads"):
            job.fields.pop(path, None)
    patterns = {"gemma2": ["sliding", "full"], "gemma3": [*["sliding"] * 5, "full"]}
    if (
        block is not None
        and block.text in patterns
        and (size := whole(window))
        and job.get("model.window.size") is None
    ):
        job.put("model.window.size", size, window)
        job.put("model.window.pattern", patterns[block.text], block)
    mtp = head.said("mtp_num_layers")
    job.put("model.n_mtp", whole(mtp) or None, mtp)


def _maxtext_degrees(head: Head) -> tuple[dict[str, int], str]:
    """Degrees of the axes within and between slices together, and the one that takes what is left."""
    degrees: dict[str, int] = {}
    open_axis = ""
    for front in ("ici", "dcn"):
        for name in ("data", "fsdp", "fsdp_transpose", *AXES, "autoregressive"):
            said = head.said(f"{front}_{name}_parallelism")
            size = literal(said.text) if said is not None else 1
            if size == -1 and open_axis:  # between slices: one, unless it is said how many there are
                slices = head.said("num_slices")
                n = literal(slices.text) if slices is not None else 1
                degrees[name] = degrees.get(name, 1) * (n if isinstance(n, int) and n > 0 else 1)
            elif size == -1:
                open_axis = name
            elif isinstance(size, int):
                degrees[name] = degrees.get(name, 1) * size
    return degrees, open_axis


def _maxtext_mesh(head: Head, job: StatedJob) -> None:
    devices = head.said("num_devices")
    degrees, open_axis = _maxtext_degrees(head)
    n = whole(devices, 1)
    known = prod(degrees.values())
    if open_axis and n:
        degrees[open_axis] = degrees.get(open_axis, 1) * max(n // known, 1)
    if not open_axis or head.source == "log":  # else it is asked for
        n = n or prod(degrees.values())
    job.put("cluster.n_devices", n, devices)
    for name, path in AXES.items():
        if degrees.get(name, 1) > 1:
            job.put(path, job.get(path, 1) * degrees[name], head.arguments.get(f"ici_{name}_parallelism"))
    shard = degrees.get("fsdp", 1) * degrees.get("fsdp_transpose", 1)
    replicate = degrees.get("data", 1)
    if job.get("plan.ep"):
        shard *= job.get("plan.ep")
    if n is None:
        return
    dp = max(n // job.model_ranks, 1)
    said = head.arguments.get("ici_fsdp_parallelism") or devices
    job.put("plan.dp", dp, said)
    if shard > 1:
        job.put("plan.sharding", "hsdp" if replicate > 1 else "fsdp", said)
        job.put("plan.zero_stage", 3, said)
        job.put("plan.dp_shard", dp // replicate if replicate > 1 else None, said)


# --- nanochat --------------------------------------------------------------------------------------------------------


def nanochat_job(head: Head) -> StatedJob:
    """Fields of the job that a head of nanochat states: its model follows from the sizes that it prints.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    for path, names in _NANOCHAT_NAMES.items():
        job.put_whole(path, head.said(*names))
    if job.get("model.hidden"):
        job.put("model.ffn_hidden", 4 * job.get("model.hidden"), why="four times the hidden size")
    job.put_usual(_NANOCHAT, "model of nanochat")
    job.put_whole("plan.micro_batch", head.facts.get("device_batch"))
    job.put_whole("plan.seq_len", head.facts.get("sequence_length"))
    own, every, total = (whole(head.facts.get(name), 1) for name in ("rank_tokens", "micro_tokens", "total_tokens"))
    if own and every:
        job.put("cluster.n_devices", every // own, head.facts.get("micro_tokens"))
        job.put("plan.dp", every // own, head.facts.get("micro_tokens"))
    if total and job.get("plan.seq_len"):
        job.put("plan.global_batch", total // job.get("plan.seq_len"), head.facts.get("total_tokens"))
    job.put_usual({"plan.zero_stage": 2, **_TRAINING}, "as nanochat trains")
    job.put("framework", "nanochat", why="who wrote the log")
    return job


_NANOCHAT_NAMES = {
    "model.n_layers": ("num_layers", "config.n_layer"),
    "model.hidden": ("model_dim", "config.n_embd"),
    "model.n_heads": ("num_heads", "config.n_head"),
    "model.n_kv_heads": ("num_kv_heads", "config.n_kv_head"),
    "model.vocab": ("vocab_size", "config.vocab_size"),
}
_NANOCHAT = {
    "model.gated": False,
    "model.norm": "rms",
    "model.position": "rope",
    "model.tied_embeddings": False,
    "model.bias": False,
    "model.qk_norm": True,
    "model.qk_norm_weight": "none",
}
_TRAINING = {"plan.dtype": "bf16", "plan.optimizer": "muon", "plan.recompute": "none", "software.compile": True}


# --- modded-nanogpt --------------------------------------------------------------------------------------------------


def modded_job(head: Head) -> StatedJob:
    """Fields of the job that a log of modded-nanogpt states; its sizes are in the code that it may begin with.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    names = {
        "model.n_layers": "num_layers",
        "model.n_heads": "num_heads",
        "model.hidden": "model_dim",
        "model.vocab": "vocab_size",
    }
    for path, name in names.items():
        job.put_whole(path, head.facts.get(f"gpt.{name}"))
    if job.get("model.hidden") is None:
        job.refused.append("the log does not hold the sizes of its model (they are in the code above it)")
    else:
        job.put("model.ffn_hidden", 4 * job.get("model.hidden"), why="four times the hidden size")
    job.put_usual({**_NANOCHAT, **_TRAINING}, "as modded-nanogpt trains")
    index = head.most.get("most_gpu_index")
    if index is not None:
        n = int(index) + 1
        for path in ("cluster.n_devices", "plan.dp"):
            job.put(path, n, head.facts.get("gpu"), why="GPUs that nvidia-smi lists")
        job.put("plan.micro_batch", 1, why="one long sequence per GPU")
        job.put("plan.global_batch", n, why="one long sequence per GPU")
    length = head.facts.get("gpt.train_seq_len")
    if length is not None:
        job.put("plan.seq_len", prod(int(one) for one in length.text.split("*")), length)
    job.put("framework", "modded-nanogpt", why="who wrote the log")
    return job


# --- LitGPT ----------------------------------------------------------------------------------------------------------

LITGPT_MODEL = ("training.model_name", "training.checkpoint_dir")
LITGPT_SIZES = {  # of a `Config(...)` in it
    "model.n_layers": "n_layer",
    "model.hidden": "n_embd",
    "model.n_heads": "n_head",
    "model.n_kv_heads": "n_query_groups",
    "model.head_dim": "head_size",
    "model.ffn_hidden": "intermediate_size",
    "model.vocab": "padded_vocab_size",
    "model.max_seq_len": "block_size",
}
LITGPT_TARGETS = {
    "lora_query": ["q_proj"],
    "lora_key": ["k_proj"],
    "lora_value": ["v_proj"],
    "lora_projection": ["o_proj"],
    "lora_mlp": ["gate_proj", "up_proj", "down_proj"],
}


def litgpt_job(head: Head) -> StatedJob:
    """Fields of the job that the arguments in a log of LitGPT state.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    _litgpt_model(head, job)
    each, nodes = head.said("training.devices"), head.said("training.num_nodes")
    n = (whole(each, 1) or 1) * (whole(nodes, 1) or 1) if each is not None else None
    job.put("cluster.n_devices", n, each, nodes)
    job.put("plan.dp", n, each, nodes)
    for path, name in (("plan.micro_batch", "micro_batch_size"), ("plan.global_batch", "global_batch_size")):
        job.put_whole(path, head.said(f"training.{name}"))
    length = head.said("training.max_seq_length")
    positions = job.get("model.max_seq_len")
    job.put(
        "plan.seq_len",
        whole(length, 1) or positions,
        length,
        why="" if length else "as many as the model has positions",
    )
    precision = head.said("training.precision")
    text = precision.text if precision is not None else "bf16-true"
    job.put("plan.dtype", "bf16" if text.startswith("bf16") else "fp16" if text.startswith("16") else "fp32", precision)
    if text.endswith("-true") and not text.startswith("32"):
        job.put("plan.state_dtypes.main_params", "none", precision)
    _litgpt_adapters(head, job)
    if (n or 1) > 1:  # its strategy of several GPUs
        job.put("plan.sharding", "fsdp", each)
        job.put("plan.zero_stage", 3, each)
    several = (n or 1) > 1
    job.put(
        "plan.recompute", "full" if several else "none", each, why="its strategy of several GPUs" if several else ""
    )
    name = head.said("training.optimizer", "training.class_path")
    job.put("plan.optimizer", optimizer_of(name) or "adamw", name)
    job.put("software.compile", True if head.said("training.initial_checkpoint_dir", "training.model_name") else None)
    job.put("framework", "litgpt", why="who wrote the log")
    return job


def _litgpt_model(head: Head, job: StatedJob) -> None:
    if head.config is not None or head.said("training.n_layer") is None:
        put_head_model(head, job, *LITGPT_MODEL)
        return
    for path, name in LITGPT_SIZES.items():
        job.put_whole(path, head.said(f"training.{name}"))
    kind, norm = head.said("training.mlp_class_name"), head.said("training.norm_class_name")
    job.put("model.gated", kind is not None and kind.text in ("LLaMAMLP", "GemmaMLP", "LLaMAMoE"), kind)
    job.put("model.norm", "rms" if norm is not None and "RMS" in norm.text else "layer", norm)
    job.put("model.position", "rope", why="as LitGPT has it")
    bias = head.said("training.bias")
    job.put("model.bias", bias is None or is_true(bias), bias)


def _litgpt_adapters(head: Head, job: StatedJob) -> None:
    rank = head.said("training.lora_r")
    if rank is None:
        return
    flags: dict[str, SaidValue | None] = {name: head.said(f"training.{name}") for name in LITGPT_TARGETS}
    targets = [one for name, modules in LITGPT_TARGETS.items() if is_true(flags[name]) for one in modules]
    job.put_whole("model.adapters.rank", rank)
    job.put("model.adapters.targets", targets or ["q_proj", "v_proj"], *flags.values())
    quantised = head.said("training.quantize")
    if quantised is not None and quantised.text.startswith("bnb.nf4"):
        job.put("model.adapters.quantised", "nf4", quantised)
    elif quantised is not None:
        job.not_modelled.append(quantised)


LITGPT = "LitGPT"
LITGPT_TRAINER = LogTrainer(
    LITGPT,
    litgpt_job,
    (Begin(b"TrainArgs(", re.compile(r"'train': TrainArgs\("), LITGPT, overrules=True),),
    blocks=(
        BlockOpener(
            re.compile(r"^\{'(?:access_token|checkpoint_dir|data|model_name)': "), "litgpt", "mixed", "training"
        ),
    ),
)
