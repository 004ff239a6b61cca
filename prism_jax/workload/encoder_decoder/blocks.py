"""Blocks of an encoder-decoder: embeddings of both stacks, layers that attend to the encoder, the head on what is written."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.memory_options import MemoryOptions
from ...plan.plan import ParallelPlan
from ..base import Comm, Parameters, SavedTensor
from ..kernels import Kernel, KernelTable
from ..transformer.blocks import DENSE, EmbeddingBlock, HeadBlock, LayerBlock
from ..transformer.comms import cross_comms, embedding_comms
from ..transformer.op_lists.attention import attention_core
from ..transformer.op_lists.elementwise import norm_kernels
from ..transformer.ops import embedding_ops
from ..transformer.params import attention_out_params, attention_qkv_params, norm_params
from ..transformer.saved_tensors import cross_saved_tensors, embedding_saved_tensors
from ..transformer.shard import Shard, gemm, stream


@dataclass(frozen=True)
class BothEmbeddings(EmbeddingBlock):
    """Tokens of both stacks, looked up in one matrix; biases of relative positions."""

    written: ParallelPlan
    n_relative_params: int

    @property
    def kernels(self) -> KernelTable:
        """Two lookups and scatters."""
        return super().kernels + embedding_ops(self.model, self.written)

    @property
    def comms(self) -> list[Comm]:
        """Sums over the shares of the vocabulary, for both."""
        return [*super().comms, *embedding_comms(self.model, self.written)]

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Matrix, learned positions, biases per head."""
        return (*super().parameters, Parameters(DENSE, self.n_relative_params / self.plan.tp))

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Ids and masks of both."""
        return (*super().saved(rules), *embedding_saved_tensors(self.model, self.written, rules))


@dataclass(frozen=True)
class CrossLayer(LayerBlock):
    """A layer of the decoder: attention to its own tokens, to those of the encoder, and an MLP.

    `plan` has the length of its own sequence, `memory` that of the encoder's.
    """

    memory: ParallelPlan

    def other_ops(self) -> list[Kernel]:
        """Queries of the own tokens, keys and values of the encoder's, scores, output, norm and residual."""
        model, shard = self.model, Shard.of(self.model, self.plan)
        read = Shard.of(model, self.memory)
        kv = max(model.kv_heads / shard.tp, 1.0) * 2 * model.qk_head_dim
        ops = gemm("cross_q", shard.tokens, model.q_dim / shard.tp, model.hidden, shard)
        ops += gemm("cross_kv", read.tokens, kv, model.hidden, shard)
        ops += attention_core(model, self.plan, shard, self.layer, memory=float(self.memory.seq_len))
        ops += gemm("cross_out", shard.tokens, model.hidden, model.attention_out_dim / shard.tp, shard)
        elements = shard.local_tokens * model.hidden
        ops += norm_kernels("cross_norm", elements, shard, rms=model.norm == "rms")
        mask = 1.0 / shard.element_bytes if shard.dropout else 0.0
        row_bytes = shard.element_bytes * elements
        ops.append(stream("cross_residual", "F", (3 + mask) * row_bytes))
        ops.append(stream("cross_residual", "B", (2 + mask) * row_bytes))
        return ops

    def other_comms(self) -> list[Comm]:
        """One block more of tensor parallelism."""
        return cross_comms(self.model, self.plan, self.memory)

    def other_params(self) -> float:
        """Projections and norm."""
        projections = attention_qkv_params(self.model) + attention_out_params(self.model)
        return projections / self.plan.tp + norm_params(self.model)

    def other_saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Those of the cross attention."""
        return cross_saved_tensors(self.model, self.plan, self.memory, rules)


@dataclass(frozen=True)
class WriterHead(HeadBlock):
    """Norms behind both stacks; logits and loss of the tokens that are written. `plan` has their number."""

    read: ParallelPlan

    @property
    def kernels(self) -> KernelTable:
        """Those of a decoder's head, and the norm behind the encoder."""
        shard = Shard.of(self.model, self.read)
        elements = shard.local_tokens * self.model.hidden
        norm = norm_kernels("encoder_norm", elements, shard, rms=self.model.norm == "rms")
        return super().kernels + KernelTable.of(norm)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Matrix and two norms."""
        return (*super().parameters, Parameters(DENSE, float(norm_params(self.model))))

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Those of a decoder's head; input and output of the norm behind the encoder, which every layer attends to."""
        shard = Shard.of(self.model, self.read)
        hidden = shard.element_bytes * self.model.hidden
        states = SavedTensor("encoder states", hidden * (shard.local_tokens + shard.tokens))
        return (*super().saved(rules), states)
