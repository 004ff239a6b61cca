"""EncoderDecoderSpec: T5 and its relatives; an encoder, and a decoder with cross attention.

Source: arXiv 1910.10683 (T5: span corruption makes 114 target tokens of 512), 2010.11934 (mT5, T5 1.1: gated MLP, untied head).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from ...bounds import MOST_LAYERS, MOST_TOKENS, MOST_WIDTH, check_bounds
from ...errors import Problem, SpecError
from ...plan.plan import ParallelPlan
from ..base import Block, BlockRun, Split
from ..transformer.blocks import EMBEDDING, HEAD, LayerBlock
from ..transformer.layered import DenseLayers, layer_flops, sequence_problems, with_seq_len
from ..transformer.params import layer_params
from ..transformer.shard import Shard
from ..transformer.sizes import POSITIONS, TransformerSizes
from ..transformer.spec import sure_software
from . import blocks, params

READS, WRITES = "encoder_layer", "decoder_layer"
RELATIVE = "relative"
DECODER_POSITIONS = (RELATIVE, *POSITIONS)


@dataclass(frozen=True)
class EncoderDecoderSpec(DenseLayers):
    """An encoder-decoder of text with the loss on the tokens it writes; all sizes are counts.

    Notes:
        `plan.seq_len` counts tokens that are read, and so does throughput; `decoder_seq_len` those that are written.
    """

    name: str
    n_layers: int  # of the encoder
    hidden: int
    n_heads: int
    ffn_hidden: int
    vocab: int
    n_decoder_layers: int = 0  # 0: as many
    decoder_seq_len: int = 0  # tokens written per sample; 0: as many as are read
    head_dim: int = 0
    max_seq_len: int = 512
    gated: bool = False
    norm: str = "rms"
    position: str = RELATIVE
    n_buckets: int = 32  # of relative positions, a bias per head each
    tied_embeddings: bool = True
    bias: bool = False
    dropout: bool = True
    source: str = ""

    def __post_init__(self) -> None:
        owner = f"model {self.name}"
        bounds = {"n_decoder_layers": MOST_LAYERS, "decoder_seq_len": MOST_TOKENS, "n_buckets": MOST_WIDTH}
        for field, most in bounds.items():
            value = getattr(self, field)
            if isinstance(value, bool) or not isinstance(value, int) or value < 0:
                raise SpecError(f"{owner}: {field} = {value!r}, but it must be a whole number, at least 0")
            check_bounds(SpecError, owner, most, **{field: value})
        if self.position not in DECODER_POSITIONS:
            known = ", ".join(DECODER_POSITIONS)
            raise SpecError(f"{owner}: position = {self.position!r} is unknown. Use one of {known}.")
        sizes_of(self, causal=False)

    # --- workload: see `base.Workload` ---

    @property
    def n_writing(self) -> int:
        """Layers of the decoder."""
        return self.n_decoder_layers or self.n_layers

    @property
    def reading(self) -> TransformerSizes:
        """Layers of the encoder; `n_layers` counts those of both stacks, which checkpoints are dealt over."""
        return sizes_of(self, causal=False)

    @property
    def writing(self) -> TransformerSizes:
        """Layers of the decoder, without cross attention; `n_layers` counts those of both stacks."""
        return sizes_of(self, causal=True)

    @property
    def sample_unit(self) -> str:
        """Tokens that are read."""
        return "tokens"

    @property
    def sure_software(self) -> dict[str, str]:
        """Choices of the software that the architecture leaves no room for."""
        return sure_software(self.reading)

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Embedding, encoder, decoder, head."""
        return (
            BlockRun(EMBEDDING, 1, "first", is_unit=False),
            BlockRun(READS, self.n_layers),
            BlockRun(WRITES, self.n_writing),
            BlockRun(HEAD, 1, "last", is_unit=False),
        )

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        written = self.written(plan)
        match kind:
            case "embedding":
                return blocks.BothEmbeddings(self.reading, plan, written, self.n_relative_params())
            case "head":
                return blocks.WriterHead(self.writing, written, plan)
            case "encoder_layer":
                return LayerBlock(self.reading, plan, 0)
            case _:
                return blocks.CrossLayer(self.writing, written, 0, plan)

    def written(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample that the decoder writes."""
        return with_seq_len(plan, self.decoder_seq_len) if self.decoder_seq_len else plan

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """States of both stacks, which stages of the decoder hand on; of all tensor-parallel ranks together."""
        tokens = Shard.of(self.reading, plan).tokens + Shard.of(self.writing, self.written(plan)).tokens
        return plan.element_bytes * tokens * self.hidden

    def units_per_step(self, plan: ParallelPlan) -> int:
        """Tokens that are read in a step."""
        return plan.global_batch * plan.seq_len

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Three times the forward products of both stacks, cross attention and head, and what recomputation repeats."""
        written, n = self.written(plan), self.n_layers + self.n_writing
        reading = layer_flops(self.reading, plan, recomputed=recomputed) * self.n_layers / n
        writing = layer_flops(self.writing, written, recomputed=recomputed) * self.n_writing / n
        cross = params.cross_flops(self.writing, written, plan, recomputed=recomputed) * self.n_writing
        head = 6.0 * written.seq_len * self.hidden * self.vocab
        return plan.global_batch * (reading + writing + cross + head)

    def splits(self, plan: ParallelPlan) -> dict[str, Split]:
        """Attention heads, tokens of both sequences."""
        return {
            "tp": Split(self.n_heads, "attention heads"),
            "cp": Split(plan.seq_len, "tokens of a sequence"),
            "ep": Split(1, "experts"),
        }

    def deeper(self, n: int) -> EncoderDecoderSpec:
        """The same model with `n` layers more, half of them in each stack."""
        return replace(self, n_layers=self.n_layers + n - n // 2, n_decoder_layers=self.n_writing + n // 2)

    def problems(self, plan: ParallelPlan) -> Iterator[Problem]:
        """The plan must say how long sequences are."""
        return sequence_problems(plan)

    # --- parameters ---

    def n_relative_params(self) -> int:
        """Biases of relative positions: one table per stack, which its layers share."""
        return 2 * self.n_buckets * self.n_heads if self.position == RELATIVE else 0

    def n_params(self) -> int:
        """All parameters; both stacks share one embedding."""
        reading, writing = layer_params(self.reading, 0).total, layer_params(self.writing, 0).total
        layers = self.n_layers * reading + self.n_writing * (writing + params.cross_params(self.writing))
        return layers + params.end_params(self.reading) + self.n_relative_params()

    def n_params_active(self) -> int:
        """All of them."""
        return self.n_params()


@lru_cache(maxsize=1024)
def sizes_of(spec: EncoderDecoderSpec, *, causal: bool) -> TransformerSizes:
    """The layers of one stack."""
    same = ("name", "hidden", "n_heads", "ffn_hidden", "vocab", "head_dim", "max_seq_len", "gated", "norm", "bias")
    own = {field: getattr(spec, field) for field in (*same, "tied_embeddings", "dropout")}
    position = "none" if spec.position == RELATIVE else spec.position
    return TransformerSizes(n_layers=spec.n_layers + spec.n_writing, position=position, causal=causal, **own)
