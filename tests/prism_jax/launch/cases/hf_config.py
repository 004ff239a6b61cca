"""`config.json` of Hugging Face alone: the model; the rest is given."""

from collections.abc import Mapping
from typing import Any

from .accelerate import CONFIG
from .case import Case

FILE, PLAN = "config.json", ["plan.seq_len=1024", "plan.micro_batch=2", "plan.global_batch=64", "plan.dp=8"]
QWEN = """{"architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu", "hidden_size": 3584, "intermediate_size": 18944,
 "max_position_embeddings": 131072, "max_window_layers": 28, "model_type": "qwen2", "num_attention_heads": 28,
 "num_hidden_layers": 28,
 "num_key_value_heads": 4, "sliding_window": 131072, "tie_word_embeddings": false, "use_sliding_window": false,
 "vocab_size": 152064}
"""
GPT2 = """{"activation_function": "gelu_new", "architectures": ["GPT2LMHeadModel"], "model_type": "gpt2",
 "n_ctx": 1024, "n_embd": 1280,
 "n_head": 20, "n_layer": 36, "n_positions": 1024, "vocab_size": 50257}
"""
MIXTRAL = """{"architectures": ["MixtralForCausalLM"], "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336,
 "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32, "num_experts_per_tok": 2,
 "num_hidden_layers": 32,
 "num_key_value_heads": 8, "num_local_experts": 8, "vocab_size": 32000}
"""
QWEN_MOE = """{"model_type": "qwen3_moe", "head_dim": 128, "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 6144,
 "decoder_sparse_step": 1, "mlp_only_layers": [], "moe_intermediate_size": 768, "norm_topk_prob": true,
 "num_attention_heads": 32,
 "num_experts": 128, "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "vocab_size": 151936,
 "max_position_embeddings": 40960, "tie_word_embeddings": false}
"""
LATENT = """{"model_type": "deepseek_v3", "first_k_dense_replace": 3, "hidden_act": "silu", "hidden_size": 7168,
 "intermediate_size": 18432,
 "kv_lora_rank": 512, "moe_intermediate_size": 2048, "moe_layer_freq": 1, "n_group": 8, "n_routed_experts": 256,
 "n_shared_experts": 1,
 "num_attention_heads": 128, "num_experts_per_tok": 8, "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536,
 "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128, "vocab_size": 129280, "max_position_embeddings": 163840,
 "num_nextn_predict_layers": 0, "tie_word_embeddings": false}
"""
VISION = """{"model_type": "gemma3", "architectures": ["Gemma3ForConditionalGeneration"], "vision_config": {"hidden_size": 1152,
 "num_hidden_layers": 27}, "text_config": {"model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504,
 "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "head_dim": 128, "sliding_window": 1024,
 "sliding_window_pattern": 6, "vocab_size": 262208, "max_position_embeddings": 131072}}
"""
LLAMA = {"layers": 22, "hidden": 2048, "ffn": 5632, "heads": 32, "kv": 4, "vocab": 32000}


def _case(name: str, text: str, expected: Mapping[str, Any], **rest: Any) -> Case:
    rest = {"options": {"n_devices": 8, "overrides": PLAN}} | rest
    return Case(name, text, expected, FILE, **rest)


CASES = [
    _case("llama", CONFIG, LLAMA),
    _case(
        "all heads",
        CONFIG.replace('"num_key_value_heads": 4,\n', "").replace(' "num_key_value_heads": 4,', ""),
        LLAMA | {"kv": 32},
    ),
    _case("of other sizes", CONFIG.replace("22", "30").replace("5632", "8192"), LLAMA | {"layers": 30, "ffn": 8192}),
    _case("mistral", CONFIG.replace('"llama"', '"mistral"'), LLAMA),
    _case(
        "tied",
        CONFIG.replace('"tie_word_embeddings": false', '"tie_word_embeddings": true'),
        LLAMA | {"model.tied_embeddings": True},
    ),
    _case(
        "heads of their own width",
        CONFIG.replace('"hidden_act"', '"head_dim": 128, "hidden_act"'),
        LLAMA | {"model.head_dim": 128},
    ),
    _case(
        "qwen2",
        QWEN,
        {"layers": 28, "hidden": 3584, "ffn": 18944, "heads": 28, "kv": 4, "vocab": 152064, "model.qkv_bias": True},
    ),
    _case("gpt2", GPT2, {"layers": 36, "hidden": 1280, "ffn": 5120, "heads": 20, "kv": 20, "vocab": 50257}),
    _case("mixtral", MIXTRAL, {"layers": 32, "experts": 8, "top_k": 2, "kv": 8, "model.moe.ffn_hidden": 14336}),
    _case(
        "qwen3 moe",
        QWEN_MOE,
        {"layers": 48, "experts": 128, "top_k": 8, "model.moe.ffn_hidden": 768, "heads": 32, "kv": 4},
    ),
    _case(
        "latent attention",
        LATENT,
        {"layers": 61, "experts": 256, "top_k": 8, "model.mla.kv_lora_rank": 512, "model.moe.n_dense_first": 3},
    ),
    _case(
        "language model of several towers",
        VISION,
        {"layers": 62, "hidden": 5376, "heads": 32, "kv": 16, "model.window.size": 1024},
    ),
    _case(
        "the rest is asked for", CONFIG, {}, options={}, refused=r"plan\.seq_len, plan\.micro_batch, plan\.global_batch"
    ),
    _case("a model of another kind", CONFIG.replace('"llama"', '"mamba"'), {}, refused="state-space"),
]
