"""Exact parameter counts of a transformer, in the pieces that cost and memory models need.

Everything is a count of scalars (no bytes), for the whole model before any parallel split.
"""

from __future__ import annotations

from dataclasses import dataclass

from .mixer import MixerSpec
from .sizes import TransformerSizes


@dataclass(frozen=True)
class LayerParams:
    """Parameters of one transformer layer by piece, biases included in the piece they belong to.

    Attributes:
        attention_qkv: projections that make queries, keys and values (MLA: down and up projections), attention sinks.
        attention_out: output projection.
        mlp: dense MLP; 0 in a MoE layer.
        router: MoE gate (and the gate of the shared expert); 0 in a dense layer.
        experts: all routed experts together.
        shared: all shared experts together.
        norms: layer norms, query and key norms, MLA latent norms.
        expert: one routed expert.
    """

    attention_qkv: int
    attention_out: int
    mlp: int
    router: int
    experts: int
    shared: int
    norms: int
    expert: int

    @property
    def attention(self) -> int:
        """All projections of the attention."""
        return self.attention_qkv + self.attention_out

    @property
    def dense(self) -> int:
        """Everything that expert parallelism does not split."""
        return self.attention + self.mlp + self.router + self.shared + self.norms

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.dense + self.experts

    def active(self, top_k: int) -> int:
        """Parameters one token meets when `top_k` routed experts serve it."""
        return self.dense + top_k * self.expert


def norm_params(spec: TransformerSizes) -> int:
    """Parameters of one norm over the hidden size."""
    return 2 * spec.hidden if spec.norm == "layer" else spec.hidden


def mlp_params(spec: TransformerSizes, ffn_hidden: int) -> int:
    """Parameters of one MLP of inner width `ffn_hidden`: two matrices, three if gated, and their biases."""
    weights = spec.n_mlp_matrices * spec.hidden * ffn_hidden
    biases = (spec.n_mlp_matrices - 1) * ffn_hidden + spec.hidden
    return weights + (biases if spec.has_mlp_bias else 0)


def attention_qkv_params(spec: TransformerSizes) -> int:
    """Query, key and value projections.

    Source: MLA matrices as in arXiv 2405.04434, appendix C; the down projection holds the one
        rope key that all heads share.
    """
    h = spec.hidden
    if spec.mla is None:
        width = spec.q_dim + 2 * spec.kv_dim
        return h * width + (width if spec.has_qkv_bias else 0)
    mla = spec.mla
    query = mla.q_lora_rank * (h + spec.q_dim) if mla.q_lora_rank else h * spec.q_dim
    key_value_down = h * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    key_value_up = mla.kv_lora_rank * spec.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query + key_value_down + key_value_up


def attention_out_params(spec: TransformerSizes) -> int:
    """Output projection of the attention."""
    return spec.attention_out_dim * spec.hidden + (spec.hidden if spec.bias else 0)


def layer_norm_params(spec: TransformerSizes) -> int:
    """All norms of one layer: around attention and MLP, on queries and keys, on MLA's latent vectors."""
    count = spec.n_norms * norm_params(spec)
    if spec.qk_norm:
        count += {"head": 2 * spec.qk_head_dim, "all": spec.q_dim + spec.kv_dim, "none": 0}[spec.qk_norm_weight]
    if spec.mla is not None:
        count += spec.mla.q_lora_rank + spec.mla.kv_lora_rank
    return count


def _mixer_params(spec: TransformerSizes, mixer: MixerSpec) -> dict[str, int]:
    """Of a layer with a state in place of attention."""
    norms = (spec.n_norms if mixer.has_mlp else 1) * norm_params(spec)
    own = {"attention_qkv": mixer.in_params(spec.hidden), "attention_out": mixer.out_params(spec.hidden)}
    return own | {"norms": norms}


def layer_params(spec: TransformerSizes, layer: int) -> LayerParams:
    """Parameters of layer `layer` (0 is nearest to the embedding)."""
    mixer = spec.mixer_in(layer)
    attention = (
        _mixer_params(spec, mixer)
        if mixer is not None
        else {
            "attention_qkv": attention_qkv_params(spec) + (spec.n_heads if spec.attention_sinks else 0),
            "attention_out": attention_out_params(spec),
            "norms": layer_norm_params(spec),
        }
    )
    if spec.moe is None or not spec.is_moe_layer(layer):
        mlp = mlp_params(spec, spec.ffn_hidden) if mixer is None or mixer.has_mlp else 0
        return LayerParams(**attention, mlp=mlp, router=0, experts=0, shared=0, expert=0)
    moe = spec.moe
    expert = mlp_params(spec, moe.ffn_hidden)
    router = spec.hidden * (moe.n_experts + moe.shared_gate) + (moe.n_experts if moe.router_bias else 0)
    return LayerParams(
        **attention,
        mlp=0,
        router=router,
        experts=moe.n_experts * expert,
        shared=mlp_params(spec, moe.shared_width) if moe.shared_width else 0,
        expert=expert,
    )


def embedding_params(spec: TransformerSizes) -> int:
    """Token embedding and learned positions."""
    positions = spec.max_seq_len * spec.hidden if spec.position == "learned" else 0
    return spec.vocab * spec.hidden + positions


def head_params(spec: TransformerSizes) -> int:
    """Output projection to the vocabulary; 0 when it is tied to the embedding."""
    return 0 if spec.tied_embeddings else spec.vocab * spec.hidden


def mtp_params(spec: TransformerSizes, active: bool = False) -> int:
    """Own parameters of all multi-token-prediction modules; embedding and head are shared with the main model.

    Source: DeepSeek-V3 README_WEIGHTS.md: two input norms, a 2h x h projection, one layer, a final norm.
    """
    layer = layer_params(spec, spec.n_layers - 1)
    block = layer.active(spec.top_k) if active else layer.total
    return spec.n_mtp * (2 * spec.hidden * spec.hidden + 3 * norm_params(spec) + block)
