"""torchtitan: which fields of a job its sentences and its command line are.

Versions of 2024 to 2026: meshes with names and sizes, or with degrees; a model with its arguments, as JSON, or by its name alone.
"""

from __future__ import annotations

from typing import Any

from .head import Head, SaidValue
from .models import put_configured_model, put_named_model
from .stated import StatedJob, is_true, literal, whole

DEGREES = {"tp": "plan.tp", "pp": "plan.pp", "cp": "plan.cp", "ep": "plan.ep", "etp": "plan.etp"}
ARGUMENTS = {
    "dim": "model.hidden",
    "n_layers": "model.n_layers",
    "n_heads": "model.n_heads",
    "n_kv_heads": "model.n_kv_heads",
    "vocab_size": "model.vocab",
    "hidden_dim": "model.ffn_hidden",
    "head_dim": "model.head_dim",
    "max_seq_len": "model.max_seq_len",
    "enable_weight_tying": "model.tied_embeddings",
    "qk_norm": "model.qk_norm",
    "hidden_size": "model.hidden",
    "num_hidden_layers": "model.n_layers",
    "num_attention_heads": "model.n_heads",
    "num_key_value_heads": "model.n_kv_heads",
    "num_heads": "model.n_heads",
    "num_kv_heads": "model.n_kv_heads",
    "intermediate_size": "model.ffn_hidden",
}
SCHEDULES = {"1F1B": "1f1b", "GPipe": "gpipe", "Interleaved1F1B": "interleaved", "ZBVZeroBubble": "zb_v"}


