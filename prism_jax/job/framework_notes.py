"""Notes of a job's framework on its plan: assumed values, features that it lacks, and splits that do not come out even.

These are no mistakes of a plan: forks and flags exist, and the cost of the plan as written is what was asked for. They are said.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..cost.partition import layers_of_chunks
from ..plan.plan import ParallelPlan
from ..workload.base.workload import n_body
from .job import Job


def framework_notes(job: Job) -> tuple[str, ...]:
    """Sentences about a job's framework and plan."""
    return (*_taken_for(job), *_beyond(job), *_uneven(job), *_without_effect(job))


def _taken_for(job: Job) -> Iterator[str]:
    own = job.software
    if job.called:
        yield f"assumed framework: {own.name}, which {job.called} runs on ({own.about})"


def _beyond(job: Job) -> Iterator[str]:
    """Yields the settings of the plan that the framework does not have."""
    own, plan = job.software, job.plan
    can, source = own.capabilities, f" ({own.capabilities.source})" if own.capabilities.source else ""
    sharded = plan.sharding != "none"
    checks = (
        ("schedule", plan.schedule, can.schedules if plan.pp > 1 else None),
        ("zero_stage", plan.zero_stage, None if sharded else can.zero_stages),
        ("sharding", plan.sharding, can.sharding if sharded else None),
        ("recompute", plan.recompute, can.recompute),
    )
    for name, value, known in checks:
        if known is not None and value not in known:
            has = f"has {', '.join(map(str, known))}" if known else "has no pipelines"
            yield f"{name} = {value}, but framework {own.name} {has}{source}. It is costed as written."
    for name, most in (("tp", can.max_tp), ("cp", can.max_cp)):
        if most is not None and getattr(plan, name) > most:
            yield f"{name} = {getattr(plan, name)}, but framework {own.name} has at most {most}{source}. It is costed as written."
    if plan.sequence_parallel and plan.tp > 1 and not can.sequence_parallel:
        yield f"framework {own.name} has no sequence parallelism{source}. It is costed as written."


def _uneven(job: Job) -> Iterator[str]:
    """Layers that pipeline stages do not divide, and heads that tensor parallelism does not."""
    plan, n_layers = job.plan, n_body(job.model)
    if plan.pp > 1 and n_layers % plan.n_chunk and not plan.layer_split:
        sizes = sorted({len(chunk) for chunk in layers_of_chunks(n_layers, plan)})
        chunks = f"pp x virtual_stages = {plan.n_chunk}" if plan.virtual_stages > 1 else f"pp = {plan.pp}"
        even = job.software.capabilities.even_chunks
        refuses = f", and framework {job.software.name} refuses that unless layers are placed by hand" if even else ""
        yield (
            f"{n_layers} layers are not divided by {chunks}{refuses}: chunks of {' and '.join(map(str, sizes))} layers are "
            "assumed. State layer_split for others."
        )
    heads = getattr(job.model, "n_kv_heads", 0)
    if isinstance(heads, int) and 0 < heads < plan.tp:
        yield f"tp = {plan.tp} is more than the {heads} KV heads of model {job.model.name}: {plan.tp // heads} GPUs hold each."


def _without_effect(job: Job) -> Iterator[str]:
    plan: ParallelPlan = job.plan
    if plan.sequence_parallel and plan.tp == 1:
        yield "sequence_parallel is without effect at tp = 1"
    if plan.virtual_stages > 1 and plan.pp == 1:
        yield "virtual_stages is without effect at pp = 1"
    if plan.zero_stage and plan.dp * plan.cp == 1 and plan.sharding == "none":
        yield f"zero_stage = {plan.zero_stage} is without effect at dp = 1: there is nothing to share"
