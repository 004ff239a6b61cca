"""Kinds of model: what `model: {kind: ...}` of a job file builds, and the models of that kind that have a name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from .._core.registry import Registry
from ..system.names import normalised
from .base import Workload
from .cnn.presets import PRESETS as CNNS, WORDS as CNN_WORDS
from .cnn.spec import CnnSpec
from .dlrm.presets import PRESETS as DLRMS, WORDS as DLRM_WORDS
from .dlrm.spec import DLRMSpec
from .encoder.presets import PRESETS as ENCODERS, WORDS as ENCODER_WORDS
from .encoder.spec import EncoderSpec
from .encoder_decoder.presets import PRESETS as ENCODER_DECODERS, WORDS as ENCODER_DECODER_WORDS
from .encoder_decoder.spec import EncoderDecoderSpec
from .ladder.spec import LadderSpec
from .ladder.words import WORDS as LADDER_WORDS
from .transformer.spec import TransformerSpec
from .vision.dit import DitSpec
from .vision.presets import DIT_WORDS, DITS, VIT_WORDS, VITS
from .vision.vit import VitSpec


@dataclass(frozen=True)
class WorkloadKind:
    """One kind of model.

    Attributes:
        name: as in `kind: name` of a job file.
        spec: frozen dataclass that is a `Workload`; the fields of the section are its fields.
        about: what it is, in a line.
        presets: models that a job file may name.
        words: what those of its fields are that transformers do not have, for the page of job fields.
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
    "ladder", LadderSpec, "model of which step times at some batch sizes are known alone", words=LADDER_WORDS
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
