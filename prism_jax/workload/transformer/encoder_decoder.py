"""EncoderDecoderSpec: T5 and its relatives, an encoder and a decoder that attends to it; blocks, counts, and models by name.

Source: arXiv 1910.10683 (T5: span corruption makes 114 target tokens of 512), 2010.11934 (mT5, T5 1.1: gated MLP, untied head);
counts as `T5ForConditionalGeneration` of Hugging Face transformers has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ...core.bounds import MOST_LAYERS, MOST_TOKENS, MOST_WIDTH, check_count
from ...core.errors import SpecError
from ...framework.base import MemoryOptions
from ...plan.fields import recomputed_modules, share_of_layers
from ...plan.plan import ParallelPlan
from ..base.kernels import Kernel, KernelTable, stream
from ..base.workload import DENSE, Block, BlockRun, Comm, Parameters, SavedTensor
from .blocks import EmbeddingBlock, HeadBlock, LayerBlock
from .encoder import DenseStack, layer_flops, stack_sizes, stacked, with_seq_len
from .op_lists import attention_core, norm_kernels
from .ops import cross_comms, embedding_comms, embedding_ops
from .params import attention_out_params, attention_qkv_params, embedding_params, head_params, layer_params, norm_params
from .saved_tensors import cross_saved_tensors, embedding_saved_tensors
from .shard import Shard, gemm
from .sizes import POSITIONS, TransformerSizes


def cross_params(sizes: TransformerSizes) -> int:
    """Projections and norm of one layer's attention to the encoder."""
    return attention_qkv_params(sizes) + attention_out_params(sizes) + norm_params(sizes)


def end_params(sizes: TransformerSizes) -> int:
    """Embedding of both stacks, their final norms, head."""
    return embedding_params(sizes) + 2 * norm_params(sizes) + head_params(sizes)


def cross_flops(sizes: TransformerSizes, own: ParallelPlan, memory: ParallelPlan, *, recomputed: bool) -> float:
    """FLOPs of one sample in one layer's attention to the encoder: forward, backward and recomputed.

    Args:
        sizes: of the decoder.
        own: plan with the length of the decoder's sequence.
        memory: plan with the length of the encoder's.
    """
    q_and_out = 2.0 * own.seq_len * sizes.hidden * (sizes.q_dim + sizes.attention_out_dim)
    key_value = 2.0 * memory.seq_len * sizes.hidden * 2 * sizes.kv_dim
    scores = 4.0 * own.seq_len * memory.seq_len * sizes.q_dim
    forward = q_and_out + key_value + scores
    if not recomputed:
        return 3.0 * forward
    if own.recompute in ("full", "selective_layer"):
        return (3.0 + share_of_layers(own, sizes.n_layers)) * forward
    is_selective = own.recompute == "selective" and "core_attn" in recomputed_modules(own)
    return 3.0 * forward + (scores if is_selective else 0.0)


