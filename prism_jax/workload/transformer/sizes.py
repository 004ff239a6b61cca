"""Sizes of a decoder-only transformer: dimensions, experts, latent attention, adapters, and derived counts.

An adapter on a frozen matrix W (n_in x n_out) adds `x A B` to `x W` with A (n_in x r) and B (r x n_out); nothing else is
trained. A target is named as Hugging Face names the module (`q_proj`), or as Megatron-LM names the fused one (`linear_qkv`),
which has one A for all that it makes. Source: LoRA arXiv 2106.09685; quantised base weights arXiv 2305.14314 (nf4, double
quantisation: 4.127 bits per weight); GPTQ arXiv 2210.17323 with one fp16 scale and one 4-bit zero per 128 weights.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...core.bounds import MOST_LAYERS, MOST_TOKENS, MOST_WIDTH, check_bounds
from ...core.errors import SpecError
from .mixers import FULL, MixerSpec, WindowSpec, mean_keys
from .routing import ExpertGroup, ExpertRouting as ExpertRouting, mean_busiest

KINDS = ("lora",)
QUANTISED_BYTES = {"none": None, "nf4": 0.5 + (1 + 4 / 256) / 64, "int4": 0.5 + (2 + 0.5) / 128}
"""Bytes of a frozen weight with its share of the scales; None: the plan's own format."""
DEQUANTISE_LAUNCHES = {"none": 0.0, "nf4": 3.0, "int4": 1.0}
"""Kernels that bring a matrix back; the scales of nf4 are quantised themselves (bitsandbytes: scales, their offset, weights)."""

GROUPS = {
    "attention": ("q_proj", "k_proj", "v_proj", "q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"),
    "mlp": ("gate_proj", "up_proj", "down_proj"),
}
GROUPS["all"] = GROUPS["attention"] + GROUPS["mlp"]
FUSED = {"linear_qkv": ("q_proj", "k_proj", "v_proj"), "linear_fc1": ("gate_proj", "up_proj")}
ALIASES = {"linear_proj": "o_proj", "linear_fc2": "down_proj"}
TARGETS = (*GROUPS, *GROUPS["all"], *FUSED, *ALIASES)


@dataclass(frozen=True)
class AdapterSpec:
    """Fine-tuning of low-rank adapters; everything else is frozen.

    Attributes:
        rank: r; 0: nothing has weights to train in the layers, but gradients pass through them (prompt tuning).
        kind: lora.
        targets: names of modules, or attention | mlp | all for every matrix there.
        quantised: format of the frozen matrices of the layers: none | nf4 | int4; brought back to 16 bits before every product.
        fused: the adapter's result is added within its product (Unsloth, fused-ops plugins); else scaling and sum are passes of
            their own, as in eager PEFT.
        dropout: probability on the input of every adapter; only whether there is any matters to time and memory.

    Raises:
        SpecError: an unknown name, a negative rank, a probability outside [0, 1).
    """

    rank: int
    targets: tuple[str, ...] = ("attention",)
    kind: str = "lora"
    quantised: str = "none"
    fused: bool = False
    dropout: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.rank, bool) or not isinstance(self.rank, int) or self.rank < 0:
            raise SpecError(f"adapters: rank = {self.rank!r}, but it must be a whole number, 0 or more")
        check_bounds(SpecError, "adapters", MOST_WIDTH, rank=self.rank)
        if not self.targets:
            raise SpecError(f"adapters: targets is empty. Name some of {', '.join(TARGETS)}.")
        for name in self.targets:
            if name not in TARGETS:
                raise SpecError(f"adapters: target {name!r} is unknown. Use some of {', '.join(TARGETS)}.")
        for field, known in (("kind", KINDS), ("quantised", tuple(QUANTISED_BYTES))):
            if getattr(self, field) not in known:
                text = f"{getattr(self, field)!r} is unknown. Use one of {', '.join(known)}."
                raise SpecError(f"adapters: {field} = {text}")
        if not 0.0 <= self.dropout < 1.0:
            raise SpecError(f"adapters: dropout = {self.dropout}, but it must be at least 0 and below 1")


NORMS = ("layer", "rms", "layer_no_bias")
POSITIONS = ("learned", "rope", "alibi", "none")
QK_NORM_WEIGHTS = ("head", "all", "none")


def _in_range(owner: str, minimum: int, most: int = MOST_WIDTH, **values: int) -> None:
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int):
            raise SpecError(f"{owner}: {name} = {value!r}, but it must be a whole number")
        if value < minimum:
            raise SpecError(f"{owner}: {name} = {value}, but it must be at least {minimum}")
    check_bounds(SpecError, owner, most, **values)