def torchtitan_job(head: Head) -> StatedJob:
    """Fields of the job that a head of torchtitan states.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    _mesh(head, job)
    _batch(head, job)
    _model(head, job)
    _kernels(head, job)
    job.put("framework", "torchtitan", why=f"who wrote the {head.source}")
    job.put("plan.optimizer", "adamw", head.said("flag.optimizer.name"), why="default of torchtitan")
    job.put("software.optimizer", "fused", why="default of torchtitan")
    return job


def _mesh(head: Head, job: StatedJob) -> None:
    found: dict[str, SaidValue] = {name[5:]: one for name, one in head.facts.items() if name.startswith("mesh_")}
    names, sizes = found.pop("names", None), found.pop("sizes", None)
    if names is not None and sizes is not None:
        each = zip(names.text.replace("'", "").split(","), sizes.text.split(","), strict=False)
        found |= {name.strip(): SaidValue(size.strip(), names.line, "device mesh") for name, size in each}
    degrees = {
        name: whole(one, 1) or 1
        for name, one in found.items()
        if one.text.isascii() and one.text.isdecimal() and int(one.text) > 0
    }
    for name, path in DEGREES.items():
        job.put(path, degrees.get(name), found.get(name))
    shard, replicate = degrees.get("dp_shard", 1), degrees.get("dp_replicate", 1)
    if "dp" in degrees and "dp_shard" not in degrees:
        shard = degrees["dp"]
    said = found.get("dp_shard") or found.get("dp")
    if said is not None and said.text == "-1" and head.source != "log":
        job.put("plan.sharding", "hsdp" if replicate > 1 else "fsdp", said)
        _pipeline(head, job, found, degrees)
        return  # how many GPUs there are is asked for
    job.put("plan.dp", shard * replicate, said)
    n_devices = shard * replicate
    for name in ("tp", "pp", "cp"):
        n_devices *= degrees.get(name, 1)
    job.put("cluster.n_devices", n_devices, said)
    if job.get("plan.ep") == 1:
        for path in ("plan.ep", "plan.etp"):
            job.fields.pop(path, None)
    if shard * degrees.get("cp", 1) > 1:
        job.put("plan.sharding", "hsdp" if replicate > 1 else "fsdp", said)
        keeps = head.said("flag.parallelism.fsdp_reshard_after_forward")
        is_kept = keeps is not None and (
            keeps.text == "never" or (keeps.text == "default" and degrees.get("pp", 1) > 1)
        )
        job.put("plan.zero_stage", 2 if is_kept else 3, keeps if is_kept else said)
        job.put("plan.dp_shard", shard if replicate > 1 else None, said)
    _pipeline(head, job, found, degrees)


def _pipeline(head: Head, job: StatedJob, found: dict[str, SaidValue], degrees: dict[str, int]) -> None:
    job.put("plan.sequence_parallel", True if degrees.get("tp", 1) > 1 else None, found.get("tp"))
    schedule = head.said("pp_schedule", "flag.parallelism.pipeline_parallel_schedule")
    if degrees.get("pp", 1) > 1 and schedule is not None:
        job.put("plan.schedule", SCHEDULES.get(schedule.text), schedule)
        job.put("plan.virtual_stages", 2 if schedule.text in ("Interleaved1F1B", "ZBVZeroBubble") else None, schedule)


def _batch(head: Head, job: StatedJob) -> None:
    local, total, length = (head.said(name) for name in ("local_batch_size", "global_batch_size", "sequence_length"))
    local = local or head.said("flag.training.local_batch_size", "flag.training.batch_size")
    length = length or head.said("flag.training.seq_len")
    steps, dp = whole(head.said("grad_accum"), 1) or 1, job.get("plan.dp", 1)
    job.put_whole("plan.seq_len", length)
    size = whole(local, 1)
    if size and job.get("plan.pp", 1) > 1:  # a local batch is cut into one micro-batch per stage, unless it is said
        said = head.said("flag.parallelism.pipeline_parallel_microbatch_size")
        parts = head.said("flag.experimental.pipeline_parallel_microbatches")
        old = parts is not None or (
            head.source != "log" and head.said("flag.training.batch_size") is not None and said is None
        )
        each = max(size // (whole(parts, 1) or job.get("plan.pp")), 1) if old else whole(said, 1) or 1
        job.put("plan.micro_batch", each, said or parts or local)
    else:
        job.put("plan.micro_batch", size, local)
    if total is not None:
        job.put_whole("plan.global_batch", total)
    elif size and (head.source == "log" or job.get("cluster.n_devices")):
        job.put("plan.global_batch", size * dp * steps, local)


def _model(head: Head, job: StatedJob) -> None:
    family, flavor = head.said("family"), head.said("flavor")
    if head.config is not None and put_configured_model(head, job):
        return
    if family is None:
        return
    name = f"{family.text}-{flavor.text}" if flavor is not None else family.text
    named = put_named_model(job, name, family)
    for key, path in ARGUMENTS.items():
        value = head.facts.get(f"model_args.{key}")
        plain = None if value is None else literal(value.text)
        if plain is not None and not (isinstance(plain, int) and plain < 0):
            job.put(path, plain, value)
            named = True
    if head.facts.get("model_args.dim") is not None:
        _llama_width(head, job)
    if not named or job.get("model.n_layers") is None:
        job.refused.append(
            f"line {family.line}: the {head.source} names its model {name[:80]!r} alone, which is not known here"
        )


def _llama_width(head: Head, job: StatedJob) -> None:
    """Width of the MLP of models of the Llama kind, from a multiple and a factor."""
    if head.facts.get("model_args.hidden_dim") is not None or job.get("model.moe.n_experts"):
        return
    multiple, factor = head.facts.get("model_args.multiple_of"), head.facts.get("model_args.ffn_dim_multiplier")
    if multiple is None:
        return
    wide = int(2 * 4 * job.get("model.hidden") / 3)
    times: Any = literal(factor.text) if factor is not None else None
    wide = int(times * wide) if isinstance(times, (int, float)) else wide
    step = whole(multiple, 1) or 1
    job.put("model.ffn_hidden", step * -(-wide // step), multiple, factor)


def _kernels(head: Head, job: StatedJob) -> None:
    mode = head.said("ac_mode")
    kinds = {"full": "full", "selective": "selective_op", "none": "none"}
    job.put(
        "plan.recompute",
        kinds.get(mode.text.lower(), "none") if mode is not None else "none",
        mode,
        why="" if mode else "none was applied",
    )
    _every_nth(head, job, mode)
    job.put_set("plan.optimizer_in_backward", head.said("flag.optimizer.early_step_in_backward"))
    mixed = head.said("flag.training.mixed_precision_param")
    is_wide = mixed is not None and mixed.text == "float32"
    job.put("plan.dtype", "fp32" if is_wide else "bf16", mixed, why="default of torchtitan")
    offload = head.said("flag.training.enable_cpu_offload")
    job.put("plan.offload_parameters", True if is_true(offload) else None, offload)
    job.put_set("software.compile", head.said("flag.training.compile", "flag.compile.enable"))
    low = head.said("float8")
    if low is not None:
        job.put("plan.dtype", "mxfp8" if "MXFP8" in low.text else "fp8", low)
    own = head.said("flag.training.dtype")
    if own is not None and own.text in ("bfloat16", "bf16"):
        job.put("plan.state_dtypes.main_params", "none", own)
    compiled = head.said("compiled")
    job.put("software.compile", compiled is not None, compiled)
    loss = head.said("compiled_loss")
    job.put("software.cross_entropy", "compiled" if loss is not None else None, loss)
    overlap = head.said("async_tp")
    job.put("plan.overlap.tp", True if overlap is not None else None, overlap)


def _every_nth(head: Head, job: StatedJob, mode: SaidValue | None) -> None:
    """Recomputation of every second layer, or every n-th, in full."""
    option = head.said("flag.activation_checkpoint.selective_ac_option")
    if mode is None or mode.text.lower() != "selective" or option is None or not option.text.isdecimal():
        return
    layers, every = job.get("model.n_layers", 0) // job.get("plan.pp", 1), max(int(option.text), 1)
    job.put("plan.recompute", "full", mode, option)
    if every > 1 and layers:
        job.put("plan.recompute_method", "block", option)
        job.put("plan.recompute_num_layers", -(-layers // every), option)
