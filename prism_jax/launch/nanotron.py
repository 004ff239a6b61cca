"""Configurations of nanotron: one YAML with the model, the degrees and the tokens of a step."""

from __future__ import annotations

import re
from collections.abc import Mapping

from ..tables.document import Document
from .config_files import Carrier, ConfigFiles
from .head import Head, SaidValue
from .launch_line import LaunchLine, LaunchProgram
from .models import put_configured_model
from .said import NANOTRON
from .stated import StatedJob, dtype_of, is_true, optimizer_of, whole

DEGREES = {
    "plan.dp": "dp",
    "plan.pp": "pp",
    "plan.tp": "tp",
    "plan.cp": "context_parallel_size",
    "plan.ep": "expert_parallel_size",
}
FAMILIES = {"is_llama_config": "llama", "is_qwen2_config": "qwen2", "is_starcoder2_config": "starcoder2"}
SCHEDULES = {"1f1b": "1f1b", "afab": "gpipe"}


def is_nanotron(document: Document) -> bool:
    """Whether a document is one of nanotron."""
    model = document.data.get("model")
    return "parallelism" in document.data and (
        "tokens" in document.data or (isinstance(model, dict) and "model_config" in model)
    )


def read_nanotron(files: ConfigFiles) -> Head:
    """Head of the training that a configuration of nanotron states."""
    head = files.head(NANOTRON)
    _put(head, files.main, files.said())
    return head


def _from_line(line: LaunchLine) -> Head:
    """Head of `torchrun run_train.py --config-file config.yaml`.

    Raises:
        NoTrainingError: that file is not there.
    """
    named = line.flags["config_file"]
    found = line.follow(named.text)
    if found is None or not is_nanotron(found):
        raise line.no_training(
            f"names {line.shown(named.text)}, which is not there or none of nanotron. Import that file, or name a folder above "
            "it (--root DIR)."
        )
    head = line.head(NANOTRON)
    _put(head, found, line.values_of(found))
    return head


def _put(head: Head, document: Document, said: Mapping[str, SaidValue]) -> None:
    head.arguments |= said
    model = document.data.get("model")
    inner = model.get("model_config") if isinstance(model, dict) else None
    if isinstance(inner, dict):
        kind = next((name for flag, name in FAMILIES.items() if inner.get(flag)), "llama")
        if "num_attention_heads" in inner and "hidden_size" in inner:
            own = {"model_type": kind, **{name: value for name, value in inner.items() if name != "moe_config"}}
            own.setdefault("num_key_value_heads", own["num_attention_heads"])
            head.config = {**own, "num_key_value_heads": own["num_key_value_heads"] or own["num_attention_heads"]}
            first = head.arguments.get("model.model_config.hidden_size")
            head.facts["config_file"] = first or SaidValue("", 1, "model_config")


def nanotron_job(head: Head) -> StatedJob:
    """Fields of the job that a configuration of nanotron states.

    Raises:
        DataError: a value is no number.
    """
    job = StatedJob()
    if not put_configured_model(head, job):
        job.refused.append("the configuration holds no sizes of a model (model.model_config)")
    _experts(head, job)
    for path, name in DEGREES.items():
        job.put_whole(path, head.said(f"parallelism.{name}"))
    said, world = head.said("parallelism.dp"), head.said("world_size")
    if world is not None:
        job.put_whole("cluster.n_devices", world)
    elif said is not None:
        job.put("cluster.n_devices", job.get("plan.dp", 1) * job.model_ranks, said, why="dp x pp x tp x cp")
    if job.get("plan.ep") == 1 or job.get("model.moe.n_experts") is None:
        job.fields.pop("plan.ep", None)
    engine, mode = head.said("parallelism.pp_engine"), head.said("parallelism.tp_mode")
    if job.get("plan.pp", 1) > 1 and engine is not None:
        job.put("plan.schedule", SCHEDULES.get(engine.text.lower()), engine)
    if mode is not None and job.get("plan.tp", 1) > 1:
        job.put("plan.sequence_parallel", mode.text.upper() == "REDUCE_SCATTER", mode)
    _batch(head, job)
    _states(head, job)
    again = head.said("parallelism.recompute_layer", "parallelism.recompute_granularity")
    job.put(
        "plan.recompute", "full" if is_true(again) or (again is not None and again.text == "FULL") else "none", again
    )
    job.put("framework", "nanotron", why="who wrote the configuration")
    return job


def _experts(head: Head, job: StatedJob) -> None:
    front = "model.model_config.moe_config."
    number = head.said(f"{front}num_experts", "model.model_config.moe_num_experts")
    if (whole(number) or 1) <= 1:
        return
    top = head.said(
        f"{front}top_k", "model.model_config.num_experts_per_token", "model.model_config.num_experts_per_tok"
    )
    width = head.said(f"{front}moe_intermediate_size")
    job.put_whole("model.moe.n_experts", number)
    job.put("model.moe.top_k", whole(top, 1) or 1, top)
    job.put("model.moe.ffn_hidden", whole(width, 1) or job.get("model.ffn_hidden"), width)
    shared = head.said(f"{front}enable_shared_expert")
    if is_true(shared):
        size = head.said(f"{front}shared_expert_intermediate_size")
        job.put("model.moe.n_shared", 1, shared)
        job.put("model.moe.shared_ffn_hidden", whole(size, 1) or job.get("model.moe.ffn_hidden"), size or shared)


def _batch(head: Head, job: StatedJob) -> None:
    micro, steps = head.said("tokens.micro_batch_size"), head.said("tokens.batch_accumulation_per_replica")
    length = head.said("tokens.sequence_length")
    job.put_whole("plan.micro_batch", micro)
    job.put_whole("plan.seq_len", length)
    if micro is not None:
        each = job.get("plan.micro_batch") * (whole(steps, 1) or 1)
        job.put("plan.global_batch", each * job.get("plan.dp", 1), steps or micro)


def _states(head: Head, job: StatedJob) -> None:
    kind = head.said("model.dtype")
    job.put("plan.dtype", dtype_of(kind) or "bf16", kind)
    if kind is not None and dtype_of(kind) is None:
        job.not_modelled.append(kind)
    stage = head.said("optimizer.zero_stage")
    job.put("plan.zero_stage", whole(stage, 0, 3), stage)
    job.put_set("plan.state_dtypes.main_grads", head.said("optimizer.accumulate_grad_in_fp32"), "fp32")
    name = head.said("optimizer.optimizer_factory.name", "optimizer.name")
    job.put("plan.optimizer", optimizer_of(name) or "adamw", name)
    fused = head.said("optimizer.optimizer_factory.torch_adam_is_fused", "optimizer.torch_adam_is_fused")
    job.put_set("software.optimizer", fused, "fused")
    multiple = head.said("model.make_vocab_size_divisible_by")
    rows = job.fields.get("model.vocab")
    if rows is not None:
        step = (whole(multiple, 1) or 1) * job.get("plan.tp", 1)
        job.put("model.vocab", -(-rows.value // step) * step, *rows.said, multiple, why="padded to tp")


NANOTRON_PROGRAM = LaunchProgram(
    "nanotron (run_train.py --config-file)",
    lambda line: "config_file" in line.names and re.search(r"run_train\w*\.py|nanotron", line.text) is not None,
    _from_line,
)
NANOTRON_CARRIER = Carrier("nanotron", is_nanotron, read_nanotron)