@dataclass(frozen=True)
class MoESpec:
    """Mixture of experts in place of the dense MLP: in every `every`-th layer, none of the first `n_dense_first` among them."""

    n_experts: int
    top_k: int
    ffn_hidden: int  # of one expert
    n_shared: int = 0
    shared_ffn_hidden: int = 0  # of all shared experts together; 0: n_shared * ffn_hidden
    n_dense_first: int = 0  # leading layers with the dense MLP
    imbalance: float = 1.0  # load of the busiest expert rank over the mean, >= 1
    router_bias: bool = False  # a load-balancing bias per expert (DeepSeek-V3)
    shared_gate: bool = False  # the shared expert's output is scaled by a learned gate (Qwen2-MoE)
    every: int = 1  # layers every - 1, 2 every - 1, ... have experts (Llama 4 Maverick: 2)
    latent: int = 0  # width to which tokens are projected before they go to the routed experts (Nemotron 3); 0: hidden
    # Tokens that an expert takes, over the mean: inputs are padded to it, more are dropped; 0: none are (dropless).
    capacity_factor: float = 0.0
    routing: ExpertRouting | None = None  # how unevenly routers load experts, drawn; in place of a constant imbalance

    def __post_init__(self) -> None:
        _in_range("moe", 1, n_experts=self.n_experts, top_k=self.top_k, ffn_hidden=self.ffn_hidden, every=self.every)
        _in_range(
            "moe",
            0,
            n_shared=self.n_shared,
            shared_ffn_hidden=self.shared_ffn_hidden,
            n_dense_first=self.n_dense_first,
            latent=self.latent,
        )
        if self.top_k > self.n_experts:
            raise SpecError(
                f"moe: top_k = {self.top_k}, but there are only n_experts = {self.n_experts}. "
                f"Use top_k <= {self.n_experts}."
            )
        if self.imbalance < 1.0:
            raise SpecError(
                f"moe: imbalance = {self.imbalance}, but the busiest rank carries at least the mean. Use 1.0 or more."
            )

        if self.imbalance > 1.0 and self.routing is not None:
            raise SpecError("moe: imbalance and routing both say how uneven loads are. Leave one of them out.")
        counts = None if self.routing is None else self.routing.counts
        if counts is not None and counts.tokens.shape[2] != self.n_experts:
            text = f"{counts.tokens.shape[2]} experts, but n_experts = {self.n_experts}"
            raise SpecError(f"moe.routing.counts: {counts.file} has tokens of {text}.")
        if not 0.0 <= self.capacity_factor <= self.n_experts:
            raise SpecError(
                f"moe: capacity_factor = {self.capacity_factor}, but it must lie between 0 (no token is dropped) and "
                f"n_experts = {self.n_experts}."
            )

    def busiest(self, group: ExpertGroup) -> float:
        """Tokens that the busiest rank of an expert-parallel group works on, over the mean; the mean of it where it is drawn."""
        if self.capacity_factor or group.ep == 1:
            return self.capacity_factor or 1.0
        return self.imbalance if self.routing is None else mean_busiest(self.routing, group)

    @property
    def shared_width(self) -> int:
        """Inner width of all shared experts together."""
        return self.shared_ffn_hidden or self.n_shared * self.ffn_hidden

    def token_width(self, hidden: int) -> int:
        """Width of a token as routed experts see it, in a model of width `hidden`."""
        return self.latent or hidden

    def n_layers_of(self, n_layers: int) -> int:
        """Returns the number of layers with experts among `n_layers` layers."""
        return n_layers // self.every - self.n_dense_first // self.every

    def is_in_layer(self, layer: int) -> bool:
        """Whether layer `layer` has experts."""
        return layer >= self.n_dense_first and (layer + 1) % self.every == 0


@dataclass(frozen=True)
class MLASpec:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

    q_lora_rank: int  # 0: full-rank query
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int

    def __post_init__(self) -> None:
        _in_range("mla", 0, q_lora_rank=self.q_lora_rank)
        _in_range(
            "mla",
            1,
            kv_lora_rank=self.kv_lora_rank,
            qk_nope_head_dim=self.qk_nope_head_dim,
            qk_rope_head_dim=self.qk_rope_head_dim,
            v_head_dim=self.v_head_dim,
        )


