"""Evaluates all plans of a space, block by block: reasons, memory, bounds and exact noise-free step times, and tails of some.

Tails are replica columns on common random numbers, plans of one pipeline side by side. Columns leave out what averages out over
the ops of a step (`replica_columns`), so that scoring a plan costs little more than running its pipeline for each column.
`predict` draws every call; finalists are scored by it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import repeat
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..calibration.key import CalibrationKey
from ..core.arrays import Floats
from ..core.errors import PlanError
from ..core.processes import Progress, silent
from ..core.together import dealt, gathered_rows, n_processes, owners, process_number
from ..cost.efficiency import Efficiency
from ..graph.build import signature_seconds
from ..graph.draws import on_accelerator
from ..job.job import Job
from ..plan.plan import ParallelPlan
from ..result.objective import PlanObjective
from ..simulate.replica_maximum import Shared, step_samples
from ..variability.tree import Variability
from ..workload.base.workload import Workload
from .pipeline import Pipeline, PlanRun, end_times, pipeline, with_tables
from .plan_costs import (
    FEASIBLE,
    REASONS,
    PlanCosts,
    Reasons,
    TableCost,
    chunk_seconds,
    feasibility,
    lower_bound,
    table_cost,
)
from .plan_table import PipelineLayout, PlanTable, Rows, distinct
from .plan_work import PlanWorks
from .replica_columns import (
    REGIME_SCORES,
    ColumnWork,
    PlanSeconds,
    ReplicaDraws,
    ReplicaSizes,
    collectives_of,
    replica_draws,
    replica_times,
    shared_by_replicas,
)

PLANS_AT_ONCE = 1 << 14  # whose costs are held
STAGES_OF_PLAN = 16  # that take as long to cost as what does not go with them
PLANS_OF_LAYOUT = 300  # that run in the time in which their pipeline is laid out
N_SEEDS = 256  # plans of least bound that are simulated first, to have a time that others must beat


@dataclass(frozen=True)
class ScreeningResult:
    """Feasibility, memory and noise-free time of every plan of a space [plan].

    Attributes:
        reason: index into `REASONS`, 0 for feasible.
        memory_bytes: peak of the worst stage; NaN where a rule is broken.
        bound_s: lower bound of the step time; NaN where infeasible.
        step_s: exact noise-free step time; NaN where infeasible or out of reach of the best by its bound.
        n_devices: GPUs.
    """

    reason: Reasons
    memory_bytes: Floats
    bound_s: Floats
    step_s: Floats
    n_devices: Rows

    @property
    def n_plans(self) -> int:
        """All plans of the space."""
        return len(self.reason)

    @property
    def n_feasible(self) -> int:
        """Number of plans that can run."""
        return int((self.reason == FEASIBLE).sum())

    @property
    def reasons(self) -> dict[str, int]:
        """Number of plans that each reason rules out."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {text: int(n) for text, n in zip(REASONS[1:], counts[1:], strict=True) if n}

    def order(self) -> Rows:
        """Plans with a step time, fastest first."""
        known = np.flatnonzero(np.isfinite(self.step_s))
        return known[np.argsort(self.step_s[known], kind="stable")]


class Plans(Protocol):
    """Source of an evaluator's plans: a `PlanSpace`, or a list."""

    def layouts(self, model: Workload, /) -> Iterator[PipelineLayout]:
        """Yields the pipelines of the plans."""
        ...

    def block(self, base: ParallelPlan, layout: PipelineLayout) -> PlanTable:
        """All plans of one pipeline."""
        ...


def efficiency_of_plans(job: Job) -> Efficiency:
    """Constants of the device as calibrated for all plans: corrections that carry over from measured runs belong to single ones.

    What the job leaves unsaid shifts all plans as much as its own.

    Raises:
        SpecError: no constants for the device.
    """
    setting = CalibrationKey.of(job.cluster.device, job.framework, job.plan.software, job.model)
    return job.at_mean_of_open(job.effective_calibration.efficiency(setting))


class _PlanParts(NamedTuple):
    """Numbers [plan] that decide the work of plans: block of the space, sizes of the pipeline, and devices."""

    block: Rows
    n_micro_batch: Rows
    pp: Rows
    n_chunk: Rows
    n_member: Rows
    n_devices: Rows

    @property
    def n_op(self) -> Rows:
        """Micro-batches times model chunks."""
        return self.n_micro_batch * self.n_chunk


