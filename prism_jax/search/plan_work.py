"""Draws the work of the micro-batches of many plans, from costs that plans share.

The laws are those of `predict` (`simulate/work.py`). Their costs come from tables: sequences of other lengths and a busier rank
of the experts are tables of the same plans with another length and another model, so that plans that share a chunk share its
costs. A column draws work for every micro-batch: its ops differ, where those of a column without work repeat.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from ..core.arrays import Floats
from ..graph.build import WorkTerms, op_work_terms, signature_seconds
from ..graph.draws import on_host
from ..job.job import Job
from ..plan.packing import Data, law_of
from ..simulate.importance import Proposal
from ..simulate.work import Work, WorkCosts, with_busier_rank, work_parts
from ..workload.transformer.spec import TransformerSpec
from .pipeline import PlanRun, Single, pipeline, run, sent_s
from .plan_costs import PlanCosts, TableCost, chunk_seconds, table_cost
from .plan_table import COLUMNS, PlanTable, Rows
from .replica_columns import ColumnWork

MOST_KEPT = 64  # plans whose tables are held: a megabyte each
N_STEP = 1024  # steps that are run for the factor of popularity
Key = tuple[object, ...]


class PlanWorks:
    """Work of the plans of one job.

    Args:
        job: whose data and model say what varies.
        costs: of its plans.
    """

    def __init__(self, job: Job, costs: PlanCosts) -> None:
        self._costs = costs
        moe = job.model.moe if isinstance(job.model, TransformerSpec) else None
        is_routed = moe is not None and moe.routing is not None
        self.varies = is_routed or (job.plan.data.is_drawn and law_of(job.plan).varies)
        model = with_busier_rank(job.model) if is_routed else job.model
        self._heavier = PlanCosts(model, costs.cluster, costs.eff, costs.options)
        self._kept: OrderedDict[Key, Work | None] = OrderedDict()
        self._spreads: dict[Key, float] = {}

    def spread(self, cost: TableCost, row: int) -> float:
        """Returns the standard deviation of what work adds to a replica's step of a plan, relatively, rounded to a power of two.

        Notes: plans whose GPUs share draws have one spread, with any other plans.
        """
        key = _key(cost.table, row)
        if key not in self._spreads:
            work = self.of(cost, row)
            self._spreads[key] = 0.0 if work is None or work.sd == 0.0 else float(2.0 ** np.rint(np.log2(work.sd)))
        return self._spreads[key]

    def of(self, cost: TableCost, row: int) -> Work | None:
        """Returns the work of one plan of a table, its terms by op; None where all micro-batches hold the same."""
        key = _key(cost.table, row)
        if key in self._kept:
            self._kept.move_to_end(key)
            return self._kept[key]
        found = self._kept[key] = self._made(cost, row)
        if len(self._kept) > MOST_KEPT:
            self._kept.popitem(last=False)
        return found

    def columns(self, cost: TableCost, rows: Rows, drawn: Proposal) -> ColumnWork:
        """Returns the work of the columns of some plans that share a pipeline, drawn together with their GPUs."""
        layout, n_micro_batch = cost.table.layout, int(cost.table.n_micro_batch[rows[0]])
        factors, weights, popularity = [], [], []
        for work in (self.of(cost, int(row)) for row in rows):
            assert work is not None  # plans without have no spread
            excess, weight = drawn.with_work(work)
            share, row = work.terms.share, work.terms.row
            factors.append(1.0 + sum(share[:, k, None] * excess[0][row[:, k]] for k in range(row.shape[1])))
            weights.append(weight[0])
            popularity.append(work.popularity)
        pipe = pipeline(layout, n_micro_batch, by_op=True)
        return ColumnWork(pipe, np.stack(factors, axis=1), np.stack(weights), popularity)

    def _made(self, cost: TableCost, row: int) -> Work | None:
        table = cost.table.take(np.array([row]))
        plan = table.plan(0)

        def at(n: int) -> float:
            same = replace(table, base=replace(table.base, seq_len=n, data=Data()))
            return float(sum(part.sum() for part in _seconds(table_cost(same, self._costs), self._costs)))

        def heavier_s() -> Floats:
            return _seconds(table_cost(table, self._heavier), self._costs)[0]

        own = table_cost(table, self._costs)
        compute_s, comm_s = _seconds(own, self._costs)
        found = work_parts(
            self._costs.model, plan, WorkCosts(compute_s, float(compute_s.sum() + comm_s.sum()), at, heavier_s)
        )
        if found is None:
            return None
        pipe = pipeline(table.layout, plan.n_micro_batch)
        terms = op_work_terms(pipe.graph.schedule, pipe.ops, compute_s, found.portions)
        terms = terms._replace(share=on_host(terms.share))
        steps = found.steps
        if steps is not None:  # fewer than `predict` runs, equally spaced where they were recorded
            some = np.linspace(0, len(steps.mean) - 1, min(N_STEP, len(steps.mean))).astype(int)
            found = found._replace(steps=steps._replace(mean=steps.mean[some]))
        popularity = found.popularity(plan.n_micro_batch, _step_s(own, terms, self._costs), N_STEP)
        return Work(terms, found.n_row, found.sources, found.of_steps, popularity)


def _step_s(cost: TableCost, terms: WorkTerms, costs: PlanCosts) -> Callable[[Single], Floats]:
    """Seconds of the step without noise [column] of the plan of a table of one, under factors less one [row, column]."""
    pipe = pipeline(cost.table.layout, int(cost.table.n_micro_batch[0]))
    by_op, blocking = (
        pipeline(cost.table.layout, int(cost.table.n_micro_batch[0]), by_op=True),
        cost.table.overlap_pp == 0,
    )
    chunks = chunk_seconds(cost, np.array([0]), costs.eff.overlap_slowdown)
    compute, comm = (part[0, :, :1][pipe.ops.of_op] for part in signature_seconds(pipe.ops, *chunks))
    edge_s = cost.edge_s[cost.of_edge]
    sent = (sent_s(by_op, edge_s) * blocking[:, None]).T
    end_s = (cost.end.compute_s + cost.end.exposed_s).T

    def step_s(excess: Single) -> Floats:
        more = sum(terms.share[:, k, None] * excess[terms.row[:, k]] for k in range(terms.row.shape[1]))
        lag = np.repeat((edge_s * ~blocking[:, None]).T, excess.shape[1], axis=1)
        (ends,) = run([PlanRun(by_op, compute * (1.0 + more) + comm + sent, lag)])
        return (ends + end_s).max(axis=0)

    return step_s


def _key(table: PlanTable, row: int) -> Key:
    base = table.base
    return base.global_batch, base.seq_len, table.layout, *(int(getattr(table, name)[row]) for name in COLUMNS)


def _seconds(cost: TableCost, costs: PlanCosts) -> tuple[Floats, Floats]:
    """Compute [kind, chunk, class] and exposed communication [kind, chunk, axis] of the plan of a table of one."""
    compute, comm, _ = chunk_seconds(cost, np.array([0]), costs.eff.overlap_slowdown, by_class=True)
    return compute[0], comm[0]
