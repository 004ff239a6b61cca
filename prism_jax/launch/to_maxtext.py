"""Configuration of MaxText for a job, as YAML over its `base.yml`: what `maxtext_job` of `small_trainers` reads.

Sizes and axes follow from the tables of the reader. An axis is cut into the part within a slice (`ici_`) and that between
slices (`dcn_`); a slice is a node of GPUs, and all of the devices where they are TPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import gcd
from typing import Any

from ..job.job import Job
from ..plan.plan import ParallelPlan
from ..tables.yaml_toml import flow
from ..workload.transformer.sizes import MLASpec, MoESpec
from ..workload.transformer.spec import TransformerSpec
from .job_fields import fields_that_matter
from .small_trainers import AXES, MAXTEXT, MAXTEXT_OPTIMIZERS, QUANTIZED, REMAT

Fields = Mapping[str, Any]
Pairs = Iterator[tuple[str, Any]]
DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
START = "Start it with: python3 -m maxtext.train maxtext.yml run_name=NAME base_output_directory=DIR dataset_path=DIR"


def maxtext_files(job: Job, comments: Sequence[str]) -> dict[str, str]:
    """Configuration of the job.

    Args:
        comments: lines above it.
    """
    lines = [*(f"# {line}" for line in (*comments, START)), "base_config: base.yml"]
    lines += [f"{name}: {flow(value)}" for name, value in _values(job)]
    return {"maxtext.yml": "\n".join(lines) + "\n"}


def _values(job: Job) -> Pairs:
    assert isinstance(job.model, TransformerSpec)
    fields, model, plan = fields_that_matter(job), job.model, job.plan
    for path, names in MAXTEXT.items():
        if fields.get(path) is not None and not (model.mla and path in ("model.head_dim", "model.n_kv_heads")):
            yield names[-1], fields[path]
    is_gpt = (model.norm, model.position, model.bias) == ("layer", "learned", True)
    yield "decoder_block", "gpt3" if is_gpt else "mixtral" if model.moe else "llama2"
    yield "mlp_activations", ["silu", "linear"] if model.gated else ["gelu"]
    yield "logits_via_embedding", model.tied_embeddings
    if model.qk_norm:
        yield "use_qk_norm", True
    if model.n_mtp:
        yield "mtp_num_layers", model.n_mtp
    yield from _experts(model.moe)
    yield from _latent(model.mla)
    yield from _batch(plan)
    yield from _mesh(job)
    yield from _kernels(fields)


def _experts(moe: MoESpec | None) -> Pairs:
    if moe is None:
        return
    yield "num_experts", moe.n_experts
    yield "num_experts_per_tok", moe.top_k
    yield "base_moe_mlp_dim", moe.ffn_hidden
    if moe.n_shared:
        yield "shared_experts", moe.n_shared
    if moe.n_dense_first:
        yield "first_num_dense_layers", moe.n_dense_first


def _latent(mla: MLASpec | None) -> Pairs:
    if mla is not None:
        yield "attention_type", "mla"
        yield from vars(mla).items()


def _batch(plan: ParallelPlan) -> Pairs:
    in_pipeline = plan.n_micro_batch if plan.pp > 1 else 1
    yield "per_device_batch_size", plan.micro_batch * in_pipeline * plan.dp / plan.n_devices
    yield "gradient_accumulation_steps", plan.n_micro_batch // in_pipeline
    if plan.pp > 1:
        yield "num_pipeline_microbatches", plan.n_micro_batch


def degrees_of(job: Job) -> dict[str, int]:
    """Degrees of MaxText's axes, from the one of neighbouring devices outwards."""
    plan, names = job.plan, {path: name for name, path in reversed(AXES.items())}
    has_experts = isinstance(job.model, TransformerSpec) and job.model.moe is not None
    group = {"none": 1, "hsdp": plan.dp_shard}.get(plan.sharding, plan.dp)
    expert = gcd(plan.ep, group) if has_experts else 1  # an axis of its own among the replicas
    return {
        names["plan.tp"]: plan.tp,
        names["plan.cp"]: plan.cp,
        names["plan.ep"]: expert,
        "fsdp": group // expert,
        "data": plan.dp // group,
        names["plan.pp"]: plan.pp,
    }


def _mesh(job: Job) -> Pairs:
    plan, degrees = job.plan, degrees_of(job)
    is_tpu = job.cluster.device.name.startswith("tpu")
    left = plan.n_devices if is_tpu else job.cluster.node_size
    inside: dict[str, int] = {}
    for name, degree in degrees.items():
        inside[name] = gcd(degree, left)
        left //= inside[name]
    yield from ((f"ici_{name}_parallelism", size) for name, size in inside.items())
    yield from ((f"dcn_{name}_parallelism", degrees[name] // size) for name, size in inside.items())


def _kernels(fields: Fields) -> Pairs:
    remat = next((name for name, kind in REMAT.items() if kind == fields["plan.recompute"]), None)
    if remat is not None:
        yield "remat_policy", remat
    dtype = fields["plan.dtype"]
    yield "dtype", DTYPES.get(dtype, "bfloat16")
    if dtype in QUANTIZED.values():
        yield "quantization", "fp8"
    if fields.get("software.attention") == "eager":
        yield "attention", "dot_product"
    kind = next((name for name, own in MAXTEXT_OPTIMIZERS.items() if own == fields["plan.optimizer"]), None)
    if kind is not None:
        yield "opt_type", kind