@dataclass(frozen=True)
class BothEmbeddings(EmbeddingBlock):
    """Tokens of both stacks, looked up in one matrix; biases of relative positions."""

    written: ParallelPlan
    n_relative_params: int

    @property
    def kernels(self) -> KernelTable:
        """Kernels of two lookups and scatters."""
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
        elements = shard.elements
        ops += norm_kernels("cross_norm", elements, shard)
        mask = 1.0 / shard.element_bytes if shard.dropout else 0.0
        row_bytes = shard.element_bytes * elements
        ops.append(stream("cross_residual", "F", (3 + mask) * row_bytes))
        ops.append(stream("cross_residual", "B", (2 + mask) * row_bytes))
        return ops

    def other_comms(self) -> list[Comm]:
        """One block more of tensor parallelism."""
        return cross_comms(self.model, self.plan, self.memory)

    def other_params(self) -> float:
        """Number of parameters of cross attention: projections and norm."""
        projections = attention_qkv_params(self.model) + attention_out_params(self.model)
        return projections / self.plan.tp + norm_params(self.model)

    def other_saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Returns the tensors that the cross attention saves."""
        return cross_saved_tensors(self.model, self.plan, self.memory, rules)


@dataclass(frozen=True)
class WriterHead(HeadBlock):
    """Norms behind both stacks; logits and loss of the tokens that are written. `plan` has their number."""

    read: ParallelPlan

    @property
    def kernels(self) -> KernelTable:
        """Kernels of a decoder's head, and of the norm behind the encoder."""
        shard = Shard.of(self.model, self.read)
        elements = shard.elements
        norm = norm_kernels("encoder_norm", elements, shard)
        return super().kernels + KernelTable.of(norm)

    @property
    def parameters(self) -> tuple[Parameters, ...]:
        """Parameters of the output matrix and of two norms."""
        return (*super().parameters, Parameters(DENSE, float(norm_params(self.model))))

    def saved(self, rules: MemoryOptions) -> tuple[SavedTensor, ...]:
        """Tensors that a head saves, with input and output of the norm behind the encoder, which all layers attend to."""
        shard = Shard.of(self.model, self.read)
        hidden = shard.element_bytes * self.model.hidden
        states = SavedTensor("encoder states", hidden * (shard.local_tokens + shard.tokens))
        return (*super().saved(rules), states)


READS, WRITES = "encoder_layer", "decoder_layer"
RELATIVE = "relative"
DECODER_POSITIONS = (RELATIVE, *POSITIONS)


