"""Costs of many plans, each distinct one made once by the scalar code of `cost` and `memory`; see `plan_cache`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

from ..._typing import Floats
from ...cost.block_cost import BlockCost, BlockCostModel, stack_blocks
from ...cost.efficiency import Efficiency
from ...cost.pipeline_edge import distance_seconds, edge_distances
from ...cost.step_end import EndWork, end_work
from ...framework.memory_options import MEGATRON, MemoryOptions
from ...memory.breakdown import HeldWeights, held_activations, held_weights
from ...memory.factors import ActivationFactors, StateFactors, activation_factors, state_factors
from ...partition.chunks import chunk_blocks, chunks_of_stage
from ...partition.weights import StageWeights, group_splits, stage_weights
from ...plan.plan import ParallelPlan
from ...system.hardware import Cluster
from ...workload.base import Workload, kinds_of
from .plan_cache import PlanCache, Rows
from .table import PlanTable, distinct

N = TypeVar("N", StateFactors, ActivationFactors, HeldWeights, EndWork)


def stacked(values: Sequence[N]) -> N:
    """Named tuples of arrays along a new leading axis."""
    return type(values[0])(*(np.stack(parts) for parts in zip(*values, strict=True)))


class PlanCosts:
    """Costs of the plans of one model on one cluster.

    Args:
        options: what the framework holds in memory.
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
        self._alone = PlanCache(lambda plan: self._blocks(plan).alone_of(kinds_of(model)))
        self._gathering = PlanCache(lambda plan: self._blocks(plan).gathering_of(kinds_of(model)))
        self._states = PlanCache(lambda plan: state_factors(model, plan, options))
        self._activations = PlanCache(lambda plan: activation_factors(model, plan, options))
        self._weights = PlanCache(lambda plan: held_weights(model, plan))
        self._in_flight = PlanCache(lambda plan: held_activations(model, plan))
        self._ends = PlanCache(self._ends_of)
        self._end_work: dict[bytes, PlanCache[EndWork]] = {}
        self._sends = PlanCache(lambda plan: np.append(distance_seconds(model, cluster, plan, eff.correction), 0.0))
        self._distances = PlanCache(lambda plan: edge_distances(cluster, plan))

    def blocks(self, table: PlanTable) -> tuple[BlockCost, Rows]:
        """Blocks of the model [distinct, kind] and which of them every plan has."""
        alone, of_alone = self._alone.look_up(table)
        gathering, of_gathering = self._gathering.look_up(table)
        first, which = distinct(of_alone, of_gathering)
        both = stack_blocks(alone).at(of_alone[first]) + stack_blocks(gathering).at(of_gathering[first])
        return both, which

    def states(self, table: PlanTable) -> tuple[StateFactors, Rows]:
        """State factors [distinct, ...] and which of them every plan has."""
        values, which = self._states.look_up(table)
        return stacked(values), which

    def activations(self, table: PlanTable) -> tuple[ActivationFactors, Rows]:
        """Activation factors [distinct, ...] and which of them every plan has."""
        values, which = self._activations.look_up(table)
        return stacked(values), which

    def weights(self, table: PlanTable) -> tuple[HeldWeights, Rows]:
        """Parameters of the stages [distinct, stage, ...] and which of them every plan has."""
        values, which = self._weights.look_up(table)
        return stacked(values), which

    def in_flight(self, table: PlanTable) -> tuple[Floats, Rows]:
        """Blocks in flight [distinct, stage, kind] and which of them every plan has."""
        values, which = self._in_flight.look_up(table)
        return np.stack(values), which

    def ends(self, table: PlanTable) -> tuple[EndWork, Rows]:
        """Work after the last backward pass [distinct, stage] and which of them every plan has."""
        values, which = self._ends.look_up(table)
        return stacked(values), which

    def edges(self, table: PlanTable) -> tuple[Floats, Rows]:
        """[distinct, chunk] seconds from every chunk to the next, and which of them every plan has."""
        sends, of_sends = self._sends.look_up(table)
        distances, of_distances = self._distances.look_up(table)
        first, which = distinct(of_sends, of_distances)
        by_distance, at = np.stack(sends)[of_sends[first]], np.stack(distances)[of_distances[first]]
        return np.take_along_axis(by_distance, at, axis=1), which

    def _blocks(self, plan: ParallelPlan) -> BlockCostModel:
        return BlockCostModel(self.model, self.cluster, plan, self.eff)

    def _ends_of(self, plan: ParallelPlan) -> EndWork:
        """[stage] of one plan; stages that hold the same parameters share their work."""
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
