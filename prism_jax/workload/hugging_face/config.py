"""A model from a Hugging Face `config.json`: a decoder, an encoder, an encoder-decoder, a vision transformer.

Every key that changes the layers is read, or refused by its name (`unmodelled`); dropout, rope scaling, soft caps and the
like change neither FLOPs nor parameters and are ignored. Of a vision-language model the language model is read.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ..._core.input_file import read_text
from ..._core.strict_json import parse_json
from ...errors import DataError, SpecError
from ..base import Workload
from ..transformer.spec import TransformerSpec
from .architectures import ARCHITECTURES
from .fields import Fields
from .unmodelled import left_out, refuse_keys, refuse_type

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
