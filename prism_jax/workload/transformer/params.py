"""Exact parameter counts of a transformer in the pieces that cost and memory models need, and FLOPs of one token.

Counts are of scalars (no bytes), for the whole model before any parallel split. One multiply-add is 2 FLOPs; counted are the
weight matrices, the attention scores and their product with the values, and the logits; norms, activations, softmax and the
embedding lookup are not (they are memory-bound and below 1%).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import lru_cache

from ...core.errors import SpecError
from ...core.kernels import COMMON_RECOMPUTE
from ...plan.fields import recomputed_modules, share_of_layers
from ...plan.plan import ParallelPlan
from .adapters import is_on_experts, targets_of
from .mixers import MixerSpec
from .sizes import TransformerSizes

Matrix = tuple[float, float, float]


@dataclass(frozen=True)
class LayerParams:
    """Parameters of one transformer layer by piece, biases included in the piece they belong to.

    Attributes:
        attention_qkv: projections that make queries, keys and values (MLA: down and up projections), attention sinks.
        attention_out: output projection.
        mlp: dense MLP; 0 in a MoE layer.
        router: MoE gate, the gate of the shared expert, projections to the width of routed experts; 0 in a dense layer.
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
        """Number of parameters that expert parallelism does not split."""
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


def mlp_params(spec: TransformerSizes, ffn_hidden: int, outer: int = 0) -> int:
    """Parameters of one MLP of inner width `ffn_hidden`: two matrices, three if gated, and their biases.

    Args:
        outer: width of what enters and leaves; 0: the hidden size.
    """
    outer = outer or spec.hidden
    weights = spec.n_mlp_matrices * outer * ffn_hidden
    biases = (spec.n_mlp_matrices - 1) * ffn_hidden + outer
    return weights + (biases if spec.has_mlp_bias else 0)


def attention_qkv_params(spec: TransformerSizes) -> int:
    """Query, key and value projections.

    Source: MLA matrices as in arXiv 2405.04434, appendix C; the down projection holds the one
        rope key that all heads share.
    """
    h = spec.hidden
    if spec.mla is None:
        width = spec.query_width + 2 * spec.kv_dim
        return h * width + (width if spec.has_qkv_bias else 0)
    mla = spec.mla
    query = mla.q_lora_rank * (h + spec.q_dim) if mla.q_lora_rank else h * spec.q_dim
    key_value_down = h * (mla.kv_lora_rank + mla.qk_rope_head_dim)
    key_value_up = mla.kv_lora_rank * spec.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
    return query + key_value_down + key_value_up


def attention_out_params(spec: TransformerSizes) -> int:
    """Output projection of the attention."""
    return spec.attention_out_dim * spec.hidden + (spec.hidden if spec.bias else 0)


def layer_norm_params(spec: TransformerSizes, has_mlp: bool = True) -> int:
    """All norms of one layer: around attention and MLP, on queries and keys, on MLA's latent vectors."""
    count = (spec.n_norms if has_mlp else 1) * norm_params(spec)
    if spec.qk_norm:
        count += {"head": 2 * spec.qk_head_dim, "all": spec.q_dim + spec.kv_dim, "none": 0}[spec.qk_norm_weight]
    if spec.mla is not None:
        count += spec.mla.q_lora_rank + spec.mla.kv_lora_rank
    return count


