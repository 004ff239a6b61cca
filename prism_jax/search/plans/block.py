"""Everything about a block of plans (one layout) that needs no simulation: reasons, memory, costs of chunks, edges and ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._typing import Floats
from ...cost.chunk_cost import ChunkCost, blocks_of, chunk_cost
from ...cost.step_end import EndWork, StageEnd, stage_end
from ...kernels import COMPUTE_CLASSES, PASSES
from ...memory.breakdown import HeldWeights, stage_bytes
from ...memory.factors import ActivationFactors, StateFactors
from ...partition.chunks import chunk_blocks, chunks_of_stage
from ...workload.base import kinds_of
from .cost_cache import PlanCosts
from .plan_cache import Rows
from .rules import FEASIBLE, MEMORY, Reasons, broken_rules
from .table import PlanTable, distinct

_F, _B, _GEMM = PASSES.index("F"), PASSES.index("B"), COMPUTE_CLASSES.index("gemm")


def feasibility(table: PlanTable, costs: PlanCosts) -> tuple[Reasons, Floats]:
    """Reason [plan] and peak memory [plan] in bytes; memory is NaN where a rule is broken."""
    reason = broken_rules(table, costs.model)
    memory = np.full(len(table), np.nan)
    sound = np.flatnonzero(reason == FEASIBLE)
    if sound.size:
        memory[sound] = peak_memory(table.take(sound), costs)
        reason[sound[memory[sound] > costs.memory_limit_bytes]] = MEMORY
    return reason, memory


def peak_memory(table: PlanTable, costs: PlanCosts) -> Floats:
    """[plan] bytes of the worst stage."""
    states, of_states = costs.states(table)
    activations, of_activations = costs.activations(table)
    weights, of_weights = costs.weights(table)
    saved, of_saved = costs.in_flight(table)
    first, which = distinct(of_states, of_activations, of_weights, of_saved)
    total = stage_bytes(
        StateFactors(*(part[of_states[first]] for part in states)),
        ActivationFactors(*(part[of_activations[first]] for part in activations)),
        HeldWeights(*(part[of_weights[first]] for part in weights)),
        saved[of_saved[first]],
        costs.options,
    ).total_bytes
    return np.asarray(total).max(axis=-1)[which]


@dataclass(frozen=True)
class TableCost:
    """Costs of the plans of a block; what several plans share is stored once.

    Attributes:
        table: the plans.
        chunk: [distinct, class of chunk]; `of_chunk` [plan] and `classes` [chunk] say which.
        edge_s: [distinct, chunk] seconds from every chunk to the next; `of_edge` [plan].
        end: [plan, stage].
    """

    table: PlanTable
    chunk: ChunkCost
    of_chunk: Rows
    classes: Rows
    edge_s: Floats
    of_edge: Rows
    end: StageEnd


def table_cost(table: PlanTable, costs: PlanCosts) -> TableCost:
    """Costs of feasible plans."""
    blocks, of_chunk = costs.blocks(table)
    every, kinds = chunk_blocks(costs.model, table.plan(0)), kinds_of(costs.model)
    classes = sorted(set(every))
    first = np.zeros(blocks.compute_s.shape[0], dtype=np.intp)
    first[of_chunk] = np.arange(len(table))
    sums = [blocks_of(c, kinds, lambda kind: blocks.at((slice(None), kinds.index(kind)))) for c in classes]
    made = [chunk_cost(own, table.tp[first], table.cp[first], costs.eff) for own in sums]
    chunk = ChunkCost(
        *(np.stack([getattr(c, name) for c in made], axis=1) for name in ("compute_s", "comm_s", "hidden_s"))
    )
    index = np.array([classes.index(c) for c in every])
    edge_s, of_edge = costs.edges(table)
    return TableCost(table, chunk, of_chunk, index, edge_s, of_edge, _ends(table, costs, chunk, of_chunk, index))


def _ends(table: PlanTable, costs: PlanCosts, chunk: ChunkCost, of_chunk: Rows, classes: Rows) -> StageEnd:
    """[plan, stage] what every stage does at the end of the step."""
    plan = table.plan(0)
    held = np.zeros((chunk.compute_s.shape[1], plan.pp))  # chunks of each class on each stage
    for stage in range(plan.pp):
        np.add.at(held[:, stage], classes[[*chunks_of_stage(plan, stage)]], 1.0)
    work, of_work = costs.ends(table)
    own = EndWork(*(part[of_work] for part in work))
    return stage_end(own, (chunk.backward_s @ held)[of_chunk], (chunk.forward_s @ held)[of_chunk], costs.eff)


def chunk_seconds(
    cost: TableCost, plans: Rows, overlap_slowdown: float, *, by_class: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Compute, exposed and hidden communication of some plans [plan, kind, chunk, class or axis].

    Args:
        cost: of a block.
        plans: rows of its table.
        overlap_slowdown: what compute pays for the transfers beside it.
        by_class: keep kernel classes and network axes apart; otherwise they are summed, and the last axis has one entry.
    """
    rows, chunk = cost.of_chunk[plans], cost.chunk
    parts = (chunk.compute_s, chunk.comm_s, chunk.hidden_s)
    if not by_class:
        parts = [part.sum(axis=-1, keepdims=True) for part in parts]
    compute, comm, hidden = (np.moveaxis(part[rows][:, cost.classes], 1, 2) for part in parts)
    beside = overlap_slowdown * cost.edge_s[cost.of_edge[plans]] * cost.table.overlap_pp[plans][:, None]
    compute = compute.copy()
    gemm = _GEMM if by_class else 0
    compute[:, _F, :, gemm] += beside  # products are slowed by what is sent beside them
    compute[:, _B, 1:, gemm] += beside[:, :-1]
    return compute, comm, hidden
