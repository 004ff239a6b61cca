"""A model from a Hugging Face `config.json`: a decoder, an encoder, an encoder-decoder, a vision transformer.

A decoder is read by its keys, whatever its model type (`decoder`). A key that changes the layers must have been read, or have a
value that changes nothing; else it is refused by its name, as model types are that are not modelled. Dropout, rope scaling,
soft caps and the like change neither FLOPs nor parameters and are ignored. Of a model with several kinds of input the language
model is read, and a note says what is left out.

Model types that are no decoders have a reader each (`ARCHITECTURES`). What a configuration does not say: the share of masked
tokens that an encoder's head predicts; how much the decoder of T5, T5 1.1 and mT5 writes, which is that of span corruption; the
classes of ViT and DeiT where none is named, 1,000.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from ...core.errors import DataError, SpecError
from ...core.read_file import parse_json, read_text
from ...core.registry import Registry
from ..base.workload import Workload
from ..transformer.encoder import EncoderSpec
from ..transformer.encoder_decoder import EncoderDecoderSpec
from ..transformer.spec import TransformerSpec
from ..transformer.vision import VitSpec
from .decoder import decoder_fields, read_decoder
from .fields import Fields

Reader = Callable[[Fields], dict[str, Any]]


class Architecture(NamedTuple):
    """One `model_type` that has a reader of its own.

    Attributes:
        name: the `model_type`.
        read: keys of a configuration -> fields of its `spec`.
        spec: kind of model that it describes: a decoder, or another.
    """

    name: str
    read: Reader
    spec: type = TransformerSpec


def _layers(f: Fields, **more: str) -> dict[str, int]:
    """Layers and widths by their usual keys, and counts by others."""
    usual = {"n_layers": "num_hidden_layers", "hidden": "hidden_size", "n_heads": "num_attention_heads"}
    return f.counts(**usual, ffn_hidden="intermediate_size", **more)


def _bert(f: Fields) -> dict[str, Any]:
    f.require("is_decoder", only=False, default=False)
    f.require("add_cross_attention", only=False, default=False)
    f.require("position_embedding_type", only="absolute", default="absolute")
    return {
        **_layers(f, vocab="vocab_size"),
        "max_seq_len": f.count("max_position_embeddings", default=512),
        "n_token_types": f.count("type_vocab_size", default=2),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


def _roberta(f: Fields) -> dict[str, Any]:
    return _bert(f) | {"next_sentence": False}


_WRITTEN = 114  # of 512 tokens that are read, arXiv 1910.10683 section 3.1.4


def _t5(f: Fields) -> dict[str, Any]:
    f.require("is_encoder_decoder", only=True, default=True)
    n_layers = f.count("num_layers")
    n_decoder = f.count("num_decoder_layers", default=n_layers)
    return {
        "n_layers": n_layers,
        "n_decoder_layers": 0 if n_decoder == n_layers else n_decoder,
        "decoder_seq_len": _WRITTEN,
        "hidden": f.count("d_model"),
        "n_heads": f.count("num_heads"),
        "head_dim": f.count("d_kv"),
        "ffn_hidden": f.count("d_ff"),
        "vocab": f.count("vocab_size"),
        "n_buckets": f.count("relative_attention_num_buckets", default=32),
        "gated": str(f.get("feed_forward_proj", default="relu")).startswith("gated"),
        "tied_embeddings": f.flag("tie_word_embeddings", default=True),
    }


_IMAGENET_CLASSES = 1000


def _vit(f: Fields) -> dict[str, Any]:
    f.require("qkv_bias", only=True, default=True)
    labels = f.get("id2label", default={})
    return {
        **_layers(f),
        "image_size": f.count("image_size", default=224),
        "patch": f.count("patch_size", default=16),
        "n_channels": f.count("num_channels", default=3),
        "n_classes": len(labels) if isinstance(labels, dict) and labels else _IMAGENET_CLASSES,
    }


_SHIPPED = (
    Architecture("bert", _bert, EncoderSpec),
    Architecture("roberta", _roberta, EncoderSpec),
    Architecture("xlm-roberta", _roberta, EncoderSpec),
    Architecture("t5", _t5, EncoderDecoderSpec),
    Architecture("mt5", _t5, EncoderDecoderSpec),
    Architecture("vit", _vit, VitSpec),
)
ARCHITECTURES: Registry[Architecture] = Registry("model_type", lambda: _SHIPPED)


_REFUSED_TYPES = {
    r".*roberta.*|.*bert.*|electra|ernie_m?|deberta.*": "is an encoder of another kind than BERT",
    r"umt5|m?bart|pegasus.*|marian|whisper|t5gemma.*|.*seamless.*": "is an encoder-decoder of another kind than T5",
    r"clip.*|.*siglip.*|.*dinov.*|.*_vision(_model)?|.*convnext.*|swin.*": "is a vision encoder of another kind than ViT",
    r"mamba|falcon_mamba|rwkv.*|retnet|xlstm": "has state-space or recurrent layers other than Mamba-2",
    r"mamba2": "has Mamba layers only",
    r"jamba": "has layers of Mamba-1",
    r"zamba.*|plamo2": "has Mamba layers with attention that several of them share",
    r"falcon_h1": "has attention and Mamba side by side in every layer",
    r"kimi_linear|bailing_moe_linear": "has linear attention of another kind than gated delta networks",
    r"minimax|minimax_text_01|minimax_m1": "has lightning attention",
    r"lfm2.*": "has convolutions in place of attention",
    r"recurrent_gemma": "has recurrent layers",
    r"gemma3n.*": "has per-layer embeddings and layers that share their keys",
    r"arctic": "has a dense MLP next to the experts of a layer",
    r"longcat.*": "has two attentions in every layer and experts that do nothing",
    r"openelm|nemotron-nas|deci.*": "has layers whose widths differ one by one",
    r"stable_?diffusion.*|.*diffusion.*": "is a diffusion model",
}
_LONGEST_TYPE = 100  # characters; what follows tells no type
_LEFT_OUT = {  # key -> part that a note names
    "vision_config": "the vision tower",
    "vision_tower": "the vision tower",
    "mm_vision_tower": "the vision tower",
    "visual": "the vision tower",
    "audio_config": "the audio encoder",
    "talker_config": "the talker",
    "num_mtp_modules": "multi-token-prediction modules",
    "mtp_num_hidden_layers": "multi-token-prediction modules",
}


def _says_something(value: object) -> bool:
    return value not in (None, False, 0, "") and value != [] and value != {}


def _is_step(value: object) -> bool:
    return _says_something(value) and value != 1


def _is_mixed(only: object) -> Callable[[object], bool]:
    return lambda value: _says_something(value) and (not isinstance(value, list) or any(x != only for x in value))


_CHANGES_LAYERS: dict[str, tuple[str, Callable[[object], bool]]] = {  # keys -> what they ask for, and which values do
    r"attn_type_list": ("lightning attention in some layers", _is_mixed(1)),
    r"compress_ratios|compress_rope_theta": ("attention to compressed keys", _says_something),
    r"hc_mult": ("several residual streams (hyper-connections)", _is_step),
    r"o_lora_rank|o_groups": ("an output projection of low rank", _says_something),
    r"block_configs|ffn_multipliers": ("layers whose widths differ one by one", _says_something),
    r"full_attention_interval|linear_attn_config|(linear_(num|key|value|conv|attn)|kda_).*": (
        "linear attention",
        _says_something,
    ),
    r"index_(topk|n_heads|head_dim)": ("sparse attention", _says_something),
    r"(mamba|ssm)_(d_.*|dt_rank|expand|num_heads|n_heads|.*state.*)|state_size": ("Mamba layers", _says_something),
    r"swa_(num_|head_|v_).*": ("other heads in layers with a window", _says_something),
    r"zero_expert_num": ("experts that do nothing", _says_something),
    r"expert_layer_(period|offset)": ("experts in some layers", _says_something),
    r"cross_attention_layers|add_cross_attention": ("cross attention", _says_something),
    r"is_encoder_decoder": ("an encoder", _says_something),
    r"num_kv_shared_layers": ("layers that share their keys", _says_something),
    r"hidden_size_per_layer_input|altup_num_inputs|laurel_rank": ("per-layer embeddings", _says_something),
    r"qk_ln": ("norms of queries and keys", _says_something),
    r"conv_L_cache": ("convolutions in place of attention", _says_something),
}


def refuse_type(kind: str) -> None:
    """Ends the reading of a model type that is known not to be modelled.

    Raises:
        SpecError: names what is missing.
    """
    for pattern, missing in _REFUSED_TYPES.items():
        if re.fullmatch(pattern, kind):
            others = f"Decoders are read by their keys; other kinds are {', '.join(ARCHITECTURES.names)}."
            raise SpecError(f"model_type = {kind!r} is not modelled: it {missing}. {others}")


def refuse_keys(f: Fields) -> None:
    """Refuses keys that change the layers and that the architecture did not read.

    Raises:
        SpecError: names the key, and what it asks for.
    """
    asked = {
        key: what
        for key in sorted((key for key in f.config if key not in f.read), key=str)
        for pattern, (what, changes) in _CHANGES_LAYERS.items()
        if re.fullmatch(pattern, str(key)) and changes(f.config[key])
    }
    if not asked:
        return
    key, what = next(iter(asked.items()))
    others = {own: other for other, own in asked.items() if own != what}  # one key of each
    nor = f", nor are {', '.join(f'{own} by {other}' for own, other in others.items())}" if others else ""
    keys = "these keys" if len(asked) > 1 else "the key"
    f.fail(
        key,
        f.config[key],
        f"{what} is not modelled{nor}. Remove {keys} from the config.json to predict the model without, or write the model's "
        "fields in the job file",
    )


def left_out(*configs: Mapping[str, Any]) -> Iterator[str]:
    """Parts of the published model that the configurations name and that are not modelled."""
    for key, part in _LEFT_OUT.items():
        if any(_says_something(config.get(key)) for config in configs):
            yield part


MAX_CONFIG_BYTES = 4 * 2**20  # a config.json has a few kB; anything larger is another file

# where models of several kinds of input keep it
_LANGUAGE = ("thinker_config", "text_config", "llm_config", "language_config")
_TIED = "tie_word_embeddings"
_OTHER_FILES = {  # key of configurations that have no model_type -> what they are of
    "_class_name": "a diffusion model, which is not modelled. `model: {kind: dit}` is the nearest",
    "_diffusers_version": "a diffusion model, which is not modelled. `model: {kind: dit}` is the nearest",
    "ssm_cfg": "a model of Mamba layers only, which is not modelled",
    "peft_type": "an adapter. Give the config.json of its base model, and `model.adapters`",
}


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
    architecture = ARCHITECTURES.named(kind) if kind in ARCHITECTURES else None
    if architecture is None:
        refuse_type(kind)
    fields = decoder_fields(kind, own) if architecture is None else Fields(kind, own)
    sizes = read_decoder(fields) if architecture is None else architecture.read(fields)
    refuse_keys(fields)
    parts = [part for part in config.values() if isinstance(part, Mapping)]
    spec = TransformerSpec if architecture is None else architecture.spec
    if spec is TransformerSpec:
        sizes["left_out"] = tuple(dict.fromkeys((*sizes.get("left_out", ()), *left_out(config, *parts, own))))
    return spec(
        name=name or str(own.get("_name_or_path") or kind),
        source=f"Hugging Face config.json, model_type {kind}",
        **sizes,
    )


def _model_type(config: Mapping[str, Any]) -> str:
    """Returns the model type; of a configuration without one, the type that follows from its other keys.

    Raises:
        SpecError: it is none of a language model.
    """
    if isinstance(kind := config.get("model_type"), str) and kind:
        return kind[:_LONGEST_TYPE]
    for key, what in _OTHER_FILES.items():
        if key in config:
            raise SpecError(f"{key} = {str(config[key])[:_LONGEST_TYPE]!r}: this is the configuration of {what}.")
    if any(Fields("", config).has(key) for key in ("hidden_size", "num_attention_heads")):
        return "decoder"
    raise SpecError("model_type is missing, and so are hidden_size and num_attention_heads. Is this a config.json?")


def _language_model(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """The configuration itself, or that of the language model in it, however deep it lies."""
    if str(config.get("model_type")) in ARCHITECTURES:
        return config
    for key in _LANGUAGE:
        own = config.get(key)
        if isinstance(own, Mapping) and own:
            shared = {_TIED: config[_TIED]} if _TIED in config else {}
            return _language_model(shared | dict(own))
    return config
