"""Decoder-only transformer architectures: dense GPT and Llama style, MoE, MLA; exact parameter counts."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class MoESpec:
    """Mixture of experts in place of the dense MLP from layer `n_dense_first` on."""

    n_experts: int
    top_k: int
    ffn_hidden: int  # of one expert
    n_shared: int = 0
    shared_ffn_hidden: int = 0  # of all shared experts together; 0: n_shared * ffn_hidden
    n_dense_first: int = 0  # leading layers with the dense MLP
    imbalance: float = 1.0  # load of the busiest expert rank over the mean, >= 1


@dataclass(frozen=True)
class MLASpec:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434)."""

    q_lora_rank: int  # 0: full-rank query
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int


@dataclass(frozen=True)
class TransformerSpec:
    """A decoder-only transformer; all sizes are counts."""

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
    qk_norm: bool = False
    moe: MoESpec | None = None
    mla: MLASpec | None = None
    n_mtp: int = 0  # multi-token-prediction modules (DeepSeek-V3)
    source: str = ""
