"""Decoders of any model type, by the keys of their configurations.

Sizes stand in the configuration under a few spellings (`fields.SPELLINGS`), layers and experts in lists and counts (`layers`);
what the code of a model type adds to them is a line of `unsaid`. Of a model type without such a line the rest is taken as
usual and said: a gated MLP behind RMS norms where the activation is SiLU, rotary embedding, no biases.

Latent attention stands in `kv_lora_rank` and the widths next to it (arXiv 2405.04434), Meta's `params.json` gives the MLP's width
by `ffn_dim_multiplier` and `multiple_of` (meta-llama/llama, model.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..transformer.sizes import MLASpec
from .fields import SPELLINGS, Fields, unsaid
from .layers import experts, layer_sorts, mixer, paired, window

_NESTED = ("attn_config", "ffn_config")  # of MPT and DBRX: their keys count as those of the model
_GATED_ACTS, _PLAIN_ACTS = ("silu", "swish", "swiglu", "glu"), ("relu", "xielu")
_INDEXER, _MTP = "the indexer of its sparse attention", "multi-token-prediction modules"


def decoder_fields(kind: str, config: Mapping[str, Any]) -> Fields:
    """The keys of a decoder, those that go without saying for its model type among them.

    Raises:
        SpecError: a nested object is something else.
    """
    whole = dict(config)
    fields = Fields(kind, whole)
    for name in _NESTED:
        own = fields.get(name, default={})
        if not isinstance(own, Mapping):
            fields.fail(name, own, "it must be an object")
        whole = dict(own) | whole
    known = unsaid(kind)
    for key, value in known.keys.items() if known is not None else ():
        if all(whole.get(name) is None for name in (key, *SPELLINGS.get(key, ()))):
            whole[key] = value
    return Fields(kind, whole, fields.read)


def read_decoder(f: Fields) -> dict[str, Any]:
    """Reads the fields of a `TransformerSpec`.

    Raises:
        SpecError: a key is missing, has a bad value, or asks for layers that are not modelled.
    """
    sorts = layer_sorts(f)
    pairs, lists_mlps = paired(f, sorts)
    found = _sizes(f) | _style(f) | _biases(f)
    if sorts:
        found["n_layers"] = len(pairs) if lists_mlps else f.count("num_hidden_layers", len(pairs))
    found |= {"window": window(f, sorts), "mixer": mixer(f, pairs), "moe": experts(f, pairs, lists_mlps)}
    if found["moe"] is None and (shared := f.count("shared_expert_intermediate_size", 0)):
        found["ffn_hidden"] = shared  # Granite 4 without experts: the shared one is all there is
    mla = _latent(f)
    if mla is None and f.has("v_head_dim"):
        f.require("v_head_dim", f.count("head_dim", 0) or None)
    if mla is not None:  # keys and values are expanded to every head, and the rope part makes head_dim meaningless
        found |= {"n_kv_heads": 0, "head_dim": 0, "mla": mla}
    n_mtp = f.count("num_nextn_predict_layers", 0)
    parts = [_INDEXER] if f.count("index_topk", 0) else []
    f.read.update(("index_n_heads", "index_head_dim"))
    if found["mixer"] is None:
        found["n_mtp"] = n_mtp
    elif n_mtp:
        parts.append(_MTP)
    known = unsaid(f.kind)
    own = dict(known.sizes) if known is not None else {}
    return found | own | {"left_out": tuple(parts), "assumed": () if known is not None else _assumed(found)}


def _sizes(f: Fields) -> dict[str, Any]:
    """Reads counts and widths."""
    sizes = f.counts(
        hidden="hidden_size",
        n_heads="num_attention_heads",
        n_kv_heads=("num_key_value_heads", 0),
        head_dim=("head_dim", 0),
        vocab="vocab_size",
        max_seq_len=("max_position_embeddings", 2048),
    )
    if not f.has("layer_types", "hybrid_override_pattern"):
        sizes["n_layers"] = f.count("num_hidden_layers")
    f.require("word_embed_proj_dim", sizes["hidden"], default=sizes["hidden"])
    if f.kind == "opt":
        sizes["max_seq_len"] += 2  # its table of positions starts at position 2
    is_shared = f.get("multi_query", False) or f.get("attn_type", "") == "multiquery_attention"
    if is_shared and not f.get("new_decoder_architecture", False):  # Falcon 7B lists its heads of keys and has one
        sizes["n_kv_heads"] = 1
    return sizes | {"ffn_hidden": _ffn_width(f, sizes["hidden"])}


def _ffn_width(f: Fields, hidden: int) -> int:
    """Inner width of a dense MLP; of models that have experts only, that of an expert."""
    if f.has("intermediate_size_mlp"):  # Llama 4: intermediate_size is that of an expert
        f.count("intermediate_size")
        return f.count("intermediate_size_mlp")
    if f.has("intermediate_size"):
        width = f.count("intermediate_size", 0) or 4 * hidden
        return width // 2 if f.kind == "qwen" else width  # Qwen 1 counts both halves of its gated MLP
    if f.has("moe_intermediate_size"):
        return f.count("moe_intermediate_size")
    if f.has("expansion_ratio"):
        return int(f.number("expansion_ratio") * hidden)
    if f.has("multiple_of"):  # Meta's params.json
        unit = max(f.count("multiple_of"), 1)
        width = int(f.number("ffn_dim_multiplier", default=1) * int(8 * hidden / 3))
        return -(-width // unit) * unit
    if _norm(f) != "rms" and (f.spelled("hidden_size") != "hidden_size" or f.has("layer_norm_epsilon")):
        return 4 * hidden  # as GPT-2 and everything that spells like it
    return f.count("intermediate_size")


def _style(f: Fields) -> dict[str, Any]:
    """Reads norms, activation, positions and ties."""
    has_no_bias = f.kind == "mpt" and f.flag("no_bias", default=True)
    norm = "layer_no_bias" if has_no_bias else _norm(f)
    act = str(f.get("hidden_act", "silu" if norm == "rms" else "gelu")).lower()
    is_plain = any(name in act for name in _PLAIN_ACTS) and not any(name in act for name in _GATED_ACTS)
    is_gated = any(name in act for name in _GATED_ACTS) or (norm == "rms" and not is_plain)
    qk_norm = f.flag("use_qk_norm", default=False)
    weights = {"qk_norm_weight": "all"} if f.get("qk_norm_type", "") == "per_layer" else {}
    is_parallel = f.get("parallel_attn", f.get("use_parallel_residual", False) and f.kind == "stablelm")
    one_norm = {"n_norms": 1} if is_parallel is True and not f.get("new_decoder_architecture", False) else {}
    return {
        "norm": norm,
        "gated": is_gated,
        "position": _position(f),
        "tied_embeddings": f.flag("tie_word_embeddings", default=False),
        "qk_norm": qk_norm,
        "attention_gate": f.flag("attention_output_gate", default=False),
        **weights,
        **one_norm,
    }


def _norm(f: Fields) -> str:
    """Rms or layer, by the key that its epsilon has; Llama's, where there is none."""
    if any("rms" in str(key).lower() and value for key, value in f.config.items()):
        return "rms"
    of_layer_norms = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "layernorm_epsilon")
    return "layer" if f.has(*of_layer_norms) or f.has("n_embd") else "rms"


