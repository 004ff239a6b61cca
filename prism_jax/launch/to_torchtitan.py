"""Configuration of torchtitan for a job, as TOML: what `torchtitan` reads.

torchtitan takes models by a name and a flavour, so that a model with other sizes has to be added there; its sizes then stand in
the comments. Degrees and schedules follow from the tables of the readers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..job.job import Job
from ..plan.plan import ParallelPlan
from .job_fields import fields_that_matter, preset_of
from .models import model_of_name
from .torchtitan import ARGUMENTS, DEGREES, FLAVORS, SCHEDULES

Fields = Mapping[str, Any]
Values = Iterator[tuple[str, Any]]  # dotted name and value
MODELS = {
    "llama3": ("8B", "70B", "405B"),
    "qwen3": ("0.6B", "1.7B", "4B", "8B", "14B", "32B", "30B-A3B", "235B-A22B"),
    "gpt_oss": ("20B", "120B"),
}  # name of torchtitan -> flavours; `FLAVORS` has those whose names mean other presets
REMAT = {"full": "full", "selective_op": "selective", "none": "none"}
START = "Start it with: NGPU={per_node} CONFIG_FILE=./torchtitan.toml ./run_train.sh"


def torchtitan_files(job: Job, comments: Sequence[str]) -> dict[str, str]:
    """Configuration of the job.

    Args:
        comments: lines above it.
    """
    sections: dict[str, list[str]] = {}
    for name, value in _values(job):
        section, _, key = name.partition(".")
        sections.setdefault(section, []).append(f"{key} = {json.dumps(value)}")
    own = [*comments, START.format(per_node=min(job.cluster.node_size, job.plan.n_devices)), *_sizes(job)]
    lines = [f"# {line}" for line in own]
    for section, values in sections.items():
        lines += ["", f"[{section}]", *values]
    return {"torchtitan.toml": "\n".join(lines) + "\n"}


def named_model(job: Job) -> tuple[str, str] | None:
    """Name and flavour under which torchtitan has the model of a job; None where it has none."""
    preset = preset_of(job.model)
    if preset is None:
        return None
    for text, own in FLAVORS.items():
        if own == preset:
            name, _, flavor = text.partition("-")
            return name, flavor.upper() if name.startswith("deepseek") else flavor
    pairs = ((name, flavor) for name, flavors in MODELS.items() for flavor in flavors)
    return next(((name, flavor) for name, flavor in pairs if model_of_name(f"{name}-{flavor}") == preset), None)


def _sizes(job: Job) -> list[str]:
    """Sizes of a model that torchtitan does not have by name, as its arguments."""
    if named_model(job) is not None:
        return []
    fields = fields_that_matter(job)
    own = {path: name for name, path in reversed(ARGUMENTS.items())}
    pairs = ", ".join(f"{name}={fields[path]}" for path, name in own.items() if path in fields)
    return [f"Add its model to torchtitan under a flavour of your own: {pairs}"]


def _values(job: Job) -> Values:
    fields, plan, named = fields_that_matter(job), job.plan, named_model(job)
    if named is not None:
        yield "model.name", named[0]
        yield "model.flavor", named[1]
    low = {"fp8": "float8", "mxfp8": "mx"}.get(fields["plan.dtype"])
    if low is not None:
        yield "model.converters", [low]
    yield "training.local_batch_size", plan.micro_batch * (plan.n_micro_batch if plan.pp > 1 else 1)
    yield "training.global_batch_size", plan.global_batch
    yield "training.seq_len", plan.seq_len
    if fields["plan.dtype"] == "fp32":
        yield "training.mixed_precision_param", "float32"
    if fields.get("plan.state_dtypes.main_params") == "none":
        yield "training.dtype", "bfloat16"
    if fields.get("plan.offload_parameters") and plan.shard_group > 1:
        yield "training.enable_cpu_offload", True
    yield from _degrees(plan, fields)
    yield "activation_checkpoint.mode", REMAT.get(fields["plan.recompute"], "none")
    if fields["plan.recompute"] == "selective_op":
        yield "activation_checkpoint.selective_ac_option", "op"
    if fields.get("software.compile") is not None:
        yield "compile.enable", fields["software.compile"]


def _degrees(plan: ParallelPlan, fields: Fields) -> Values:
    shard = 1 if plan.sharding == "none" else plan.dp_shard if plan.sharding == "hsdp" else plan.dp
    degrees = {"dp_replicate": plan.dp // shard, "dp_shard": shard, "tp": plan.tp, "pp": plan.pp, "cp": plan.cp}
    if "plan.ep" in fields:
        degrees |= {"ep": plan.ep, "etp": plan.expert_tp} if plan.ep > 1 else {}
    yield from ((DEGREES[name][0], size) for name, size in degrees.items())
    if plan.pp > 1:
        kind = next((name for name, own in SCHEDULES.items() if own == plan.schedule_name), None)
        if kind is not None:
            yield "parallelism.pipeline_parallel_schedule", kind
        yield "parallelism.pipeline_parallel_microbatch_size", plan.micro_batch
    if fields.get("plan.overlap.tp"):
        yield "parallelism.enable_async_tensor_parallel", True
