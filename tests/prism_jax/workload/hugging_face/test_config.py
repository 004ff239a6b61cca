"""Hugging Face configurations: fields, defaults, and every kind that is read or refused."""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError, PrismError, SpecError
from prism_jax.workload.catalog import model, workload
from prism_jax.workload.hugging_face.config import MAX_CONFIG_BYTES, model_from_hf, read_hf_config, transformer_from_hf
from prism_jax.workload.transformer.spec import TransformerSpec

LLAMA_2_7B = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "max_position_embeddings": 4096,
    "vocab_size": 32000,
    "tie_word_embeddings": False,
}
MISTRAL_7B = LLAMA_2_7B | {"model_type": "mistral", "intermediate_size": 14336, "num_key_value_heads": 8}
MIXTRAL_8X7B = MISTRAL_7B | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
QWEN2_5_7B = {
    "model_type": "qwen2",
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
QWEN3_0_6B = {
    "model_type": "qwen3",
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "attention_bias": False,
}
QWEN1_5_MOE_A2_7B = {
    "model_type": "qwen2_moe",
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_hidden_layers": 24,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "num_experts": 60,
    "num_experts_per_tok": 4,
    "decoder_sparse_step": 1,
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
QWEN3_30B_A3B = {
    "model_type": "qwen3_moe",
    "hidden_size": 2048,
    "intermediate_size": 6144,
    "moe_intermediate_size": 768,
    "num_hidden_layers": 48,
    "num_attention_heads": 32,
    "num_key_value_heads": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "vocab_size": 151936,
    "tie_word_embeddings": False,
}
DEEPSEEK_V2_LITE = {
    "model_type": "deepseek_v2",
    "hidden_size": 2048,
    "intermediate_size": 10944,
    "moe_intermediate_size": 1408,
    "num_hidden_layers": 27,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": None,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "num_experts_per_tok": 6,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "topk_method": "greedy",
    "vocab_size": 102400,
}
DEEPSEEK_V3 = DEEPSEEK_V2_LITE | {
    "model_type": "deepseek_v3",
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "head_dim": 64,
    "q_lora_rank": 1536,
    "n_routed_experts": 256,
    "n_shared_experts": 1,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "topk_method": "noaux_tc",
    "num_nextn_predict_layers": 1,
    "vocab_size": 129280,
}
GPT2_XL = {"model_type": "gpt2", "n_embd": 1600, "n_layer": 48, "n_head": 25, "n_positions": 1024, "vocab_size": 50257}
GPT_NEOX_20B = {
    "model_type": "gpt_neox",
    "hidden_size": 6144,
    "intermediate_size": 24576,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "vocab_size": 50432,
    "tie_word_embeddings": False,
}
MPT_7B = {
    "model_type": "mpt",
    "d_model": 4096,
    "n_layers": 32,
    "n_heads": 32,
    "expansion_ratio": 4,
    "max_seq_len": 2048,
    "no_bias": True,
    "vocab_size": 50432,
    "attn_config": {"alibi": True, "attn_type": "multihead_attention", "qk_ln": False},
}
OPT_125M = {
    "model_type": "opt",
    "hidden_size": 768,
    "ffn_dim": 3072,
    "num_hidden_layers": 12,
    "num_attention_heads": 12,
    "max_position_embeddings": 2048,
    "word_embed_proj_dim": 768,
    "vocab_size": 50272,
}


@pytest.mark.parametrize(
    ("config", "n_params"),
    [  # HF hub, safetensors metadata of the checkpoint (a tied head counted once)
        (LLAMA_2_7B, 6_738_415_616),
        (MISTRAL_7B, 7_241_732_096),
        (MIXTRAL_8X7B, 46_702_792_704),
        (QWEN2_5_7B, 7_615_616_512),
        (QWEN3_0_6B, 596_049_920),
        (QWEN1_5_MOE_A2_7B, 14_315_784_192),
        (QWEN3_30B_A3B, 30_532_122_624),
        (DEEPSEEK_V2_LITE, 15_706_484_224),
        (DEEPSEEK_V3, 671_026_419_200),
        (GPT2_XL, 1_557_611_200),
        (GPT_NEOX_20B, 20_554_567_680),
        (MPT_7B, 6_649_286_656),
        (OPT_125M, 125_239_296),
    ],
    ids=lambda value: value["model_type"] if isinstance(value, dict) else "",
)
def test_a_known_configuration_gives_the_published_count(config: dict, n_params: int) -> None:
    assert transformer_from_hf(config).n_params() == n_params


def test_a_configuration_describes_the_preset_of_the_same_model() -> None:
    def sizes(spec: TransformerSpec) -> tuple:
        return spec.token_flops(4096), spec.n_params(), spec.mtp_params(), spec.kv_dim

    for config, name in ((LLAMA_2_7B, "llama-2-7b"), (QWEN3_30B_A3B, "qwen3-30b-a3b"), (DEEPSEEK_V3, "deepseek-v3")):
        assert sizes(transformer_from_hf(config)) == sizes(model(name))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "model_type is missing, and so are hidden_size and num_attention_heads"),
        ({"model_type": "lama"}, "lama config: key hidden_size is missing .also read: n_embd, d_model"),
        ({"model_type": ["llama"]}, "model_type is missing"),
        ({k: v for k, v in LLAMA_2_7B.items() if k != "hidden_size"}, "llama config: key hidden_size is missing"),
        (LLAMA_2_7B | {"hidden_size": None}, "key hidden_size is missing"),
        (LLAMA_2_7B | {"hidden_size": "4096"}, "hidden_size = '4096', but it must be a whole number"),
        (LLAMA_2_7B | {"hidden_size": -1}, "hidden_size = -1, but it must be a whole number from 0"),
        (LLAMA_2_7B | {"num_attention_heads": 0}, "n_heads = 0, but it must be at least 1"),
        (LLAMA_2_7B | {"mlp_bias": 1}, "mlp_bias = 1, but it must be true or false"),
        (MPT_7B | {"attn_config": {"qk_ln": True}}, "qk_ln = True, but norms of queries and keys is not modelled"),
        (MPT_7B | {"attn_config": 3}, "attn_config = 3, but it must be an object"),
        (MPT_7B | {"expansion_ratio": "four"}, "expansion_ratio = 'four', but it must be a number"),
        (OPT_125M | {"word_embed_proj_dim": 512}, "word_embed_proj_dim = 512, but only 768 is modelled"),
        (
            QWEN3_30B_A3B | {"mlp_only_layers": [3]},
            "mlp_only_layers = .3., but only experts in every n-th layer behind leading dense layers",
        ),
        (DEEPSEEK_V3 | {"moe_layer_freq": 2}, "moe_layer_freq = 2, but only experts in every n-th"),
        (MIXTRAL_8X7B | {"num_experts_per_tok": 9}, "top_k = 9, but there are only n_experts = 8"),
    ],
)
def test_a_broken_configuration_names_the_key_and_the_remedy(config: dict, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        transformer_from_hf(config)


@settings(max_examples=100)
@given(
    st.sampled_from([LLAMA_2_7B, MIXTRAL_8X7B, DEEPSEEK_V3, MPT_7B, OPT_125M, QWEN3_30B_A3B]),
    st.data(),
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 10**6), st.floats(), st.text(max_size=3), st.lists(st.integers())
    ),
)
def test_any_value_of_any_key_gives_a_spec_or_an_error_for_the_user(
    config: dict, data: st.DataObject, value: object
) -> None:
    key = data.draw(st.sampled_from(sorted(config)))
    with contextlib.suppress(PrismError):
        assert transformer_from_hf(config | {key: value}).token_flops(1).total > 0


def test_the_language_model_of_a_multimodal_configuration_is_found() -> None:
    spec = transformer_from_hf({"model_type": "llava", "text_config": LLAMA_2_7B}, name="llava")
    assert spec.n_params() == 6_738_415_616


def test_a_file_or_its_directory_is_read_and_named_after_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-2-7b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_2_7B))
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
    path.write_text(json.dumps(LLAMA_2_7B))
    plain = read_hf_config(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_hf_config(path) == plain


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read: No such file or directory. Give the path"):
        read_hf_config(tmp_path)


def test_a_bad_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(LLAMA_2_7B | {"vocab_size": 0}))
    with pytest.raises(SpecError, match=r"mine\.json: .*vocab = 0"):
        read_hf_config(file)


# --- Other kinds -----------------------------------------------------------------------------------------------------
# Configurations of encoders, encoder-decoders and vision transformers describe the presets of the same models.


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
