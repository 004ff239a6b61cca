"""Kinds of model (what `model: {kind: ...}` of a job file builds), and the models of each that have a name.

Transformers are read once from `models.toml`, with the parameter counts that their authors published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from ..core.registry import Registry
from ..system.catalog import NameTable, load_toml, normalised
from . import ladder
from .base.workload import Workload
from .cnn import spec as cnn
from .dlrm import spec as dlrm
from .transformer import encoder, encoder_decoder, vision
from .transformer.mixers import MixerSpec, WindowSpec
from .transformer.sizes import MLASpec, MoESpec
from .transformer.spec import TransformerSpec


@dataclass(frozen=True)
class WorkloadKind:
    """One kind of model.

    Attributes:
        name: as in `kind: name` of a job file.
        spec: frozen dataclass that is a `Workload`; the fields of the section are its fields.
        about: description in one line.
        presets: models that a job file may name.
        words: descriptions of the fields that transformers do not have, for the page of job fields.
        is_whole_batch: a job file may leave micro_batch out: a device takes its share of the batch at once.
    """

    name: str
    spec: type
    about: str
    presets: tuple[Workload, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    is_whole_batch: bool = False


TRANSFORMER = WorkloadKind("transformer", TransformerSpec, "decoder-only transformer: dense, GQA, MLA, MoE")
_KINDS = (
    TRANSFORMER,
    WorkloadKind(
        "encoder",
        encoder.EncoderSpec,
        "encoder of text with a masked-token loss: BERT, RoBERTa",
        encoder.PRESETS,
        encoder.WORDS,
    ),
    WorkloadKind(
        "encoder_decoder",
        encoder_decoder.EncoderDecoderSpec,
        "encoder-decoder of text with cross attention: T5",
        encoder_decoder.PRESETS,
        encoder_decoder.WORDS,
    ),
    WorkloadKind(
        "vit",
        vision.VitSpec,
        "vision transformer that classifies images: ViT, DeiT",
        vision.VITS,
        vision.VIT_WORDS,
    ),
    WorkloadKind(
        "dit", vision.DitSpec, "diffusion transformer over latents of images: DiT", vision.DITS, vision.DIT_WORDS
    ),
    WorkloadKind("cnn", cnn.CnnSpec, "convolutional network over images: ResNet, VGG", cnn.PRESETS, cnn.WORDS),
    WorkloadKind(
        "dlrm",
        dlrm.DLRMSpec,
        "recommendation model: embedding tables, dense layers, their interaction (DLRM, DCNv2)",
        dlrm.PRESETS,
        dlrm.WORDS,
        is_whole_batch=True,
    ),
    WorkloadKind(
        "ladder", ladder.LadderSpec, "model of which step times at some batch sizes are known alone", words=ladder.WORDS
    ),
)
KINDS: Registry[WorkloadKind] = Registry("kind of model", lambda: _KINDS)


def kind_of(model: Workload) -> WorkloadKind | None:
    """The kind of a model; None where its class is no kind that job files know."""
    return next((kind for kind in KINDS if type(model) is kind.spec), None)


def preset_of_kinds(name: str) -> Workload | None:
    """The preset called `name` of any kind; case and separators do not matter."""
    key = normalised(name) if isinstance(name, str) else ""
    return next((model for kind in KINDS for model in kind.presets if normalised(model.name) == key), None)


_NOT_A_FIELD = ("aliases", "family", "published")
_NESTED = {"moe": MoESpec, "mla": MLASpec, "window": WindowSpec, "mixer": MixerSpec}


@cache
def _entries() -> dict[str, dict[str, Any]]:
    """Model name -> its fields, those of its family included."""
    document = load_toml(__name__.rpartition(".")[0], "models.toml")
    return {name: document["families"][entry["family"]] | entry for name, entry in document["models"].items()}


@cache
def _table() -> NameTable:
    return NameTable("model", {name: entry.get("aliases", []) for name, entry in _entries().items()})


def model_names() -> tuple[str, ...]:
    """Canonical names of all preset transformers."""
    return _table().names


def workload_names() -> tuple[str, ...]:
    """Names of the presets of all kinds of model, transformers first."""
    return (*model_names(), *(preset.name for kind in KINDS for preset in kind.presets))


def known_model(text: str) -> str | None:
    """Canonical name of the preset transformer that `text` names; None if there is none."""
    return _table().known(text)


def workload(name: str) -> Workload:
    """The preset of that name, of any kind of model.

    Raises:
        SpecError: no such model; the message names the nearest ones.
    """
    own = preset_of_kinds(name)
    if own is not None:
        return own
    if _table().known(str(name)) is None:
        of_any_kind = {one: _entries().get(one, {}).get("aliases", []) for one in workload_names()}
        NameTable("model", of_any_kind).find(name)  # raises, with the nearest names of all kinds
    return model(name)


@cache
def model(name: str) -> TransformerSpec:
    """The preset transformer of that name.

    Raises:
        SpecError: no such model; the message names the nearest ones.
    """
    found = _table().find(name)
    fields = {key: value for key, value in _entries()[found].items() if key not in _NOT_A_FIELD}
    fields |= {name: make(**_with_tuples(fields[name])) for name, make in _NESTED.items() if name in fields}
    return TransformerSpec(name=found, **_with_tuples(fields))


def _with_tuples(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Lists of TOML as tuples."""
    return {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
