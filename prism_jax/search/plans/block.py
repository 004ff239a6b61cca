"""Everything about a block of plans (one layout) that needs no simulation: reasons, memory, costs of chunks, edges and ends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..._typing import Floats
from ...cost.block_cost import KINDS_OF_PIECE
from ...cost.chunk_cost import ChunkCost, chunk_cost, pieces_of
from ...cost.step_cost import COMPUTE_CLASSES, KINDS
from ...cost.step_end import EndWork, StageEnd, stage_end
from ...memory.breakdown import StageLoad, stage_bytes
from ...memory.factors import ActivationFactors, StateFactors
from ...partition.chunks import chunk_classes, chunks_of_stage
from .cost_cache import Parts, Rows
from .rules import FEASIBLE, MEMORY, Reasons, broken_rules
from .table import PlanTable, distinct

_F, _B, _GEMM = KINDS.index("F"), KINDS.index("B"), COMPUTE_CLASSES.index("gemm")


def feasibility(table: PlanTable, parts: Parts) -> tuple[Reasons, Floats]:
    """Reason [plan] and peak memory [plan] in bytes; memory is NaN where a rule is broken."""
    reason = broken_rules(table, parts.model)
    memory = np.full(len(table), np.nan)
    sound = np.flatnonzero(reason == FEASIBLE)
    if sound.size:
        memory[sound] = peak_memory(table.take(sound), parts)
        reason[sound[memory[sound] > parts.cluster.device.hbm_bytes]] = MEMORY
    return reason, memory


def peak_memory(table: PlanTable, parts: Parts) -> Floats:
    """[plan] bytes of the worst stage."""
    found = [parts.states(table), parts.activations(table), parts.weights(table), parts.in_flight(table)]
    first, which = distinct(*(rows for _, rows in found))
    states, activations, weights, flights = (values[rows[first]] for values, rows in found)
    load = StageLoad(*np.moveaxis(weights, 1, 0), *np.moveaxis(flights, 1, 0))
    by_plan = StateFactors(*states.T[..., None]), ActivationFactors(*activations.T[..., None])
    total = np.asarray(stage_bytes(*by_plan, load, parts.options).total_bytes)
    return total.max(axis=-1)[which]


@dataclass(frozen=True)
class BlockCost:
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


def block_cost(table: PlanTable, parts: Parts) -> BlockCost:
    """Costs of feasible plans."""
    pieces, of_chunk = parts.pieces.look_up(table)
    every = chunk_classes(parts.model, table.plan(0))
    kinds = sorted(set(every))
    first = np.zeros(pieces.compute_s.shape[0], dtype=np.intp)
    first[of_chunk] = np.arange(len(table))
    sums = [pieces_of(c, lambda kind: pieces.at((slice(None), KINDS_OF_PIECE.index(kind)))) for c in kinds]
    made = [chunk_cost(own, table.tp[first], table.cp[first], parts.eff) for own in sums]
    chunk = ChunkCost(
        *(np.stack([getattr(c, name) for c in made], axis=1) for name in ("compute_s", "comm_s", "hidden_s"))
    )
    classes = np.array([kinds.index(c) for c in every])
    edge_s, of_edge = parts.edges(table)
    return BlockCost(table, chunk, of_chunk, classes, edge_s, of_edge, _ends(table, parts, chunk, of_chunk, classes))


def _ends(table: PlanTable, parts: Parts, chunk: ChunkCost, of_chunk: Rows, classes: Rows) -> StageEnd:
    """[plan, stage] what every stage does at the end of the step."""
    plan = table.plan(0)
    held = np.zeros((chunk.compute_s.shape[1], plan.pp))  # chunks of each class on each stage
    for stage in range(plan.pp):
        np.add.at(held[:, stage], classes[[*chunks_of_stage(plan, stage)]], 1.0)
    work, of_work = parts.ends(table)
    own = EndWork(*np.moveaxis(work[of_work], 1, 0))
    return stage_end(own, (chunk.backward_s @ held)[of_chunk], (chunk.forward_s @ held)[of_chunk], parts.eff)


def chunk_seconds(
    cost: BlockCost, plans: Rows, overlap_slowdown: float, *, by_class: bool = False
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
