"""Properties that a configuration leaves out because the code of its model type fixes them: keys with defaults, and sizes.

One line per family, as Hugging Face transformers' `modeling_*.py` and `configuration_*.py` have it. A model type without a line
is read by its keys alone, and what is taken as usual is said (`TransformerSizes.assumed`).

Sources next to that code: Gemma 2 and 3 arXiv 2408.00118 table 1, 2503.19786 section 2; gpt-oss 2508.10925 section 2; GLM-4.5
2508.06471 table 1; OLMo 2 2501.00656 section 3; Nemotron-H 2504.03624.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple


class Unsaid(NamedTuple):
    """Defaults of the model types that match `kinds`.

    Attributes:
        kinds: regular expression over the whole `model_type`.
        keys: keys -> values where a configuration leaves them out.
        sizes: fields of `TransformerSizes` that no key decides.
    """

    kinds: str
    keys: Mapping[str, Any] = {}
    sizes: Mapping[str, Any] = {}


_GPT = {"norm": "layer", "gated": False}
_LEARNED = _GPT | {"position": "learned"}
_ALL_BIASES = {"attention_bias": True, "mlp_bias": True}
_GEMMA = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "tie_word_embeddings": True}
_ONE_NORM = {"n_norms": 1}  # attention and MLP side by side behind one norm

UNSAID = (
    Unsaid("llama|mistral|mixtral|ministral3?|phi3(small)?|smollm3|granite|seed_oss|arcee|internlm[23]?|baichuan|yi"),
    Unsaid("arcee", sizes={"gated": False}),
    Unsaid("mixtral", {"num_experts_per_tok": 2}),
    Unsaid("phimoe", {"attention_bias": True}, {"norm": "layer"}),
    Unsaid("granitemoe(shared)?|granitemoehybrid", {"tie_word_embeddings": True}),
    Unsaid("qwen", {"qkv_bias": True}, {"norm": "rms", "gated": True}),
    Unsaid("qwen2(_moe)?|qwen2_vl(_text)?|qwen2_5_vl(_text)?|qwen2_5_omni.*", {"qkv_bias": True}),
    Unsaid(
        "qwen3(_moe)?|qwen3_vl(_moe)?(_text)?|qwen3_omni.*|qwen3_next|qwen3_5(_moe)?(_text)?",
        {"use_qk_norm": True, "head_dim": 128},
    ),
    Unsaid("qwen3_next|qwen3_5.*", {"attention_output_gate": True, "head_dim": 256}),
    Unsaid("deepseek_v2|deepseek_v3|deepseek_v32|kimi_k2|deepseek|glm_moe_dsa|glm4_moe_lite"),
    Unsaid("deepseek_v3|deepseek_v32|kimi_k2|glm_moe_dsa|glm4_moe_lite", {"topk_method": "noaux_tc"}),
    Unsaid("gemma", {"head_dim": 256, "tie_word_embeddings": True}),
    Unsaid(
        "gemma2",
        {
            **_GEMMA,
            "vocab_size": 256000,
            "max_position_embeddings": 8192,
            "sliding_window": 4096,
            "sliding_window_pattern": 2,
        },
        {"n_norms": 4},
    ),
    Unsaid(
        "gemma3(_text)?",
        {
            **_GEMMA,
            "vocab_size": 262208,
            "max_position_embeddings": 131072,
            "sliding_window": 4096,
            "sliding_window_pattern": 6,
            "use_qk_norm": True,
        },
        {"n_norms": 4},
    ),
    Unsaid(
        "gpt_oss",
        {
            "num_experts": 128,
            "num_experts_per_tok": 4,
            "use_routing_bias": True,
            "attention_bias": True,
            "mlp_bias": True,
            "sliding_window": 128,
            "sliding_window_pattern": 2,
        },
        {"attention_sinks": True},
    ),
    Unsaid(
        "llama4(_text)?",
        {
            "num_experts_per_tok": 1,
            "n_shared_experts": 1,
            "intermediate_size_mlp": 16384,
            "use_qk_norm": True,
            "no_rope_layer_interval": 4,
            "attention_chunk_size": 8192,
        },
        {"qk_norm_weight": "none"},
    ),
    Unsaid("glm|glm4", {"attention_bias": True}, {"bias": False, "mlp_bias": False}),
    Unsaid("glm4", sizes={"n_norms": 4}),
    Unsaid("glm4_moe|glm4v_moe(_text)?", {"topk_method": "noaux_tc"}, {"bias": False, "mlp_bias": False}),
    Unsaid("chatglm", sizes={"norm": "rms", "gated": True}),
    Unsaid("olmo", sizes={"norm": "layer_no_bias", "gated": True}),
    Unsaid("olmo2|olmo3|olmoe|flex_olmo", {"use_qk_norm": True}, {"qk_norm_weight": "all"}),
    Unsaid("olmo3", {"sliding_window": 4096, "sliding_window_pattern": 4}),
    Unsaid("minimax_m2", {"use_qk_norm": True, "use_routing_bias": True, "qk_norm_type": "per_layer"}),
    Unsaid("exaone4", {"use_qk_norm": True}),
    Unsaid("exaone", sizes={"gated": True}),
    Unsaid("ernie4_5(_moe)?", {"tie_word_embeddings": True}),
    Unsaid("hunyuan_v1_(dense|moe)", {"use_qk_norm": True}),
    Unsaid("nemotron_h", {"topk_method": "noaux_tc"}, {"norm": "rms", "gated": False, "position": "none"}),
    Unsaid("bamba|minicpm3?|mimo.*|apertus|dots1|bailing_moe.*|solar|skywork|orion|aquila|xverse"),
    Unsaid("dots1", {"use_qk_norm": True, "topk_method": "noaux_tc"}),
    Unsaid("mimo.*", {"attention_bias": True}, {"bias": False, "mlp_bias": False}),
    Unsaid("apertus", {"use_qk_norm": True}, {"gated": False}),
    Unsaid("nemotron", sizes={"norm": "layer", "gated": False}),
    Unsaid("cohere2?", {"tie_word_embeddings": True}, {"norm": "layer_no_bias", "gated": True, **_ONE_NORM}),
    Unsaid("stablelm", sizes={"norm": "layer", "gated": True}),
    Unsaid("starcoder2", _ALL_BIASES | {"tie_word_embeddings": True}, _GPT),
    Unsaid("phi|phi-msft", _ALL_BIASES, _GPT | _ONE_NORM),
    Unsaid("dbrx", sizes={"norm": "layer_no_bias", "gated": True}),
    Unsaid(
        "falcon|refinedweb(model)?", {"tie_word_embeddings": True, "attention_bias": False, "mlp_bias": False}, _GPT
    ),
    Unsaid("gpt2|gpt_bigcode", _ALL_BIASES | {"tie_word_embeddings": True}, _LEARNED),
    Unsaid("bloom", _ALL_BIASES | {"tie_word_embeddings": True}, _GPT | {"position": "alibi"}),
    Unsaid("gpt_neox", {"attention_bias": True}, _GPT | {"mlp_bias": True}),
    Unsaid("gpt_neo", {"tie_word_embeddings": True}, _LEARNED | {"mlp_bias": True, "bias": True, "qkv_bias": False}),
    Unsaid("gptj|codegen", sizes=_GPT | _ONE_NORM | {"mlp_bias": True, "bias": False}),
    Unsaid("mpt", {"tie_word_embeddings": True}, {"gated": False}),
    Unsaid("llada.*", sizes={"causal": False}),
    Unsaid("[Dd]ream", {"qkv_bias": True}, {"causal": False}),
    Unsaid("opt", _ALL_BIASES | {"tie_word_embeddings": True}, _LEARNED),
)


def unsaid(kind: str) -> Unsaid | None:
    """Returns the defaults of model type `kind`, of which later lines override earlier ones; None: the type is unknown."""
    found = [one for one in UNSAID if re.fullmatch(one.kinds, kind)]
    if not found:
        return None
    keys = {key: value for one in found for key, value in one.keys.items()}
    sizes = {key: value for one in found for key, value in one.sizes.items()}
    return Unsaid(kind, keys, sizes)
