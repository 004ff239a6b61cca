"""TransformerSpec from a Hugging Face `config.json`.

Read are the fields that decide sizes; dropout, rope scaling, sliding windows and the like are ignored. A sliding window
makes attention cheaper than what is predicted for sequences beyond it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from ...errors import DataError, SpecError
from ...hints import did_you_mean
from .hf_fields import Fields
from .spec import MLASpec, MoESpec, TransformerSpec

MAX_CONFIG_BYTES = 4 * 2**20  # a config.json has a few kB; anything larger is another file

_MULTIMODAL = "text_config"  # where vision-language checkpoints keep the language model


def read_hf_config(path: str | Path, name: str | None = None) -> TransformerSpec:
    """The architecture in a `config.json`, or in a directory that holds one.

    Args:
        path: file or checkpoint directory.
        name: of the model; default: the name of the directory.

    Raises:
        DataError: the file is missing, too large, or not a JSON object.
        SpecError: a key is missing, has a bad value, or asks for something that is not modelled.
    """
    path = Path(path)
    file = path / "config.json" if path.is_dir() else path
    config = _read_object(file)
    default = file.resolve().parent.name if file.name == "config.json" else file.stem
    try:
        return transformer_from_hf(config, name=name or default)
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from error


def _read_object(file: Path) -> Mapping[str, Any]:
    try:
        size = file.stat().st_size
        if size > MAX_CONFIG_BYTES:
            raise DataError(
                f"{file} has {size} bytes, but a config.json has at most {MAX_CONFIG_BYTES}. Is it the right file?"
            )
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(
            f"cannot read {file}: {error.strerror}. Give the path of a config.json or its directory."
        ) from error
    except (ValueError, RecursionError) as error:  # bad UTF-8, bad JSON, absurd numbers, absurd nesting
        raise DataError(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise DataError(f"{file} holds a {type(config).__name__}, but a config.json is an object with keys")
    return config


def transformer_from_hf(config: Mapping[str, Any], name: str | None = None) -> TransformerSpec:
    """The architecture that a Hugging Face configuration describes.

    Args:
        config: the object in a `config.json`.
        name: of the model; default: `_name_or_path`, or the model type.

    Raises:
        SpecError: unknown `model_type`, a missing key, a bad value, or a feature that is not modelled.
    """
    if not isinstance(config, Mapping):
        raise SpecError(f"a Hugging Face config is a mapping of keys, got {type(config).__name__}")
    if config.get("model_type") not in MODEL_TYPES and isinstance(config.get(_MULTIMODAL), Mapping):
        config = config[_MULTIMODAL]
    if "model_type" not in config:
        raise SpecError(f"model_type is missing. Known are {', '.join(MODEL_TYPES)}.")
    kind = str(config["model_type"])
    if kind not in _READERS:
        raise SpecError(f"model_type = {kind!r} is unknown{did_you_mean(kind, MODEL_TYPES)}")
    fields = Fields(kind, config)
    label = name or str(config.get("_name_or_path") or kind)
    return TransformerSpec(name=label, source=f"Hugging Face config.json, model_type {kind}", **_READERS[kind](fields))


def _llama_sizes(f: Fields) -> dict[str, Any]:
    """Fields that Llama and everything derived from it share."""
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": f.count("hidden_size"),
        "n_heads": f.count("num_attention_heads"),
        "n_kv_heads": f.count("num_key_value_heads", default=0),
        "head_dim": f.count("head_dim", default=0),
        "ffn_hidden": f.count("intermediate_size"),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=2048),
        "gated": True,
        "norm": "rms",
        "position": "rope",
        "tied_embeddings": f.flag("tie_word_embeddings", default=False),
        "bias": False,
    }


def _llama(f: Fields) -> dict[str, Any]:
    attention_bias = f.flag("attention_bias", default=False)
    return _llama_sizes(f) | {"bias": attention_bias, "mlp_bias": f.flag("mlp_bias", default=False)}


def _mixtral(f: Fields) -> dict[str, Any]:
    moe = MoESpec(f.count("num_local_experts"), f.count("num_experts_per_tok"), f.count("intermediate_size"))
    return _llama_sizes(f) | {"moe": moe}


def _qwen2(f: Fields) -> dict[str, Any]:
    return _llama_sizes(f) | {"qkv_bias": True}


def _qwen3(f: Fields) -> dict[str, Any]:
    bias = f.flag("attention_bias", default=False)
    return _llama_sizes(f) | {
        "qk_norm": True,
        "bias": bias,
        "mlp_bias": False,
        "head_dim": f.count("head_dim", default=128),
    }


def _qwen2_moe(f: Fields) -> dict[str, Any]:
    moe = MoESpec(
        n_experts=f.count("num_experts"),
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("moe_intermediate_size"),
        n_shared=1,
        shared_ffn_hidden=f.count("shared_expert_intermediate_size"),
        n_dense_first=_qwen_dense_layers(f),
        shared_gate=True,
    )
    return _qwen2(f) | {"moe": moe}


def _qwen3_moe(f: Fields) -> dict[str, Any]:
    moe = MoESpec(
        n_experts=f.count("num_experts"),
        top_k=f.count("num_experts_per_tok"),
        ffn_hidden=f.count("moe_intermediate_size"),
        n_dense_first=_qwen_dense_layers(f),
    )
    return _qwen3(f) | {"moe": moe}


def _qwen_dense_layers(f: Fields) -> int:
    """Leading dense layers; other patterns of dense layers are not modelled."""
    f.require("decoder_sparse_step", 1, default=1)
    dense = f.get("mlp_only_layers", default=[])
    if not isinstance(dense, list) or set(map(str, dense)) != set(map(str, range(len(dense)))):
        f.fail("mlp_only_layers", dense, "only leading dense layers are modelled, such as [] or [0, 1]")
    return len(dense)


def _deepseek(f: Fields) -> dict[str, Any]:
    f.require("moe_layer_freq", 1, default=1)
    f.require("attention_bias", False, default=False)
    sizes = _llama_sizes(f)
    mla = MLASpec(
        q_lora_rank=f.count("q_lora_rank", default=0),
        kv_lora_rank=f.count("kv_lora_rank"),
        qk_nope_head_dim=f.count("qk_nope_head_dim"),
        qk_rope_head_dim=f.count("qk_rope_head_dim"),
        v_head_dim=f.count("v_head_dim"),
    )
    is_v3 = f.kind == "deepseek_v3"
    n_experts = f.count("n_routed_experts", default=0)
    moe = None
    if n_experts:
        moe = MoESpec(
            n_experts=n_experts,
            top_k=f.count("num_experts_per_tok"),
            ffn_hidden=f.count("moe_intermediate_size"),
            n_shared=f.count("n_shared_experts", default=0),
            n_dense_first=f.count("first_k_dense_replace", default=0),
            router_bias=is_v3 and f.get("topk_method", default="noaux_tc") == "noaux_tc",
        )
    n_mtp = f.count("num_nextn_predict_layers", default=0) if is_v3 else 0
    # MLA expands keys and values to every head, and the rope part makes head_dim meaningless.
    return sizes | {"n_kv_heads": 0, "head_dim": 0, "mla": mla, "moe": moe, "n_mtp": n_mtp}


def _gpt2(f: Fields) -> dict[str, Any]:
    hidden = f.count("n_embd")
    return {
        "n_layers": f.count("n_layer"),
        "hidden": hidden,
        "n_heads": f.count("n_head"),
        "ffn_hidden": f.count("n_inner", default=0) or 4 * hidden,
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("n_positions", default=1024),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


def _gpt_neox(f: Fields) -> dict[str, Any]:
    attention_bias = f.flag("attention_bias", default=True)
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": f.count("hidden_size"),
        "n_heads": f.count("num_attention_heads"),
        "ffn_hidden": f.count("intermediate_size"),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=2048),
        "position": "rope",
        "tied_embeddings": f.flag("tie_word_embeddings", default=False),
        "bias": attention_bias,
        "mlp_bias": True,
    }


def _mpt(f: Fields) -> dict[str, Any]:
    hidden, n_heads = f.count("d_model"), f.count("n_heads")
    attention = f.get("attn_config", default={})
    if not isinstance(attention, Mapping):
        f.fail("attn_config", attention, "it must be an object")
    attention = Fields(f.kind, attention, prefix="attn_config.")
    attention.require("qk_ln", False, default=False)
    kind = attention.get("attn_type", default="multihead_attention")
    default_kv = {"multihead_attention": n_heads, "multiquery_attention": 1}.get(str(kind), 0)
    return {
        "n_layers": f.count("n_layers"),
        "hidden": hidden,
        "n_heads": n_heads,
        "n_kv_heads": attention.count("kv_n_heads", default=0) or default_kv,
        "ffn_hidden": int(f.number("expansion_ratio", default=4) * hidden),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_seq_len", default=2048),
        "position": _mpt_position(f, attention),
        "norm": "layer_no_bias" if f.flag("no_bias", default=True) else "layer",
        "bias": not f.flag("no_bias", default=True),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


def _mpt_position(f: Fields, attention: Fields) -> str:
    if attention.flag("alibi", default=False):
        return "alibi"
    if attention.flag("rope", default=False):
        return "rope"
    return "learned" if f.flag("learned_pos_emb", default=True) else "none"


def _opt(f: Fields) -> dict[str, Any]:
    hidden = f.count("hidden_size")
    f.require("word_embed_proj_dim", hidden, default=hidden)
    bias = f.flag("enable_bias", default=True)
    return {
        "n_layers": f.count("num_hidden_layers"),
        "hidden": hidden,
        "n_heads": f.count("num_attention_heads"),
        "ffn_hidden": f.count("ffn_dim"),
        "vocab": f.count("vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=2048) + 2,  # OPT's table starts at position 2
        "bias": bias,
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


_READERS: dict[str, Callable[[Fields], dict[str, Any]]] = {
    "llama": _llama,
    "mistral": _llama,
    "mixtral": _mixtral,
    "qwen2": _qwen2,
    "qwen3": _qwen3,
    "qwen2_moe": _qwen2_moe,
    "qwen3_moe": _qwen3_moe,
    "deepseek_v2": _deepseek,
    "deepseek_v3": _deepseek,
    "gpt2": _gpt2,
    "gpt_neox": _gpt_neox,
    "mpt": _mpt,
    "opt": _opt,
}
MODEL_TYPES = tuple(_READERS)
