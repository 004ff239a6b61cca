"""Turns knobs of a plan into coordinates, and times plans from their costs alone, without noise and without running a pipeline.

A degree (tp, pp, cp, ep, micro-batch, virtual stages, devices) has an order; a choice (schedule, sharding, recomputation,
switches) has none. dp follows from the others. Positions are indices into a knob's values.
VisitedPlans keeps what has been found out about plans so far, each worked out once.

Every schedule says what its stages wait for beyond the lower bound, in closed form (`PipelineSchedule.step_s`); what transfers
between stages add is the same for all and is added here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from ..core.arrays import Floats
from ..core.kernels import RECOMPUTE
from ..plan.plan import DEFAULT_SCHEDULE, SHARDING, ParallelPlan
from ..schedule.base import PipelineSchedule
from ..schedule.order import PipelineWork
from ..schedule.registry import resolve_schedule
from ..workload.base.workload import Workload
from .plan_costs import FEASIBLE, MEMORY, PlanCosts, TableCost, chunk_seconds, feasibility, lower_bound, table_cost
from .plan_table import COLUMNS, KNOBS, PipelineLayout, PlanTable, Rows
from .space import PlanSpace

_ROWS = 1 << 14


def estimate_s(cost: TableCost, costs: PlanCosts) -> Floats:
    """Noise-free step time of the plans of a block, seconds, [plan]: a few per cent off, most where micro-batches are few."""
    slowdown = costs.eff.overlap_slowdown
    found, layout = lower_bound(cost, slowdown), cost.table.layout
    schedule, m = layout.pipeline_schedule, cost.table.n_micro_batch
    end = cost.end.compute_s + cost.end.exposed_s
    for first in range(0, len(found), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(found)))
        seconds = chunk_seconds(cost, rows, slowdown)
        compute, comm, hidden = (part[..., 0] for part in seconds)  # [plan, kind, chunk]
        degrees = (layout.pp, layout.virtual_stages, m[rows])
        work = PipelineWork(*degrees, found[rows], compute, comm, hidden, end[rows])
        found[rows] = schedule.step_s(work) + _sent_s(cost, rows, work.whole_s)
    return found


def _sent_s(cost: TableCost, rows: np.ndarray, whole: Floats) -> Floats:
    """Seconds [plan] that transfers between stages add to the busiest stage, and the way there and back of one micro-batch."""
    table, layout = cost.table, cost.table.layout
    edge = cost.edge_s[cost.of_edge[rows]]
    beyond = edge.copy()  # a forward is sent over the edge after its chunk, a gradient over the edge before
    beyond[:, 1:] += edge[:, :-1]
    busy, held = whole.sum(axis=1), layout.pipeline_schedule.stage_shares(layout.pp, layout.virtual_stages)
    more = ((busy + beyond) @ held).max(axis=1) - (busy @ held).max(axis=1)
    return more * table.n_micro_batch[rows] * (1 - table.overlap_pp[rows]) + 2.0 * edge[:, : layout.pp].sum(axis=1)


DEGREES = ("n_devices", "tp", "pp", "cp", "ep", "micro_batch", "virtual_stages")
CHOICES = ("schedule", "sharding", "recompute", *KNOBS)
FAMILY = [DEGREES.index("tp"), DEGREES.index("pp"), len(DEGREES) + CHOICES.index("schedule")]
NOWHERE = -1  # layout of a plan that the space does not hold


class Codes(NamedTuple):
    """Plans by number: [plan] layout and [plan, column of `COLUMNS`]; equal codes are equal plans."""

    layout: Rows
    columns: Rows

    def take(self, rows: Rows) -> Codes:
        """Returns some of the plans."""
        return Codes(self.layout[rows], self.columns[rows])

    def texts(self) -> list[bytes]:
        """Keys [plan] by which plans are distinguished."""
        return [row.tobytes() for row in np.column_stack([self.layout, self.columns])]


@dataclass(frozen=True)
class Knobs:
    """A space as a product of knobs.

    Attributes:
        space: which values every knob may take.
        base: plan that gives what no knob varies.
        model: decides which layouts there are.
    """

    space: PlanSpace
    base: ParallelPlan
    model: Workload

    @cached_property
    def layouts(self) -> tuple[PipelineLayout, ...]:
        """Pipelines of the space."""
        return tuple(self.space.layouts(self.model))

    @cached_property
    def degrees(self) -> dict[str, Rows]:
        """Values of every degree, in increasing order."""
        return {name: np.array(sorted(getattr(self.space, name))) for name in DEGREES}

    @cached_property
    def shardings(self) -> Rows:
        """Values [sharding, (zero_stage, sharding, dp_shard)] of the space."""
        return np.array(self.space.shardings())

    @cached_property
    def sizes(self) -> Rows:
        """Number of values of every knob, degrees first."""
        choices = [len(self.shardings) if name == "sharding" else len(getattr(self.space, name)) for name in CHOICES]
        return np.array([*(len(values) for values in self.degrees.values()), *choices])

    def codes(self, positions: Rows) -> Codes:
        """Plans at `positions` [plan, knob]; a knob without effect is at its plain value, as in `PlanSpace.block`."""
        at: dict[str, Rows] = dict(zip((*DEGREES, *CHOICES), positions.T, strict=True))
        value: dict[str, Rows] = {name: values[at[name]] for name, values in self.degrees.items()}
        for name in KNOBS:
            value[name] = np.array(getattr(self.space, name))[at[name]]
        value["recompute"] = np.array([RECOMPUTE.index(name) for name in self.space.recompute])[at["recompute"]]
        inner = value["tp"] * value["cp"] * value["pp"]
        value["dp"] = value["n_devices"] // inner
        self._plain(value, at["sharding"])
        layout = self._layout_of[at["schedule"], at["pp"], at["virtual_stages"]]
        layout = np.where(value["n_devices"] % inner == 0, layout, NOWHERE)
        return Codes(layout, np.stack([value[name] for name in COLUMNS], axis=1))

    def _plain(self, value: dict[str, Rows], sharding: Rows) -> None:
        """Sets knobs without effect to their plain values, in place."""
        alone, one_tp = value["dp"] * value["cp"] == 1, value["tp"] == 1
        value["sequence_parallel"] = np.where(one_tp, min(self.space.sequence_parallel), value["sequence_parallel"])
        value["overlap_tp"] = np.where(one_tp, min(self.space.overlap_tp), value["overlap_tp"])
        value["overlap_dp"] = np.where(alone, max(self.space.overlap_dp), value["overlap_dp"])
        value["overlap_pp"] = np.where(value["pp"] == 1, max(self.space.overlap_pp), value["overlap_pp"])
        own = np.where(alone[:, None], self.space.plain_sharding, self.shardings[sharding])
        value["zero_stage"], value["sharding"], value["dp_shard"] = own.T

    @cached_property
    def _layout_of(self) -> Rows:
        """Number of the layout, [schedule, pp, virtual_stages]."""
        number = {layout: i for i, layout in enumerate(self.layouts)}
        fixed: dict[tuple[int, str | PipelineSchedule], list[int]] = {}
        for layout, i in number.items():
            fixed.setdefault((layout.pp, layout.schedule), []).append(i)
        stages = self.degrees["virtual_stages"]
        found = np.full((len(self.space.schedule), len(self.degrees["pp"]), len(stages)), NOWHERE)
        for s, schedule in enumerate(self.space.schedule):
            for p, pp in enumerate(self.degrees["pp"].tolist()):
                name = DEFAULT_SCHEDULE if pp == 1 else schedule
                several = fixed.get((pp, name), [])
                if pp == 1 or resolve_schedule(name).fixed_virtual_stages is not None:  # number of chunks is not free
                    found[s, p, :] = several[0] if several else NOWHERE
                else:
                    found[s, p] = [number.get(PipelineLayout(pp, name, v), NOWHERE) for v in stages.tolist()]
        return found

    def tables(self, codes: Codes) -> Iterator[tuple[PlanTable, Rows]]:
        """Tables of plans that the space holds, one per layout, and which rows of `codes` are in each."""
        for number in np.unique(codes.layout[codes.layout != NOWHERE]):
            rows = np.flatnonzero(codes.layout == number)
            columns = dict(zip(COLUMNS, codes.columns[rows].T, strict=True))
            yield PlanTable(self.base, self.layouts[int(number)], **columns), rows

    def start(self, plan: ParallelPlan) -> Rows:
        """Positions nearest to a plan, [knob]."""
        degree = [int(np.abs(np.log2(values / getattr(plan, name))).argmin()) for name, values in self.degrees.items()]
        code = (plan.zero_stage, SHARDING.index(plan.sharding), plan.dp_shard)
        same = (self.shardings == code).all(axis=1)
        own = PlanTable.of(plan)
        wanted = {"schedule": plan.schedule, "recompute": plan.recompute}
        wanted |= {name: int(getattr(own, name)[0]) for name in KNOBS}
        choice = [
            int(same.argmax()) if name == "sharding" else _position(getattr(self.space, name), wanted[name])
            for name in CHOICES
        ]
        return np.array([*degree, *choice])


@dataclass(frozen=True)
class PlanList:
    """Given plans in the place of a space: their tables, one per layout."""

    listed: tuple[PlanTable, ...]

    def layouts(self, _model: Workload) -> Iterator[PipelineLayout]:
        """Returns the layouts of the plans."""
        return (table.layout for table in self.listed)

    def block(self, base: ParallelPlan, layout: PipelineLayout) -> PlanTable:
        """The plans of one layout."""
        return next(replace(table, base=base) for table in self.listed if table.layout == layout)


def _position(values: tuple[object, ...], wanted: object) -> int:
    return values.index(wanted) if wanted in values else 0


class VisitedPlans:
    """Times and memory of plans at positions of knobs, each computed once.

    Args:
        longer: how much longer steps of plans of a table are than noise-free ones [plan]; None: alike for all plans.
    """

    def __init__(self, knobs: Knobs, costs: PlanCosts, longer: Callable[[PlanTable], Floats] | None = None) -> None:
        self._knobs, self._costs, self._longer = knobs, costs, longer
        self._found: dict[bytes, tuple[float, float, Rows]] = {}

    def __len__(self) -> int:
        return len(self._found)

    @property
    def positions(self) -> Rows:
        """Positions of all plans, [plan, knob], in the order in which they were met."""
        found = [positions for _, _, positions in self._found.values()]
        return np.array(found, dtype=np.intp).reshape(-1, len(self._knobs.sizes))

    def look_up(self, positions: Rows) -> tuple[Floats, Floats]:
        """Time and fullness [plan] of plans at `positions` [plan, knob].

        Returns:
            Seconds without randomness, times `longer`, NaN where a plan cannot run; logarithm of the memory it needs over the
            memory there is, infinite where it breaks a rule.
        """
        codes = self._knobs.codes(positions)
        keys = codes.texts()
        first: dict[bytes, int] = {}
        for row, key in enumerate(keys):
            if key not in self._found:
                first.setdefault(key, row)
        if first:
            rows = np.array([*first.values()])
            found = self._learn(codes.take(rows))
            self._found |= dict(zip(first, zip(*found, positions[rows], strict=True), strict=True))
        time, fullness = zip(*(self._found[key][:2] for key in keys), strict=True)
        return np.array(time), np.array(fullness)

    def _learn(self, codes: Codes) -> tuple[Floats, Floats]:
        time, fullness = np.full(len(codes.layout), np.nan), np.full(len(codes.layout), np.inf)
        for table, rows in self._knobs.tables(codes):
            reason, memory = feasibility(table, self._costs)
            sound = (reason == FEASIBLE) | (reason == MEMORY)
            fullness[rows[sound]] = np.log(memory[sound] / self._costs.memory_limit_bytes)
            fits = np.flatnonzero(reason == FEASIBLE)
            if fits.size:
                own = table.take(fits)
                time[rows[fits]] = estimate_s(table_cost(own, self._costs), self._costs)
                time[rows[fits]] *= 1.0 if self._longer is None else self._longer(own)
        return time, fullness

    def best(self, count: int, within: float = np.inf) -> Rows:
        """Positions [plan, knob] of up to `count` plans, fastest first; where fewer fit, those follow that miss the least memory.

        Args:
            within: leaves out what takes longer than this times the fastest.

        Notes:
            Of plans of one layout that take the same time the one with the least memory stands for all (as ZeRO-1, ZeRO-2).
        """
        chosen: dict[tuple[float, bytes], bytes] = {}
        sound = self._sorted()
        for rank, _, key in sound:
            if len(chosen) == count or rank > sound[0][0] + np.log(within):
                break
            chosen.setdefault((rank, key[:8]), key)
        return self._at(chosen.values())

    def front(self, count: int, within: float) -> Rows:
        """Positions [plan, knob] of the `count` fastest plans and, behind them, of the fastest of every family.

        Args:
            within: leaves out families whose fastest plan takes longer than this times the fastest of all.
        """
        sound, first = self._sorted(), dict[bytes, bytes]()
        for rank, _, key in sound:
            if rank > sound[0][0] + np.log(within):
                break
            first.setdefault(self._found[key][2][FAMILY].tobytes(), key)
        return np.concatenate([self.best(count), self._at(first.values())])

    def _sorted(self) -> list[tuple[float, float, bytes]]:
        """Rank, fullness and key of plans that break no rule, fastest first."""
        return sorted((*self._rank(key), key) for key, (_, fullness, _) in self._found.items() if np.isfinite(fullness))

    def _at(self, keys: Iterable[bytes]) -> Rows:
        found = [self._found[key][2] for key in keys]
        return np.array(found, dtype=np.intp).reshape(-1, len(self._knobs.sizes))

    def _rank(self, key: bytes) -> tuple[float, float]:
        """Returns the sort key of a plan: log time (of plans that do not fit, their missing memory, after all times); then
        memory.
        """
        time, fullness, _ = self._found[key]
        return (round(float(np.log(time)), 9) if np.isfinite(time) else _LAST + fullness), fullness


_LAST = 1e3
