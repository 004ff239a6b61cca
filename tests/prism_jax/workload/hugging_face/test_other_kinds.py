"""Configurations of encoders, encoder-decoders and vision transformers describe the presets of the same models."""

from dataclasses import replace
from typing import Any

import pytest

from prism_jax.core.errors import SpecError
from prism_jax.workload.catalog import workload
from prism_jax.workload.hugging_face.config import model_from_hf, transformer_from_hf

BERT = {
    "model_type": "bert",
    "hidden_size": 1024,
    "intermediate_size": 4096,
    "max_position_embeddings": 512,
    "num_attention_heads": 16,
    "num_hidden_layers": 24,
    "type_vocab_size": 2,
    "vocab_size": 30522,
    "hidden_act": "gelu",
}
ROBERTA = BERT | {"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 50265}
T5 = {
    "model_type": "t5",
    "d_ff": 3072,
    "d_kv": 64,
    "d_model": 768,
    "is_encoder_decoder": True,
    "num_heads": 12,
    "num_layers": 12,
    "relative_attention_num_buckets": 32,
    "vocab_size": 32128,
}
MT5 = (
    T5
    | {"model_type": "mt5", "d_ff": 2048, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
    | {"num_decoder_layers": 12, "vocab_size": 250112}
)
VIT = {
    "model_type": "vit",
    "hidden_size": 768,
    "image_size": 224,
    "intermediate_size": 3072,
    "num_attention_heads": 12,
    "num_channels": 3,
    "num_hidden_layers": 12,
    "patch_size": 16,
    "qkv_bias": True,
}
KNOWN = {"bert-large": BERT, "roberta-large": ROBERTA, "t5-base": T5, "mt5-base": MT5, "vit-b-16": VIT}


@pytest.mark.parametrize("name", KNOWN)
def test_a_configuration_describes_the_preset_of_the_same_model(name: str) -> None:
    preset, ours = workload(name), model_from_hf(KNOWN[name], name)
    assert replace(ours, source="") == replace(preset, source="")  # pyright: ignore[reportArgumentType]


def test_labels_of_a_classifier_are_counted() -> None:
    labels = {str(number): f"LABEL_{number}" for number in range(10)}
    fewer: Any = model_from_hf(VIT | {"id2label": labels})
    assert fewer.n_classes == 10
    assert workload("vit-b-16").n_params() - fewer.n_params() == 990 * 769


@pytest.mark.parametrize(
    ("config", "changes", "message"),
    [
        (BERT, {"is_decoder": True}, "is_decoder = True, but only False is modelled"),
        (BERT, {"position_embedding_type": "relative_key"}, "only 'absolute' is modelled"),
        (T5, {"d_model": -1}, "d_model = -1"),
        (VIT, {"patch_size": 15}, "image_size = 224 is not a multiple of patch = 15"),
        (VIT, {"num_hidden_layers": None}, "num_hidden_layers is missing"),
    ],
)
def test_what_is_not_modelled_is_refused_by_its_key(
    config: dict[str, Any], changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        model_from_hf(config | changes)


def test_a_reader_of_decoders_refuses_them() -> None:
    with pytest.raises(SpecError, match="'bert' is no decoder"):
        transformer_from_hf(BERT)
