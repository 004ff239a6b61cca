"""PlanSpace: which values every knob of a plan may take, and the plans they make, block by block.

Two settings that run alike are one plan: what needs a group of one (sequence parallelism without tp, a schedule without pp,
sharding without replicas) is left out where the group has one member.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields

import numpy as np

from ...errors import PlanError
from ...job import Job
from ...kernels import COMMON_RECOMPUTE
from ...plan.plan import DEFAULT_SCHEDULE, RECOMPUTE, SHARDING, ParallelPlan
from ...schedule import SCHEDULES, PipelineSchedule, resolve_schedule
from ...workload.base import Workload, n_body
from .table import COLUMNS, Layout, PlanTable

SWITCH = (0, 1)
MAX_TP_NODES = 2  # a tensor-parallel group spans two hosts at most
MAX_MICRO_BATCH = 16
MIN_SEQ_PER_CP = 512  # tokens; shorter parts do not fill a device
VIRTUAL_STAGES = (1, 2, 3, 4, 6, 8, 12)


@dataclass(frozen=True)
class PlanSpace:
    """Values of every knob; plans are all combinations whose degrees multiply to one of `n_devices`.

    Attributes:
        n_devices: cluster sizes.
        tp, pp, cp, ep, micro_batch, virtual_stages, schedule, recompute, zero_stage: as in `ParallelPlan`; dp follows.
        sharding: none (with each of `zero_stage`), fsdp, hsdp (with each of `dp_shard`).
        sequence_parallel, overlap_dp, overlap_tp, overlap_pp: 0 and/or 1.
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

    def __post_init__(self) -> None:
        for knob in fields(self):
            values = getattr(self, knob.name)
            if knob.name != "dp_shard" and not values:
                raise PlanError(f"space: {knob.name} has no value. Give one at least, or leave it out.")
            if len(set(values)) < len(values):
                raise PlanError(f"space: {knob.name} = {list(values)} names a value twice")

    def layouts(self, model: Workload) -> Iterator[Layout]:
        """Every pipeline that can hold the model's layers."""
        for pp in self.pp:
            if pp == 1:
                yield Layout(1, DEFAULT_SCHEDULE, 1)  # one stage runs every schedule alike
                continue
            for schedule in self.schedule:
                found = resolve_schedule(schedule)
                fixed = found.fixed_virtual_stages
                for v in self.virtual_stages if fixed is None else (fixed,):
                    if not found.layout_problem(pp, v) and pp * v <= n_body(model) + 2:
                        yield Layout(pp, schedule, v)

    def block(self, base: ParallelPlan, layout: Layout) -> PlanTable:
        """All plans of one layout, in an order that depends on the space alone."""
        columns = dict(zip(COLUMNS, _product(self._degrees(layout.pp), *self._knobs()).T, strict=True))
        table = PlanTable(base, layout, **columns)
        return table.take(_distinguishable(table, self.plain_sharding))

    def _degrees(self, pp: int) -> np.ndarray:
        """[degrees, (tp, cp, dp, ep)] whose product with pp is a cluster size."""
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
        """Values of the other columns, in the order of `COLUMNS`; sharding's three columns vary together."""
        named = ["sequence_parallel", "recompute", "overlap_dp", "overlap_tp", "overlap_pp"]
        values = {name: np.array(getattr(self, name)) for name in named if name != "recompute"}
        values["recompute"] = np.array([RECOMPUTE.index(name) for name in self.recompute])
        single = {name: column.reshape(-1, 1) for name, column in values.items()}
        return [
            np.array(self.micro_batch).reshape(-1, 1),
            single["sequence_parallel"],
            single["recompute"],
            np.array(self.shardings()).reshape(-1, 3),
            *(single[f"overlap_{axis}"] for axis in ("dp", "tp", "pp")),
        ]

    @property
    def plain_sharding(self) -> tuple[int, int, int]:
        """The least of `shardings`: the one that stands for all where there is nobody to share with."""
        return min(self.shardings(), key=lambda own: (own[1], own[0], own[2]))

    def shardings(self) -> list[tuple[int, int, int]]:
        """(zero_stage, sharding, dp_shard)."""
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


def default_space(job: Job) -> PlanSpace:
    """Everything a performance engineer would try for `job` on its own number of devices."""
    model, plan = job.model, job.plan
    n = job.cluster.n_devices
    divisors = [d for d in range(1, n + 1) if n % d == 0]
    widest = MAX_TP_NODES * job.cluster.node_size
    heads, tokens, experts = (model.splits(plan)[axis].n for axis in ("tp", "cp", "ep"))
    return PlanSpace(
        n_devices=(n,),
        tp=tuple(d for d in divisors if heads % d == 0 and d <= widest),
        pp=tuple(d for d in divisors if d <= n_body(model)),
        cp=tuple(d for d in divisors if d == 1 or (tokens % d == 0 and tokens // d >= MIN_SEQ_PER_CP)),
        ep=tuple(d for d in divisors if experts % d == 0) if experts > 1 else (1,),
        micro_batch=tuple(d for d in range(1, MAX_MICRO_BATCH + 1) if plan.global_batch % d == 0),
        recompute=tuple(dict.fromkeys((*COMMON_RECOMPUTE, plan.recompute))),
    )


def _product(*factors: np.ndarray) -> np.ndarray:
    """Every combination of the factors' rows, side by side; the last factor varies fastest."""
    index = np.indices([len(factor) for factor in factors]).reshape(len(factors), -1)
    return np.concatenate([factor[i] for factor, i in zip(factors, index, strict=True)], axis=1)


def _distinguishable(table: PlanTable, plain: tuple[int, int, int]) -> np.ndarray:
    """Which plans are not another one under a different name: of switches without effect only the plain setting stays."""
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
