"""Fields of a job as they matter to its step: by path, with what is meaningless under the other fields left out.

Two jobs that run alike have the same fields here: a schedule without stages, shards of a group of one, overlap of communication
that there is none of and the like are not among them, and what follows from other fields is written out. So what arguments of a
trainer state can be held against the job that they were written for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ..cost.partition import layers_of_chunks
from ..job.job import Job
from ..job.write_job import whole_fields
from ..plan.plan import ParallelPlan
from ..workload import catalog
from ..workload.base.workload import Workload
from ..workload.transformer.shard import has_dropout
from ..workload.transformer.spec import TransformerSpec

NAMES_ALONE = ("name", "source", "left_out", "assumed")  # fields of a model without effect on its step
SAME_OPTIMIZER = {"adam": "adamw"}  # states and update alike
OF_STAGES = ("schedule", "virtual_stages", "layer_split", "overlap.pp")
OF_SHARDS = ("sharding", "dp_shard", "overlap.dp", "grad_bucket")
OF_EXPERTS = ("ep", "etp")


def node_shape(job: Job) -> tuple[int, int]:
    """Number of nodes that a job starts on, and GPUs of each; nodes of one GPU where its nodes do not divide the job."""
    size, n_devices = min(job.cluster.node_size, job.plan.n_devices), job.plan.n_devices
    per_node = size if n_devices % size == 0 else 1
    return n_devices // per_node, per_node


class UnlikeField(NamedTuple):
    """A field that two jobs do not share.

    Attributes:
        path: of the field.
        value: of the first job.
        other: of the second; None: it has no such field.
    """

    path: str
    value: Any
    other: Any


def fields_that_matter(job: Job) -> dict[str, Any]:
    """Returns the fields of model, plan, software and data by path, those that nobody stated left out."""
    return _model(job) | _plan(job) | _software(job) | {f"data.{name}": one for name, one in flat(job.plan.data)}


def unlike_fields(job: Job, other: Job) -> list[UnlikeField]:
    """Lists the fields of a job that another one does not have alike; where the first states nothing, anything is alike."""
    one, two = fields_that_matter(job), fields_that_matter(other)
    if one.get("model.position") != "learned":
        one.pop("model.max_seq_len", None)  # positions have no weights then
    filled = _plan(other, stated=False) | _software(other, stated=False)
    return [
        UnlikeField(path, value, two.get(path, filled.get(path)))
        for path, value in one.items()
        if two.get(path, filled.get(path)) != value
    ]


def preset_of(model: Workload) -> str | None:
    """Name of the preset with the fields of a model; None where there is none."""
    if not isinstance(model, TransformerSpec):
        return None
    own = _model_fields(model)
    names = (model.name, *catalog.model_names()) if model.name in catalog.model_names() else catalog.model_names()
    for name in names:
        found = catalog.workload(name)
        if isinstance(found, TransformerSpec) and found.hidden == model.hidden and _model_fields(found) == own:
            return name
    return None


def flat(value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the fields of a dataclass by path; those of None inside it are left out."""
    yield from _flat(whole_fields(value))


def _flat(values: Mapping[str, Any], front: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping) and value and all(isinstance(key, str) for key in value):
            yield from _flat(value, f"{front}{name}.")
        else:
            yield f"{front}{name}", value


def _model(job: Job) -> dict[str, Any]:
    model = job.model
    return _model_fields(model) if isinstance(model, TransformerSpec) else {"model": model.name}


def _model_fields(model: TransformerSpec) -> dict[str, Any]:
    own = dict(flat(model.with_defaults_written()))
    own |= {"dropout": has_dropout(model)}
    if model.moe is not None:
        own["moe.n_shared"] = int(model.moe.n_shared > 0)  # with the width of all of them
    if not model.qk_norm:
        own.pop("qk_norm_weight")
    return {f"model.{name}": one for name, one in own.items() if name not in NAMES_ALONE and one is not None}


def _plan(job: Job, *, stated: bool = True) -> dict[str, Any]:
    plan = job.plan
    own = dict(flat(job.stated_plan if stated else plan))
    for name in ("software", "data"):
        own = {path: one for path, one in own.items() if path.partition(".")[0] != name}
    own |= {"optimizer": SAME_OPTIMIZER.get(plan.optimizer, plan.optimizer)}
    own |= {"axis_order": [axis for axis in plan.axis_order if getattr(plan, axis) > 1]} | _sharding(plan)
    if isinstance(job.model, TransformerSpec) and job.model.moe is not None:
        own["etp"] = plan.expert_tp
    for name in _meaningless(job):
        own.pop(name, None)
    if plan.pp > 1 and isinstance(job.model, TransformerSpec):
        own["layer_split"] = [len(one) for one in layers_of_chunks(job.model.n_layers, plan)]
    return {f"plan.{name}": one for name, one in own.items() if one is not None}


def _sharding(plan: ParallelPlan) -> dict[str, Any]:
    """Sharding in its shortest form: over groups of all ranks it is fsdp, whose parameters are sharded as those of stage 3."""
    if plan.sharding == "none":
        return {"dp_shard": 0}
    if plan.dp * plan.cp == 1:
        return {"zero_stage": 0}
    in_groups = plan.sharding == "hsdp" and plan.dp_shard < plan.dp
    shard = plan.dp_shard if in_groups else 0
    return {"sharding": "hsdp" if in_groups else "fsdp", "zero_stage": 3, "dp_shard": shard}


def _meaningless(job: Job) -> Iterator[str]:
    """Yields the fields of the plan that mean nothing under the others."""
    plan, model = job.plan, job.model
    has_experts = isinstance(model, TransformerSpec) and model.moe is not None
    one_checkpoint_each = plan.recompute_method == "uniform" and plan.recompute_num_layers in (0, 1)
    without: dict[str, bool] = {
        "attention": True,  # a field of the software says it
        **dict.fromkeys(OF_STAGES, plan.pp == 1),
        **dict.fromkeys(OF_SHARDS, plan.dp * plan.cp == 1),
        **dict.fromkeys(OF_EXPERTS, not has_experts),
        "sequence_parallel": plan.tp == 1,
        "overlap.tp": plan.tp == 1 or not plan.sequence_parallel,
        "recompute_method": plan.recompute != "full",
        "recompute_num_layers": plan.recompute not in ("full", "selective_layer")
        or (plan.recompute == "full" and one_checkpoint_each),
        "recompute_modules": plan.recompute != "selective",
        "fp8_recipe": plan.dtype != "fp8",
    }
    yield from (name for name, is_without in without.items() if is_without)


def _software(job: Job, *, stated: bool = True) -> dict[str, Any]:
    open_fields = job.open_software if stated else ()
    own = dict(flat(job.plan.software)) | {"date": None}
    sure = getattr(job.model, "sure_software", {})
    return {
        f"software.{name}": one
        for name, one in own.items()
        if one not in (None, "", 0) and name not in open_fields and name not in sure
    }
