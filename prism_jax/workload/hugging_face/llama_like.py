"""Decoders with the layers of Llama (RMS norms, rotary embedding, gated MLP), and what each family has beside them.

- Llama; Mistral and Phi-3 and 4: sliding windows; Mixtral: experts.
- Qwen 2, 2.5 and 3, dense and with experts, and the language models of Qwen-VL.
- DeepSeek-V2 and V3, and Kimi K2, which is V3 with other counts: latent attention, leading dense layers, shared experts.
- Gemma 2 and 3: four norms in a layer, sliding windows in all layers but every second (2) or sixth (3); configurations leave out
  what transformers has as a default. arXiv 2408.00118 table 1; 2503.19786 section 2.
- gpt-oss: experts in every layer, windows in every second, attention sinks, biases everywhere. arXiv 2508.10925 section 2.
- Llama 4: chunked attention in all layers but every fourth, which have no rotary embedding; experts in every or every second
  layer (`intermediate_size`; of dense layers `intermediate_size_mlp`), one shared; query and key norms without weights.
  Hugging Face transformers, models/llama4.
- GLM-4.5 and 4.6: leading dense layers, shared experts, biases on queries, keys and values. arXiv 2508.06471 table 1; glm4_moe.
- OLMo 2 and 3: norms after attention and MLP, one over all queries and one over all keys; 3: windows. arXiv 2501.00656 section 3.
- MiniMax-M2: full attention and experts in every layer, one norm over all queries and one over all keys. Its modeling code.
"""

from __future__ import annotations

from typing import Any

from ...core.bounds import MOST_LAYERS
from ..transformer.mixers import CHUNKED, FULL, SLIDING, WindowSpec
from ..transformer.sizes import MLASpec, MoESpec
from .fields import Fields, Reader, full_every, window


def llama_sizes(f: Fields) -> dict[str, Any]:
    """Fields that Llama and everything derived from it share."""
    return {
        **f.counts(
            n_layers="num_hidden_layers",
            hidden="hidden_size",
            n_heads="num_attention_heads",
            n_kv_heads=("num_key_value_heads", 0),
            head_dim=("head_dim", 0),
            ffn_hidden="intermediate_size",
            vocab="vocab_size",
            max_seq_len=("max_position_embeddings", 2048),
        ),
        "gated": True,
        "norm": "rms",
        "position": "rope",
        "tied_embeddings": f.flag("tie_word_embeddings", default=False),
        "bias": False,
    }


def _llama(f: Fields) -> dict[str, Any]:
    attention_bias = f.flag("attention_bias", default=False)
    return llama_sizes(f) | {"bias": attention_bias, "mlp_bias": f.flag("mlp_bias", default=False)}


def _mistral(f: Fields) -> dict[str, Any]:
    return llama_sizes(f) | {"window": window(f, (SLIDING,))}


def _mixtral(f: Fields) -> dict[str, Any]:
    moe = MoESpec(f.count("num_local_experts"), f.count("num_experts_per_tok"), f.count("intermediate_size"))
    return _mistral(f) | {"moe": moe}


def _qwen2(f: Fields) -> dict[str, Any]:
    return llama_sizes(f) | {"qkv_bias": True, "window": _window(f)}


def _qwen3(f: Fields) -> dict[str, Any]:
    own = {"qk_norm": True, "bias": f.flag("attention_bias", default=False), "mlp_bias": False, "window": _window(f)}
    return llama_sizes(f) | own | {"head_dim": f.count("head_dim", default=128)}


def _qwen2_moe(f: Fields) -> dict[str, Any]:
    shared = {"n_shared": 1, "shared_ffn_hidden": f.count("shared_expert_intermediate_size"), "shared_gate": True}
    return _qwen2(f) | {"moe": _moe(f, **shared)}


def _qwen3_moe(f: Fields) -> dict[str, Any]:
    return _qwen3(f) | {"moe": _moe(f)}


