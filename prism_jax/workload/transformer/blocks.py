"""The blocks of a transformer: embedding, layers, head, multi-token-prediction modules.

A layer is dense or has experts, and attends to the whole sequence, a sliding window or its own chunk: every combination that
occurs is a kind of block of its own (`moe_layer`, `sliding_dense_layer`), and the layout lists them in the order of the layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby

from ...framework.base import MemoryOptions
from ...plan.fields import layers_per_checkpoint
from ...plan.plan import ParallelPlan
from ..base.kernels import Kernel, KernelTable
from ..base.workload import DENSE, Block, BlockRun, Comm, Parameters, SavedTensor, total_bytes
from .adapters import adapter_params, product_of, without_unneeded_gradients
from .loss import loss_peak_bytes
from .mixers import FULL
from .op_lists import waits_for_counts
from .ops import embedding_comms, embedding_ops, head_comms, head_ops, layer_comms, layer_ops, mtp_ops
from .params import embedding_params, layer_matrices, layer_params, mtp_params, norm_params
from .saved_tensors import (
    FREED_FIRST,
    LAYER_INPUT,
    Again,
    embedding_saved_tensors,
    head_saved_tensors,
    in_place_activation,
    layer_saved_tensors,
    recomputed,
    recomputing_share,
)
from .shard import Shard
from .sizes import QUANTISED_BYTES, TransformerSizes

EMBEDDING, DENSE_LAYER, MOE_LAYER, HEAD, MTP = "embedding", "dense_layer", "moe_layer", "head", "mtp"
EXPERT = "expert"
LONE_LAYER = "lone_layer"  # attention or a mixer, without an MLP
# With adapters DENSE and EXPERT are theirs; frozen are matrices of layers that are kept in fewer bits, experts, the rest.
FROZEN, FROZEN_MATRIX, FROZEN_EXPERT = "frozen", "frozen_matrix", "frozen_expert"
_EMBEDDING_MATRIX = "embedding"  # shared by embedding and head where they are tied


@lru_cache(maxsize=1024)
def layout(model: TransformerSizes) -> tuple[BlockRun, ...]:
    """Blocks in model order; kinds that the model has none of are left out."""
    layers = groupby(layer_kind(model, layer) for layer in range(model.n_layers))
    runs = (
        BlockRun(EMBEDDING, 1, "first", is_unit=False),
        *(BlockRun(kind, len(list(run))) for kind, run in layers),
        BlockRun(HEAD, 1, "last", is_unit=False),
        BlockRun(MTP, model.n_mtp, "last"),
    )
    return tuple(run for run in runs if run.count)


def layer_kind(model: TransformerSizes, layer: int) -> str:
    """Kind of block of layer `layer`."""
    mlp = MOE_LAYER if model.is_moe_layer(layer) else DENSE_LAYER if model.has_mlp_in(layer) else LONE_LAYER
    if (mixer := model.mixer_in(layer)) is not None:
        return f"{mixer.kind}_{mlp}"
    return mlp if model.reach(layer) == FULL else f"{model.reach(layer)}_{mlp}"


@lru_cache(maxsize=1024)
def sorts_of_layers(model: TransformerSizes) -> dict[str, tuple[int, int]]:
    """Kind of layer -> the first of that kind, and how many there are."""
    found: dict[str, tuple[int, int]] = {}
    for layer in range(model.n_layers):
        first, count = found.get(layer_kind(model, layer), (layer, 0))
        found[layer_kind(model, layer)] = first, count + 1
    return found


def groups(model: TransformerSizes, expert_split: float) -> tuple[tuple[str, float], ...]:
    """Ways in which parameters are sharded, and ranks of dp x cp among which experts are divided."""
    dense, expert = [(DENSE, 1)], [(EXPERT, expert_split)] if model.moe is not None else []
    if model.adapters is None:
        return (*dense, *expert)
    frozen = [(FROZEN, 1)] if _matrix_bytes(model) is None else [(FROZEN, 1), (FROZEN_MATRIX, 1)]
    return (*dense, *expert, *frozen, *((FROZEN_EXPERT, expert_split) for _ in expert))


def frozen_groups(model: TransformerSizes, plan: ParallelPlan) -> dict[str, float]:
    """Groups without gradients, and bytes of one of their parameters."""
    if model.adapters is None:
        return {}
    matrix = _matrix_bytes(model) or plan.element_bytes
    return {FROZEN: plan.element_bytes, FROZEN_MATRIX: matrix, FROZEN_EXPERT: matrix}


def _matrix_bytes(model: TransformerSizes) -> float | None:
    """Returns the bytes of a frozen weight of a layer that is kept in fewer bits; None: there is none."""
    return QUANTISED_BYTES[model.adapters.quantised] if model.adapters is not None else None


def _rest(model: TransformerSizes) -> str:
    """Group of embedding, head and norms."""
    return DENSE if model.adapters is None else FROZEN


def _is_shared(model: TransformerSizes) -> bool:
    """Whether other blocks read the embedding matrix."""
    return model.tied_embeddings or bool(model.n_mtp)


def block(model: TransformerSizes, kind: str, plan: ParallelPlan) -> Block:
    """The block of kind `kind` under `plan`."""
    match kind:
        case "embedding":
            return EmbeddingBlock(model, plan)
        case "head":
            return HeadBlock(model, plan)
        case "mtp":
            return MtpBlock(model, plan)
        case _:
            return LayerBlock(model, plan, sorts_of_layers(model)[kind][0])


@dataclass(frozen=True)
class UnchangingBlock(Block):
    """Base of the blocks that are never recomputed."""

    model: TransformerSizes
    plan: ParallelPlan


@dataclass(frozen=True)
class EmbeddingBlock(UnchangingBlock):
    """Token embedding, learned positions, dropout."""

    @property
    def kernels(self) -> KernelTable:
        """Kernels of lookup and scatter."""
        return embedding_ops(self.model, self.plan)

    @property
    def comms(self) -> list[Comm]:
        """Sum over the shares of the vocabulary."""
        return embedding_comms(self.model, self.plan)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """The embedding matrix, which a tied head shares, and learned positions."""
        model, tp = self.model, self.plan.tp
        matrix = model.vocab * model.hidden
        positions = Parameters(_rest(model), (embedding_params(model) - matrix) / tp)
        return (Parameters(_rest(model), matrix / tp, _EMBEDDING_MATRIX if _is_shared(model) else ""), positions)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns token ids and dropout mask."""
        return embedding_saved_tensors(self.model, self.plan, rules)