class Evaluator:
    """Evaluates the plans of a space for one job; plan numbers count through the blocks of the space's layouts.

    Args:
        job, space: as in `search`.
        memory_margin: share of a device's memory that a feasible plan leaves free.
    """

    def __init__(self, job: Job, space: Plans, memory_margin: float = 0.0) -> None:
        self.job, self.space = job, space
        eff, options = efficiency_of_plans(job), job.software.memory
        self.costs = PlanCosts(job.model, job.cluster, eff, options, memory_margin)
        self.layouts = tuple(space.layouts(job.model))
        self.block = lru_cache(maxsize=8)(self._block)

    @cached_property
    def first(self) -> NDArray[np.int64]:
        """Number of the first plan of every block, and of all plans at the end, [block + 1]."""
        return np.cumsum([0, *(len(self._block(i)) for i in range(len(self.layouts)))])

    @cached_property
    def works(self) -> PlanWorks | None:
        """Work of the micro-batches of the plans; None where it is the same in all."""
        found = PlanWorks(self.job, self.costs)
        return found if found.varies else None

    def _block(self, index: int) -> PlanTable:
        return self.space.block(self.job.plan, self.layouts[index])

    def plan(self, number: int) -> ParallelPlan:
        """Returns a plan by its number."""
        index = int(np.searchsorted(self.first, number, side="right")) - 1
        return self.block(index).plan(number - int(self.first[index]))

    def tables(self, numbers: Rows) -> Iterator[tuple[PlanTable, Rows]]:
        """Tables of plans by number, one per block, and which of `numbers` are in each."""
        block = np.searchsorted(self.first, numbers, side="right") - 1
        for index in np.unique(block):
            at = np.flatnonzero(block == index)
            yield self.block(int(index)).take(numbers[at] - self.first[index]), at

    def bounds(self, progress: Progress = silent) -> ScreeningResult:
        """Reasons, memory and bounds of all plans; no step time yet.

        Raises:
            PlanError: no plan of the space is feasible; says what is in the way.
        """
        owner = self._owner_of_blocks()
        own = [self._bounds(int(i), progress) for i in np.flatnonzero(owner == process_number())]
        each = [*zip(_NO_PLAN, *own, strict=True)]
        rows = np.repeat(owner, np.diff(self.first))
        reason, memory, bound, n_devices = (gathered_rows(np.concatenate(part), rows) for part in each)
        unknown = np.full(len(reason), np.nan)
        screen = ScreeningResult(reason.astype(np.uint8), memory, bound, unknown, n_devices.astype(np.intp))
        if screen.n_feasible == 0:
            raise PlanError(f"no plan of the space is feasible: {nothing_feasible(screen)}")
        return screen

    def simulate(self, screen: ScreeningResult, limit_s: float = np.inf, progress: Progress = silent) -> None:
        """Fills in the noise-free times of all plans whose bound is at most `limit_s`."""
        self.simulate_plans(screen, np.flatnonzero(screen.bound_s <= limit_s), progress)

    def simulate_plans(self, screen: ScreeningResult, numbers: Rows, progress: Progress = silent) -> None:
        """Fills in the noise-free times of plans by number, feasible ones, where they are not known yet."""
        self._simulate(screen, numbers[np.isnan(screen.step_s[numbers])], progress)

    def fastest(self, screen: ScreeningResult) -> float:
        """Least noise-free time of all plans, seconds: found by running plans in the order of their bounds."""
        by_bound = np.argsort(np.where(np.isfinite(screen.bound_s), screen.bound_s, np.inf), kind="stable")
        self._simulate(screen, np.sort(by_bound[: min(N_SEEDS, int(np.isfinite(screen.bound_s).sum()))]), silent)
        self.simulate(screen, float(np.nanmin(screen.step_s)))
        return float(np.nanmin(screen.step_s))

    def _owner_of_blocks(self) -> Rows:
        """Number of the process that costs each block [block]; blocks of as many stages, which share most costs, have one as far
        as there are enough kinds of them; the longest work is dealt first, to whom has least.
        """
        pp = np.array([layout.pp for layout in self.layouts])
        n_chunk = np.array([layout.n_chunk for layout in self.layouts])
        work, loads = np.diff(self.first) * (STAGES_OF_PLAN + pp), np.zeros(n_processes())
        for alike in (distinct(pp)[1], distinct(pp, n_chunk)[1], np.arange(len(pp))):
            if alike.max(initial=0) >= 3 * n_processes():
                break
        owner = np.zeros(len(pp), np.intp)
        of_kind = np.bincount(alike, work)
        for kind in np.argsort(-of_kind, kind="stable"):
            owner[alike == kind] = least = int(loads.argmin())
            loads[least] += of_kind[kind]
        return owner

    def parts(self, numbers: Rows) -> _PlanParts:
        """Numbers that decide the work of plans by number, and who may share it."""
        found = _PlanParts(*np.empty((len(_PlanParts._fields), len(numbers)), np.intp))
        for table, at in self.tables(numbers):
            block = int(np.searchsorted(self.first, numbers[at[0]], side="right")) - 1
            n_member, n_chunk = table.tp * table.cp * table.tied, table.layout.n_chunk
            own = (block, table.n_micro_batch, table.layout.pp, n_chunk, n_member, table.n_devices)
            for part, values in zip(found, own, strict=True):
                part[at] = values
        return found

    def _dealt_by_pipeline(self, numbers: Rows, compute: Callable[[Rows], Floats]) -> Floats:
        """Numbers [plan] of plans by number, in which the processes that search together share.

        Args:
            compute: called with some of the numbers; gives each plan the same digits, whatever plans come with it.
        """
        if n_processes() == 1:
            return compute(numbers)
        parts = self.parts(numbers)
        _, alike = distinct(parts.block, parts.n_micro_batch)
        work = parts.n_op * (1.0 + PLANS_OF_LAYOUT / np.bincount(alike)[alike])
        order = np.lexsort([parts.n_micro_batch, parts.block, self._owner_of_blocks()[parts.block]])
        owner = np.empty(len(numbers), np.intp)
        owner[order] = owners(work[order])  # who costed a block has most of its costs
        return dealt(owner, lambda rows: compute(numbers[rows]))

    def _bounds(self, index: int, progress: Progress) -> tuple[Reasons, Floats, Floats, Rows]:
        table = self._block(index)
        reason, memory = feasibility(table, self.costs)
        bound = np.full(len(table), np.nan)
        rows = np.flatnonzero(reason == FEASIBLE)
        if rows.size:
            cost = table_cost(table.take(rows), self.costs)
            bound[rows] = lower_bound(cost, self.costs.eff.overlap_slowdown)
        progress((index + 1) / len(self.layouts), "costs of all plans")
        return reason, memory, bound, table.n_devices

    def _simulate(self, screen: ScreeningResult, numbers: Rows, progress: Progress) -> None:
        """Exact times of some plans, in place."""

        def times(own: Rows) -> Floats:
            found = np.empty(len(own))
            for first in range(0, len(own), PLANS_AT_ONCE):
                tables, places = zip(*self.tables(own[first : first + PLANS_AT_ONCE]), strict=True)
                for times, at in zip(self.times_of(tables), places, strict=True):
                    found[first + at] = times
                done = min(1.0, (first + PLANS_AT_ONCE) / len(own))
                progress(done, f"noise-free times of {len(numbers):,} plans")
            return found

        screen.step_s[numbers] = self._dealt_by_pipeline(numbers, times)

    def step_times(self, table: PlanTable) -> Floats:
        """Noise-free step time [plan] of feasible plans of one layout, seconds."""
        return self.times_of([table])[0]

    def times_of(self, tables: Sequence[PlanTable]) -> list[Floats]:
        """Noise-free step times of several tables, whose plans of all layouts run together; seconds, [plan] of each."""
        costs = [table_cost(table, self.costs) for table in tables]
        alike = [distinct(c.of_chunk, c.of_edge, c.table.overlap_pp, c.table.n_micro_batch) for c in costs]
        runs = [self._runs(cost, first) for cost, (first, _) in zip(costs, alike, strict=True)]
        ends, found = iter(end_times([run for own in runs for _, run in own])), []
        for cost, (first, which), own in zip(costs, alike, runs, strict=True):
            stages = np.empty((len(first), cost.table.layout.pp))
            for rows, _ in own:
                stages[rows] = next(ends)
            found.append((stages[which] + cost.end.compute_s + cost.end.exposed_s).max(axis=1))
        return found

    def _runs(self, cost: TableCost, rows: Rows) -> list[tuple[Rows, PlanRun]]:
        """Runs of some plans of a table, and which of `rows` are in each."""
        n_micro_batch, found = cost.table.n_micro_batch[rows], []
        for m in np.unique(n_micro_batch):
            at = np.flatnonzero(n_micro_batch == m)
            plans, pipe = rows[at], pipeline(cost.table.layout, int(m))
            compute, comm = signature_seconds(pipe.ops, *chunk_seconds(cost, plans, self.costs.eff.overlap_slowdown))
            blocking = (1.0 - cost.table.overlap_pp[plans]).astype(np.float64)
            found.append((at, PlanRun.of(pipe, (compute + comm)[..., 0], cost.edge_s[cost.of_edge[plans]], blocking)))
        return found


