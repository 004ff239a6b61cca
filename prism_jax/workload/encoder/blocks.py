"""The ends of an encoder: embeddings with a norm, and the heads of its losses on the tokens that are predicted."""

from __future__ import annotations

from dataclasses import dataclass

from ...framework.memory_options import MemoryOptions
from ..base import Parameters, SavedTensor
from ..kernels import KernelTable
from ..transformer.blocks import DENSE, EmbeddingBlock, HeadBlock
from ..transformer.op_lists.elementwise import activation_kernels, norm_kernels
from ..transformer.params import norm_params
from ..transformer.shard import Shard, gemm
from .params import pooler_params, transform_params


@dataclass(frozen=True)
class EncoderEmbedding(EmbeddingBlock):
    """Embeddings of tokens, positions and types, and a norm of their sum; `plan.seq_len` counts tokens without padding."""

    n_token_types: int

    @property
    def kernels(self) -> KernelTable:
        """Lookup, scatter, norm."""
        shard = Shard.of(self.model, self.plan)
        elements = shard.local_tokens * self.model.hidden
        norm = norm_kernels("embedding_norm", elements, shard, rms=self.model.norm == "rms")
        return super().kernels + KernelTable.of(norm)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Those of a decoder's embedding, types of tokens and norm."""
        types = self.n_token_types * self.model.hidden / self.plan.tp
        return (*super().parameters, Parameters(DENSE, types + norm_params(self.model)))

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Those of a decoder's embedding, and the input of the norm."""
        shard = Shard.of(self.model, self.plan)
        norm_input = SavedTensor("embedding norm input", shard.element_bytes * shard.local_tokens * self.model.hidden)
        return (*super().saved(rules), norm_input)


@dataclass(frozen=True)
class EncoderHead(HeadBlock):
    """Masked-token loss on the `plan.seq_len` tokens of a sample that are predicted, and the loss on pairs of sentences.

    Notes:
        The product in front of the vocabulary's and the pooler are whole on every tensor-parallel rank, as in Megatron-LM.
    """

    next_sentence: bool

    @property
    def kernels(self) -> KernelTable:
        """Product, activation and norm; logits and loss; pooler."""
        model, shard = self.model, Shard.of(self.model, self.plan)
        wide = shard.in_16_bits
        ops = gemm("head_transform", shard.tokens, model.hidden, model.hidden, wide)
        ops += activation_kernels("head_act", shard.tokens * model.hidden, shard, gated=False)
        if self.next_sentence:
            ops += gemm("pooler", float(self.plan.micro_batch), model.hidden, model.hidden, wide)
        return KernelTable.of([op._replace(dtype="bf16") for op in ops]) + super().kernels

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Those of a decoder's head, of the product in front of it, biases of the vocabulary, pooler."""
        own = transform_params(self.model) + self.model.vocab / self.plan.tp
        own += pooler_params(self.model) if self.next_sentence else 0.0
        return (*super().parameters, Parameters(DENSE, own))

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Those of a decoder's head, input and result of the product in front of it."""
        shard = Shard.of(self.model, self.plan)
        own = SavedTensor("head transform", 2 * shard.element_bytes * shard.tokens * self.model.hidden)
        return (*super().saved(rules), own)