@dataclass(frozen=True)
class TransformerSizes:
    """Dimensions of a transformer; parameters and FLOPs are methods of `TransformerSpec`."""

    name: str
    n_layers: int
    hidden: int
    n_heads: int
    ffn_hidden: int
    vocab: int
    n_kv_heads: int = 0  # 0: n_heads
    head_dim: int = 0  # 0: hidden // n_heads
    max_seq_len: int = 2048
    gated: bool = False  # SwiGLU: three MLP matrices instead of two
    norm: str = "layer"  # layer (weight and bias) | rms (weight only) | layer_no_bias
    position: str = "learned"  # learned | rope | alibi | none
    tied_embeddings: bool = True
    bias: bool = True  # biases in attention output and MLP projections
    qkv_bias: bool | None = None  # None: as `bias`
    qk_norm: bool = False  # a norm of head_dim weights on queries and on keys (Qwen3)
    moe: MoESpec | None = None
    mla: MLASpec | None = None
    n_mtp: int = 0  # multi-token-prediction modules (DeepSeek-V3)
    source: str = ""
    mlp_bias: bool | None = None  # None: as `bias`
    window: WindowSpec | None = None  # layers that attend to a part of the sequence; None: all attend to all of it
    n_norms: int = 2  # norms over the hidden size in a layer (Gemma 2 and 3: 4)
    qk_norm_weight: str = "head"  # head: head_dim weights | all: one per column (OLMo 2) | none (Llama 4)
    attention_gate: bool = False  # queries come with a gate on the attention's output (Qwen3-Next)
    attention_sinks: bool = False  # a learned logit per head next to the scores (gpt-oss)
    adapters: AdapterSpec | None = None  # what is trained; None: all parameters
    left_out: tuple[str, ...] = ()  # other parts of the published model: "the vision tower"
    assumed: tuple[str, ...] = ()  # what a configuration leaves unsaid and was taken as usual: "a gated MLP"
    dropout: bool | None = None  # None: as the recipe of such layers has it, see `shard.has_dropout`
    mixer: MixerSpec | None = None  # layers with a state in place of attention (Mamba-2, linear attention)
    causal: bool = True  # a token sees those before it; false: all of the sequence (masked diffusion language models)

    def __post_init__(self) -> None:
        owner = f"model {self.name}"
        _in_range(
            owner,
            1,
            hidden=self.hidden,
            n_heads=self.n_heads,
            ffn_hidden=self.ffn_hidden,
            vocab=self.vocab,
        )
        _in_range(owner, 0, n_kv_heads=self.n_kv_heads, head_dim=self.head_dim)
        _in_range(owner, 1, MOST_LAYERS, n_layers=self.n_layers)
        _in_range(owner, 0, MOST_LAYERS, n_mtp=self.n_mtp, n_norms=self.n_norms)
        _in_range(owner, 1, MOST_TOKENS, max_seq_len=self.max_seq_len)
        self._check_heads(owner)
        choices = {"norm": NORMS, "position": POSITIONS, "qk_norm_weight": QK_NORM_WEIGHTS}
        for field, known in choices.items():
            if getattr(self, field) not in known:
                raise SpecError(
                    f"{owner}: {field} = {getattr(self, field)!r} is unknown. Use one of {', '.join(known)}."
                )
        if self.window is not None and not self.causal:
            raise SpecError(
                f"{owner}: causal = False, but windows are modelled for causal attention only. Drop `window`."
            )
        self._check_mixer(owner)
        self._check_moe(owner)

    def _check_mixer(self, owner: str) -> None:
        if self.mixer is None:
            return
        beside = {"adapters": self.adapters, "n_mtp": self.n_mtp, "causal = False": not self.causal}
        if found := next((name for name, is_there in beside.items() if is_there), ""):
            raise SpecError(f"{owner}: layers with a mixer are not modelled together with {found}. Drop one of them.")

    def _check_moe(self, owner: str) -> None:
        if self.moe is None or self.n_moe_layers > 0:
            return
        if self.mixer is not None and self.moe.n_layers_of(self.n_layers) > 0:
            raise SpecError(f"{owner}: no layer that mixer.pattern names has an MLP that could be experts. Drop `moe`.")
        if self.moe.n_dense_first >= self.n_layers:
            raise SpecError(
                f"{owner}: moe.n_dense_first = {self.moe.n_dense_first} leaves no MoE layer "
                f"among n_layers = {self.n_layers}. Use at most {self.n_layers - 1}, or drop `moe`."
            )
        raise SpecError(
            f"{owner}: moe.every = {self.moe.every} leaves no MoE layer among n_layers = {self.n_layers}, "
            f"of which moe.n_dense_first = {self.moe.n_dense_first} are dense. Lower one of them, or drop `moe`."
        )

    def _check_heads(self, owner: str) -> None:
        if self.mla is None and self.head_dim == 0 and self.hidden % self.n_heads:
            raise SpecError(
                f"{owner}: hidden = {self.hidden} is not divisible by n_heads = {self.n_heads}. "
                f"Give head_dim, or change one of them."
            )
        if self.n_heads % self.kv_heads:
            raise SpecError(
                f"{owner}: n_heads = {self.n_heads} is not a multiple of n_kv_heads = {self.kv_heads}. "
                f"Each key-value head serves the same number of query heads."
            )

    # --- sizes with their defaults resolved ---

    @property
    def kv_heads(self) -> int:
        """Number of key-value heads."""
        return self.n_kv_heads or self.n_heads

    @property
    def qk_head_dim(self) -> int:
        """Width of one query or key head, over which scores are summed."""
        if self.mla is not None:
            return self.mla.qk_nope_head_dim + self.mla.qk_rope_head_dim
        return self.head_dim or self.hidden // self.n_heads

    @property
    def v_head_dim(self) -> int:
        """Width of one value head."""
        return self.mla.v_head_dim if self.mla is not None else self.qk_head_dim

    @property
    def q_dim(self) -> int:
        """Width of all queries together."""
        return self.n_heads * self.qk_head_dim

    @property
    def query_width(self) -> int:
        """Columns of the projection that makes queries, and gates of the attention's output where there are any."""
        return self.q_dim * (2 if self.attention_gate else 1)

    @property
    def kv_dim(self) -> int:
        """Width of all keys, as large as that of all values; MLA: keys, expanded to every head (values: `attention_out_dim`)."""
        return self.n_heads * self.qk_head_dim if self.mla is not None else self.kv_heads * self.qk_head_dim

    @property
    def attention_out_dim(self) -> int:
        """Input width of the attention's output projection."""
        return self.n_heads * self.v_head_dim

    @property
    def n_mlp_matrices(self) -> int:
        """Matrices of one MLP: three if gated."""
        return 3 if self.gated else 2

    @property
    def has_qkv_bias(self) -> bool:
        """Whether the query, key and value projections have biases."""
        return self.bias if self.qkv_bias is None else self.qkv_bias

    @property
    def has_mlp_bias(self) -> bool:
        """Whether the MLP's projections have biases."""
        return self.bias if self.mlp_bias is None else self.mlp_bias

    @property
    def top_k(self) -> int:
        """Routed experts per token; 0 for a dense model."""
        return self.moe.top_k if self.moe is not None else 0

    @property
    def n_moe_layers(self) -> int:
        """Number of layers with experts."""
        if self.moe is None:
            return 0
        if self.mixer is None:
            return self.moe.n_layers_of(self.n_layers)
        return sum(self.is_moe_layer(layer) for layer in range(self.n_layers))

    def is_moe_layer(self, layer: int) -> bool:
        """Whether layer `layer` (0 is nearest to the embedding) has experts."""
        return self.moe is not None and self.moe.is_in_layer(layer) and self.has_mlp_in(layer)

    def has_mlp_in(self, layer: int) -> bool:
        """Whether layer `layer` has an MLP, dense or of experts."""
        return self.mixer is None or self.mixer.has_mlp_in(layer)

    def mixer_in(self, layer: int) -> MixerSpec | None:
        """Returns the mixer that layer `layer` has in place of attention; None: it has attention."""
        return self.mixer if self.mixer is not None and self.mixer.is_in_layer(layer) else None

    @property
    def n_mixer_layers(self) -> int:
        """Number of layers without attention."""
        return sum(self.mixer_in(layer) is not None for layer in range(self.n_layers)) if self.mixer is not None else 0

    @property
    def n_layers_without_mlp(self) -> int:
        """Layers that are a mixer or attention alone."""
        return sum(not self.has_mlp_in(layer) for layer in range(self.n_layers)) if self.mixer is not None else 0

    def mean_keys(self, seq_len: int, layer: int) -> float:
        """Keys that a query of layer `layer` sees, averaged over a sequence of `seq_len` tokens."""
        return mean_keys(seq_len, self.window, layer) if self.causal else float(seq_len)

    def reach(self, layer: int) -> str:
        """Returns the span that layer `layer` attends to: full | sliding | chunked."""
        return self.window.reach(layer) if self.window is not None else FULL