# Reasons, memory, bounds and devices of no plan, by whose types those of some are put together.
_NO_PLAN = np.zeros(0, np.uint8), np.zeros(0), np.zeros(0), np.zeros(0, np.int64)


def nothing_feasible(screen: ScreeningResult) -> str:
    """Returns the reasons that rule out most plans, for an error message."""
    if not screen.n_plans:
        return "no combination of degrees multiplies to the number of devices. Allow more values of tp, pp or cp."
    worst = sorted(screen.reasons.items(), key=lambda item: -item[1])
    return "; ".join(f"{text} ({n:,} of {screen.n_plans:,} plans)" for text, n in worst[:3])


N_STEP_SAMPLES = 1024
COLUMNS_PER_RUN = 1 << 14  # plans times draws built at a time
COLUMNS_ON_ACCELERATOR = 1 << 19  # the same there: half a gigabyte
OPS_OF_COLUMN = 1 << 10  # of a pipeline whose ops all differ that take the space of a column


class _Group(NamedTuple):
    """Plans that share pipeline, member groups and draws; `work_sd` as that of `ReplicaSizes`."""

    cost: TableCost
    rows: Rows  # of the table of `cost`
    pipe: Pipeline
    n_member: int
    n_replica: int
    work_sd: float

    def size(self, n_column: int) -> int:
        """Space that columns of one plan take."""
        n = n_column * len(REGIME_SCORES)
        return n if self.work_sd == 0.0 else n * -(-len(self.pipe.graph.lane) // OPS_OF_COLUMN)


class TailScorer:
    """Draws of the step time of an evaluator's plans; one seed, one answer, however plans are put together.

    Args:
        evaluator: of the job.
        seed: of all draws.
        variability: in place of the job's, for posterior draws.
    """

    def __init__(self, evaluator: Evaluator, seed: int, variability: Variability | None = None) -> None:
        self.evaluator, self.seed = evaluator, seed
        self.tree = evaluator.job.variability if variability is None else variability
        self._drawn = lru_cache(maxsize=64)(partial(replica_draws, self.tree))

    def samples(self, numbers: Rows, n_column: int) -> Floats:
        """Equally likely step times [plan, sample] of plans by number, seconds, sorted.

        Args:
            numbers: of feasible plans.
            n_column: replica columns per plan, a power of two.
        """
        groups = [(at, group) for table, at in self.evaluator.tables(numbers) for group in self._groups(table)]
        with_tables(group.pipe for _, group in groups)
        return self._samples_of([(at[group.rows], group) for at, group in groups], len(numbers), n_column)

    def samples_of(self, table: PlanTable, n_column: int) -> Floats:
        """Equally likely step times [plan, sample] of the plans of a table, seconds, sorted."""
        return self._samples_of([(group.rows, group) for group in self._groups(table)], len(table), n_column)

    def _samples_of(self, groups: Sequence[tuple[Rows, _Group]], n_plan: int, n_column: int) -> Floats:
        """Samples of groups, each with its places among the plans; many plans at a time, as far as columns fit."""
        found = np.empty((n_plan, N_STEP_SAMPLES))
        parts = []
        for at, group in groups:
            most = max(1, COLUMNS_PER_RUN // group.size(n_column))
            some = range(0, len(at), most)
            parts += [(at[i : i + most], group._replace(rows=group.rows[i : i + most])) for i in some]
        at_once = COLUMNS_ON_ACCELERATOR if on_accelerator() else COLUMNS_PER_RUN
        batch = np.cumsum([len(at) * group.size(n_column) for at, group in parts]) // at_once
        for number in np.unique(batch):
            some = [part for part, own in zip(parts, batch, strict=True) if own == number]
            runs = [(group.pipe, self._seconds(group), *self._draws(group, n_column)) for _, group in some]
            for (at, group), (pipe, plans, draws, work), times in zip(some, runs, replica_times(runs), strict=True):
                own = [group.cost.table.plan(int(row)) for row in group.rows]
                shared = shared_by_replicas(pipe, plans, self.tree, own, work)
                weights = repeat(draws.weight) if work is None else work.weight
                found[at] = [
                    self._steps(time_s, shared_by, group.n_replica, weight)
                    for time_s, shared_by, weight in zip(times, shared, weights, strict=False)
                ]
        return found

    def value(self, objective: PlanObjective, plan: ParallelPlan, n_column: int) -> float:
        """Value of one plan, in the unit of the objective."""
        table = PlanTable.of(plan)
        return float(objective.of(self.samples_of(table, n_column), table.n_devices)[0])

    def _steps(self, time_s: Floats, shared: Shared, n_replica: int, weight: Floats) -> Floats:
        rng = np.random.default_rng(self.seed)
        return step_samples(time_s, weight, n_replica, shared, N_STEP_SAMPLES, rng)

    def _groups(self, table: PlanTable) -> list[_Group]:
        cost = table_cost(table, self.evaluator.costs)
        n_member = table.tp * table.cp * table.tied
        works = self.evaluator.works
        spread = np.array([0.0 if works is None else works.spread(cost, row) for row in range(len(table))])
        work_sds, of_work = np.unique(spread, return_inverse=True)
        first, which = distinct(table.n_micro_batch, n_member, table.n_devices, of_work, self._of_collectives(table))
        found = []
        for k, row in enumerate(first):
            pipe = pipeline(table.layout, int(table.n_micro_batch[row]))
            n_replica = int(table.n_devices[row] // (table.layout.pp * n_member[row]))
            sizes = int(n_member[row]), n_replica, float(work_sds[of_work[row]])
            found.append(_Group(cost, np.flatnonzero(which == k), pipe, *sizes))
        return found

    def _of_collectives(self, table: PlanTable) -> Rows:
        """Number [plan] that plans share whose collectives vary alike."""
        first, which = distinct(table.sequence_parallel, table.zero_stage, table.shard_group)
        laws = [tuple(map(self.tree.of, collectives_of(table.plan(int(row))))) for row in first]
        return np.array([laws.index(law) for law in laws])[which]

    def _draws(self, group: _Group, n_column: int) -> tuple[ReplicaDraws, ColumnWork | None]:
        """Returns what the columns of a group draw, and the work of their micro-batches where it varies."""
        job, table, works = self.evaluator.job, group.cost.table, self.evaluator.works
        names = collectives_of(table.plan(int(group.rows[0])))
        sizes = (job.model.kernel_classes, names, table.layout.pp, group.n_member, group.n_replica)
        draws = self._drawn(ReplicaSizes(*sizes, job.cluster.node_size, group.work_sd), n_column, self.seed)
        if works is None or group.work_sd == 0.0:
            return draws, None
        return draws, works.columns(group.cost, group.rows, draws.drawn)

    def _seconds(self, group: _Group) -> PlanSeconds:
        cost, rows, pipe = group.cost, group.rows, group.pipe
        chunks = chunk_seconds(cost, rows, self.evaluator.costs.eff.overlap_slowdown, by_class=True)
        return PlanSeconds(
            *signature_seconds(pipe.ops, *chunks),
            edge_s=cost.edge_s[cost.of_edge[rows]],
            blocking=(1 - cost.table.overlap_pp[rows]).astype(np.float64),
            end_compute_s=cost.end.compute_s[rows],
            end_exposed_s=cost.end.exposed_s[rows],
        )
