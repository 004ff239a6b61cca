"""Configurations of models give the published counts and layers, or are refused by the name of what is missing."""

import contextlib
import gzip
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given, settings, strategies as st

from prism_jax.core.errors import DataError, PrismError, SpecError
from prism_jax.workload.base.workload import distinct_runs
from prism_jax.workload.catalog import model, workload
from prism_jax.workload.hugging_face.config import ARCHITECTURES, MAX_CONFIG_BYTES, model_from_hf, read_hf_config
from prism_jax.workload.transformer.mixers import WindowSpec
from prism_jax.workload.transformer.spec import TransformerSpec
from tests.support.published_configs import LLAMA_4, MISTRAL, PUBLISHED, REFUSED

LLAMA = PUBLISHED["llama-3.1-8b"].config


def transformer(config: dict[str, Any], name: str | None = None) -> TransformerSpec:
    return cast("TransformerSpec", model_from_hf(config, name))


def read(name: str, **changes: Any) -> TransformerSpec:
    return transformer(PUBLISHED[name].config | changes, name)


def kinds(name: str) -> dict[str, int]:
    return {run.kind: run.count for run in distinct_runs(read(name)) if run.place == "body"}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_model_has_the_published_count(name: str) -> None:
    published = PUBLISHED[name]
    assert published.share <= 0.01
    assert read(name).n_params() == pytest.approx(published.n_params, rel=published.share, abs=0)


@pytest.mark.parametrize(("name", "checkpoint"), [("glm-4.5", 358_337_791_296), ("glm-4.5-air", 110_468_824_832)])
def test_glm_checkpoints_hold_a_prediction_module_with_copies_of_embedding_and_head(name: str, checkpoint: int) -> None:
    spec = read(name)
    assert spec.n_params() + spec.mtp_params() + 2 * spec.vocab * spec.hidden == checkpoint  # HF safetensors


@pytest.mark.parametrize(
    ("name", "published", "tolerance"),
    [
        ("llama-4-scout", 17e9, 0.3e9),  # model card
        ("llama-4-maverick", 17e9, 0.3e9),
        ("kimi-k2", 32.6e9, 0.4e9),  # arXiv 2507.20534 table 2
        ("glm-4.5", 32e9, 2e9),  # arXiv 2508.06471 table 1: 32B; with embedding and head 33.6B
        ("minimax-m2", 10e9, 1.1e9),  # model card: 10B; with embedding and head 11.0B
    ],
)
def test_active_parameters_are_the_published_ones(name: str, published: float, tolerance: float) -> None:
    assert read(name).n_params_active() == pytest.approx(published, abs=tolerance)


def test_active_parameters_of_gpt_oss_leave_the_embedding_out() -> None:
    for name, published in (("gpt-oss-120b", 5.13e9), ("gpt-oss-20b", 3.61e9)):  # arXiv 2508.10925 table 1
        spec = read(name)
        assert spec.n_params_active() - spec.embedding_params() == pytest.approx(published, abs=0.01e9)


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt-oss-120b", "gemma-2-27b", "gemma-3-27b", "llama-4-scout"])
@pytest.mark.parametrize("seq_len", [512, 16384])
def test_a_configuration_describes_the_preset_of_the_same_model(name: str, seq_len: int) -> None:
    ours, preset = read(name), model(name)
    assert ours.token_flops(seq_len) == preset.token_flops(seq_len)
    assert (ours.n_params(), ours.layout, ours.window) == (preset.n_params(), preset.layout, preset.window)


