"""Does a plan fit its model and its cluster? Every contradiction with value, constraint and remedy."""

from __future__ import annotations

from collections.abc import Iterator

from ..errors import PlanError, PrismError, Problem
from ..plan import recomputation
from ..plan.plan import RECOMPUTE, SHARDING, ParallelPlan
from ..plan.precision import DTYPES, FP8_FAMILY, QUANTISED
from ..plan.state_dtypes import STATE_DTYPE_VALUES
from ..schedule import SCHEDULES, PipelineSchedule
from ..software.choices import software_problems
from ..system.hardware import Cluster
from ..workload.base import Workload, completed_plan, n_body
from .arithmetic import MAX_CHUNK_RUNS, RULES, numbers_of

ATTENTION = ("flash", "unfused")


def check_plan(plan: ParallelPlan, model: Workload, cluster: Cluster) -> None:
    """Raises the first contradiction between plan, model and cluster.

    Raises:
        PlanError: value, constraint, remedy.
    """
    for problem in problems(plan, model, cluster):
        raise PlanError.of(problem)


def problems(plan: ParallelPlan, model: Workload, cluster: Cluster) -> Iterator[Problem]:
    """Every contradiction."""
    plan = completed_plan(model, plan, cluster.node_size)
    yield from _names(plan)
    yield from _devices(plan, cluster)
    yield from _arithmetic(plan, model)
    yield from model.problems(plan)
    yield from recomputation.problems(plan)
    yield from _state_dtypes(plan)
    yield from _pipeline(plan, model)
    try:
        cluster.device.peak(plan.dtype)
    except PrismError as error:
        yield Problem("dtype", f"{plan.dtype}: {error}")


def _names(plan: ParallelPlan) -> Iterator[Problem]:
    if not _knows_schedule(plan):
        yield Problem("schedule", f"{plan.schedule!r} is unknown; known are {', '.join(SCHEDULES.names)}")
    for name, known in (
        ("recompute", RECOMPUTE),
        ("sharding", SHARDING),
        ("attention", ATTENTION),
    ):
        if getattr(plan, name) not in known:
            yield Problem(name, f"{getattr(plan, name)!r} is unknown; known are {', '.join(known)}")
    yield from software_problems(plan.software)
    if plan.zero_stage not in (0, 1, 2, 3):
        yield Problem("zero_stage", f"{plan.zero_stage}, but it must be 0, 1, 2 or 3")


def _devices(plan: ParallelPlan, cluster: Cluster) -> Iterator[Problem]:
    if plan.n_devices == cluster.n_devices:
        return
    rest = plan.tp * plan.cp * plan.pp
    product = f"tp*cp*dp*pp = {plan.tp}*{plan.cp}*{plan.dp}*{plan.pp} = {plan.n_devices}"
    remedy = (
        f"Try dp={cluster.n_devices // rest}; `dp: auto` in a job file finds it."
        if cluster.n_devices % rest == 0
        else f"Set cluster.n_devices to {plan.n_devices}."
    )
    yield Problem("", f"{product}, but the cluster has {cluster.n_devices} devices. {remedy}")


def _arithmetic(plan: ParallelPlan, model: Workload) -> Iterator[Problem]:
    numbers = numbers_of(plan, model.splits(plan))
    for rule in RULES:
        if rule.is_broken(numbers):
            yield rule.problem(numbers, model.name)
    if plan.dp_shard and plan.sharding != "hsdp":
        yield Problem("dp_shard", f"{plan.dp_shard} only means something with sharding = hsdp, not {plan.sharding}")


def _state_dtypes(plan: ParallelPlan) -> Iterator[Problem]:
    for name, known in STATE_DTYPE_VALUES.items():
        value = getattr(plan.state_dtypes, name)
        if value is not None and value not in known:
            yield Problem(f"state_dtypes.{name}", f"{value!r} is unknown; known are {', '.join(known)}")
    if plan.state_dtypes.fp8_params and plan.dtype not in FP8_FAMILY:
        yield Problem("state_dtypes.fp8_params", f"true, but dtype = {plan.dtype}. It goes with dtype=fp8 or mxfp8.")
    if plan.bf16_layers is not None and plan.dtype not in QUANTISED:
        text = f"{plan.bf16_layers}, but dtype = {plan.dtype}. It goes with {', '.join(QUANTISED)}."
        yield Problem("bf16_layers", text)
    if plan.dtype not in DTYPES:
        yield Problem("dtype", f"{plan.dtype!r} is unknown; known are {', '.join(DTYPES)}")


def _knows_schedule(plan: ParallelPlan) -> bool:
    return isinstance(plan.schedule, PipelineSchedule) or plan.schedule in SCHEDULES


def _pipeline(plan: ParallelPlan, model: Workload) -> Iterator[Problem]:
    if plan.n_micro_batch and _knows_schedule(plan):
        n = min(plan.n_micro_batch, MAX_CHUNK_RUNS)  # a rule refuses more
        yield from plan.pipeline_schedule.problems(plan.pp, n, plan.virtual_stages)
    if plan.layer_split:
        if len(plan.layer_split) != plan.n_chunk or sum(plan.layer_split) != n_body(model):
            yield Problem(
                "",
                f"layer_split has {len(plan.layer_split)} chunks with {sum(plan.layer_split)} layers, but the plan has "
                f"pp*virtual_stages = {plan.n_chunk} chunks and the model {n_body(model)} layers",
            )
    elif plan.n_chunk > n_body(model) + 2:
        yield Problem(
            "", f"pp*virtual_stages = {plan.n_chunk} model chunks, but the model has only {n_body(model)} layers"
        )