def layer_matrices(spec: TransformerSizes, plan: ParallelPlan, layer: int) -> tuple[list[Matrix], list[Matrix]]:
    """Matrices of layer `layer` that optimizers work on, (how many, rows, columns) on one device: of attention and
    shared MLPs, and of the experts.

    Notes:
        Query, key and value projections are one matrix each (Megatron-LM `--muon-split-qkv`). Tensor parallelism divides the
        side that it splits. Of layers with a state in place of attention only the MLP is counted.
    """
    tp, h = plan.tp, spec.hidden
    n_in = spec.n_mlp_matrices - 1

    def mlp(width: float, count: float, tokens: int = h) -> list[Matrix]:
        return [(n_in * count, tokens, width), (count, width, tokens)]

    own: list[Matrix] = []
    if spec.mixer_in(layer) is None:
        own = [(1.0, h, spec.attention_out_dim / tp)]
        if spec.mla is None:
            own += [(1.0, h, spec.query_width / tp), (2.0, h, max(spec.kv_dim / tp, spec.qk_head_dim))]
        else:
            mla = spec.mla
            rank, wide = mla.q_lora_rank, spec.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
            own += [(1.0, rank, h), (1.0, rank, spec.q_dim / tp)] if rank else [(1.0, h, spec.q_dim / tp)]
            own += [(1.0, h, mla.kv_lora_rank + mla.qk_rope_head_dim), (1.0, mla.kv_lora_rank, wide / tp)]
    if spec.moe is None or not spec.is_moe_layer(layer):
        return own + (mlp(spec.ffn_hidden / tp, 1.0) if layer_params(spec, layer).mlp else []), []
    moe = spec.moe
    own += mlp(moe.shared_width / tp, 1.0) if moe.shared_width else []
    return own, mlp(moe.ffn_hidden / plan.expert_tp, moe.n_experts / plan.ep, moe.token_width(h))


def _mixer_params(spec: TransformerSizes, mixer: MixerSpec, has_mlp: bool) -> dict[str, int]:
    """Returns the parameters of a layer with a state in place of attention, by module."""
    norms = (spec.n_norms if has_mlp else 1) * norm_params(spec)
    own = {"attention_qkv": mixer.in_params(spec.hidden), "attention_out": mixer.out_params(spec.hidden)}
    return own | {"norms": norms}


def layer_params(spec: TransformerSizes, layer: int) -> LayerParams:
    """Parameters of layer `layer` (0 is nearest to the embedding)."""
    mixer, has_mlp = spec.mixer_in(layer), spec.has_mlp_in(layer)
    attention = (
        _mixer_params(spec, mixer, has_mlp)
        if mixer is not None
        else {
            "attention_qkv": attention_qkv_params(spec) + (spec.n_heads if spec.attention_sinks else 0),
            "attention_out": attention_out_params(spec),
            "norms": layer_norm_params(spec, has_mlp),
        }
    )
    if spec.moe is None or not spec.is_moe_layer(layer):
        mlp = mlp_params(spec, spec.ffn_hidden) if has_mlp else 0
        return LayerParams(**attention, mlp=mlp, router=0, experts=0, shared=0, expert=0)
    moe = spec.moe
    expert = mlp_params(spec, moe.ffn_hidden, moe.token_width(spec.hidden))
    router = spec.hidden * (moe.n_experts + moe.shared_gate + 2 * moe.latent)
    router += moe.n_experts if moe.router_bias else 0
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


@dataclass(frozen=True)
class TokenFlops:
    """Forward FLOPs of one token by piece, all layers together.

    Attributes:
        projections: attention projections; of layers with a state in its place everything but the MLP.
        scores: query-key scores and their product with the values (the only piece that grows with the sequence).
        mlp: dense MLPs, routers, the top-k routed and the shared experts.
        head: logits (also those of multi-token-prediction modules).
        mtp: the layers and projections of multi-token-prediction modules.
    """

    projections: float
    scores: float
    mlp: float
    head: float
    mtp: float = 0.0

    @property
    def layers(self) -> float:
        """FLOPs that full recomputation repeats: all transformer layers, but not the logits."""
        return self.projections + self.scores + self.mlp + self.mtp

    @property
    def total(self) -> float:
        """All forward FLOPs of a token."""
        return self.layers + self.head


def attention_weights(spec: TransformerSizes) -> int:
    """Matrix entries of one layer's attention projections (no biases)."""
    width = spec.query_width + 2 * spec.kv_dim
    qkv_bias = width if spec.mla is None and spec.has_qkv_bias else 0
    out_bias = spec.hidden if spec.bias else 0
    return attention_qkv_params(spec) - qkv_bias + attention_out_params(spec) - out_bias