def _moe(f: Fields, **shared: Any) -> MoESpec:
    """Experts in every `decoder_sparse_step`-th layer; dense layers that are named must be leading ones."""
    dense = f.items("mlp_only_layers")
    if sorted(map(str, dense)) != sorted(map(str, range(len(dense)))):
        f.fail("mlp_only_layers", dense, "only leading dense layers are modelled, such as [] or [0, 1]")
    return MoESpec(
        n_experts=f.count("num_experts"),
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("moe_intermediate_size"),
        n_dense_first=len(dense),
        every=f.count("decoder_sparse_step", default=1),
        **shared,
    )


def _window(f: Fields) -> WindowSpec | None:
    """Layers from `max_window_layers` on, if `use_sliding_window` says so; no published model does."""
    first, n_layers = f.count("max_window_layers", default=28), min(f.count("num_hidden_layers"), MOST_LAYERS)
    found = window(f, [SLIDING if layer >= first else FULL for layer in range(n_layers)])
    return found if f.flag("use_sliding_window", default=False) else None


def _deepseek(f: Fields) -> dict[str, Any]:
    f.require("moe_layer_freq", 1, default=1)
    f.require("attention_bias", False, default=False)
    sizes = llama_sizes(f)
    mla = MLASpec(
        q_lora_rank=f.count("q_lora_rank", default=0),
        kv_lora_rank=f.count("kv_lora_rank"),
        qk_nope_head_dim=f.count("qk_nope_head_dim"),
        qk_rope_head_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.count("v_head_dim"),
    )
    is_v3 = f.kind != "deepseek_v2"
    n_experts = f.count("n_routed_experts", default=0)
    moe = None
    if n_experts:
        moe = _routed(f, n_experts, has_bias=is_v3 and f.get("topk_method", default="noaux_tc") == "noaux_tc")
    n_mtp = f.count("num_nextn_predict_layers", default=0) if is_v3 else 0
    # MLA expands keys and values to every head, and the rope part makes head_dim meaningless.
    return sizes | {"n_kv_heads": 0, "head_dim": 0, "mla": mla, "moe": moe, "n_mtp": n_mtp}


def _routed(f: Fields, n_experts: int, *, has_bias: bool) -> MoESpec:
    """Experts behind leading dense layers, some of them shared."""
    return MoESpec(
        n_experts=n_experts,
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("moe_intermediate_size"),
        n_shared=f.count("n_shared_experts", default=0),
        n_dense_first=f.count("first_k_dense_replace", default=0),
        router_bias=has_bias,
    )


def _gemma2(f: Fields) -> dict[str, Any]:
    size = f.count("sliding_window_size", default=4096)
    return _gemma(f, heads=(8, 4), vocab=256000, max_seq_len=8192) | {"window": window(f, full_every(2), size=size)}


def _gemma3(f: Fields) -> dict[str, Any]:
    every = f.count("_sliding_window_pattern", default=f.count("sliding_window_pattern", default=6))
    sizes = _gemma(f, heads=(8, 4), vocab=262208, max_seq_len=131072)
    return sizes | {"qk_norm": True, "window": window(f, full_every(every), size=4096)}


def _gemma(f: Fields, heads: tuple[int, int], vocab: int, max_seq_len: int) -> dict[str, Any]:
    n_heads, n_kv_heads = heads
    defaults = {
        "num_attention_heads": n_heads,
        "num_key_value_heads": n_kv_heads,
        "head_dim": 256,
        "vocab_size": vocab,
        "max_position_embeddings": max_seq_len,
        "tie_word_embeddings": True,
    }
    stated = {key: value for key, value in f.config.items() if value is not None}
    filled = Fields(f.kind, defaults | stated, f.prefix, f.read)
    return llama_sizes(filled) | {"n_norms": 4} | {"bias": f.flag("attention_bias", default=False), "mlp_bias": False}


def _gpt_oss(f: Fields) -> dict[str, Any]:
    moe = MoESpec(
        n_experts=f.count("num_local_experts", default=f.count("num_experts", default=128)),
        top_k=f.count("num_experts_per_tok", default=4),
        ffn_hidden=f.count("intermediate_size"),
        router_bias=True,
    )
    own = {"moe": moe, "bias": f.flag("attention_bias", default=True), "mlp_bias": True, "attention_sinks": True}
    return llama_sizes(f) | own | {"window": window(f, full_every(2), size=128)}