@pytest.mark.parametrize("name", ["llama-4-maverick", "glm-4.5", "glm-4.5-air", "kimi-k2", "deepseek-v3", "mistral-7b"])
def test_so_does_that_of_a_model_with_experts(name: str) -> None:
    ours, preset = read(name), model(name)
    assert ours.n_params() == preset.n_params()
    assert (ours.layout, ours.moe, ours.mla) == (preset.layout, preset.moe, preset.mla)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("mistral-7b", {"sliding_dense_layer": 32}),
        ("mistral-small-24b", {"dense_layer": 40}),
        ("gemma-2-9b", {"sliding_dense_layer": 21, "dense_layer": 21}),
        ("gemma-3-27b", {"sliding_dense_layer": 52, "dense_layer": 10}),
        ("gemma-3-4b", {"sliding_dense_layer": 29, "dense_layer": 5}),
        ("gpt-oss-120b", {"sliding_moe_layer": 18, "moe_layer": 18}),
        ("llama-4-scout", {"chunked_moe_layer": 36, "moe_layer": 12}),
        ("llama-4-maverick", {"chunked_dense_layer": 24, "chunked_moe_layer": 12, "moe_layer": 12}),
        ("glm-4.5", {"dense_layer": 3, "moe_layer": 89}),
        ("kimi-k2", {"dense_layer": 1, "moe_layer": 60}),
        ("qwen2.5-7b", {"dense_layer": 28}),
        ("minimax-m2", {"moe_layer": 62}),
        ("olmo-3-7b", {"sliding_dense_layer": 24, "dense_layer": 8}),
        ("qwen3-next-80b", {"gated_linear_moe_layer": 36, "moe_layer": 12}),
        ("nemotron-h-8b", {"mamba2_dense_layer": 20, "mamba2_lone_layer": 4, "dense_layer": 4}),
        ("nemotron-3-nano-30b", {"mamba2_moe_layer": 17, "mamba2_lone_layer": 6, "moe_layer": 6}),
        ("bamba-9b", {"mamba2_dense_layer": 29, "dense_layer": 3}),
        ("granite-4-tiny", {"mamba2_moe_layer": 36, "moe_layer": 4}),
        ("deepseek-v3.2", {"sliding_dense_layer": 3, "sliding_moe_layer": 58}),
        ("ernie-4.5-21b", {"dense_layer": 1, "moe_layer": 27}),
    ],
)
def test_layers_are_of_the_kinds_that_the_model_has(name: str, expected: dict[str, int]) -> None:
    assert kinds(name) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_modelled_is_refused_by_its_name(name: str) -> None:
    config, missing = REFUSED[name]
    with pytest.raises(SpecError, match=missing):
        transformer(config)


def test_an_unknown_model_type_says_what_was_assumed_and_a_known_one_does_not() -> None:
    assert "a gated MLP (three matrices)" in read("a decoder of a name that nobody knows").assumed
    assert {name for name in PUBLISHED if read(name).assumed} == {
        "a decoder of a name that nobody knows",
        "params.json of llama-3-70b",
        "params.json of mistral-7b",
    }


def test_a_sparse_attention_sees_as_many_keys_as_it_picks() -> None:
    spec = read("deepseek-v3.2")
    assert spec.left_out == ("the indexer of its sparse attention",)
    assert spec.window == WindowSpec(2048)
    dense = read("deepseek-v3")
    assert spec.token_flops(2048).scores == dense.token_flops(2048).scores
    n_picking = 32768 - 2048  # queries that see more keys than that
    pairs = 2048 * 2049 / 2 + n_picking * 2048
    assert spec.token_flops(32768).scores == pytest.approx(
        dense.token_flops(32768).scores * pairs / (32768 * 32769 / 2), rel=1e-9
    )


def test_active_parameters_of_experts_in_a_narrower_space_are_the_published_ones() -> None:
    assert read("nemotron-3-super-120b").n_params_active() == pytest.approx(12.7e9, rel=0.01)  # model card
    spec = read("nemotron-3-nano-30b")
    assert spec.n_params_active() - spec.embedding_params() == pytest.approx(3.2e9, rel=0.01)  # model card: 3.2B


CASES = Path(__file__).parents[4].parent / "shared" / "data" / "cases" / "hf" / "configs.jsonl.gz"