def mlp_weights_active(spec: TransformerSizes, is_moe: bool) -> int:
    """Matrix entries that one token meets in the MLP, or in the MoE part, of a layer (no biases)."""
    if spec.moe is None or not is_moe:
        return spec.n_mlp_matrices * spec.hidden * spec.ffn_hidden
    moe = spec.moe
    inner = moe.top_k * moe.ffn_hidden * moe.token_width(spec.hidden) + moe.shared_width * spec.hidden
    return spec.hidden * (moe.n_experts + moe.shared_gate + 2 * moe.latent) + spec.n_mlp_matrices * inner


def scores_flops(spec: TransformerSizes, seq_len: int, causal: bool, layer: int) -> float:
    """Forward FLOPs of scores and values for one token of layer `layer`, averaged over the sequence.

    Notes:
        A token attends to `seq_len` keys, causal to (seq_len + 1) / 2 on average, in a window to fewer; each costs 2 FLOPs per
        head and dimension of the query-key product and of the value product. Megatron's papers count causal = False.
    """
    keys = spec.mean_keys(seq_len, layer) if causal else seq_len
    return 2.0 * keys * spec.n_heads * (spec.qk_head_dim + spec.v_head_dim)


def all_scores_flops(spec: TransformerSizes, seq_len: int, causal: bool) -> float:
    """Forward FLOPs of scores and values for one token, all layers of the main model together."""
    attending = [layer for layer in range(spec.n_layers) if spec.mixer_in(layer) is None]
    first = {spec.reach(layer): layer for layer in reversed(attending)}
    counts = Counter(spec.reach(layer) for layer in attending)
    return sum(n * scores_flops(spec, seq_len, causal, first[reach]) for reach, n in counts.items())


def mixers_flops(spec: TransformerSizes, seq_len: float) -> float:
    """Forward FLOPs of one token in all layers with a state in place of attention: projections and scan."""
    if spec.mixer is None:
        return 0.0
    return spec.n_mixer_layers * (2.0 * spec.mixer.weights(spec.hidden) + spec.mixer.scan_flops(seq_len))


@lru_cache(maxsize=1024)
def token_flops(spec: TransformerSizes, seq_len: int, causal: bool = True) -> TokenFlops:
    """Forward FLOPs of one token by piece, for sequences of `seq_len` tokens."""
    n_all, n_dense = spec.n_layers, spec.n_layers - spec.n_moe_layers - spec.n_layers_without_mlp
    head = 2.0 * spec.hidden * spec.vocab
    projection = 2.0 * attention_weights(spec)
    last = n_all - 1
    mtp_layer = projection + scores_flops(spec, seq_len, causal, last)
    mtp_layer += 2.0 * mlp_weights_active(spec, spec.is_moe_layer(last)) + 4.0 * spec.hidden**2
    return TokenFlops(
        projections=(n_all - spec.n_mixer_layers) * projection + mixers_flops(spec, seq_len),
        scores=all_scores_flops(spec, seq_len, causal),
        mlp=2.0 * (n_dense * mlp_weights_active(spec, False) + spec.n_moe_layers * mlp_weights_active(spec, True)),
        head=(1 + spec.n_mtp) * head,
        mtp=spec.n_mtp * mtp_layer,
    )


def train_flops_per_token(spec: TransformerSizes, seq_len: int, causal: bool = True, recompute: str = "none") -> float:
    """FLOPs per token of forward and backward, recomputation included.

    Args:
        recompute: none: 3 x forward (model FLOPs, the numerator of MFU); selective: scores once more; full: all layers
            once more (hardware FLOPs, the numerator of HFU).

    Source: full, not causal, dense GPT equals arXiv 2104.04473 eq. 3 divided by the tokens,
        96 l h^2 (1 + s/6h + V/16lh); none equals 72 l h^2 (1 + s/6h + V/12lh) of arXiv 2205.05198 appendix A.
    """
    if recompute not in COMMON_RECOMPUTE:
        raise SpecError(f"recompute = {recompute!r} is unknown. Use one of {', '.join(COMMON_RECOMPUTE)}.")
    flops = token_flops(spec, seq_len, causal)
    extra = {"none": 0.0, "selective": _with_mtp_scores_flops(spec, seq_len, causal), "full": flops.layers}
    return 3.0 * flops.total + extra[recompute]


