"""EncoderSpec: BERT and its relatives; a bidirectional transformer trained to predict masked tokens.

Source: arXiv 1810.04805 (BERT), 1907.11692 (RoBERTa: no next-sentence loss, one type of token).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ...errors import Problem, SpecError
from ...plan.plan import ParallelPlan
from ..base import Block, BlockRun, Split
from ..transformer.blocks import EMBEDDING, HEAD, LayerBlock
from ..transformer.layered import DenseLayers, layer_flops, sequence_problems, with_seq_len
from ..transformer.params import layer_params
from ..transformer.shard import Shard
from ..transformer.sizes import TransformerSizes
from ..transformer.spec import sure_software
from . import blocks, params

LAYER = "encoder_layer"


@dataclass(frozen=True)
class EncoderSpec(DenseLayers):
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
        if isinstance(self.n_token_types, bool) or not 0 <= self.n_token_types <= params.MOST_TOKEN_TYPES:
            raise SpecError(
                f"{owner}: n_token_types = {self.n_token_types}, but it must be from 0 to {params.MOST_TOKEN_TYPES}"
            )
        sizes_of(self)

    # --- workload: see `base.Workload` ---

    @property
    def sizes(self) -> TransformerSizes:
        """Its layers."""
        return sizes_of(self)

    @property
    def sample_unit(self) -> str:
        """Tokens; samples where padding is removed, since tables count the tokens that it fills up."""
        return "samples" if self.padding_removed else "tokens"

    @property
    def sure_software(self) -> dict[str, str]:
        """Choices of the software that the architecture leaves no room for."""
        return sure_software(self.sizes)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Embedding, layers, head."""
        return (
            BlockRun(EMBEDDING, 1, "first", is_unit=False),
            BlockRun(LAYER, self.n_layers),
            BlockRun(HEAD, 1, "last", is_unit=False),
        )

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        inside = self.inside(plan)
        match kind:
            case "embedding":
                return blocks.EncoderEmbedding(self.sizes, inside, self.n_token_types)
            case "head":
                predicted = with_seq_len(plan, self.predicted_tokens(plan.seq_len))
                return blocks.EncoderHead(self.sizes, predicted, self.next_sentence)
            case _:
                return LayerBlock(self.sizes, inside, 0)

    def inside(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample that the layers see."""
        return with_seq_len(plan, plan.seq_len * (1.0 - self.padding_removed)) if self.padding_removed else plan

    def predicted_tokens(self, seq_len: int) -> int:
        """Tokens of a sample that the head reads; masked ones are chosen before padding is removed."""
        return max(1, int(self.predicted * seq_len))

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """Hidden states of a micro-batch, of all tensor-parallel ranks together."""
        return plan.element_bytes * Shard.of(self.sizes, self.inside(plan)).tokens * self.hidden

    def units_per_step(self, plan: ParallelPlan) -> int:
        """Tokens or samples of a step."""
        return plan.global_batch * (1 if self.padding_removed else plan.seq_len)

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Three times the forward products of layers, head and pooler, and what recomputation repeats."""
        ends = params.head_flops(self.sizes, self.predicted_tokens(plan.seq_len), self.next_sentence)
        return plan.global_batch * (layer_flops(self.sizes, self.inside(plan), recomputed=recomputed) + 3.0 * ends)

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Attention heads, tokens of a sequence."""
        return {
            "tp": Split(self.n_heads, "attention heads"),
            "cp": Split(plan.seq_len, "tokens of a sequence"),
            "ep": Split(1, "experts"),
        }

    def deeper(self, n: int) -> EncoderSpec:
        """The same model with `n` layers more."""
        return replace(self, n_layers=self.n_layers + n)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """The plan must say how long sequences are."""
        return sequence_problems(plan)

    # --- parameters ---

    def n_params(self) -> int:
        """All parameters, those of the heads of both losses among them."""
        ends = params.embedding_params(self.sizes, self.n_token_types)
        ends += params.head_params(self.sizes, self.next_sentence)
        return self.n_layers * layer_params(self.sizes, 0).total + ends

    def n_params_active(self) -> int:
        """All of them."""
        return self.n_params()


@lru_cache(maxsize=1024)
def sizes_of(spec: EncoderSpec) -> TransformerSizes:
    """The layers of an encoder as those of a transformer without a causal mask."""
    same = ("n_layers", "hidden", "n_heads", "ffn_hidden", "vocab", "max_seq_len", "gated", "norm", "position", "bias")
    own = {field: getattr(spec, field) for field in same}
    return TransformerSizes(name=spec.name, tied_embeddings=spec.tied_embeddings, causal=False, **own)
