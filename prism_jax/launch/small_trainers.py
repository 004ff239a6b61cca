"""MaxText, nanochat and modded-nanogpt: which fields of a job their lines are."""

from __future__ import annotations

from math import prod

from .head import Head
from .models import put_configured_model, put_named_model
from .stated import StatedJob, dtype_of, is_true, literal, whole

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
    flash = head.said("attention")
    if flash is not None and flash.text in ("dot_product",):
        job.put("software.attention", "eager", flash)
    optimizer = head.said("opt_type")
    job.put(
        "plan.optimizer",
        MAXTEXT_OPTIMIZERS.get(optimizer.text) if optimizer else "adamw",
        optimizer,
    )
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
    model = job.get("plan.tp", 1) * pp * job.get("plan.cp", 1)
    batch = max(round(share * n), 1) if n else None
    each = batch // job.get("plan.dp", 1) if batch else round(share * model)
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
    qk = head.said("use_qk_norm")
    job.put_set("model.qk_norm", qk)
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
    dp = max(n // (job.get("plan.tp", 1) * job.get("plan.pp", 1) * job.get("plan.cp", 1)), 1)
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
    for path, value in _NANOCHAT.items():
        job.put(path, value, why="model of nanochat")
    size, length = head.facts.get("device_batch"), head.facts.get("sequence_length")
    job.put_whole("plan.micro_batch", size)
    job.put_whole("plan.seq_len", length)
    own, every, total = (whole(head.facts.get(name), 1) for name in ("rank_tokens", "micro_tokens", "total_tokens"))
    if own and every:
        job.put("cluster.n_devices", every // own, head.facts.get("micro_tokens"))
        job.put("plan.dp", every // own, head.facts.get("micro_tokens"))
    if total and job.get("plan.seq_len"):
        job.put("plan.global_batch", total // job.get("plan.seq_len"), head.facts.get("total_tokens"))
    for path, value in {
        "plan.zero_stage": 2,
        "plan.dtype": "bf16",
        "plan.optimizer": "muon",
        "plan.recompute": "none",
    }.items():
        job.put(path, value, why="as nanochat trains")
    job.put("software.compile", True, why="as nanochat trains")
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
    for path, value in {**_NANOCHAT, "plan.dtype": "bf16", "plan.optimizer": "muon", "plan.recompute": "none"}.items():
        job.put(path, value, why="as modded-nanogpt trains")
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
    job.put("software.compile", True, why="as modded-nanogpt trains")
    job.put("framework", "modded-nanogpt", why="who wrote the log")
    return job
