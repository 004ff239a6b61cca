"""PlanSpace: which values every knob of a plan may take, and the plans they make, block by block.

Two settings that run alike are one plan: what needs a group of one (sequence parallelism without tp, a schedule without pp,
sharding without replicas) is left out where the group has one member.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, TypeVar

import numpy as np

from ..core.errors import PlanError
from ..core.kernels import COMMON_RECOMPUTE, RECOMPUTE
from ..job.job import Job
from ..plan.plan import DEFAULT_SCHEDULE, SHARDING, ParallelPlan
from ..schedule.base import PipelineSchedule
from ..schedule.registry import SCHEDULES, resolve_schedule
from ..workload.base.workload import FixesFields, Workload, n_body
from .plan_table import COLUMNS, KNOBS, TOGETHER, PipelineLayout, PlanTable

_T = TypeVar("_T")
SWITCH = (0, 1)
MAX_TP_NODES = 2  # a tensor-parallel group spans two hosts at most
MAX_MICRO_BATCH = 16
MIN_SEQ_PER_CP = 512  # tokens; shorter parts do not fill a device
MAY_BE_EMPTY = ("dp_shard", "n_chunk")
VIRTUAL_STAGES = (1, 2, 3, 4, 6, 8, 12)


@dataclass(frozen=True)
class PlanSpace:
    """Values of every knob; plans are all combinations whose degrees multiply to one of `n_devices`.

    Attributes:
        n_devices: cluster sizes.
        tp, pp, cp, ep, micro_batch, virtual_stages, schedule, recompute, zero_stage: as in `ParallelPlan`; dp follows.
        sharding: none (with each of `zero_stage`), fsdp, hsdp (with each of `dp_shard`).
        sequence_parallel, overlap_dp, overlap_tp, overlap_pp: 0 and/or 1.
        n_chunk: model chunks of a pipeline, pp * virtual_stages; none given: any number.
    """

    n_devices: tuple[int, ...]
    tp: tuple[int, ...]
    pp: tuple[int, ...]
    cp: tuple[int, ...]
    ep: tuple[int, ...]
    micro_batch: tuple[int, ...]
    virtual_stages: tuple[int, ...] = VIRTUAL_STAGES
    schedule: tuple[str | PipelineSchedule, ...] = field(default_factory=lambda: SCHEDULES.names)
    recompute: tuple[str, ...] = COMMON_RECOMPUTE
    zero_stage: tuple[int, ...] = (0, 1, 2, 3)
    sharding: tuple[str, ...] = ("none", "fsdp")
    dp_shard: tuple[int, ...] = ()
    sequence_parallel: tuple[int, ...] = SWITCH
    overlap_dp: tuple[int, ...] = SWITCH
    overlap_tp: tuple[int, ...] = SWITCH
    overlap_pp: tuple[int, ...] = SWITCH
    n_chunk: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for knob in fields(self):
            values = getattr(self, knob.name)
            if knob.name not in MAY_BE_EMPTY and not values:
                raise PlanError(f"space: {knob.name} has no value. Give one at least, or leave it out.")
            if len(set(values)) < len(values):
                raise PlanError(f"space: {knob.name} = {list(values)} names a value twice")

    def layouts(self, model: Workload) -> Iterator[PipelineLayout]:
        """Every pipeline that can hold the model's layers."""
        for pp in self.pp:
            if pp == 1:
                yield PipelineLayout(1, DEFAULT_SCHEDULE, 1)  # one stage runs every schedule alike
                continue
            for schedule in self.schedule:
                found = resolve_schedule(schedule)
                fixed = found.fixed_virtual_stages
                for v in self.virtual_stages if fixed is None else (fixed,):
                    if found.layout_problem(pp, v) or pp * v > n_body(model) + 2:
                        continue
                    if not self.n_chunk or pp * v in self.n_chunk:
                        yield PipelineLayout(pp, schedule, v)

    def block(self, base: ParallelPlan, layout: PipelineLayout) -> PlanTable:
        """All plans of one layout, in an order that depends on the space alone."""
        columns = dict(zip(COLUMNS, _product(self._degrees(layout.pp), *self._knobs()).T, strict=True))
        table = PlanTable(base, layout, **columns)
        return table.take(_distinguishable(table, self.plain_sharding))

    def _degrees(self, pp: int) -> np.ndarray:
        """Degrees whose product with pp is a cluster size, [degrees, (tp, cp, dp, ep)]."""
        rows = [
            (tp, cp, n // (tp * cp * pp), ep)
            for n in self.n_devices
            for tp in self.tp
            for cp in self.cp
            if n % (tp * cp * pp) == 0
            for ep in self.ep
        ]
        return np.array(rows, dtype=np.int64).reshape(-1, 4)

    def _knobs(self) -> list[np.ndarray]:
        """Values of the other columns, in the order of `COLUMNS`; those of sharding vary together."""
        found = []
        for name in COLUMNS:
            if name in KNOBS or name == "micro_batch":
                found.append(np.array(getattr(self, name)).reshape(-1, 1))
            elif name == "recompute":
                found.append(np.array([RECOMPUTE.index(kind) for kind in self.recompute]).reshape(-1, 1))
            elif name == TOGETHER[0]:
                found.append(np.array(self.shardings()).reshape(-1, len(TOGETHER)))
        return found

    @property
    def plain_sharding(self) -> tuple[int, int, int]:
        """Least of `shardings`, which stands for all where there are no ranks to share with."""
        return min(self.shardings(), key=lambda own: (own[1], own[0], own[2]))

    def shardings(self) -> list[tuple[int, int, int]]:
        """Returns the values of (zero_stage, sharding, dp_shard)."""
        found = []
        for name in self.sharding:
            code = SHARDING.index(name)
            match name:
                case "none":
                    found += [(stage, code, 0) for stage in self.zero_stage]
                case "hsdp":
                    found += [(0, code, group) for group in self.dp_shard]
                case _:
                    found.append((0, code, 0))
        return found


def default_space(job: Job, *, any_framework: bool = False) -> PlanSpace:
    """Returns the space a performance engineer would try for `job` on its own number of devices, as its framework allows.

    Args:
        job: its model, cluster and batch; values of its own plan stay in the space, whatever the framework has.
        any_framework: plans that no one framework has, too, and overlap as a knob; otherwise overlap is as in the job.
    """
    space = _whole_space(job)
    return _of_model(space if any_framework else _within(space, job), job)


def _of_model(space: PlanSpace, job: Job) -> PlanSpace:
    """Drops values that the model itself contradicts, but for the plan's own."""
    found: dict[str, tuple[Any, ...]] = {}
    for name in ("recompute", "zero_stage", "sharding"):
        values, own = getattr(space, name), getattr(job.plan, name)
        found[name] = tuple(value for value in values if value == own or not _contradicts(job, name, value)) or values
    if isinstance(job.model, FixesFields):
        in_space = {one.name for one in fields(space)}
        found |= {name: (_own(job, name),) for name in job.model.fixed_fields if name in in_space}
    return replace(space, **found)


def _own(job: Job, name: str) -> Any:
    """A field of the job's plan as the space holds it."""
    value = getattr(job.plan, name)
    return int(value) if isinstance(value, bool) else value


def _contradicts(job: Job, name: str, value: object) -> bool:
    """Whether the model objects to a field of the plan once it holds that value."""
    return any(problem.field == name for problem in job.model.problems(replace(job.plan, **{name: value})))


def _within(space: PlanSpace, job: Job) -> PlanSpace:
    """Restricts the space to plans that the job's framework can run, with overlap as the job has it."""
    has, plan = job.software.capabilities, job.plan
    own_stages = (plan.zero_stage,) if plan.sharding == "none" else ()
    return replace(
        space,
        tp=_kept(space.tp, None if has.max_tp is None else range(1, has.max_tp + 1), plan.tp),
        cp=_kept(space.cp, None if has.max_cp is None else range(1, has.max_cp + 1), plan.cp),
        pp=_kept(space.pp, (1,) if has.schedules == () else None, plan.pp),
        schedule=_kept(space.schedule, has.schedules, plan.schedule) or (DEFAULT_SCHEDULE,),
        zero_stage=_kept(space.zero_stage, has.zero_stages, *own_stages),
        sharding=_kept(space.sharding, has.sharding, *(() if plan.sharding == "hsdp" else (plan.sharding,))),
        recompute=_kept((*space.recompute, *(has.recompute or ())), has.recompute, plan.recompute),
        sequence_parallel=space.sequence_parallel if has.sequence_parallel else (int(plan.sequence_parallel),),
        overlap_dp=(int(plan.overlap.dp),),
        overlap_tp=(int(plan.overlap.tp),),
        overlap_pp=(int(plan.overlap.pp),),
        n_chunk=_divisors(n_body(job.model)) if has.even_chunks else (),
    )


def _kept(values: tuple[_T, ...], allowed: Collection[_T] | None, *own: _T) -> tuple[_T, ...]:
    """Values that are allowed or a job's own, each once."""
    return tuple(dict.fromkeys(value for value in values if allowed is None or value in allowed or value in own))


def _divisors(n: int) -> tuple[int, ...]:
    return tuple(d for d in range(1, n + 1) if n % d == 0)


def _whole_space(job: Job) -> PlanSpace:
    """Returns the space of plans of every framework."""
    model, plan = job.model, job.plan
    n = job.cluster.n_devices
    divisors = _divisors(n)
    widest = MAX_TP_NODES * job.cluster.node_size
    splits = model.splits(plan)
    heads, tokens, experts = (splits[axis].n for axis in ("tp", "cp", "ep"))
    return PlanSpace(
        n_devices=(n,),
        tp=tuple(d for d in divisors if heads % d == 0 and d <= widest),
        pp=tuple(d for d in divisors if d <= n_body(model)),
        cp=tuple(d for d in divisors if d == 1 or (tokens % d == 0 and tokens // d >= MIN_SEQ_PER_CP)),
        ep=(n,) if splits["ep"].is_fixed else tuple(d for d in divisors if experts % d == 0) if experts > 1 else (1,),
        micro_batch=_micro_batches(model, plan),
        recompute=tuple(dict.fromkeys((*COMMON_RECOMPUTE, plan.recompute))),
    )


def _micro_batches(model: Workload, plan: ParallelPlan) -> tuple[int, ...]:
    """Small ones; of samples that are no sequences those of the plan and its halves, since thousands fit on a device."""
    if model.sample_unit == "samples" and plan.micro_batch > MAX_MICRO_BATCH:
        return tuple(own for own in (plan.micro_batch >> power for power in range(3)) if plan.global_batch % own == 0)
    return tuple(d for d in range(1, MAX_MICRO_BATCH + 1) if plan.global_batch % d == 0)


def _product(*factors: np.ndarray) -> np.ndarray:
    """Every combination of the factors' rows, side by side; the last factor varies fastest."""
    index = np.indices([len(factor) for factor in factors]).reshape(len(factors), -1)
    return np.concatenate([factor[i] for factor, i in zip(factors, index, strict=True)], axis=1)


def _distinguishable(table: PlanTable, plain: tuple[int, int, int]) -> np.ndarray:
    """Returns whether each plan differs from all others in effect: of switches without effect only the plain setting stays."""
    if not len(table):
        return np.zeros(0, dtype=bool)
    alone = table.dp * table.cp == 1
    zero_stage, sharding, dp_shard = plain
    first_sharding = (table.zero_stage == zero_stage) & (table.sharding == sharding) & (table.dp_shard == dp_shard)
    return (
        ((table.tp > 1) | (table.sequence_parallel == table.sequence_parallel.min()))
        & ((table.tp > 1) | (table.overlap_tp == table.overlap_tp.min()))
        & (~alone | first_sharding)
        & (~alone | (table.overlap_dp == table.overlap_dp.max()))
        & ((table.layout.pp > 1) | (table.overlap_pp == table.overlap_pp.max()))
    )