@dataclass(frozen=True)
class LayerBlock(Block):
    """One layer, with a dense MLP or with experts; all layers of its kind are like it."""

    model: TransformerSizes
    plan: ParallelPlan
    layer: int

    @property
    def is_moe(self) -> bool:
        """Whether the layer has experts."""
        return self.model.is_moe_layer(self.layer)

    @property
    def _again(self) -> Again:
        return recomputed(self.model, self.plan, self.is_moe)

    @property
    def _recomputing(self) -> float:
        """Share of the layers of this kind that recompute."""
        return recomputing_share(self.model, self.plan)

    @property
    def kernels(self) -> KernelTable:
        """Kernels of the layer; recomputed kernels run again in B."""
        ops = layer_ops(self.model, self.plan, self.layer) + KernelTable.of(self.other_ops())
        again, layers = self._again, self._recomputing
        repeated = ops.repeated_in_backward(lambda name: layers * again.kernel_share(product_of(name)))
        return self._needed(ops) + repeated

    def other_ops(self) -> Sequence[Kernel]:
        """Kernels of a layer of this kind other than attention and MLP."""
        return ()

    def other_comms(self) -> Sequence[Comm]:
        """Communication of a layer of this kind other than attention and MLP."""
        return ()

    def other_params(self) -> float:
        """Parameters of the same, on one device."""
        return 0.0

    def other_saved(self, rules: MemoryOptions) -> Sequence[SavedTensor]:
        """Tensors that the same saves."""
        return ()

    def _needed(self, ops: KernelTable) -> KernelTable:
        """Drops input gradients that nothing reads; a checkpoint needs that of its input in any case."""
        if self.model.adapters is None or self.layer != 0 or self.plan.recompute == "full":
            return ops
        n_alike = sorts_of_layers(self.model)[layer_kind(self.model, 0)][1]
        return without_unneeded_gradients(self.model, self.is_moe, n_alike, ops)

    @property
    def comms(self) -> list[Comm]:
        """Tensor, context and expert parallel communication; recomputed parts of the forward's stand in B again."""
        comms = [*layer_comms(self.model, self.plan, self.layer), *self.other_comms()]
        shares = [self._recomputing * self._again.comm_share(comm) for comm in comms]
        repeated = zip(comms, shares, strict=True)
        return comms + [
            comm._replace(phase="B", count=share * comm.count)
            for comm, share in repeated
            if comm.phase == "F" and share
        ]

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Norms and routers are whole on every tensor-parallel rank."""
        if self.model.adapters is not None:
            return self._with_adapters()
        own, tp = layer_params(self.model, self.layer), self.plan.tp
        ranks = self.plan.expert_tp * self.plan.ep
        sharded = (own.attention + own.mlp + own.shared) / tp
        matrices, of_experts = map(tuple, layer_matrices(self.model, self.plan, self.layer))
        dense = Parameters(DENSE, sharded + own.norms + own.router + self.other_params(), matrices=matrices)
        experts = Parameters(EXPERT, own.experts / ranks, matrices=of_experts)
        return (dense, experts) if self.is_moe else (dense,)

    def _with_adapters(self) -> tuple[Parameters, ...]:
        """Adapters, which are trained, and everything else."""
        model, tp, ranks = self.model, self.plan.tp, self.plan.expert_tp * self.plan.ep
        own, (beside, on_experts) = layer_params(model, self.layer), adapter_params(model, self.is_moe)
        matrices, whole = (own.attention + own.mlp + own.shared) / tp, float(own.norms + own.router)
        dense = Parameters(DENSE, beside / tp)
        if _matrix_bytes(model) is None:
            frozen = (Parameters(FROZEN, matrices + whole),)
        else:
            frozen = (Parameters(FROZEN, whole), Parameters(FROZEN_MATRIX, matrices))
        if not self.is_moe:
            return (dense, *frozen)
        experts = Parameters(EXPERT, on_experts / ranks), Parameters(FROZEN_EXPERT, own.experts / ranks)
        return (dense, *frozen, *experts)

    @property
    def waits_in(self) -> tuple[str, ...]:
        """Passes in which the host waits for the counts of routed tokens: forward, and backward where it routes again."""
        if not (self.is_moe and waits_for_counts(self.model, self.plan)):
            return ()
        return ("F", "B") if self._again.kernel_share("router") and self._recomputing else ("F",)

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the tensors that autograd keeps: the layer's input alone under full recomputation."""
        return self._saved(rules, None)

    def _saved(self, rules: MemoryOptions, again: Again | None) -> tuple[SavedTensor, ...]:
        return layer_saved_tensors(
            self.model,
            self.plan,
            is_moe=self.is_moe,
            options=rules,
            again=again,
            beside=self.other_saved(rules),
            mixer=self.model.mixer_in(self.layer),
            has_mlp=self.model.has_mlp_in(self.layer),
        )

    def backward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Gradients at both sides of the MLP's activation, unless they are written over its inputs, and of its gathered input."""
        model, plan = self.model, self.plan
        width = model.moe.top_k * model.moe.ffn_hidden if self.is_moe and model.moe is not None else model.ffn_hidden
        width *= model.has_mlp_in(self.layer)
        tokens = Shard.of(model, plan).tokens
        n_gradient = 1 if in_place_activation(plan, rules) else model.n_mlp_matrices
        inner = plan.element_bytes * tokens * width * n_gradient / plan.tp
        return inner + 2 * plan.element_bytes * tokens * model.hidden

    def recomputed_bytes(self, rules: MemoryOptions) -> float:
        """Returns the bytes of saved tensors that recomputation restores, one checkpoint at a time.

        Notes:
            Of a whole layer the input of the second product is freed before the gradients of the activation are there.
        """
        if self.plan.recompute == "none":
            return 0.0
        again = self._again
        whole, left = self._saved(rules, Again(unneeded=again.unneeded)), self._saved(rules, again)
        brought = layers_per_checkpoint(self.plan) * total_bytes(whole) - total_bytes(left)
        freed = sum(one.size_bytes for one in whole if one.name in FREED_FIRST) if LAYER_INPUT in again.added else 0.0
        return max(0.0, brought - freed)