@pytest.mark.skipif(not CASES.exists(), reason="shared configurations are not here")
def test_configurations_of_published_models_open_and_have_the_parameters_of_their_names() -> None:
    n_open = 0
    rows = [json.loads(line) for line in gzip.decompress(CASES.read_bytes()).splitlines()]
    for row in rows:
        with contextlib.suppress(SpecError):
            n_params = transformer(row["config"]).n_params()
            n_open += 1
            stated = re.search(r"-(\d+(?:\.\d+)?)B(?:-|_)(?!\d+E)", row["file"])  # Llama 4 is named by its active ones
            if stated:
                assert n_params == pytest.approx(float(stated[1]) * 1e9, rel=0.3), row["file"]
    assert n_open >= 0.89 * len(rows)


@pytest.mark.parametrize(
    ("name", "parts"),
    [
        ("gemma-3-27b", ("the vision tower",)),
        ("qwen2.5-vl-7b", ("the vision tower",)),
        ("qwen3-omni's language model", ("the audio encoder",)),
        ("llama-3.1-8b", ()),
    ],
)
def test_parts_that_are_left_out_are_named(name: str, parts: tuple[str, ...]) -> None:
    assert read(name).left_out == parts


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("compress_ratios", [4, 128], "attention to compressed keys"),
        ("full_attention_interval", 4, "linear attention"),
        ("mamba_d_state", 128, "Mamba layers"),
        ("is_encoder_decoder", True, "an encoder"),
        ("num_kv_shared_layers", 4, "layers that share their keys"),
    ],
)
def test_a_key_that_changes_the_layers_and_is_not_read_is_refused_by_name(key: str, value: object, what: str) -> None:
    with pytest.raises(SpecError, match=rf"llama config: {key} = .*but {what} is not modelled"):
        transformer(LLAMA | {key: value})


@pytest.mark.parametrize("value", [None, False, 0, [], {}])
def test_a_key_with_a_value_that_changes_nothing_passes(value: object) -> None:
    read("llama-3.1-8b", index_topk=value, linear_num_value_heads=value, first_k_dense_replace=value)


