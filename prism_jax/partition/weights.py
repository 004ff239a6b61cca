"""How many parameters one device of a pipeline stage holds, by the sharding that applies to them. Counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..plan.plan import ParallelPlan
from ..workload.transformer.params import LayerParams
from ..workload.transformer.spec import TransformerSpec
from .chunks import ChunkClass


@dataclass(frozen=True)
class StageWeights:
    """Parameters of one device after tensor and expert parallelism, before ZeRO or FSDP.

    Attributes:
        dense: sharded over tp (norms and routers are whole); replicated over dp x cp.
        expert: routed experts, sharded over tp and ep; replicated over dp x cp / ep.
        largest_layer: the largest layer among them, experts included.
        ends: embedding, head, final norm.
    """

    dense: float
    expert: float
    largest_layer: float
    ends: float

    @property
    def count(self) -> float:
        return self.dense + self.expert

    def sharded_states(self, plan: ParallelPlan) -> float:
        """Per device when gradients or optimizer state are sharded over dp x cp, or over an HSDP group."""
        return self._sharded(plan, plan.dp_shard if plan.sharding == "hsdp" else plan.dp * plan.cp)

    def sharded_parameters(self, plan: ParallelPlan) -> float:
        """Per device under the plan's parameter sharding (ZeRO-3, FSDP, HSDP); all of them without it."""
        return self._sharded(plan, plan.shard_group) if plan.shard_group > 1 else self.count

    def _sharded(self, plan: ParallelPlan, n_shard: int) -> float:
        return self.dense / n_shard + self.expert / max(n_shard / plan.ep, 1.0)


def stage_weights(
    model: TransformerSpec, plan: ParallelPlan, classes: Sequence[ChunkClass], held: tuple[int, ...]
) -> StageWeights:
    """Parameters of the layers in the `held` chunks, with embedding on the first and head on the last chunk.

    Notes:
        A tied head on another stage than the embedding is a second copy of the embedding matrix.
    """
    first, last = model.layer_params(0), model.layer_params(model.n_layers - 1)
    counts = [(first, sum(classes[c].n_dense for c in held)), (last, sum(classes[c].n_moe for c in held))]
    ends = _ends(model, plan, held)
    dense = sum(n * _dense(layer, plan) for layer, n in counts) + ends
    expert = sum(n * _expert(layer, plan) for layer, n in counts)
    if plan.n_chunk - 1 in held and model.n_mtp:
        expert += model.n_mtp * _expert(last, plan)
        dense += (model.mtp_params() - model.n_mtp * last.experts) / plan.tp
    largest = max((_dense(layer, plan) + _expert(layer, plan) for layer, n in counts if n), default=0.0)
    return StageWeights(dense, expert, largest, ends)


def _dense(layer: LayerParams, plan: ParallelPlan) -> float:
    return (layer.attention + layer.mlp + layer.shared) / plan.tp + layer.norms + layer.router


def _expert(layer: LayerParams, plan: ParallelPlan) -> float:
    return layer.experts / (plan.tp * plan.ep)


def _ends(model: TransformerSpec, plan: ParallelPlan, held: tuple[int, ...]) -> float:
    first, last = 0 in held, plan.n_chunk - 1 in held
    count = model.embedding_params() / plan.tp if first else 0.0
    if last:
        count += model.head_params() / plan.tp + model.final_norm_params()
        if model.tied_embeddings and not first:
            count += model.vocab * model.hidden / plan.tp
    return count
