"""Holds many plans of one layout as columns of integers, values computed of them, and the kinds they fall into.

Only plans that are looked at become a `ParallelPlan`. PlanCache evaluates a function of a plan once per combination of the plan
fields that it reads. Nobody lists the fields: the function is given a plan that notes what is read of it, and what it read, in
the order in which it did, is a path in a decision tree whose leaf holds the value. Another plan with the same answers along a
path has the same value, since the function could not tell the two apart. So a cached value cannot be another plan's.

A kind is the part in which plans differ, without their switches; plans of each kind that may be its best are kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from itertools import repeat
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.kernels import RECOMPUTE
from ..plan.fields import OPTIONS
from ..plan.packing import Data, law_of
from ..plan.plan import SHARDING, Overlap, ParallelPlan
from ..schedule.base import PipelineSchedule
from ..schedule.registry import resolve_schedule

Column = NDArray[np.int64]


class PipelineLayout(NamedTuple):
    """Settings that decide the shape of a pipeline: plans that share them are evaluated together."""

    pp: int
    schedule: str | PipelineSchedule
    virtual_stages: int

    @property
    def n_chunk(self) -> int:
        """Model chunks of all stages."""
        return self.pp * self.virtual_stages

    @property
    def pipeline_schedule(self) -> PipelineSchedule:
        """The schedule as an object.

        Raises:
            PlanError: an unknown name.
        """
        return resolve_schedule(self.schedule)


@dataclass(frozen=True)
class PlanTable:
    """Plans [plan] of one layout; fields without a column are as in `base`.

    Attributes:
        base: plan that the others are variants of (batch, sequence length, precision, axis order).
        layout: pipeline of all of them.
        recompute, sharding: indices into `plan.RECOMPUTE` and `plan.SHARDING`.
        sequence_parallel, overlap_dp, overlap_tp, overlap_pp: 0 or 1.
        dp_shard: 0 unless sharding is hsdp.
    """

    DERIVED: ClassVar[frozenset[str]] = frozenset({"n_devices", "n_micro_batch", "shard_group"})

    base: ParallelPlan
    layout: PipelineLayout
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
        return cls(plan, PipelineLayout(plan.pp, plan.schedule, plan.virtual_stages), **columns)

    def __len__(self) -> int:
        return len(self.tp)

    @property
    def n_devices(self) -> Column:
        """Number of devices of each plan."""
        return self.tp * self.cp * self.dp * self.layout.pp

    @property
    def n_micro_batch(self) -> Column:
        """Number of micro-batches per replica."""
        return self.base.global_batch // (self.dp * self.micro_batch)

    @property
    def shard_group(self) -> Column:
        """Ranks of dp x cp that parameters are sharded over, as `ParallelPlan.shard_group`."""
        over_all = (self.sharding == SHARDING.index("fsdp")) | (self.zero_stage == 3)
        in_groups = self.sharding == SHARDING.index("hsdp")
        return np.where(in_groups, self.dp_shard * self.cp, np.where(over_all, self.dp * self.cp, 1))

    @property
    def tied(self) -> Column:
        """Ranks of dp that synchronise inside every op, as `ParallelPlan.tied`."""
        ranks = self.tp * self.cp
        return np.maximum(self.shard_group // self.cp, np.lcm(self.ep * self.expert_tp, ranks) // ranks)

    @property
    def expert_tp(self) -> Column:
        """Ranks that an expert is split over, as `ParallelPlan.expert_tp`; a degree that the job states holds for all plans."""
        stated = self.base.etp
        if stated is None:
            return np.where(self.ep > 1, 1, self.tp)
        return self.tp if stated == 0 else np.full_like(self.tp, stated)

    def stride(self, axis: str) -> Column:
        """Distance in devices between neighbours along `axis`, as `ParallelPlan.stride`."""
        stride = np.ones_like(self.tp)
        for name in self.base.axis_order[: self.base.axis_order.index(axis)]:
            stride = stride * (self.layout.pp if name == "pp" else getattr(self, name))
        return stride

    def read(self, what: tuple[str, ...]) -> Column | Any:
        """Returns a value that a function reads of its plans: a column of integers, or a value that all plans share.

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
        """Returns some of the plans."""
        return replace(self, **{name: getattr(self, name)[rows] for name in COLUMNS})

    def plan(self, row: int) -> ParallelPlan:
        """One plan as an object."""
        value: dict[str, Any] = {name: int(getattr(self, name)[row]) for name in COLUMNS}
        value |= {name: bool(on) for name, on in value.items() if name in SWITCHES}
        recompute = RECOMPUTE[value.pop("recompute")]
        options = {} if recompute == self.base.recompute else OPTIONS  # those of another kind mean nothing
        return replace(
            self.base,
            pp=self.layout.pp,
            schedule=self.layout.schedule,
            virtual_stages=self.layout.virtual_stages,
            recompute=recompute,
            sharding=SHARDING[value.pop("sharding")],
            overlap=Overlap(**{axis: bool(value.pop(f"overlap_{axis}")) for axis in ("dp", "tp", "pp")}),
            layer_split=(),
            **options,
            **value,
        )


