"""Tail of the step time of many plans: replica columns on common random numbers, plans of one pipeline side by side.

Columns leave out what averages out over the ops of a step (`replica_columns`), so that scoring a plan costs little more than
running its pipeline for each column. `predict` draws every call; finalists are scored by it.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np

from .._typing import Floats
from ..graph.signatures import signature_seconds
from ..objective import PlanObjective
from ..plan.plan import ParallelPlan
from ..simulate.replica_maximum import Shared, step_samples
from ..variability.tree import Variability
from .evaluate import Evaluator
from .pipeline import Pipeline, pipeline
from .plans.block import TableCost, chunk_seconds, table_cost
from .plans.plan_cache import Rows
from .plans.table import PlanTable, distinct
from .replica_columns import (
    REGIME_SCORES,
    PlanSeconds,
    ReplicaDraws,
    ReplicaSizes,
    collectives_of,
    replica_draws,
    replica_times,
    shared_by_replicas,
)

N_STEP_SAMPLES = 1024
COLUMNS_PER_RUN = 1 << 14  # plans times draws built at a time


class _Group(NamedTuple):
    """Plans that share pipeline, member groups and draws."""

    cost: TableCost
    rows: Rows  # of the table of `cost`
    pipe: Pipeline
    n_member: int
    n_replica: int


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
        found = np.empty((len(numbers), N_STEP_SAMPLES))
        for table, at in self.evaluator.tables(numbers):
            found[at] = self.samples_of(table, n_column)
        return found

    def samples_of(self, table: PlanTable, n_column: int) -> Floats:
        """The same for a table of plans."""
        found = np.empty((len(table), N_STEP_SAMPLES))
        for group in self._groups(table):
            draws = self._draws(group, n_column)
            per_run = max(1, COLUMNS_PER_RUN // (n_column * len(REGIME_SCORES)))
            for first in range(0, len(group.rows), per_run):
                some = group._replace(rows=group.rows[first : first + per_run])
                times, shared = self._times(some, draws)
                found[some.rows] = [
                    self._steps(own, draws.weight, group.n_replica, plan)
                    for own, plan in zip(times, shared, strict=True)
                ]
        return found

    def value(self, objective: PlanObjective, plan: ParallelPlan, n_column: int) -> float:
        """Value of one plan, in the unit of the objective."""
        table = PlanTable.of(plan)
        return float(objective.of(self.samples_of(table, n_column), table.n_devices)[0])

    def _steps(self, time_s: Floats, weight: Floats, n_replica: int, shared: Shared) -> Floats:
        rng = np.random.default_rng(self.seed)
        return step_samples(time_s, weight, n_replica, shared, N_STEP_SAMPLES, rng)

    def _groups(self, table: PlanTable) -> list[_Group]:
        cost = table_cost(table, self.evaluator.costs)
        n_member = table.tp * table.cp * table.tied
        first, which = distinct(table.n_micro_batch, n_member, table.n_devices)
        found = []
        for k, row in enumerate(first):
            pipe = pipeline(table.layout, int(table.n_micro_batch[row]))
            n_replica = int(table.n_devices[row] // (table.layout.pp * n_member[row]))
            found.append(_Group(cost, np.flatnonzero(which == k), pipe, int(n_member[row]), n_replica))
        return found

    def _draws(self, group: _Group, n_column: int) -> ReplicaDraws:
        job, table = self.evaluator.job, group.cost.table
        names = collectives_of(table.plan(int(group.rows[0])))
        sizes = (job.model.kernel_classes, names, table.layout.pp)
        return self._drawn(
            ReplicaSizes(*sizes, group.n_member, group.n_replica, job.cluster.node_size), n_column, self.seed
        )

    def _times(self, group: _Group, draws: ReplicaDraws) -> tuple[Floats, list[Shared]]:
        """Replica times [plan, score, column] and what the replicas of each plan share."""
        cost, rows, pipe = group.cost, group.rows, group.pipe
        chunks = chunk_seconds(cost, rows, self.evaluator.costs.eff.overlap_slowdown, by_class=True)
        plans = PlanSeconds(
            *signature_seconds(pipe.ops, *chunks),
            edge_s=cost.edge_s[cost.of_edge[rows]],
            blocking=(1 - cost.table.overlap_pp[rows]).astype(np.float64),
            end_compute_s=cost.end.compute_s[rows],
            end_exposed_s=cost.end.exposed_s[rows],
        )
        own = [cost.table.plan(int(row)) for row in rows]
        return replica_times(pipe, plans, draws), shared_by_replicas(pipe, plans, self.tree, own)
