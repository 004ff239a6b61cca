"""Hugging Face configurations: fields, defaults, and every kind that is read or refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from prism_jax.core.errors import DataError, SpecError
from prism_jax.workload.catalog import model, workload
from prism_jax.workload.hugging_face.config import MAX_CONFIG_BYTES, model_from_hf, read_hf_config, transformer_from_hf
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.support.published_configs import PUBLISHED

LLAMA = PUBLISHED["llama-2-7b"].config
MIXTRAL, QWEN, DEEPSEEK, MPT, OPT = (
    PUBLISHED[name].config for name in ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "mpt-7b", "opt-125m")
)


def test_a_configuration_describes_the_preset_of_the_same_model() -> None:
    def sizes(spec: TransformerSpec) -> tuple:
        return spec.token_flops(4096), spec.n_params(), spec.mtp_params(), spec.kv_dim

    for config, name in ((LLAMA, "llama-2-7b"), (QWEN, "qwen3-30b-a3b"), (DEEPSEEK, "deepseek-v3")):
        assert sizes(transformer_from_hf(config)) == sizes(model(name))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "model_type is missing, and so are hidden_size and num_attention_heads"),
        ({"model_type": "lama"}, "lama config: key hidden_size is missing .also read: n_embd, d_model"),
        ({"model_type": ["llama"]}, "model_type is missing"),
        ({k: v for k, v in LLAMA.items() if k != "hidden_size"}, "llama config: key hidden_size is missing"),
        (LLAMA | {"hidden_size": None}, "key hidden_size is missing"),
        (LLAMA | {"hidden_size": "4096"}, "hidden_size = '4096', but it must be a whole number"),
        (LLAMA | {"hidden_size": -1}, "hidden_size = -1, but it must be a whole number from 0"),
        (LLAMA | {"num_attention_heads": 0}, "n_heads = 0, but it must be at least 1"),
        (LLAMA | {"mlp_bias": 1}, "mlp_bias = 1, but it must be true or false"),
        (MPT | {"attn_config": {"qk_ln": True}}, "qk_ln = True, but norms of queries and keys is not modelled"),
        (MPT | {"attn_config": 3}, "attn_config = 3, but it must be an object"),
        (MPT | {"expansion_ratio": "four"}, "expansion_ratio = 'four', but it must be a number"),
        (OPT | {"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512, but only 768 is modelled"),
        (
            QWEN | {"mlp_only_layers": [3]},
            "mlp_only_layers = .3., but only experts in every n-th layer behind leading dense layers",
        ),
        (DEEPSEEK | {"moe_layer_freq": 2}, "moe_layer_freq = 2, but only experts in every n-th"),
        (MIXTRAL | {"num_experts_per_tok": 9}, "top_k = 9, but there are only n_experts = 8"),
    ],
)
def test_a_broken_configuration_names_the_key_and_the_remedy(config: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        transformer_from_hf(config)


def test_the_language_model_of_a_multimodal_configuration_is_found() -> None:
    spec = transformer_from_hf({"model_type": "llava", "text_config": LLAMA}, name="llava")
    assert spec.n_params() == 6_738_415_616


def test_a_file_or_its_directory_is_read_and_named_after_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-2-7b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA))
    for path in (folder, folder / "config.json", str(folder)):
        assert read_hf_config(path).name == "Llama-2-7b"
    assert read_hf_config(folder, name="mine").name == "mine"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"[1, 2]", "holds a list"),
        (b"\xff\xfe\x00", "not UTF-8 text"),
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is there twice"),
        (b"[" * 100_000, "is not JSON"),
        (b"1" * 10_000, "is not JSON"),
        (b" " * (MAX_CONFIG_BYTES + 1), "larger than 4 MiB. Give the path"),
    ],
)
def test_a_file_that_is_no_configuration_is_a_data_error(tmp_path: Path, content: bytes, message: str) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_hf_config(file)


def test_a_byte_order_mark_does_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "llama.json"
    path.write_text(json.dumps(LLAMA))
    plain = read_hf_config(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_hf_config(path) == plain


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read: No such file or directory. Give the path"):
        read_hf_config(tmp_path)


def test_a_bad_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(LLAMA | {"vocab_size": 0}))
    with pytest.raises(SpecError, match=r"mine\.json: .*vocab = 0"):
        read_hf_config(file)


# --- Other kinds -----------------------------------------------------------------------------------------------------
# Configurations of encoders, encoder-decoders and vision transformers describe the presets of the same models.


# fmt: off
BERT = {"model_type": "bert", "hidden_size": 1024, "intermediate_size": 4096, "max_position_embeddings": 512,
    "num_attention_heads": 16, "num_hidden_layers": 24, "type_vocab_size": 2, "vocab_size": 30522, "hidden_act": "gelu"}
ROBERTA = BERT | {"model_type": "roberta", "max_position_embeddings": 514, "type_vocab_size": 1, "vocab_size": 50265}
T5 = {"model_type": "t5", "d_ff": 3072, "d_kv": 64, "d_model": 768, "is_encoder_decoder": True, "num_heads": 12,
    "num_layers": 12, "relative_attention_num_buckets": 32, "vocab_size": 32128}
MT5 = T5 | {"model_type": "mt5", "d_ff": 2048, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False,
    "num_decoder_layers": 12, "vocab_size": 250112}
VIT = {"model_type": "vit", "hidden_size": 768, "image_size": 224, "intermediate_size": 3072, "num_attention_heads": 12,
    "num_channels": 3, "num_hidden_layers": 12, "patch_size": 16, "qkv_bias": True}
# fmt: on
KNOWN = {"bert-large": BERT, "roberta-large": ROBERTA, "t5-base": T5, "mt5-base": MT5, "vit-b-16": VIT}


@pytest.mark.parametrize("name", KNOWN)
def test_a_configuration_describes_the_preset_of_the_same_model_of_other_kinds(name: str) -> None:
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
