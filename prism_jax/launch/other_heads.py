"""Heads of logs of NeMo and LitGPT: the configuration that they print, as a job."""

from __future__ import annotations

import re
from typing import Any

from ..core.errors import FieldPath, Mark
from ..tables.document import Document
from .config_blocks import BlockOpener
from .config_files import ConfigFiles
from .head import Head, SaidValue
from .megatron import megatron_job
from .megatron_files import FAMILIES, family_head
from .models import put_head_model
from .said import Begin, LogTrainer
from .stated import StatedJob, is_true, optimizer_of, whole

NEMO = "NeMo"
FRONT = "nemo."


def nemo_job(head: Head) -> StatedJob:
    """Fields of the job that the YAML in a log of NeMo states, by the names of its configuration files.

    Raises:
        DataError: a value is no number.
    """
    data: dict[str, Any] = {}
    marks: dict[FieldPath, Mark] = {}
    for name, one in head.facts.items():
        if not name.startswith(FRONT):
            continue
        keys, inner = name.removeprefix(FRONT).split("."), data
        for key in keys[:-1]:
            below = inner.setdefault(key, {})
            inner = below if isinstance(below, dict) else inner.setdefault(f"{key}.", {})
        inner[keys[-1]] = one.text
        marks[tuple(keys)] = Mark("log", one.line, 1)
    family = next(one for one in FAMILIES if one.name == NEMO)
    own = family_head(family, ConfigFiles(Document("log", data, marks)))
    own.source, own.params, own.generation = head.source, head.params, head.generation
    own.facts = {**head.facts, **own.facts}
    return megatron_job(own)


MODEL = ("training.model_name", "training.checkpoint_dir")
SIZES = {  # of a `Config(...)` in it
    "model.n_layers": "n_layer",
    "model.hidden": "n_embd",
    "model.n_heads": "n_head",
    "model.n_kv_heads": "n_query_groups",
    "model.head_dim": "head_size",
    "model.ffn_hidden": "intermediate_size",
    "model.vocab": "padded_vocab_size",
    "model.max_seq_len": "block_size",
}
TARGETS = {
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
    _model(head, job)
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
    _adapters(head, job)
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


def _model(head: Head, job: StatedJob) -> None:
    if head.config is not None or head.said("training.n_layer") is None:
        put_head_model(head, job, *MODEL)
        return
    for path, name in SIZES.items():
        job.put_whole(path, head.said(f"training.{name}"))
    kind, norm = head.said("training.mlp_class_name"), head.said("training.norm_class_name")
    job.put("model.gated", kind is not None and kind.text in ("LLaMAMLP", "GemmaMLP", "LLaMAMoE"), kind)
    job.put("model.norm", "rms" if norm is not None and "RMS" in norm.text else "layer", norm)
    job.put("model.position", "rope", why="as LitGPT has it")
    bias = head.said("training.bias")
    job.put("model.bias", bias is None or is_true(bias), bias)


def _adapters(head: Head, job: StatedJob) -> None:
    rank = head.said("training.lora_r")
    if rank is None:
        return
    flags: dict[str, SaidValue | None] = {name: head.said(f"training.{name}") for name in TARGETS}
    targets = [one for name, modules in TARGETS.items() if is_true(flags[name]) for one in modules]
    job.put_whole("model.adapters.rank", rank)
    job.put("model.adapters.targets", targets or ["q_proj", "v_proj"], *flags.values())
    quantised = head.said("training.quantize")
    if quantised is not None and quantised.text.startswith("bnb.nf4"):
        job.put("model.adapters.quantised", "nf4", quantised)
    elif quantised is not None:
        job.not_modelled.append(quantised)


NEMO_TRAINER = LogTrainer(
    NEMO,
    nemo_job,
    (
        Begin(
            b"Experiment configuration",
            re.compile(r"\*{6} Experiment configuration"),
            NEMO,
            starts_run=True,
            overrules=True,
        ),
    ),
    blocks=(BlockOpener(re.compile(r"\*{6,40} Experiment configuration \*{6,40}"), "nemo", "yaml"),),
)
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
