"""Costs many plans without simulation: why some cannot run, memory, costs of chunks, edges and ends, and a lower bound.

Each distinct plan is costed once by the scalar code of `cost` and `memory` (`plan_table`). A reason is a number per plan, 0 where
nothing is in the way; the first rule that is broken counts (`rules.arithmetic`). The bound is of the noise-free step time, from
costs alone.

Stage s starts when the first micro-batch has come through the stages before it, is busy for all its work, and the step ends after
the last gradient has gone back to the first stage and every stage has done what it does at the end:

    T >= max_s  (fill_s + busy_s + max(end_s, drain_s + end_0))

Stages that put work off behind their last gradient (zero-bubble) let nothing drain, bidirectional schedules and the V do not
fill in one direction; a schedule says which terms hold for it, and those that do not are left out. Where a forward overlaps
a backward, communication counts nothing.
1F1B and GPipe without transfers meet the bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Flags, Floats
from ..core.kernels import COMPUTE_CLASSES, PASSES
from ..cost.block_cost import BlockCost, BlockCostModel, stack_blocks
from ..cost.chunk_cost import ChunkCost, blocks_of, chunk_cost
from ..cost.efficiency import Efficiency
from ..cost.memory import (
    ActivationFactors,
    HeldWeights,
    StageMemory,
    StateFactors,
    activation_factors,
    held_activations,
    held_weights,
    stage_bytes,
    state_factors,
)
from ..cost.offload import host_memory, keeps_on_host
from ..cost.partition import StageWeights, chunk_blocks, chunks_of_stage, group_splits, stage_weights
from ..cost.step_end import EndWork, StageEnd, distance_seconds, edge_distances, end_passes, end_work, stage_end
from ..framework.base import MEGATRON, MemoryOptions
from ..job.rules import RULES, PlanNumbers
from ..plan.plan import SHARDING, ParallelPlan
from ..system.hardware import Cluster
from ..workload.base.workload import Workload, kinds_of
from .plan_table import PlanCache, PlanTable, Rows, distinct

N = TypeVar("N", StateFactors, ActivationFactors, HeldWeights, EndWork)


def stacked(values: Sequence[N], rows: Rows | slice = slice(None)) -> N:
    """Named tuples of arrays along a new leading axis, of which those at `rows` are returned."""
    return type(values[0])(*(np.stack(parts)[rows] for parts in zip(*values, strict=True)))


@lru_cache(maxsize=2)
def _memory_of(
    model: Workload, options: MemoryOptions
) -> tuple[PlanCache[StateFactors], PlanCache[ActivationFactors], PlanCache[HeldWeights], PlanCache[Floats]]:
    """Caches the memory of plans, which clusters do not change: those of a catalogue share it."""
    return (
        PlanCache(lambda plan: state_factors(model, plan, options)),
        PlanCache(lambda plan: activation_factors(model, plan, options)),
        PlanCache(lambda plan: held_weights(model, plan)),
        PlanCache(lambda plan: held_activations(model, plan)),
    )


class PlanCosts:
    """Costs of the plans of one model on one cluster.

    Args:
        options: memory rules of the framework.
        memory_margin: share of a device's memory that a plan leaves free.
    """

    def __init__(
        self,
        model: Workload,
        cluster: Cluster,
        eff: Efficiency,
        options: MemoryOptions = MEGATRON,
        memory_margin: float = 0.0,
    ) -> None:
        self.model, self.cluster, self.eff, self.options = model, cluster, eff, options
        self.memory_limit_bytes = (1.0 - memory_margin) * cluster.device.hbm_bytes
        kinds = kinds_of(model)
        self._alone = PlanCache(lambda plan: stack_blocks([*map(self._blocks(plan).alone, kinds)]))
        self._gathering = PlanCache(lambda plan: stack_blocks([*map(self._blocks(plan).gathering, kinds)]))
        self._states, self._activations, self._weights, self._in_flight = _memory_of(model, options)
        self._ends = PlanCache(self._ends_of)
        self._end_passes = PlanCache(end_passes)  # apart: few fields of a plan decide them, micro-batches among these
        self._end_work: dict[bytes, PlanCache[EndWork]] = {}
        self._fits_host = PlanCache(self._fits_host_of)
        self._sends = PlanCache(
            lambda plan: np.append(distance_seconds(model, cluster, plan.computed, eff.correction), 0.0)
        )
        self._distances = PlanCache(lambda plan: edge_distances(cluster, plan))

    def blocks(self, table: PlanTable) -> tuple[BlockCost, Rows]:
        """Blocks of the model [distinct, kind] and which of them every plan has."""
        alone, of_alone = self._alone.look_up(table)
        gathering, of_gathering = self._gathering.look_up(table)
        first, which = distinct(of_alone, of_gathering)
        both = stack_blocks(alone).at(of_alone[first]) + stack_blocks(gathering).at(of_gathering[first])
        return both, which

    def memory(self, table: PlanTable) -> tuple[StageMemory, Rows]:
        """Memory of the stages [distinct, stage] and which of them every plan has."""
        states, of_states = self._states.look_up(table)
        activations, of_activations = self._activations.look_up(table)
        weights, of_weights = self._weights.look_up(table)
        saved, of_saved = self._in_flight.look_up(table)
        first, which = distinct(of_states, of_activations, of_weights, of_saved)
        found = stage_bytes(
            stacked(states, of_states[first]),
            stacked(activations, of_activations[first]),
            stacked(weights, of_weights[first]),
            np.stack(saved)[of_saved[first]],
            self.options,
        )
        return found, which

    def fits_host(self, table: PlanTable) -> Flags:
        """Whether [plan] a node's memory holds the host state of its devices; true where there is none, or its memory is not
        known.
        """
        if self.cluster.host_bytes is None or not keeps_on_host(table.base):
            return np.ones(len(table), dtype=np.bool_)
        fits, which = self._fits_host.look_up(table)
        return np.array(fits)[which]

    def _fits_host_of(self, plan: ParallelPlan) -> bool:
        found = host_memory(self.model, self.cluster.of_size(plan.n_devices), plan, self.options)
        return found is None or found.fits

    def ends(self, table: PlanTable) -> tuple[EndWork, Rows]:
        """Work after the last backward pass [distinct, stage] and which of them every plan has."""
        values, of_work = self._ends.look_up(table)
        passes, of_passes = self._end_passes.look_up(table)
        first, which = distinct(of_work, of_passes)
        work = stacked(values, of_work[first])
        return work._replace(n_pass=work.n_pass * np.array(passes)[of_passes[first], None]), which

    def edges(self, table: PlanTable) -> tuple[Floats, Rows]:
        """Seconds from every chunk to the next, and which of them every plan has, [distinct, chunk]."""
        sends, of_sends = self._sends.look_up(table)
        distances, of_distances = self._distances.look_up(table)
        first, which = distinct(of_sends, of_distances)
        by_distance, at = np.stack(sends)[of_sends[first]], np.stack(distances)[of_distances[first]]
        return np.take_along_axis(by_distance, at, axis=1), which

    def _blocks(self, plan: ParallelPlan) -> BlockCostModel:
        return BlockCostModel(self.model, self.cluster, plan.computed, self.eff)

    def _ends_of(self, plan: ParallelPlan) -> EndWork:
        """Work of the stages of one plan, [stage]; stages that hold the same parameters share their work."""
        held = [chunks_of_stage(plan, stage) for stage in range(plan.pp)]
        weights = stage_weights(self.model, plan, chunk_blocks(self.model, plan), held)
        keys = [own.key for own in weights]
        made = {key: self._end_of(key, own).of(plan) for key, own in dict(zip(keys, weights, strict=True)).items()}
        return stacked([made[key] for key in keys])

    def _end_of(self, key: bytes, weights: StageWeights) -> PlanCache[EndWork]:
        """Work of a stage that holds these parameters, whatever the layout."""
        if key not in self._end_work:
            model, cluster, eff = self.model, self.cluster, self.eff
            self._end_work[key] = PlanCache(
                lambda plan: end_work(cluster, plan, group_splits(model, plan), weights, eff)
            )
        return self._end_work[key]


Reasons = NDArray[np.uint8]

FEASIBLE = 0
REASONS = (
    "feasible",
    *(rule.reason for rule in RULES),
    "fewer micro-batches than the schedule needs",
    "the device has too little memory",
    "the host has too little memory for what is offloaded to it",
)
MEMORY = REASONS.index("the device has too little memory")
HOST_MEMORY = MEMORY + 1


def broken_rules(table: PlanTable, model: Workload) -> Reasons:
    """Reason [plan] of every plan that contradicts itself or the model; memory is looked at elsewhere."""
    layout, numbers = table.layout, _numbers(table, model)
    enough = layout.pipeline_schedule.enough_micro_batches(layout.pp, numbers.n_micro_batch, layout.virtual_stages)
    reason = np.zeros(len(table), dtype=np.uint8)
    for number, broken in reversed([*enumerate([*(rule.is_broken(numbers) for rule in RULES), ~enough], start=1)]):
        reason[broken] = number
    return reason


def _numbers(table: PlanTable, model: Workload) -> PlanNumbers:
    """Returns the numbers that rules check, of all plans of a table, which share batch and sequence length."""
    plan = table.base
    return PlanNumbers(
        tp=table.tp,
        cp=table.cp,
        dp=table.dp,
        ep=table.ep,
        expert_ranks=table.ep * table.expert_tp,
        micro_batch=table.micro_batch,
        global_batch=plan.global_batch,
        seq_len=plan.seq_len,
        sequence_parallel=table.sequence_parallel,
        n_micro_batch=table.n_micro_batch,
        n_chunk=table.layout.n_chunk,
        dp_shard=table.dp_shard,
        is_hsdp=table.sharding == SHARDING.index("hsdp"),
        tied=table.tied,
        n_parts=model.splits(plan),
    )


_F, _B, _GEMM = PASSES.index("F"), PASSES.index("B"), COMPUTE_CLASSES.index("gemm")


def feasibility(table: PlanTable, costs: PlanCosts) -> tuple[Reasons, Floats]:
    """Reason [plan] and peak memory [plan] in bytes; memory is NaN where a rule is broken."""
    reason = broken_rules(table, costs.model)
    memory = np.full(len(table), np.nan)
    sound = np.flatnonzero(reason == FEASIBLE)
    if sound.size:
        memory[sound] = peak_memory(table.take(sound), costs)
        reason[sound[~costs.fits_host(table.take(sound))]] = HOST_MEMORY
        reason[sound[memory[sound] > costs.memory_limit_bytes]] = MEMORY
    return reason, memory


def peak_memory(table: PlanTable, costs: PlanCosts) -> Floats:
    """Bytes of the worst stage, [plan]."""
    found, which = costs.memory(table)
    return np.asarray(found.total_bytes).max(axis=-1)[which]


@dataclass(frozen=True)
class TableCost:
    """Costs of the plans of a block; values that several plans share are stored once.

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
    """Returns the costs of the feasible plans of a table."""
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
    """Work [plan, stage] of every stage at the end of the step."""
    plan = table.plan(0)
    held = np.zeros((chunk.compute_s.shape[1], plan.pp))  # chunks of each class on each stage
    for stage in range(plan.pp):
        np.add.at(held[:, stage], classes[[*chunks_of_stage(plan, stage)]], 1.0)
    work, of_work = costs.ends(table)
    own = EndWork(*(part[of_work] for part in work))
    backward, forward = (_on_stages(part, held)[of_chunk] for part in (chunk.backward_s, chunk.forward_s))
    return stage_end(own, backward, forward, costs.eff)


