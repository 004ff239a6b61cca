"""Noise-free evaluation of all plans of a space, block by block: reasons, memory, bounds and exact step times."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from .._typing import Floats
from ..calibration.key import CalibrationKey
from ..cost.efficiency import Efficiency
from ..errors import PlanError
from ..job import Job
from ..plan.plan import ParallelPlan
from ..progress import Progress, silent
from ..workload.base import Workload
from .pipeline import end_times, pipeline
from .plans.block import TableCost, chunk_seconds, feasibility, table_cost
from .plans.bound import lower_bound
from .plans.cost_cache import PlanCosts
from .plans.plan_cache import Rows
from .plans.rules import FEASIBLE, REASONS, Reasons
from .plans.table import Layout, PlanTable, distinct

N_SEEDS = 256  # plans of least bound that are simulated first, to have a time that others must beat


@dataclass(frozen=True)
class ScreeningResult:
    """What is known of every plan of a space, without randomness [plan].

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
        """Plans that can run."""
        return int((self.reason == FEASIBLE).sum())

    @property
    def reasons(self) -> dict[str, int]:
        """How many plans each reason rules out."""
        counts = np.bincount(self.reason, minlength=len(REASONS))
        return {text: int(n) for text, n in zip(REASONS[1:], counts[1:], strict=True) if n}

    def order(self) -> Rows:
        """Plans with a step time, fastest first."""
        known = np.flatnonzero(np.isfinite(self.step_s))
        return known[np.argsort(self.step_s[known], kind="stable")]


class Plans(Protocol):
    """Where an evaluator takes plans from: a `PlanSpace`, or a list."""

    def layouts(self, model: Workload, /) -> Iterator[Layout]:
        """Pipelines of the plans."""
        ...

    def block(self, base: ParallelPlan, layout: Layout) -> PlanTable:
        """All plans of one pipeline."""
        ...


def efficiency_of_plans(job: Job) -> Efficiency:
    """Constants of the device as calibrated for all plans: what carries over from measured runs belongs to single ones.

    What the job leaves unsaid shifts all plans as much as its own.

    Raises:
        SpecError: no constants for the device.
    """
    setting = CalibrationKey.of(job.cluster.device, job.framework, job.plan.software, job.model)
    return job.at_mean_of_open(job.effective_calibration.efficiency(setting))


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
        """[block + 1] number of the first plan of every block, and of all plans at the end."""
        return np.cumsum([0, *(len(self._block(i)) for i in range(len(self.layouts)))])

    def _block(self, index: int) -> PlanTable:
        return self.space.block(self.job.plan, self.layouts[index])

    def plan(self, number: int) -> ParallelPlan:
        """Plan by number."""
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
        found = [self._bounds(i, progress) for i in range(len(self.layouts))]
        columns = [np.concatenate(part) for part in zip(*found, strict=True)] or [np.zeros(0)] * 4
        reason, memory, bound, n_devices = columns
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
        done = 0
        for table, at in self.tables(numbers):
            screen.step_s[numbers[at]] = self.step_times(table)
            done += len(at)
            progress(done / len(numbers), f"noise-free times of {len(numbers):,} plans")

    def step_times(self, table: PlanTable) -> Floats:
        """Noise-free step time [plan] of feasible plans of one layout, seconds."""
        cost = table_cost(table, self.costs)
        first, which = distinct(cost.of_chunk, cost.of_edge, table.overlap_pp, table.n_micro_batch)
        ends = np.empty((len(first), table.layout.pp))
        for m in np.unique(table.n_micro_batch[first]):
            rows = np.flatnonzero(table.n_micro_batch[first] == m)
            ends[rows] = self._end_times(cost, first[rows], table.layout, int(m))
        return (ends[which] + cost.end.compute_s + cost.end.exposed_s).max(axis=1)

    def _end_times(self, cost: TableCost, rows: Rows, layout: Layout, n_micro_batch: int) -> Floats:
        seconds = chunk_seconds(cost, rows, self.costs.eff.overlap_slowdown)
        blocking = (1.0 - cost.table.overlap_pp[rows]).astype(np.float64)
        return end_times(pipeline(layout, n_micro_batch), *seconds, cost.edge_s[cost.of_edge[rows]], blocking)


def nothing_feasible(screen: ScreeningResult) -> str:
    """What rules out the most plans, for an error message."""
    if not screen.n_plans:
        return "no combination of degrees multiplies to the number of devices. Allow more values of tp, pp or cp."
    worst = sorted(screen.reasons.items(), key=lambda item: -item[1])
    return "; ".join(f"{text} ({n:,} of {screen.n_plans:,} plans)" for text, n in worst[:3])