MAX_CODE = 2**62  # combinations that a code can tell apart
COLUMNS = tuple(field.name for field in fields(PlanTable) if field.name not in ("base", "layout"))
TOGETHER = ("zero_stage", "sharding", "dp_shard")  # columns that vary together
NOT_ALONE = ("tp", "cp", "dp", "ep", "micro_batch", "recompute", *TOGETHER)
KNOBS = tuple(name for name in COLUMNS if name not in NOT_ALONE)  # whose values are those of the space, one by one
SWITCHES = tuple(field.name for field in fields(ParallelPlan) if isinstance(field.default, bool))


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


T = TypeVar("T")
Rows = NDArray[np.intp]
Read = tuple[str, ...]
"""One read of a plan: the name of a field, or of a method with its arguments."""


class _Node(Generic[T]):
    """A question about the plan with a child per answer, or a leaf with the index of a value."""

    __slots__ = ("children", "leaf", "read")

    def __init__(self) -> None:
        self.read: Read | None = None
        self.children: dict[Any, _Node[T]] = {}
        self.leaf = -1


class PlanCache(Generic[T]):
    """Cache of the values of `make(plan)`.

    Args:
        make: a function that reads its plan by attributes and `stride` only.
    """

    def __init__(self, make: Callable[[ParallelPlan], T]) -> None:
        self._make = make
        self._root: _Node[T] = _Node()
        self._reads: dict[Read, None] = {}  # of all paths, in order of appearance
        self._seen: dict[tuple[Read, ...], dict[tuple[Any, ...], int]] = {}  # answers to these reads -> leaf
        self.values: list[T] = []

    def look_up(self, table: PlanTable) -> tuple[list[T], Rows]:
        """Distinct values, and which of them every plan of the table has."""
        columns: dict[Read, Column | Any] = {}
        while True:
            columns |= {read: table.read(read) for read in self._reads if read not in columns}
            first, which = _distinct_rows(columns, len(table))
            leaves = self._leaves(table, columns, first)
            if len(columns) == len(self._reads):
                used, at = np.unique(leaves, return_inverse=True)
                return [self.values[leaf] for leaf in used.tolist()], at[which]

    def _leaves(self, table: PlanTable, columns: Mapping[Read, Column | Any], rows: Rows) -> Rows:
        """Number of the value of some plans, [row]; values that are new are made."""
        if not columns:
            return np.array([self._add(PlanRow(table, row)) for row in rows.tolist()], dtype=np.intp)
        answers = zip(
            *(
                column[rows].tolist() if isinstance(column, np.ndarray) else repeat(column, len(rows))
                for column in columns.values()
            ),
            strict=True,
        )
        seen = self._seen.setdefault(tuple(columns), {})
        leaves = []
        for key, row in zip(answers, rows.tolist(), strict=True):
            leaf = seen.get(key, -1)
            if leaf < 0:
                leaf = seen[key] = self._leaf(PlanRow(table, row), dict(zip(columns, key, strict=True)))
            leaves.append(leaf)
        return np.array(leaves, dtype=np.intp)

    def _leaf(self, plan: PlanRow, answers: Mapping[Read, Any]) -> int:
        """Number of the value of one plan, by the path of its answers."""
        node: _Node[T] | None = self._root
        while node is not None and node.read is not None:
            read = node.read
            node = node.children.get(answers[read] if read in answers else plan.read(read))
        return node.leaf if node is not None and node.leaf >= 0 else self._add(plan)

    def of(self, plan: ParallelPlan) -> T:
        """Value of a plan inside the function of another cache, whose path goes on with the fields read here."""
        outer = cast(_Noted, plan)
        node: _Node[T] | None = self._root
        while node is not None and node.read is not None:
            outer.reads.setdefault(node.read)
            node = node.children.get(outer.row.read(node.read))
        if node is not None and node.leaf >= 0:
            return self.values[node.leaf]
        leaf = self._add(outer.row)
        for read in self._path(outer.row):
            outer.reads.setdefault(read)
        return self.values[leaf]

    def _path(self, plan: PlanRow) -> Iterator[Read]:
        """Yields the fields that are read of a known plan."""
        node = self._root
        while node.read is not None:
            yield node.read
            node = node.children[plan.read(node.read)]

    def _add(self, plan: PlanRow) -> int:
        """Number of the value of a plan, made unless an equal plan was asked for a moment ago."""
        noted = _Noted(plan)
        value = self._make(cast(ParallelPlan, noted))
        node = self._root
        for read in noted.reads:
            node.read = read
            node = node.children.setdefault(plan.read(read), _Node())
            self._reads.setdefault(read)
        if node.leaf < 0:
            node.leaf = len(self.values)
            self.values.append(value)
        return node.leaf