@dataclass(frozen=True)
class HeadBlock(UnchangingBlock):
    """Final norm, logits and loss."""

    @property
    def kernels(self) -> KernelTable:
        """Norm, product with the vocabulary, cross entropy."""
        return head_ops(self.model, self.plan)

    @property
    def comms(self) -> list[Comm]:
        """Input of the logits and its gradient, sums of the vocabulary-parallel cross entropy."""
        return head_comms(self.model, self.plan)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """The output projection, which may be the embedding matrix, the final norm, and the embedding that modules after it read.

        Notes:
            Multi-token prediction embeds its tokens where the last layer is: a stage without the embedding has a copy of it
            (Megatron-LM, `GPTModel` where `mtp_process`), unlike DualPipe's first and last one (arXiv 2412.19437, section 3.2.3).
        """
        model, matrix = self.model, self.model.vocab * self.model.hidden / self.plan.tp
        shared = _EMBEDDING_MATRIX if model.tied_embeddings else ""
        read = (
            () if model.tied_embeddings or not model.n_mtp else (Parameters(_rest(model), matrix, _EMBEDDING_MATRIX),)
        )
        return (
            Parameters(_rest(model), matrix, shared),
            Parameters(_rest(model), float(norm_params(model))),
            *read,
        )

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Inputs of norm and product, logits or gradients."""
        return head_saved_tensors(self.model, self.plan, rules)

    def forward_peak_bytes(self, rules: MemoryOptions) -> float:
        """Logits, or those of a chunk, while the loss is computed."""
        shard = Shard.of(self.model, self.plan)
        return loss_peak_bytes(shard.tokens, self.model.vocab / shard.tp, self.model.hidden, shard, rules)


@dataclass(frozen=True)
class MtpBlock(HeadBlock):
    """A multi-token-prediction module: a projection, a layer like the last one, and a loss; embedding and head are shared."""

    @property
    def _layer(self) -> LayerBlock:
        return LayerBlock(self.model, self.plan, self.model.n_layers - 1)

    @property
    def kernels(self) -> KernelTable:
        """Projection, layer, logits, loss; not recomputed."""
        return mtp_ops(self.model, self.plan)

    @property
    def comms(self) -> list[Comm]:
        """Communication of the layer that contains this block."""
        return layer_comms(self.model, self.plan, self.model.n_layers - 1)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of the block, without those of other blocks."""
        model, plan = self.model, self.plan
        experts = layer_params(model, model.n_layers - 1).experts
        dense = Parameters(DENSE, (mtp_params(model) / model.n_mtp - experts) / plan.tp)
        return (dense, Parameters(EXPERT, experts / (plan.expert_tp * plan.ep))) if experts else (dense,)

    @property
    def waits_in(self) -> tuple[str, ...]:
        """Passes in which the host waits, those of the layer."""
        return self._layer.waits_in[:1]

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """A loss and a layer."""
        return (*super().saved(rules), *self._layer.saved(rules))