def model_flops_per_token(spec: TransformerSizes, seq_len: int, causal: bool = True) -> float:
    """FLOPs per token of forward and backward, nothing twice; frozen matrices have no weight gradients."""
    flops = token_flops(spec, seq_len, causal)
    if spec.adapters is None:
        return 3.0 * flops.total
    return 2.0 * flops.total + flops.scores + 3.0 * adapter_flops(spec)


def adapter_flops(spec: TransformerSizes) -> float:
    """Forward FLOPs of one token through all adapters; through those of `top_k` of the experts."""
    if spec.adapters is None:
        return 0.0
    total = 0.0
    for is_moe, n in ((False, spec.n_layers - spec.n_moe_layers), (True, spec.n_moe_layers)):
        for target in targets_of(spec, is_moe) if n else ():
            met = spec.top_k if is_on_experts(target) else 1
            total += 2.0 * n * met / target.n_copies * target.params(spec.adapters.rank)
    return total


def recomputed_flops_per_token(spec: TransformerSizes, plan: ParallelPlan, causal: bool = True) -> float:
    """FLOPs per token that recomputation repeats under `plan`."""
    flops = token_flops(spec, plan.seq_len, causal)
    match plan.recompute:
        case "full" | "selective_layer":
            return (flops.layers + adapter_flops(spec)) * share_of_layers(plan, spec.n_layers)
        case "selective_op":
            return _alternate_products_flops(spec)
        case _:
            return sum(_module_flops(spec, name, plan.seq_len, causal) for name in recomputed_modules(plan))


def _with_mtp_scores_flops(spec: TransformerSizes, seq_len: int, causal: bool) -> float:
    """Returns the attention FLOPs of all layers, including those of multi-token-prediction modules."""
    own = all_scores_flops(spec, seq_len, causal)
    return own + spec.n_mtp * scores_flops(spec, seq_len, causal, spec.n_layers - 1)


def _module_flops(spec: TransformerSizes, name: str, seq_len: int, causal: bool) -> float:
    """Returns the FLOPs of one module in all layers that have it; activation functions and norms count as none."""
    n_moe, moe, mla = spec.n_moe_layers, spec.moe, spec.mla
    n_dense = spec.n_layers - n_moe - spec.n_layers_without_mlp
    match name:
        case "core_attn":
            return _with_mtp_scores_flops(spec, seq_len, causal)
        case "mlp":
            return 2.0 * n_dense * mlp_weights_active(spec, False)
        case "moe":
            return 2.0 * n_moe * mlp_weights_active(spec, True)
        case "shared_experts" if moe is not None:
            return 2.0 * n_moe * spec.n_mlp_matrices * spec.hidden * moe.shared_width
        case "mla_up_proj" if mla is not None:
            key_value = mla.kv_lora_rank * spec.n_heads * (mla.qk_nope_head_dim + mla.v_head_dim)
            return 2.0 * spec.n_layers * (key_value + mla.q_lora_rank * spec.q_dim)
        case _:
            return 0.0


def _alternate_products_flops(spec: TransformerSizes) -> float:
    """Key, output and up projections (without a gate: down projections), and mixtures of experts as a whole."""
    n_moe = spec.n_moe_layers
    key = 0 if spec.mla is not None else spec.hidden * spec.kv_dim
    latent = _module_flops(spec, "mla_up_proj", 1, True) / spec.n_layers
    dense = 2.0 * (spec.n_layers - n_moe) * spec.hidden * spec.ffn_hidden
    each = 2.0 * (key + attention_out_params(spec)) + latent
    return spec.n_layers * each + dense + _module_flops(spec, "moe", 1, True)