@dataclass(frozen=True)
class EncoderDecoderSpec(DenseStack):
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
            check_count(SpecError, owner, 0, most, **{field: getattr(self, field)})
        if self.position not in DECODER_POSITIONS:
            known = ", ".join(DECODER_POSITIONS)
            raise SpecError(f"{owner}: position = {self.position!r} is unknown. Use one of {known}.")
        _ = self.sizes

    # --- workload: see `base.Workload` ---

    @property
    def n_writing(self) -> int:
        """Number of layers of the decoder."""
        return self.n_decoder_layers or self.n_layers

    @cached_property
    def sizes(self) -> TransformerSizes:
        """Layers of the encoder; `n_layers` counts those of both stacks, which checkpoints are dealt over."""
        position = "none" if self.position == RELATIVE else self.position
        same = "vocab head_dim max_seq_len gated norm bias tied_embeddings dropout"
        return stack_sizes(self, same, n_layers=self.n_layers + self.n_writing, position=position, causal=False)

    @cached_property
    def writing(self) -> TransformerSizes:
        """Layers of the decoder, without cross attention; `n_layers` counts those of both stacks."""
        return replace(self.sizes, causal=True)

    @property
    def sample_unit(self) -> str:
        """Unit in which throughput is counted: tokens that are read."""
        return "tokens"

    @property
    def layout(self) -> tuple[BlockRun, ...]:
        """Blocks in order: embedding, encoder, decoder, head."""
        return stacked(BlockRun(READS, self.n_layers), BlockRun(WRITES, self.n_writing))

    def block(self, kind: str, plan: ParallelPlan) -> Block:
        """One block under a plan."""
        written = self.written(plan)
        match kind:
            case "embedding":
                return BothEmbeddings(self.sizes, plan, written, self.n_relative_params())
            case "head":
                return WriterHead(self.writing, written, plan)
            case "encoder_layer":
                return LayerBlock(self.sizes, plan, 0)
            case _:
                return CrossLayer(self.writing, written, 0, plan)

    def written(self, plan: ParallelPlan) -> ParallelPlan:
        """The plan with the tokens of a sample that the decoder writes."""
        return with_seq_len(plan, self.decoder_seq_len) if self.decoder_seq_len else plan

    def boundary_bytes(self, plan: ParallelPlan) -> float:
        """States of both stacks, which stages of the decoder hand on; of all tensor-parallel ranks together."""
        tokens = Shard.of(self.sizes, plan).tokens + Shard.of(self.writing, self.written(plan)).tokens
        return plan.element_bytes * tokens * self.hidden

    def step_flops(self, plan: ParallelPlan, *, recomputed: bool) -> float:
        """Three times the forward products of both stacks, cross attention and head, and the recomputed ones."""
        written, n = self.written(plan), self.n_layers + self.n_writing
        reading = layer_flops(self.sizes, plan, recomputed=recomputed) * self.n_layers / n
        writing = layer_flops(self.writing, written, recomputed=recomputed) * self.n_writing / n
        cross = cross_flops(self.writing, written, plan, recomputed=recomputed) * self.n_writing
        head = 6.0 * written.seq_len * self.hidden * self.vocab
        return plan.global_batch * (reading + writing + cross + head)

    def deeper(self, n: int) -> EncoderDecoderSpec:
        """Returns the same model with `n` more layers, half of them in each stack."""
        return replace(self, n_layers=self.n_layers + n - n // 2, n_decoder_layers=self.n_writing + n // 2)

    # --- parameters ---

    def n_relative_params(self) -> int:
        """Biases of relative positions: one table per stack, which its layers share."""
        return 2 * self.n_buckets * self.n_heads if self.position == RELATIVE else 0

    def n_params(self) -> int:
        """All parameters; both stacks share one embedding."""
        reading, writing = layer_params(self.sizes, 0).total, layer_params(self.writing, 0).total
        layers = self.n_layers * reading + self.n_writing * (writing + cross_params(self.writing))
        return layers + end_params(self.sizes) + self.n_relative_params()


WORDS = {
    "n_layers": "layers of the encoder",
    "n_decoder_layers": "layers of the decoder; 0: as many as the encoder",
    "decoder_seq_len": "tokens that the decoder writes per sample; 0: as many as are read",
    "position": "positions; relative: a bias per head and bucket of distances",
    "n_buckets": "buckets of relative positions",
    "dropout": "masks of dropout are kept",
}
_T5 = "arXiv 1910.10683 table 5 and config.json of google-t5; span corruption: 512 tokens read, 114 written"
_V1_1 = "arXiv 2010.11934 and config.json of google/t5-v1_1 and google/mt5"
_WRITTEN = 114

_t5_base = EncoderDecoderSpec("t5-base", 12, 768, 12, 3072, 32128, decoder_seq_len=_WRITTEN, head_dim=64, source=_T5)
_t5_large = replace(_t5_base, name="t5-large", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096)
_v1_1_base = replace(_t5_base, name="t5-v1.1-base", ffn_hidden=2048, gated=True, tied_embeddings=False, source=_V1_1)
_v1_1_large = replace(_v1_1_base, name="t5-v1.1-large", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=2816)
_v1_1_xl = replace(_v1_1_large, name="t5-v1.1-xl", hidden=2048, n_heads=32, ffn_hidden=5120)
_v1_1_xxl = replace(_v1_1_large, name="t5-v1.1-xxl", hidden=4096, n_heads=64, ffn_hidden=10240)
_MT5_VOCAB = 250112

PRESETS = (
    replace(_t5_base, name="t5-small", n_layers=6, hidden=512, n_heads=8, ffn_hidden=2048),
    _t5_base,
    _t5_large,
    replace(_t5_large, name="t5-3b", n_heads=32, head_dim=128, ffn_hidden=16384),
    replace(_t5_large, name="t5-11b", n_heads=128, head_dim=128, ffn_hidden=65536),
    _v1_1_base,
    _v1_1_large,
    _v1_1_xl,
    _v1_1_xxl,
    replace(_v1_1_base, name="mt5-small", n_layers=8, hidden=512, n_heads=6, ffn_hidden=1024, vocab=_MT5_VOCAB),
    replace(_v1_1_base, name="mt5-base", vocab=_MT5_VOCAB),
    replace(_v1_1_large, name="mt5-large", vocab=_MT5_VOCAB),
    replace(_v1_1_xl, name="mt5-xl", vocab=_MT5_VOCAB),
    replace(_v1_1_xxl, name="mt5-xxl", vocab=_MT5_VOCAB),
)