def _llama4(f: Fields) -> dict[str, Any]:
    width = f.count("intermediate_size")
    moe = MoESpec(
        n_experts=f.count("num_local_experts"),
        top_k=f.count("num_experts_per_tok", default=1),
        ffn_hidden=width,
        n_shared=1,
        every=_moe_step(f),
    )
    own = {"moe": moe, "ffn_hidden": f.count("intermediate_size_mlp", default=16384), "window": _llama4_window(f)}
    norm = {"qk_norm": f.flag("use_qk_norm", default=True), "qk_norm_weight": "none"}
    return llama_sizes(f) | own | norm | {"bias": f.flag("attention_bias", default=False), "mlp_bias": False}


def _moe_step(f: Fields) -> int:
    """Distance of layers with experts; `moe_layers` may only repeat it."""
    step, n_layers = f.count("interleave_moe_layer_step", default=1), f.count("num_hidden_layers")
    named = f.items("moe_layers")
    if named and (step == 0 or named != list(range(step - 1, min(n_layers, MOST_LAYERS), step))):
        f.fail("moe_layers", named, f"only every {step}. layer (interleave_moe_layer_step) is modelled")
    return step


def _llama4_window(f: Fields) -> WindowSpec | None:
    """Layers without rotary embedding attend to everything, the others to their chunk."""
    with_rope = f.items("no_rope_layers")  # 1: has a rotary embedding
    pattern = [CHUNKED if flag else FULL for flag in with_rope]
    every = full_every(f.count("no_rope_layer_interval", default=4), CHUNKED)
    return window(f, pattern or every, size_key="attention_chunk_size", size=8192)


def _glm4_moe(f: Fields) -> dict[str, Any]:
    moe = _routed(f, f.count("n_routed_experts"), has_bias=True)
    own = {"moe": moe, "n_mtp": f.count("num_nextn_predict_layers", default=0)}
    norm = {"qk_norm": f.flag("use_qk_norm", default=False)}
    return llama_sizes(f) | own | norm | {"qkv_bias": f.flag("attention_bias", default=False)}


def _olmo2(f: Fields) -> dict[str, Any]:
    bias = f.flag("attention_bias", default=False)
    return llama_sizes(f) | {"qk_norm": True, "qk_norm_weight": "all", "bias": bias, "mlp_bias": False}


def _olmo3(f: Fields) -> dict[str, Any]:
    return _olmo2(f) | {"window": window(f, full_every(4), size=4096)}


def _minimax_m2(f: Fields) -> dict[str, Any]:
    if any(kind != 1 for kind in f.items("attn_type_list")):
        f.fail("attn_type_list", f.items("attn_type_list"), "lightning attention (0) is not modelled, only 1 is")
    f.require("shared_intermediate_size", 0, default=0)
    norm_type = f.get("qk_norm_type", default="per_layer")
    moe = MoESpec(
        n_experts=f.count("num_local_experts"),
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("intermediate_size"),
        router_bias=f.flag("use_routing_bias", default=True),
    )
    norm = {
        "qk_norm": f.flag("use_qk_norm", default=True),
        "qk_norm_weight": "all" if norm_type == "per_layer" else "head",
    }
    return llama_sizes(f) | norm | {"moe": moe}


LLAMA_LIKE: dict[str, Reader] = {
    "llama": _llama,
    "mistral": _mistral,
    "mixtral": _mixtral,
    "phi3": _mistral,
    "qwen2": _qwen2,
    "qwen2_moe": _qwen2_moe,
    "qwen3": _qwen3,
    "qwen3_moe": _qwen3_moe,
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"), _qwen2),
    "qwen3_vl_text": _qwen3,
    "qwen3_vl_moe_text": _qwen3_moe,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "kimi_k2"), _deepseek),
    "gemma2": _gemma2,
    "gemma3_text": _gemma3,
    "gpt_oss": _gpt_oss,
    "llama4_text": _llama4,
    "glm4_moe": _glm4_moe,
    "olmo2": _olmo2,
    "olmo3": _olmo3,
    "minimax_m2": _minimax_m2,
}
"""`model_type` -> how its configurations are read."""
