"""A model from a Hugging Face `config.json`: a decoder, an encoder, an encoder-decoder, a vision transformer.

A key that changes the layers must be read by its architecture, or have a value that changes nothing; else it is refused by
its name, as model types are that are not modelled. Dropout, rope scaling, soft caps and the like change neither FLOPs nor
parameters and are ignored. Of a vision-language model the language model is read, and a note says what is left out.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NoReturn

from ...core.errors import DataError, SpecError
from ...core.read_file import parse_json, read_text
from ..base.workload import Workload
from ..transformer.spec import TransformerSpec
from .architectures import ARCHITECTURES
from .fields import Fields

_TYPO = 0.85  # likeness from which on a name is taken for misspelt

_REFUSED_TYPES = {
    r".*roberta.*|.*bert|electra|modernbert": "is an encoder of another kind than BERT",
    r"umt5|bart|mbart|pegasus|marian|whisper|t5gemma.*": "is an encoder-decoder of another kind than T5",
    r"clip|siglip.*|dinov.*|.*_vision(_model)?": "is a vision encoder of another kind than ViT",
    r"mamba|falcon_mamba|rwkv.*|retnet": "has state-space or recurrent layers",
    r"mamba2|jamba|bamba|zamba.*|nemotron_h|falcon_h1|granitemoehybrid|plamo2": "has Mamba layers",
    r"qwen3_next|kimi_linear|bailing_moe_linear": "has gated linear attention",
    r"minimax|minimax_text_01|minimax_m1": "has lightning attention",
    r"deepseek_v32": "has sparse attention (the lightning indexer)",
    r"lfm2.*": "has convolutions in place of attention",
    r"recurrent_gemma": "has recurrent layers",
    r"gemma3n.*": "has per-layer embeddings and layers that share their keys",
}
_LONGEST_TYPE = 100  # characters; what follows tells no type
_NEAR = {  # what a model type begins with -> preset of the same family
    "qwen.*moe": "qwen3-30b-a3b",
    "qwen": "qwen3-8b",
    "mixtral|phimoe|granitemoe": "mixtral-8x7b",
    "mistral|ministral": "mistral-7b",
    "deepseek|kimi|longcat": "deepseek-v3",
    "glm4_moe|ernie4_5_moe|dots1": "glm-4.5",
    "gpt_oss": "gpt-oss-120b",
    "gemma": "gemma-3-27b",
    "llama4": "llama-4-maverick",
    "gpt|bloom|falcon|codegen": "gpt3-7.5b",
    "llama|granite|internlm|yi|baichuan|cohere|exaone|smollm|stablelm|glm|phi|olmo|nemotron|seed_oss|ernie|arcee": "llama-3-8b",
}
_LEFT_OUT = {  # key -> part that a note names
    "vision_config": "the vision tower",
    "audio_config": "the audio encoder",
    "num_mtp_modules": "multi-token-prediction modules",
}


def _says_something(value: object) -> bool:
    return value not in (None, False, 0, "") and value != [] and value != {}


def _is_step(value: object) -> bool:
    return _says_something(value) and value != 1


def _is_mixed(only: object) -> Callable[[object], bool]:
    return lambda value: _says_something(value) and (not isinstance(value, list) or any(x != only for x in value))


_CHANGES_LAYERS: dict[str, tuple[str, Callable[[object], bool]]] = {  # keys -> what they ask for, and which values do
    r"sliding_window|sliding_window_size": ("a sliding window", _says_something),
    r"attention_chunk_size": ("chunked attention", _says_something),
    r"layer_types": ("layers of several kinds", _is_mixed("full_attention")),
    r"layers_block_type|block_types|_block_types|hybrid_override_pattern": ("layers of several kinds", _says_something),
    r"attn_type_list": ("layers of several kinds", _is_mixed(1)),
    r"full_attention_interval|linear_(num|key|value|conv|attn).*": ("linear attention", _says_something),
    r"index_(topk|n_heads|head_dim)": ("sparse attention", _says_something),
    r"(mamba|ssm)_.*|state_size|conv_kernel": ("Mamba layers", _says_something),
    r"num_(local_)?experts|moe_num_experts|n_routed_experts": ("experts", _says_something),
    r"n_shared_experts|num_shared_experts?|shared_(expert_)?intermediate_size": ("shared experts", _says_something),
    r"mlp_only_layers|first_k_dense_replace|moe_layers": ("dense layers among those with experts", _says_something),
    r"moe_layer_freq|decoder_sparse_step|interleave_moe_layer_step": ("experts in some layers", _is_step),
    r"(q|kv)_lora_rank": ("latent attention", _says_something),
    r"num_nextn_predict_layers": ("multi-token-prediction modules", _says_something),
    r"attention_bias|attention_out_bias|mlp_bias|use_bias|use_qkv_bias|lm_head_bias": ("biases", _says_something),
    r"use_qk_norm|qk_layernorm|qk_ln": ("norms of queries and keys", _says_something),
    r"attn_output_gate|use_output_gate": ("a gate of the attention's output", _says_something),
    r"cross_attention_layers|add_cross_attention|is_encoder_decoder": ("cross attention", _says_something),
    r"num_kv_shared_layers": ("layers that share their keys", _says_something),
    r"hidden_size_per_layer_input|altup_num_inputs|laurel_rank": ("per-layer embeddings", _says_something),
}


def refuse_type(kind: str, known: tuple[str, ...]) -> NoReturn:
    """Ends the reading of a model type that has no architecture.

    Raises:
        SpecError: always; names what is missing, what is supported, and a preset to start from.
    """
    kind = kind[:_LONGEST_TYPE]
    for pattern, missing in _REFUSED_TYPES.items():
        if re.fullmatch(pattern, kind):
            raise SpecError(f"model_type = {kind!r} is not modelled: it {missing}. {_supported(known)}")
    close = get_close_matches(kind, known, n=1, cutoff=_TYPO)
    if close:
        raise SpecError(f"model_type = {kind!r} is unknown, did you mean {close[0]}?")
    near = next((preset for start, preset in _NEAR.items() if re.match(start, kind)), None)
    start = f" Or start from `preset: {near}` and write the fields that differ." if near else ""
    raise SpecError(f"model_type = {kind!r} is unknown. {_supported(known)}{start}")


def _supported(known: tuple[str, ...]) -> str:
    return f"Supported are {', '.join(known)}."


def refuse_keys(f: Fields) -> None:
    """Refuses keys that change the layers and that the architecture did not read.

    Raises:
        SpecError: names the key, and what it asks for.
    """
    for key in sorted((key for key in f.config if key not in f.read), key=str):
        for pattern, (what, changes) in _CHANGES_LAYERS.items():
            if re.fullmatch(pattern, str(key)) and changes(f.config[key]):
                f.fail(
                    key,
                    f.config[key],
                    f"{what} ({key}) is not modelled for {f.kind}. Remove the key from the config.json to predict the model "
                    "without it, or write the model's fields in the job file",
                )


def left_out(*configs: Mapping[str, Any]) -> Iterator[str]:
    """Parts of the published model that the configurations name and that are not modelled."""
    for key, part in _LEFT_OUT.items():
        if any(_says_something(config.get(key)) for config in configs):
            yield part


MAX_CONFIG_BYTES = 4 * 2**20  # a config.json has a few kB; anything larger is another file

_LANGUAGE = "text_config"  # where vision-language checkpoints keep the language model
_TIED = "tie_word_embeddings"
_STATE_SPACE = "ssm_cfg"  # configurations of Mamba's authors have no model_type


def read_hf_config(path: str | Path, name: str | None = None) -> Workload:
    """The architecture in a `config.json`, or in a directory that holds one.

    Args:
        path: file or checkpoint directory.
        name: of the model; default: the name of the directory.

    Raises:
        DataError: the file is missing, no regular file, too large, or not a JSON object without repeated keys.
        SpecError: a key is missing, has a bad value, or asks for something that is not modelled.
    """
    path = Path(path)
    file = path / "config.json" if os.path.isdir(path) else path
    config = _read_object(file)
    default = file.resolve().parent.name if file.name == "config.json" else file.stem
    try:
        return model_from_hf(config, name=name or default)
    except SpecError as error:
        raise SpecError(f"{file}: {error}") from error


def _read_object(file: Path) -> Mapping[str, Any]:
    text = read_text(file, MAX_CONFIG_BYTES, "Give the path of a config.json or its directory.")
    config = parse_json(text, str(file))
    if not isinstance(config, dict):
        raise DataError(f"{file} holds a {type(config).__name__}, but a config.json is an object with keys")
    return config


def transformer_from_hf(config: Mapping[str, Any], name: str | None = None) -> TransformerSpec:
    """The decoder that a Hugging Face configuration describes; arguments as those of `model_from_hf`.

    Raises:
        SpecError: the configuration is none of a decoder, too.
    """
    found = model_from_hf(config, name)
    if not isinstance(found, TransformerSpec):
        raise SpecError(f"model_type = {config.get('model_type')!r} is no decoder. Use `model_from_hf`.")
    return found


def model_from_hf(config: Mapping[str, Any], name: str | None = None) -> Workload:
    """The model that a Hugging Face configuration describes.

    Args:
        config: the object in a `config.json`.
        name: of the model; default: `_name_or_path`, or the model type.

    Raises:
        SpecError: unknown `model_type`, a missing key, a bad value, or a feature that is not modelled.
    """
    if not isinstance(config, Mapping):
        raise SpecError(f"a Hugging Face config is a mapping of keys, got {type(config).__name__}")
    own = _language_model(config)
    kind = _model_type(own)
    if kind not in ARCHITECTURES:
        refuse_type(kind, ARCHITECTURES.names)
    fields = Fields(kind, own)
    architecture = ARCHITECTURES.named(kind)
    sizes = architecture.read(fields)
    refuse_keys(fields)
    if architecture.spec is TransformerSpec:
        sizes |= {"left_out": tuple(left_out(config, own))}
    return architecture.spec(
        name=name or str(own.get("_name_or_path") or kind),
        source=f"Hugging Face config.json, model_type {kind}",
        **sizes,
    )


def _model_type(config: Mapping[str, Any]) -> str:
    if "model_type" in config:
        return str(config["model_type"])
    if _STATE_SPACE in config:
        return "mamba2"
    raise SpecError(f"model_type is missing. Known are {', '.join(ARCHITECTURES.names)}.")


def _language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration itself, or that of the language model in it."""
    own = config.get(_LANGUAGE)
    if str(config.get("model_type")) in ARCHITECTURES or not isinstance(own, Mapping):
        return config
    shared = {_TIED: config[_TIED]} if _TIED in config else {}
    return shared | dict(own)
