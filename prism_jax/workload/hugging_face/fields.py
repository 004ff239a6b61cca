"""Typed access to the keys of a Hugging Face configuration, under all spellings of them, and what goes without saying.

A key is asked for as Llama spells it; `SPELLINGS` lists what the same thing is called elsewhere (GPT-2 n_embd, MPT d_model,
Falcon n_head_kv, ChatGLM kv_channels, Meta's params.json dim). Errors name the key as the configuration spells it.

`UNSAID` has what a configuration leaves out because the code of its model type fixes it, one line per family, as Hugging Face
transformers' `modeling_*.py` and `configuration_*.py` have it. A model type without a line is read by its keys alone, and what
is taken as usual is said (`TransformerSizes.assumed`). Sources next to that code: Gemma 2 and 3 arXiv 2408.00118 table 1,
2503.19786 section 2; gpt-oss 2508.10925 section 2; GLM-4.5 2508.06471 table 1; OLMo 2 2501.00656 section 3; Nemotron-H
2504.03624.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, NoReturn

from ...core.errors import SpecError

REQUIRED = object()
_MAX_COUNT = 10**9  # the largest sizes in use, vocabularies, are below 10^6

SPELLINGS: dict[str, tuple[str, ...]] = {
    "num_hidden_layers": ("n_layer", "n_layers", "num_layers"),
    "hidden_size": ("n_embd", "d_model", "dim", "model_dim"),
    "num_attention_heads": ("n_head", "n_heads", "num_heads"),
    "num_key_value_heads": (
        *("num_kv_heads", "n_kv_heads", "n_head_kv", "kv_n_heads"),
        *("num_query_groups", "multi_query_group_num"),
    ),
    "head_dim": ("attention_head_dim", "kv_channels", "d_kv", "head_size", "d_head"),
    "intermediate_size": (
        "ffn_hidden_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden", "inner_hidden_size", "mlp_hidden_size",
        "hidden_dim",
    ),
    "vocab_size": ("padded_vocab_size", "n_vocab"),
    "max_position_embeddings": (
        *("n_positions", "max_seq_len", "max_sequence_length", "seq_length", "max_seq_length", "n_ctx"),
        "model_max_length",
    ),
    "num_experts": (
        *("num_local_experts", "n_routed_experts", "moe_num_experts", "num_moe_experts", "n_experts"),
        "num_routed_experts",
    ),
    "num_experts_per_tok": (
        *("num_experts_per_token", "experts_per_token", "moe_topk", "moe_top_k", "moe_k", "top_k_experts"),
        *("n_activated_experts", "num_selected_experts"),
    ),
    "moe_intermediate_size": (
        *("expert_ffn_hidden_size", "moe_ffn_hidden_size", "expert_intermediate_size", "expert_hidden_dim"),
        "moe_inter_dim",
    ),
    "n_shared_experts": ("num_shared_experts", "num_shared_expert", "moe_num_shared_experts"),
    "shared_expert_intermediate_size": ("moe_shared_expert_intermediate_size", "shared_intermediate_size"),
    "first_k_dense_replace": ("num_dense_layers", "n_dense_layers", "moe_layer_start_index"),
    "decoder_sparse_step": ("interleave_moe_layer_step", "moe_layer_interval", "moe_every_n_layers"),
    "tie_word_embeddings": ("weight_tying", "tie_embeddings"),
    "use_qk_norm": ("qk_layernorm", "qk_norm", "use_qk_layernorm", "qk_layer_norm"),
    "qkv_bias": ("use_qkv_bias", "add_qkv_bias", "attention_qkv_bias"),
    "attention_bias": ("use_attention_bias", "attention_out_bias", "use_bias", "bias", "add_bias_linear"),
    "mlp_bias": ("use_mlp_bias", "use_bias", "bias", "add_bias_linear"),
    "attention_output_gate": ("attn_output_gate", "use_output_gate"),
    "hidden_act": ("hidden_activation", "activation_function", "mlp_hidden_act", "activation", "act_fn"),
    "sliding_window": ("sliding_window_size",),
    "sliding_window_pattern": ("_sliding_window_pattern",),
    "layer_types": ("layers_block_type", "block_types"),
    "mamba_num_heads": ("mamba_n_heads",),
    "mamba_head_dim": ("mamba_d_head",),
    "mamba_n_groups": ("n_groups",),
    "ssm_state_size": ("mamba_d_state", "state_size"),
    "conv_kernel": ("mamba_d_conv",),
    "mamba_chunk_size": ("chunk_size",),
}  # fmt: skip
"""Key as Llama (or the model that had it first) spells it -> its names elsewhere."""


@dataclass(frozen=True)
class Fields:
    """Keys of one configuration object.

    Attributes:
        kind: its model type, for error messages.
        config: the object; null counts as absent.
        read: keys that were asked for.
    """

    kind: str
    config: Mapping[str, Any]
    read: set[str] = field(default_factory=set, compare=False)

    def fail(self, key: str, value: object, constraint: str) -> NoReturn:
        """Refuses `value` of `key`.

        Raises:
            SpecError: always; says what holds instead.
        """
        raise SpecError(f"{self.kind} config: {self.spelled(key)} = {_short(value)}, but {constraint}")

    def spelled(self, key: str) -> str:
        """Returns the configuration's spelling of `key`; `key` itself where it has none."""
        names = (key, *SPELLINGS.get(key, ()))
        return next((name for name in names if self.config.get(name) is not None), key)

    def has(self, *keys: str) -> bool:
        """Whether any of `keys` is there and not null; none counts as read."""
        return any(self.config.get(self.spelled(key)) is not None for key in keys)

    def get(self, key: str, default: Any = REQUIRED) -> Any:
        """The value of `key` under any of its spellings, or `default` when it is absent or null."""
        self.read.update((key, *SPELLINGS.get(key, ())))
        value = self.config.get(self.spelled(key))
        if value is not None:
            return value
        if default is REQUIRED:
            others = SPELLINGS.get(key, ())
            also = f" (also read: {', '.join(others)})" if others else ""
            raise SpecError(f"{self.kind} config: key {key} is missing{also}. Add it to the config.json.")
        return default

    def count(self, key: str, default: Any = REQUIRED) -> int:
        """A whole number, at least 0 (what must be positive is checked by TransformerSpec); empty values count as absent."""
        value = self.get(key, default)
        if default is not REQUIRED and value in (False, "", [], {}):
            value = default
        if isinstance(value, list) and value and all(one == value[0] for one in value):
            value = value[0]  # the same for every layer
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= _MAX_COUNT:
            self.fail(key, value, f"it must be a whole number from 0 to {_MAX_COUNT}, the same for all layers")
        return value

    def counts(self, **keys: str | tuple[str, int]) -> dict[str, int]:
        """Whole numbers by field: of a key that must be there, or of (key, default)."""
        return {name: self.count(key) if isinstance(key, str) else self.count(*key) for name, key in keys.items()}

    def number(self, key: str, default: Any = REQUIRED) -> float:
        """Returns a positive number."""
        value = self.get(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= _MAX_COUNT:
            self.fail(key, value, f"it must be a number greater than 0 and at most {_MAX_COUNT}")
        return value

    def flag(self, key: str, default: Any = REQUIRED) -> bool:
        """Returns true or false."""
        value = self.get(key, default)
        if not isinstance(value, bool):
            self.fail(key, value, "it must be true or false")
        return value

    def items(self, key: str) -> list[Any]:
        """A list; absent or null is an empty one."""
        value = self.get(key, default=[])
        if not isinstance(value, list):
            self.fail(key, value, "it must be a list")
        return value

    def require(self, key: str, only: object, default: Any = REQUIRED) -> None:
        """Refuses all values of `key` but one."""
        value = self.get(key, default)
        if value != only:
            self.fail(key, value, f"only {only!r} is modelled")


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."


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