def _position(f: Fields) -> str:
    if f.get("alibi", False) is True or "alibi" in str(f.get("position_embedding_type", "")).lower():
        return "alibi"
    if f.kind == "mpt" and f.get("rope", False) is not True:
        return "learned" if f.flag("learned_pos_emb", default=True) else "none"
    stated = str(f.get("position_embedding_type", "")).lower()
    return "learned" if stated in ("absolute", "learned", "learned_absolute") else "rope"


def _biases(f: Fields) -> dict[str, Any]:
    """Biases of projections: attention_bias of all four, qkv_bias of the first three."""
    general = not f.flag("no_bias", default=True) if f.kind == "mpt" else f.flag("enable_bias", default=False)
    bias = f.flag("attention_bias", default=general)
    return {
        "bias": bias,
        "qkv_bias": f.flag("qkv_bias", default=bias),
        "mlp_bias": f.flag("mlp_bias", default=general),
    }


def _latent(f: Fields) -> MLASpec | None:
    """Latent attention; None: the usual one."""
    if not f.count("kv_lora_rank", default=0) or f.get("use_mla", True) is False:
        f.read.add("q_lora_rank")
        return None
    f.require("attention_bias", False, default=False)
    return MLASpec(
        q_lora_rank=f.count("q_lora_rank", default=0),
        kv_lora_rank=f.count("kv_lora_rank"),
        qk_nope_head_dim=f.count("qk_nope_head_dim"),
        qk_rope_head_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.count("v_head_dim"),
    )


def _assumed(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the properties that are assumed for an unknown model type, because no key states them."""
    mlp = "a gated MLP (three matrices)" if found["gated"] else "an MLP of two matrices"
    positions = "rotary embedding" if found["position"] == "rope" else f"positions: {found['position']}"
    said = [f"{found['norm']} norms, {found.get('n_norms', 2)} in a layer", mlp, positions]
    said += [] if found["qk_norm"] else ["no norms of queries and keys"]
    return (*said, "biases only where a key says so")