def test_keys_that_decide_no_sizes_pass() -> None:
    spec = read("llama-3.1-8b", rope_scaling={"rope_type": "llama3"}, head_dtype="bf16", chat=3)
    assert spec.n_params() == 8_030_261_248


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (MISTRAL | {"layer_types": ["conv"] * 32}, "'conv' is not modelled"),
        (MISTRAL | {"layer_types": ["linear_attention"] * 32}, "key linear_num_value_heads is missing"),
        (MISTRAL | {"num_experts": 8}, "key num_experts_per_tok is missing .also read: .*moe_topk"),
        (MISTRAL | {"kv_lora_rank": 512}, "key qk_nope_head_dim is missing"),
        (MISTRAL | {"layer_types": ["mlp"] * 32}, "mlp without attention or Mamba in front of it is not modelled"),
        (MISTRAL | {"layer_types": ["full_attention"]}, "it names 1 layers, and num_hidden_layers is another number"),
        (
            LLAMA_4 | {"num_local_experts": 16, "moe_layers": [0, 5]},
            "moe_layers = .*only experts in every n-th layer behind leading dense layers",
        ),
        (PUBLISHED["minimax-m2"].config | {"attn_type_list": [0, 1]}, "lightning attention in some layers"),
    ],
)
def test_what_cannot_be_read_says_why(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        transformer(config)


_FUZZED = "nemotron-3-nano-30b qwen3-next-80b dbrx gpt-oss-20b gemma-2-9b glm-4.5 qwen2.5-7b olmo-3-7b mpt-7b opt-125m"
_PATTERNS = ("_sliding_window_pattern", "layer_types", "no_rope_layer_interval", "moe_layers", "max_window_layers")


@settings(max_examples=150)
@given(
    st.sampled_from(
        [*(PUBLISHED[name].config for name in _FUZZED.split()), LLAMA_4, PUBLISHED["gemma-3-4b"].config["text_config"]]
    ),
    st.data(),
    st.one_of(
        st.none(), st.booleans(), st.integers(-2, 10**9), st.floats(), st.text(max_size=3), st.lists(st.integers(0, 3))
    ),
)
def test_any_value_of_any_key_gives_a_spec_or_an_error_for_the_user(
    config: dict[str, Any], data: st.DataObject, value: object
) -> None:
    key = data.draw(st.sampled_from(sorted({*config, *_PATTERNS})))
    with contextlib.suppress(PrismError):
        spec = transformer(config | {"num_local_experts": 8, "use_sliding_window": True, key: value})
        assert spec.layout
        assert spec.token_flops(1).total > 0


def test_windows_of_qwen_begin_at_a_layer_and_only_if_they_are_switched_on() -> None:
    on = {"use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20}
    assert read("qwen2.5-7b", **on).window == WindowSpec(4096, ("full",) * 20 + ("sliding",) * 8)
    assert read("qwen2.5-7b", **on | {"use_sliding_window": False}).window is None


def test_layer_types_say_more_than_the_pattern_of_the_architecture() -> None:
    types = ["full_attention", "sliding_attention"] * 12
    assert read("gpt-oss-20b", layer_types=types).window == WindowSpec(128, ("full", "sliding"))
    assert read("gpt-oss-20b", layer_types=["full_attention"] * 24).window is None


def test_the_page_on_models_names_every_architecture_and_every_field() -> None:
    page = (Path(__file__).parents[4] / "docs" / "models.md").read_text(encoding="utf-8")
    table = page.split("## Hugging Face configs")[1]
    assert {name for name in ARCHITECTURES.names if not re.search(rf"\b{name}\b", table)} == set()
    written = [item.name for item in fields(TransformerSpec) if item.name not in ("name", "source")]
    assert {name for name in written if not re.search(rf"\b{name}\b", page)} == set()


# --- Fields, defaults, files, and other kinds of model ---------------------------------------------------------------


LLAMA_2 = PUBLISHED["llama-2-7b"].config
MIXTRAL, QWEN, DEEPSEEK, MPT, OPT = (
    PUBLISHED[name].config for name in ("mixtral-8x7b", "qwen3-30b-a3b", "deepseek-v3", "mpt-7b", "opt-125m")
)


def test_so_do_those_of_decoders_of_other_families() -> None:
    def sizes(spec: TransformerSpec) -> tuple:
        return spec.token_flops(4096), spec.n_params(), spec.mtp_params(), spec.kv_dim

    for config, name in ((LLAMA_2, "llama-2-7b"), (QWEN, "qwen3-30b-a3b"), (DEEPSEEK, "deepseek-v3")):
        assert sizes(transformer(config)) == sizes(model(name))


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "model_type is missing, and so are hidden_size and num_attention_heads"),
        ({"model_type": "lama"}, "lama config: key hidden_size is missing .also read: n_embd, d_model"),
        ({"model_type": ["llama"]}, "model_type is missing"),
        ({k: v for k, v in LLAMA_2.items() if k != "hidden_size"}, "llama config: key hidden_size is missing"),
        (LLAMA_2 | {"hidden_size": None}, "key hidden_size is missing"),
        (LLAMA_2 | {"hidden_size": "4096"}, "hidden_size = '4096', but it must be a whole number"),
        (LLAMA_2 | {"hidden_size": -1}, "hidden_size = -1, but it must be a whole number from 0"),
        (LLAMA_2 | {"num_attention_heads": 0}, "n_heads = 0, but it must be at least 1"),
        (LLAMA_2 | {"mlp_bias": 1}, "mlp_bias = 1, but it must be true or false"),
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
        transformer(config)


def test_the_language_model_of_a_multimodal_configuration_is_found() -> None:
    spec = transformer({"model_type": "llava", "text_config": LLAMA_2}, name="llava")
    assert spec.n_params() == 6_738_415_616


def test_a_file_or_its_directory_is_read_and_named_after_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "Llama-2-7b"
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA_2))
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
    path.write_text(json.dumps(LLAMA_2))
    plain = read_hf_config(path)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert read_hf_config(path) == plain


def test_a_missing_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot be read: No such file or directory. Give the path"):
        read_hf_config(tmp_path)


def test_a_bad_key_in_a_file_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.json"
    file.write_text(json.dumps(LLAMA_2 | {"vocab_size": 0}))
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
