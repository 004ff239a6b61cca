"""Kinds of model (what `model: {kind: ...}` of a job file builds), and the models of each that have a name.

Transformers are read once from `models.toml`, with the parameter counts that their authors published.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from ..core.registry import Registry
from ..system.catalog import NameTable, load_toml, normalised
from .base.workload import Workload
from .cnn.spec import PRESETS as CNNS, WORDS as CNN_WORDS, CnnSpec
from .dlrm.spec import PRESETS as DLRMS, WORDS as DLRM_WORDS, DLRMSpec
from .ladder import LadderSpec
from .transformer.dit import DitSpec
from .transformer.encoder import PRESETS as ENCODERS, WORDS as ENCODER_WORDS, EncoderSpec
from .transformer.encoder_decoder import PRESETS as ENCODER_DECODERS, WORDS as ENCODER_DECODER_WORDS, EncoderDecoderSpec
from .transformer.mixers import MixerSpec, WindowSpec
from .transformer.sizes import MLASpec, MoESpec
from .transformer.spec import TransformerSpec
from .transformer.vit import VitSpec

WORDS = {
    "floor_s": "seconds of a step that do not depend on the batch (`prism-jax fit ladder`)",
    "s_per_sample": "seconds of a sample more",
    "measured_on": "device on which the ladder was measured; others follow their datasheets",
    "n_parameters": "parameters, which ranks exchange and checkpoints hold",
    "most_samples": "largest batch that was measured: a device takes no more",
    "sample_bytes": "bytes of activations that a sample keeps; 0: not known",
}


VIT_WORDS = {
    "image_size": "pixels along one side of an image",
    "patch": "pixels along one side of a patch",
    "n_channels": "of an image",
    "n_classes": "classes of the output layer",
    "n_extra_tokens": "class token, distillation token",
}
DIT_WORDS = {
    "latent_size": "numbers along one side of a latent; 32: images of 256 pixels",
    "patch": "numbers along one side of a patch",
    "n_channels": "of a latent",
    "n_classes": "labels that condition",
    "learns_variance": "variances are predicted, too: twice as many channels",
}
_VIT = "arXiv 2010.11929 table 1"
_DEIT = "arXiv 2012.12877 table 1"
_DIT = "arXiv 2212.09748 table 1"

_b16 = VitSpec("vit-b-16", 12, 768, 12, 3072, source=_VIT)
_l16 = replace(_b16, name="vit-l-16", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096)
VITS = (
    _b16,
    _l16,
    replace(_l16, name="vit-h-14", n_layers=32, hidden=1280, ffn_hidden=5120, patch=14),
    replace(_b16, name="deit-tiny-16", hidden=192, n_heads=3, ffn_hidden=768, source=_DEIT),
    replace(_b16, name="deit-small-16", hidden=384, n_heads=6, ffn_hidden=1536, source=_DEIT),
)
_xl2 = DitSpec("dit-xl-2", 28, 1152, 16, 4608, source=_DIT)
DITS = (
    replace(_xl2, name="dit-s-2", n_layers=12, hidden=384, n_heads=6, ffn_hidden=1536),
    replace(_xl2, name="dit-b-2", n_layers=12, hidden=768, n_heads=12, ffn_hidden=3072),
    replace(_xl2, name="dit-l-2", n_layers=24, hidden=1024, n_heads=16, ffn_hidden=4096),
    _xl2,
)


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
ENCODER = WorkloadKind(
    "encoder", EncoderSpec, "encoder of text with a masked-token loss: BERT, RoBERTa", ENCODERS, words=ENCODER_WORDS
)
DLRM = WorkloadKind(
    "dlrm",
    DLRMSpec,
    "recommendation model: embedding tables, dense layers, their interaction (DLRM, DCNv2)",
    DLRMS,
    DLRM_WORDS,
    is_whole_batch=True,
)
ENCODER_DECODER = WorkloadKind(
    "encoder_decoder",
    EncoderDecoderSpec,
    "encoder-decoder of text with cross attention: T5",
    ENCODER_DECODERS,
    words=ENCODER_DECODER_WORDS,
)
VIT = WorkloadKind("vit", VitSpec, "vision transformer that classifies images: ViT, DeiT", VITS, words=VIT_WORDS)
DIT = WorkloadKind("dit", DitSpec, "diffusion transformer over latents of images: DiT", DITS, words=DIT_WORDS)
CNN = WorkloadKind("cnn", CnnSpec, "convolutional network over images: ResNet, VGG", CNNS, words=CNN_WORDS)
LADDER = WorkloadKind(
    "ladder", LadderSpec, "model of which step times at some batch sizes are known alone", words=WORDS
)
KINDS: Registry[WorkloadKind] = Registry(
    "kind of model", lambda: (TRANSFORMER, ENCODER, ENCODER_DECODER, VIT, DIT, CNN, DLRM, LADDER)
)


def kind_of(model: Workload) -> WorkloadKind | None:
    """The kind of a model; None where its class is no kind that job files know."""
    return next((kind for kind in KINDS if type(model) is kind.spec), None)


def preset_of_kinds(name: str) -> Workload | None:
    """The preset called `name` of any kind; case and separators do not matter."""
    key = normalised(name) if isinstance(name, str) else ""
    return next((model for kind in KINDS for model in kind.presets if normalised(model.name) == key), None)


_NOT_A_FIELD = ("aliases", "family", "published")


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
    if "moe" in fields:
        fields["moe"] = MoESpec(**fields["moe"])
    if "mla" in fields:
        fields["mla"] = MLASpec(**fields["mla"])
    if "window" in fields:
        fields["window"] = WindowSpec(fields["window"]["size"], tuple(fields["window"]["pattern"]))
    if "mixer" in fields:
        fields["mixer"] = MixerSpec(**fields["mixer"] | {"pattern": tuple(fields["mixer"]["pattern"])})
    if "left_out" in fields:
        fields["left_out"] = tuple(fields["left_out"])
    return TransformerSpec(name=found, **fields)
