"""Stacks of equal dense layers, and EncoderSpec: BERT and its relatives, bidirectional transformers that predict masked tokens.

Encoders of text, encoder-decoders and models over patches of an image are stacks (`DenseStack`). Layers, embeddings and heads
are written for `plan.seq_len` tokens of a sample. An encoder without padding, the decoder of an encoder-decoder, an encoder of
images and a head that reads some of the tokens work on other numbers of them: `with_seq_len`.

Source: arXiv 1810.04805 (BERT), 1907.11692 (RoBERTa: no next-sentence loss, one type of token); counts as `BertForPreTraining`
of Hugging Face transformers has them: a norm behind the embeddings and none behind the layers; masked-token head: product,
norm, biases of the vocabulary; next sentence: pooler and two classes.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self, cast

from ...core.errors import Problem, SpecError
from ...framework.base import MemoryOptions
from ...plan.plan import ParallelPlan
from ..base.kernels import KernelTable
from ..base.workload import DENSE, Block, BlockRun, Parameters, SavedTensor, Split, WorkloadDefaults
from .blocks import EMBEDDING, HEAD, EmbeddingBlock, HeadBlock, LayerBlock
from .op_lists import activation_kernels, norm_kernels
from .params import (
    embedding_params as token_and_position_params,
    layer_params,
    norm_params,
    recomputed_flops_per_token,
    token_flops,
)
from .shard import Shard, gemm
from .sizes import TransformerSizes
from .spec import sure_software


class DenseStack(WorkloadDefaults):
    """Answers of `Workload` for an embedding, equal layers and a head; a subclass is a frozen dataclass."""

    n_layers: int
    hidden: int
    n_heads: int
    layer_kind = "layer"  # kind of block

    @cached_property
    @abstractmethod
    def sizes(self) -> TransformerSizes:
        """Sizes of the layers, as a transformer's."""

    def inside(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample that the layers see."""
        return plan

    @property
    def sure_software(self) -> dict[str, str]:
        """Choices of the software that the architecture leaves no room for."""
        return sure_software(self.sizes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Blocks in order: embedding, layers, head."""
        return stacked(BlockRun(self.layer_kind, self.n_layers))

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Hidden states of a micro-batch, of all tensor-parallel ranks together."""
        return plan.element_bytes * Shard.of(self.sizes, self.inside(plan)).tokens * self.hidden

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Attention heads, tokens of a sequence."""
        return {
            "tp": Split(self.n_heads, "attention heads"),
            "cp": Split(plan.seq_len, "tokens of a sequence"),
            "ep": Split(1, "experts"),
        }

    def deeper(self, n: int) -> Self:
        """Returns the same model with `n` more layers."""
        return replace(self, n_layers=self.n_layers + n)  # pyright: ignore[reportArgumentType]  (specs are dataclasses)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """The plan must say how long sequences are."""
        if plan.seq_len < 1:
            yield Problem("seq_len", "is missing", is_missing=True)


def stacked(*layers: BlockRun) -> tuple[BlockRun, ...]:
    """Layers between an embedding and a head, whose parameters are held for the whole step."""
    return BlockRun(EMBEDDING, 1, "first", is_unit=False), *layers, BlockRun(HEAD, 1, "last", is_unit=False)


def stack_sizes(spec: Any, fields: str, **own: Any) -> TransformerSizes:
    """Layers as those of a transformer: the named fields of `spec`, and `own` ones."""
    return TransformerSizes(
        **{field: getattr(spec, field) for field in f"name hidden n_heads ffn_hidden {fields}".split()}, **own
    )


def layer_flops(sizes: TransformerSizes, plan: ParallelPlan, *, recomputed: bool) -> float:
    """FLOPs of one sample of `plan.seq_len` tokens through all layers: forward, backward and recomputed."""
    forward = token_flops(sizes, plan.seq_len, plan.is_flash).layers
    again = recomputed_flops_per_token(sizes, plan, plan.is_flash) if recomputed else 0.0
    return plan.seq_len * (3.0 * forward + again)


class _WithLength:
    """`plan` with another `seq_len`; everything else is asked of the plan itself, so that a plan that notes what is read does."""

    def __init__(self, plan: ParallelPlan, seq_len: float) -> None:
        self._plan = plan
        self.seq_len = seq_len

    def __getattr__(self, name: str) -> Any:
        return getattr(self._plan, name)


def with_seq_len(plan: ParallelPlan, seq_len: float) -> ParallelPlan:
    """`plan` where a sample has `seq_len` tokens, a mean that need not be whole."""
    return cast(ParallelPlan, _WithLength(plan, seq_len))


MOST_TOKEN_TYPES = 1000
_CLASSES = 2  # next sentence or not


def embedding_params(sizes: TransformerSizes, n_token_types: int) -> int:
    """Counts the parameters of tokens, positions, types and norm."""
    return token_and_position_params(sizes) + n_token_types * sizes.hidden + norm_params(sizes)


def transform_params(sizes: TransformerSizes) -> int:
    """The product in front of the vocabulary's, with biases."""
    return sizes.hidden**2 + sizes.hidden


def pooler_params(sizes: TransformerSizes) -> int:
    """Pooler and classifier of the next-sentence loss."""
    return sizes.hidden**2 + sizes.hidden + _CLASSES * (sizes.hidden + 1)


def head_params(sizes: TransformerSizes, next_sentence: bool) -> int:
    """Heads of both losses, without the matrix of the vocabulary where it is the embedding's."""
    own = transform_params(sizes) + norm_params(sizes) + sizes.vocab
    matrix = 0 if sizes.tied_embeddings else sizes.vocab * sizes.hidden
    return own + matrix + (pooler_params(sizes) if next_sentence else 0)


def head_flops(sizes: TransformerSizes, n_token: int, next_sentence: bool) -> float:
    """Forward FLOPs of the heads for one sample, of which `n_token` tokens are predicted."""
    masked = 2.0 * n_token * sizes.hidden * (sizes.hidden + sizes.vocab)
    return masked + (2.0 * sizes.hidden * (sizes.hidden + _CLASSES) if next_sentence else 0.0)


@dataclass(frozen=True)
class EncoderEmbedding(EmbeddingBlock):
    """Embeddings of tokens, positions and types, and a norm of their sum; `plan.seq_len` counts tokens without padding."""

    n_token_types: int

    @property
    def kernels(self) -> KernelTable:
        """Kernels of lookup, scatter and norm."""
        shard = Shard.of(self.model, self.plan)
        elements = shard.elements
        norm = norm_kernels("embedding_norm", elements, shard)
        return super().kernels + KernelTable.of(norm)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of a decoder's embedding, of the token types and of the norm."""
        types = self.n_token_types * self.model.hidden / self.plan.tp
        return (*super().parameters, Parameters(DENSE, types + norm_params(self.model)))

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the tensors that a decoder's embedding saves, and the input of the norm."""
        shard = Shard.of(self.model, self.plan)
        norm_input = SavedTensor("embedding norm input", shard.hidden_bytes)
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
        """Parameters of a decoder's head, of the product in front of it, biases of the vocabulary, pooler."""
        own = transform_params(self.model) + self.model.vocab / self.plan.tp
        own += pooler_params(self.model) if self.next_sentence else 0.0
        return (*super().parameters, Parameters(DENSE, own))

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the tensors that a decoder's head saves, with input and result of the product in front of it."""
        shard = Shard.of(self.model, self.plan)
        own = SavedTensor("head transform", 2 * shard.element_bytes * shard.tokens * self.model.hidden)
        return (*super().saved(rules), own)


@dataclass(frozen=True)
class EncoderSpec(DenseStack):
    """An encoder of text with a masked-token loss; all sizes are counts.

    Notes:
        `predicted` is the share of the tokens that the loss is computed on: BERT gathers the masked ones before the product with
        the vocabulary (76 of 512 tokens). Megatron-LM and Hugging Face compute logits of all tokens: 1.
        `padding_removed` is the share of the tokens that is padding and that the layers never see, as in submissions to MLPerf;
        0: padding is computed like every token.
    """

    name: str
    n_layers: int
    hidden: int
    n_heads: int
    ffn_hidden: int
    vocab: int
    max_seq_len: int = 512
    n_token_types: int = 2
    predicted: float = 0.15
    next_sentence: bool = True  # a second loss, on a pooled first token
    padding_removed: float = 0.0
    gated: bool = False
    norm: str = "layer"
    position: str = "learned"
    tied_embeddings: bool = True
    bias: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        owner = f"model {self.name}"
        if not 0.0 < self.predicted <= 1.0:
            raise SpecError(
                f"{owner}: predicted = {self.predicted}, but it is a share of the tokens, above 0 and at most 1"
            )
        if not 0.0 <= self.padding_removed < 1.0:
            raise SpecError(
                f"{owner}: padding_removed = {self.padding_removed}, but it is a share of the tokens, below 1"
            )
        if isinstance(self.n_token_types, bool) or not 0 <= self.n_token_types <= MOST_TOKEN_TYPES:
            raise SpecError(
                f"{owner}: n_token_types = {self.n_token_types}, but it must be from 0 to {MOST_TOKEN_TYPES}"
            )
        _ = self.sizes

    # --- workload: see `base.Workload` ---

    layer_kind = "encoder_layer"

    @cached_property
    def sizes(self) -> TransformerSizes:
        """Sizes of the layers as those of a transformer without a causal mask."""
        same = "n_layers vocab max_seq_len gated norm position tied_embeddings bias"
        return stack_sizes(self, same, causal=False)

    @property
    def sample_unit(self) -> str:
        """Tokens; samples where padding is removed, since tables count the tokens that it fills up."""
        return "samples" if self.padding_removed else "tokens"

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        inside = self.inside(plan)
        match kind:
            case "embedding":
                return EncoderEmbedding(self.sizes, inside, self.n_token_types)
            case "head":
                predicted = with_seq_len(plan, self.predicted_tokens(plan.seq_len))
                return EncoderHead(self.sizes, predicted, self.next_sentence)
            case _:
                return LayerBlock(self.sizes, inside, 0)

    def inside(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample that the layers see."""
        return with_seq_len(plan, plan.seq_len * (1.0 - self.padding_removed)) if self.padding_removed else plan

    def predicted_tokens(self, seq_len: int) -> int:
        """Tokens of a sample that the head reads; masked ones are chosen before padding is removed."""
        return max(1, int(self.predicted * seq_len))

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Three times the forward products of layers, head and pooler, and the recomputed ones."""
        ends = head_flops(self.sizes, self.predicted_tokens(plan.seq_len), self.next_sentence)
        return plan.global_batch * (layer_flops(self.sizes, self.inside(plan), recomputed=recomputed) + 3.0 * ends)

    # --- parameters ---

    def n_params(self) -> int:
        """All parameters, those of the heads of both losses among them."""
        ends = embedding_params(self.sizes, self.n_token_types)
        ends += head_params(self.sizes, self.next_sentence)
        return self.n_layers * layer_params(self.sizes, 0).total + ends


_BERT = "arXiv 1810.04805; counts of google-bert checkpoints with both heads (Hugging Face safetensors metadata)"
_ROBERTA = "arXiv 1907.11692; config.json of FacebookAI"
# Half of the tokens of Wikipedia in sequences of 512 are padding (arXiv 2107.02027, figure 1: packing is 2.001 times as fast).
_PADDING = 0.5

_base = EncoderSpec("bert-base", 12, 768, 12, 3072, 30522, source=_BERT)
_large = EncoderSpec("bert-large", 24, 1024, 16, 4096, 30522, source=_BERT)
_roberta_base = EncoderSpec(
    "roberta-base",
    12,
    768,
    12,
    3072,
    50265,
    max_seq_len=514,
    n_token_types=1,
    next_sentence=False,
    source=_ROBERTA,
)

WORDS = {
    "n_token_types": "types of tokens with an embedding (first and second sentence)",
    "predicted": "share of the tokens that the loss is computed on; 1: logits of all tokens, as in Megatron-LM",
    "next_sentence": "a second loss, on a pooled first token",
    "padding_removed": "share of the tokens that is padding and that the layers never see; 0: padding is computed",
}
PRESETS = (
    _base,
    _large,
    replace(
        _large,
        name="bert-large-mlperf",
        padding_removed=_PADDING,
        source="MLPerf Training, BERT: 76 of 512 tokens are predicted; padding removed, its share as in arXiv 2107.02027",
    ),
    _roberta_base,
    replace(_roberta_base, name="roberta-large", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096),
)
