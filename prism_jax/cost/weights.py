"""How many parameters one device of a pipeline stage holds, by the sharding that applies to them. Counts."""

from __future__ import annotations

from dataclasses import dataclass

from ..plan import ParallelPlan
from ..workload.params import LayerParams
from ..workload.transformer import TransformerSpec
from .memory_options import MemoryOptions


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
    model: TransformerSpec, plan: ParallelPlan, chunks: tuple[range, ...], held: tuple[int, ...]
) -> StageWeights:
    """Parameters of the layers in the `held` chunks, with embedding on the first and head on the last chunk.

    Notes:
        A tied head on another stage than the embedding is a second copy of the embedding matrix.
    """
    layers = [model.layer_params(layer) for chunk in held for layer in chunks[chunk]]
    ends = _ends(model, plan, held)
    dense = sum(_dense(layer, plan) for layer in layers) + ends
    expert = sum(_expert(layer, plan) for layer in layers)
    if plan.n_chunk - 1 in held and model.n_mtp:
        layer = model.layer_params(model.n_layers - 1)
        expert += model.n_mtp * _expert(layer, plan)
        dense += (model.mtp_params() - model.n_mtp * layer.experts) / plan.tp
    largest = max((_dense(layer, plan) + _expert(layer, plan) for layer in layers), default=0.0)
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


def gathered_weight_bytes(plan: ParallelPlan, options: MemoryOptions, weights: StageWeights) -> float:
    """Unsharded copies under parameter sharding: the layers in use, the root unit, one layer's gradients; bf16.

    Notes:
        FSDP keeps its root unit (embedding, final norm, head) gathered from the forward to the end of the backward pass.
        Never more than what sharding left out.
    """
    if plan.shard_group == 1:
        return 0.0
    element_bytes = 4.0 if plan.dtype == "fp32" else 2.0
    copies = (options.n_gathered_layers + 1) * weights.largest_layer + weights.ends
    return element_bytes * min(copies, weights.count - weights.sharded_parameters(plan))