def _distinct_rows(columns: Mapping[Read, Column | Any], n_plan: int) -> tuple[Rows, Rows]:
    """Rows that stand for each distinct combination of the columns, and every plan's combination."""
    varying = [column for column in columns.values() if isinstance(column, np.ndarray)]
    return distinct(*varying) if varying else (np.zeros(1, np.intp), np.zeros(n_plan, np.intp))


class PlanRow:
    """One plan of a table: answers reads, and makes the plan itself."""

    def __init__(self, table: PlanTable, row: int) -> None:
        self._table, self._row = table, row
        self._plan: ParallelPlan | None = None

    def read(self, read: Read) -> Any:
        """A hashable answer: the entry of a column, or a value that all plans of the table share."""
        name, *arguments = read
        if arguments:
            return self.plan.stride(arguments[0])
        if name in PlanTable.DERIVED:
            return getattr(self.plan, name)
        value = self._table.read(read)
        return int(value[self._row]) if isinstance(value, np.ndarray) else value

    @property
    def plan(self) -> ParallelPlan:
        """Plan as an object."""
        if self._plan is None:
            self._plan = self._table.plan(self._row)
        return self._plan


class _Noted:
    """A plan that notes which fields are read of it; fields without a column are computed from those with one."""

    def __init__(self, row: PlanRow) -> None:
        self.row = row
        self.reads: dict[Read, None] = {}

    def __getattr__(self, name: str) -> Any:
        plan = self.row.plan
        if name == "overlap":
            value: Any = _NotedOverlap(self)
        elif name in PlanTable.DERIVED or name in plan.__dataclass_fields__:
            self.reads.setdefault((name,))
            value = getattr(plan, name)
        else:
            value = getattr(type(plan), name).__get__(self)
        setattr(self, name, value)  # later reads find it there
        return value

    @property
    def computed(self) -> _Noted:
        """Plan as `ParallelPlan.computed` has it; fields that are read of it are noted here."""
        data: Data = self.data
        if not data.is_drawn:
            return self
        law, other = law_of(cast(ParallelPlan, self)), _Noted(self.row)
        vars(other).update(reads=self.reads, seq_len=law.seq_len, data=Data(law.lengths))
        return other

    def stride(self, axis: str) -> int:
        """Returns the stride of an axis as `ParallelPlan.stride` does."""
        self.reads.setdefault(("stride", axis))
        return self.row.plan.stride(axis)


class _NotedOverlap:
    """`ParallelPlan.overlap` of a noted plan."""

    def __init__(self, plan: _Noted) -> None:
        self._plan = plan

    def __getattr__(self, axis: str) -> bool:
        self._plan.reads.setdefault((f"overlap_{axis}",))
        return getattr(self._plan.row.plan.overlap, axis)


Kind = tuple[object, ...]
N_PER_KIND = 3  # plans of a kind that are looked at
N_LOOKED_AT = 4000  # plans, fastest first, until kinds are given up


class Numbered(Protocol):
    """Plans by number."""

    def plan(self, number: int, /) -> ParallelPlan: ...


def kind_of(plan: ParallelPlan) -> Kind:
    """Degrees, schedule, recomputation and sharding of states."""
    return (plan.tp, plan.cp, plan.pp, plan.dp, plan.ep, plan.schedule_name, plan.recompute, plan.sharding)


def of_each_kind(plans: Numbered, bound_s: Floats, n_kinds: int) -> Rows:
    """Numbers of the fastest plans of the first `n_kinds` kinds, by the lower bound [plan] of their steps; NaN: not feasible."""
    found: Counter[Kind] = Counter()
    numbers = []
    fastest = np.argsort(bound_s, kind="stable")[: min(N_LOOKED_AT, int(np.isfinite(bound_s).sum()))]
    for number in fastest:
        kind = kind_of(plans.plan(int(number)))
        if (kind in found or len(found) < n_kinds) and found[kind] < N_PER_KIND:
            found[kind] += 1
            numbers.append(number)
    return np.sort(np.array(numbers, dtype=np.intp))
