"""DeepSpeed for a job: its JSON, and a command line of a script that uses the Trainer of Hugging Face: what `hugging_face` reads.

The model is named by its preset; a script of yours finds it under that name, or takes a path in its place.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..job.job import Job
from .job_fields import fields_that_matter, node_shape, preset_of

Fields = Mapping[str, Any]
CONFIG = "ds_config.json"
ATTENTION = {"eager": "eager", "flash2": "flash_attention_2", "flash3": "flash_attention_3"}
OPTIMIZERS = {
    "adamw": "adamw_torch",
    "sgd": "sgd",
    "lion": "lion_32bit",
    "adafactor": "adafactor",
    "adagrad": "adagrad",
}
SCRIPT = """\
#!/bin/bash
{comments}
# train.py stands for a script of yours that uses the Trainer of Hugging Face; data and learning rates are yours, too.
deepspeed --num_nodes {nodes} --num_gpus {per_node} train.py \\
{arguments} \\
    "$@"
"""


def deepspeed_files(job: Job, comments: Sequence[str]) -> dict[str, str]:
    """Script that starts the job, and the configuration that it names.

    Args:
        comments: lines above its arguments.
    """
    fields, (nodes, per_node) = fields_that_matter(job), node_shape(job)
    words = [f"    --{name} {shlex.quote(str(value))}" for name, value in _arguments(job, fields)]
    text = SCRIPT.format(
        comments="\n".join(f"# {line}" for line in comments),
        nodes=nodes,
        per_node=per_node,
        arguments=" \\\n".join(words),
    )
    return {"deepspeed.sh": text, CONFIG: json.dumps(_config(job, fields), indent=2) + "\n"}


def _arguments(job: Job, fields: Fields) -> Iterator[tuple[str, Any]]:
    plan, dtype = job.plan, fields["plan.dtype"]
    yield "deepspeed", CONFIG
    name = preset_of(job.model)
    if name is not None:
        yield "model_name_or_path", name
    yield "per_device_train_batch_size", plan.micro_batch
    yield "gradient_accumulation_steps", plan.n_micro_batch
    yield "max_seq_length", plan.seq_len
    yield "bf16", dtype == "bf16"
    yield "fp16", dtype == "fp16"
    yield "gradient_checkpointing", fields["plan.recompute"] == "full"
    if fields["plan.optimizer"] in OPTIMIZERS:
        yield "optim", OPTIMIZERS[fields["plan.optimizer"]] + ("_fused" * _is_fused(fields))
    if fields.get("software.compile"):
        yield "torch_compile", True
    attention = ATTENTION.get(fields.get("software.attention", ""))
    if attention is not None:
        yield "attn_implementation", attention


def _is_fused(fields: Fields) -> bool:
    return fields["plan.optimizer"] == "adamw" and fields.get("software.optimizer") == "fused"


def _config(job: Job, fields: Fields) -> dict[str, Any]:
    plan, dtype = job.plan, fields["plan.dtype"]
    zero: dict[str, Any] = {"stage": plan.zero_stage if plan.sharding == "none" else 3}
    if "plan.overlap.dp" in fields:
        zero["overlap_comm"] = fields["plan.overlap.dp"]
    if fields.get("plan.offload_optimizer") == 1.0:
        zero["offload_optimizer"] = {"device": "cpu"}
    if fields.get("plan.offload_parameters"):
        zero["offload_param"] = {"device": "cpu"}
    config: dict[str, Any] = {
        "train_batch_size": plan.global_batch,
        "train_micro_batch_size_per_gpu": plan.micro_batch,
        "gradient_accumulation_steps": plan.n_micro_batch,
        "bf16": {"enabled": dtype == "bf16"},
        "fp16": {"enabled": dtype == "fp16"},
        "zero_optimization": zero,
    }
    return config | ({"tensor_parallel": {"autotp_size": plan.tp}} if plan.tp > 1 else {})