def _on_stages(seconds: Floats, held: Floats) -> Floats:
    """Sum [plan, stage] over classes of chunks, `seconds` [plan, class] times `held` [class, stage].

    Notes: a matrix product would add in an order that goes with the number of plans.
    """
    return np.add.accumulate(seconds[:, :, None] * held, axis=1)[:, -1]


def chunk_seconds(
    cost: TableCost, plans: Rows, overlap_slowdown: float, *, by_class: bool = False
) -> tuple[Floats, Floats, Floats]:
    """Compute, exposed and hidden communication of some plans [plan, kind, chunk, class or axis].

    Args:
        cost: of a block.
        plans: rows of its table.
        overlap_slowdown: extra time of compute per second of transfers at the same time.
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
    compute[:, _F, :, gemm] += beside  # products are slowed by simultaneous transfers
    compute[:, _B, 1:, gemm] += beside[:, :-1]
    return compute, comm, hidden


SAFETY = 1.0 - 1e-6  # step times are computed in float32


def lower_bound(cost: TableCost, eff_slowdown: float) -> Floats:
    """Seconds that no schedule of the layout can beat, [plan]."""
    bound = np.empty(len(cost.table))
    for first in range(0, len(bound), _ROWS):
        rows = np.arange(first, min(first + _ROWS, len(bound)))
        bound[rows] = _bound(cost, rows, eff_slowdown)
    return bound * SAFETY


_ROWS = 1 << 14


def _bound(cost: TableCost, rows: Rows, eff_slowdown: float) -> Floats:
    layout = cost.table.layout
    pp, schedule = layout.pp, layout.pipeline_schedule
    compute, comm, _ = chunk_seconds(cost, rows, eff_slowdown)
    seconds = (compute if schedule.overlaps_passes else compute + comm)[..., 0]  # [plan, kind, chunk]
    shares = schedule.stage_shares(pp, layout.virtual_stages)
    busy = cost.table.n_micro_batch[rows, None] * (seconds.sum(axis=1) @ shares)
    end = (cost.end.compute_s + cost.end.exposed_s)[rows]
    fill = _before(seconds[:, 0, :pp]) if schedule.fills_one_way else 0.0
    drain = _before(seconds[:, 1, :pp] + seconds[:, 2, :pp])
    last = np.maximum(end, drain + end[:, :1]) if schedule.drains_one_way else end
    return (fill + busy + last).max(axis=1)


def _before(seconds: Floats) -> Floats:
    """Sum over the stages before each [plan, stage]."""
    return np.cumsum(seconds, axis=1) - seconds
