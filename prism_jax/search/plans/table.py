"""PlanTable: many plans of one pipeline layout as columns of integers; only plans that are looked at become a `ParallelPlan`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...plan.plan import RECOMPUTE, SHARDING, Overlap, ParallelPlan
from ...plan.recomputation import OPTIONS
from ...schedule import PipelineSchedule, resolve_schedule

Column = NDArray[np.int64]


class Layout(NamedTuple):
    """What decides the shape of a pipeline: plans that share it are evaluated together."""

    pp: int
    schedule: str | PipelineSchedule
    virtual_stages: int

    @property
    def n_chunk(self) -> int:
        """Model chunks of all stages."""
        return self.pp * self.virtual_stages

    @property
    def pipeline_schedule(self) -> PipelineSchedule:
        """`schedule` as an object.

        Raises:
            PlanError: an unknown name.
        """
        return resolve_schedule(self.schedule)


@dataclass(frozen=True)
class PlanTable:
    """Plans [plan] of one layout; whatever is not a column is as in `base`.

    Attributes:
        base: plan that the others are variants of (batch, sequence length, precision, axis order).
        layout: pipeline of all of them.
        recompute, sharding: indices into `plan.RECOMPUTE` and `plan.SHARDING`.
        sequence_parallel, overlap_dp, overlap_tp, overlap_pp: 0 or 1.
        dp_shard: 0 unless sharding is hsdp.
    """

    DERIVED: ClassVar[frozenset[str]] = frozenset({"n_devices", "n_micro_batch", "shard_group"})

    base: ParallelPlan
    layout: Layout
    tp: Column
    cp: Column
    dp: Column
    ep: Column
    micro_batch: Column
    sequence_parallel: Column
    recompute: Column
    zero_stage: Column
    sharding: Column
    dp_shard: Column
    overlap_dp: Column
    overlap_tp: Column
    overlap_pp: Column

    @classmethod
    def of(cls, plan: ParallelPlan) -> PlanTable:
        """Table of one plan; its layers are split as evenly as can be."""
        codes = {"recompute": RECOMPUTE.index(plan.recompute), "sharding": SHARDING.index(plan.sharding)}
        switches = {f"overlap_{axis}": int(getattr(plan.overlap, axis)) for axis in ("dp", "tp", "pp")}
        value = {name: getattr(plan, name) for name in COLUMNS if name not in switches} | codes | switches
        columns = {name: np.array([int(value[name])]) for name in COLUMNS}
        return cls(plan, Layout(plan.pp, plan.schedule, plan.virtual_stages), **columns)

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def n_devices(self) -> Column:
        """Devices of each plan."""
        return self.tp * self.cp * self.dp * self.layout.pp

    @property
    def n_micro_batch(self) -> Column:
        """Micro-batches per replica."""
        return self.base.global_batch // (self.dp * self.micro_batch)

    @property
    def shard_group(self) -> Column:
        """Ranks of dp that parameters are sharded over, as `ParallelPlan.shard_group`."""
        over_dp = (self.sharding == SHARDING.index("fsdp")) | (self.zero_stage == 3)
        return np.where(self.sharding == SHARDING.index("hsdp"), self.dp_shard, np.where(over_dp, self.dp, 1))

    @property
    def tied(self) -> Column:
        """Ranks of dp that synchronise inside every op, as in `ParallelPlan.n_member`."""
        return np.maximum(self.shard_group, -(-self.ep // self.cp))

    def stride(self, axis: str) -> Column:
        """Distance in devices between neighbours along `axis`, as `ParallelPlan.stride`."""
        stride = np.ones_like(self.tp)
        for name in self.base.axis_order[: self.base.axis_order.index(axis)]:
            stride = stride * (self.layout.pp if name == "pp" else getattr(self, name))
        return stride

    def read(self, what: tuple[str, ...]) -> Column | Any:
        """What a function may read of its plans: a column of integers, or a value that all plans share.

        Args:
            what: name of a field, of one of `DERIVED`, `overlap_dp` (`tp`, `pp`), or ("stride", axis).
        """
        name = what[0]
        if name == "stride":
            return self.stride(what[1])
        if name in COLUMNS or name in self.DERIVED:
            return getattr(self, name)
        return getattr(self.layout if name in self.layout._fields else self.base, name)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> PlanTable:
        """Some of the plans."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def plan(self, row: int) -> ParallelPlan:
        """One plan as an object."""
        value: dict[str, Any] = {name: int(getattr(self, name)[row]) for name in COLUMNS}
        recompute = RECOMPUTE[value.pop("recompute")]
        options = {} if recompute == self.base.recompute else OPTIONS  # those of another kind mean nothing
        return replace(
            self.base,
            pp=self.layout.pp,
            schedule=self.layout.schedule,
            virtual_stages=self.layout.virtual_stages,
            sequence_parallel=bool(value.pop("sequence_parallel")),
            recompute=recompute,
            sharding=SHARDING[value.pop("sharding")],
            overlap=Overlap(**{axis: bool(value.pop(f"overlap_{axis}")) for axis in ("dp", "tp", "pp")}),
            layer_split=(),
            **options,
            **value,
        )


MAX_CODE = 2**62  # combinations that a code can tell apart
COLUMNS = tuple(field.name for field in fields(PlanTable) if field.name not in ("base", "layout"))


def distinct(*columns: NDArray[np.integer]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """(first, which): a row that stands for each distinct combination of the columns, and every row's combination."""
    code, n_code = np.zeros(len(columns[0]), dtype=np.int64), 1
    for column in columns:
        n_value = int(column.max(initial=0)) + 1
        if n_code * n_value > MAX_CODE:
            code = np.unique(code, return_inverse=True)[1]
            n_code = int(code.max(initial=0)) + 1
        code, n_code = code * n_value + column, n_code * n_value
    _, first, which = np.unique(code, return_index=True, return_inverse=True)
    return first, which
