"""Parts of the cost of many plans, each made once.

What a piece of the model, the end of the step or the memory of a stage costs depends on a few columns of the table of plans. A
`Store` makes the numbers of every distinct combination of those columns with the scalar code of `cost`, and hands out rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ..._typing import Floats
from ...cost.block_cost import KINDS_OF_PIECE, PieceCost, PieceModel, stack_pieces
from ...cost.efficiency import Efficiency
from ...cost.pipeline_edge import edge_tiers, tier_seconds
from ...cost.step_end import end_work
from ...framework.memory_options import MEGATRON, MemoryOptions
from ...memory.breakdown import held_activations, held_weights
from ...memory.factors import activation_factors, state_factors
from ...partition.chunks import chunk_classes, chunks_of_stage
from ...partition.weights import StageWeights, stage_weights
from ...plan.plan import ParallelPlan
from ...system.hardware import Cluster
from ...workload.transformer.spec import TransformerSpec
from .table import Column, PlanTable, distinct

Rows = NDArray[np.intp]


class Store:
    """A growing table of numbers, one row per distinct key."""

    def __init__(self, make: Callable[[ParallelPlan], Floats]) -> None:
        self._make = make
        self._made: dict[tuple[object, ...], Floats] = {}

    def look_up(self, table: PlanTable, columns: Sequence[Column], *fixed: object) -> tuple[Floats, Rows]:
        """Values [distinct, ...] and which of them every plan has.

        Args:
            columns: all columns that the values depend on.
            fixed: what else they depend on, the same for the whole table.
        """
        first, which = distinct(*columns)
        keys = zip(*(column[first].tolist() for column in columns), strict=True)
        rows = [self._get((*fixed, *key), table, row) for key, row in zip(keys, first.tolist(), strict=True)]
        return np.stack(rows), which

    def _get(self, key: tuple[object, ...], table: PlanTable, row: int) -> Floats:
        if key not in self._made:
            self._made[key] = self._make(table.plan(row))
        return self._made[key]


class PieceStore:
    """Pieces of the model, alone and the gathering of their parameters."""

    def __init__(self, model: TransformerSpec, cluster: Cluster, eff: Efficiency) -> None:
        self._model, self._cluster, self._eff = model, cluster, eff
        self._alone = Store(lambda plan: self._packed(_unsharded(plan), "alone"))
        self._gathering = Store(lambda plan: self._packed(plan, "gathering"))

    def look_up(self, table: PlanTable) -> tuple[PieceCost, Rows]:
        """Pieces [distinct, kind of piece] and which of them every plan has."""
        strides = [table.stride(axis) for axis in ("tp", "cp", "dp")]
        shape = [table.micro_batch, table.sequence_parallel, table.recompute, table.overlap_tp]
        alone, of_alone = self._alone.look_up(table, [table.tp, table.cp, table.ep, *shape, *strides])
        sharded = table.shard_group > 1
        columns = [
            np.where(sharded, c, 0) for c in (table.tp, table.ep, table.shard_group, table.overlap_dp, strides[-1])
        ]
        gathering, of_gathering = self._gathering.look_up(table, columns)
        first, which = distinct(of_alone, of_gathering)
        return _unpacked(alone[of_alone[first]]) + _unpacked(gathering[of_gathering[first]]), which

    def _packed(self, plan: ParallelPlan, what: str) -> Floats:
        model = PieceModel(self._model, self._cluster, plan, self._eff)
        pieces = stack_pieces([getattr(model, what)(kind) for kind in KINDS_OF_PIECE])
        n = len(KINDS_OF_PIECE)
        return np.concatenate([part.reshape(n, -1) for part in vars(pieces).values()], axis=1)


def _unsharded(plan: ParallelPlan) -> ParallelPlan:
    return replace(plan, zero_stage=0, sharding="none", dp_shard=0)


def _unpacked(values: Floats) -> PieceCost:
    """[..., 27] numbers as a piece: 3 x 3 of compute, 3 of launches, communication, the first gathering."""
    compute = values[..., :9].reshape(*values.shape[:-1], 3, 3)
    return PieceCost(compute, values[..., 9:12], values[..., 12:-1], values[..., -1])


class Parts:
    """All stores of one model on one cluster."""

    def __init__(
        self, model: TransformerSpec, cluster: Cluster, eff: Efficiency, options: MemoryOptions = MEGATRON
    ) -> None:
        self.model, self.cluster, self.eff, self.options = model, cluster, eff, options
        self.pieces = PieceStore(model, cluster, eff)
        self._end_work: dict[tuple[object, ...], Floats] = {}

    @cached_property
    def _states(self) -> Store:
        return Store(lambda plan: np.array(state_factors(plan, self.options)))

    @cached_property
    def _activations(self) -> Store:
        return Store(lambda plan: np.array(activation_factors(self.model, plan, self.options)))

    @cached_property
    def _weights(self) -> Store:
        return Store(lambda plan: held_weights(self.model, plan))

    @cached_property
    def _in_flight(self) -> Store:
        return Store(lambda plan: held_activations(self.model, plan))

    @cached_property
    def _ends(self) -> Store:
        return Store(self._ends_of)

    @cached_property
    def _sends(self) -> Store:
        return Store(lambda plan: np.append(tier_seconds(self.model, self.cluster, plan, self.eff.fix), 0.0))

    @cached_property
    def _tiers(self) -> Store:
        return Store(lambda plan: edge_tiers(self.cluster, plan).astype(np.float64))

    def states(self, table: PlanTable) -> tuple[Floats, Rows]:
        """`StateFactors` [distinct, field]."""
        sharding = [table.zero_stage, table.sharding, table.dp_shard]
        several = [(degree > 1).astype(np.int64) for degree in (table.tp, table.cp)]
        return self._states.look_up(table, [*sharding, table.dp, table.cp, table.ep, *several], table.layout.pp > 1)

    def activations(self, table: PlanTable) -> tuple[Floats, Rows]:
        """`ActivationFactors` [distinct, field]."""
        columns = [table.micro_batch, table.cp, table.tp, table.sequence_parallel, table.recompute]
        return self._activations.look_up(table, columns, table.layout.pp > 1)

    def weights(self, table: PlanTable) -> tuple[Floats, Rows]:
        """[distinct, field of StageWeights, stage]."""
        return self._weights.look_up(table, [table.tp, table.ep], table.layout)

    def in_flight(self, table: PlanTable) -> tuple[Floats, Rows]:
        """[distinct, field of held_activations, stage]."""
        return self._in_flight.look_up(table, [table.n_micro_batch], table.layout)

    def ends(self, table: PlanTable) -> tuple[Floats, Rows]:
        """[distinct, field of EndWork, stage]."""
        sharding = [table.zero_stage, table.sharding, table.dp_shard]
        columns = [table.tp, table.cp, table.dp, table.ep, *sharding, table.overlap_dp]
        return self._ends.look_up(table, columns, table.layout)

    def edges(self, table: PlanTable) -> tuple[Floats, Rows]:
        """[distinct, chunk] seconds from every chunk to the next."""
        stride = table.stride("pp")
        shape = [table.tp, table.cp, table.micro_batch, table.sequence_parallel]
        sends, of_sends = self._sends.look_up(table, [*shape, stride, table.stride("tp")])
        tiers, of_tiers = self._tiers.look_up(table, [stride], table.layout)
        first, which = distinct(of_sends, of_tiers)
        return np.take_along_axis(sends[of_sends[first]], tiers[of_tiers[first]].astype(np.intp), axis=1), which

    def _ends_of(self, plan: ParallelPlan) -> Floats:
        """Stages that hold the same parameters share their work, whatever the layout."""
        classes = chunk_classes(self.model, plan)
        key = (
            plan.tp,
            plan.cp,
            plan.dp,
            plan.ep,
            plan.zero_stage,
            plan.sharding,
            plan.dp_shard,
            plan.pp,
            plan.overlap.dp,
        )
        rows = []
        for stage in range(plan.pp):
            held = chunks_of_stage(plan, stage)
            own = stage_weights(self.model, plan, classes, held)
            rows.append(self._end_of(plan, key, own, held))
        return np.stack(rows, axis=1)

    def _end_of(self, plan: ParallelPlan, key: tuple[object, ...], own: StageWeights, held: tuple[int, ...]) -> Floats:
        at = (*key, *astuple(own), 0 in held or plan.n_chunk - 1 in held)
        if at not in self._end_work:
            work = end_work(self.model, self.cluster, plan, own, held, self.eff)
            self._end_work[at] = np.array(work)
        return self._end_work[at]
