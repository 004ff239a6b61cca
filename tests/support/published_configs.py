"""Facts of published `config.json` files, and the parameter counts that their authors print.

Keys that decide neither layers nor parameters are left out, except a few that must pass unread. A count is of the language model;
`share` is how far the computed one may be away.
"""

from typing import Any, NamedTuple


class Published(NamedTuple):
    """A configuration and what it must give.

    Attributes:
        config: keys of the `config.json`.
        n_params: as published.
        source: of the count.
        share: tolerated deviation.
    """

    config: dict[str, Any]
    n_params: float
    source: str
    share: float = 0.0


def _sizes(kind: str, layers: int, hidden: int, heads: int, kv_heads: int, ffn: int, vocab: int, **more: Any) -> dict:
    return {
        "model_type": kind,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "rope_theta": 10000.0,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        **more,
    }


def _alternating(n: int, every: int, other: str = "sliding_attention") -> list[str]:
    return ["full_attention" if (layer + 1) % every == 0 else other for layer in range(n)]


UNTIED = {"tie_word_embeddings": False}
MISTRAL = _sizes("mistral", 32, 4096, 32, 8, 14336, 32000, sliding_window=4096, max_position_embeddings=32768, **UNTIED)
GPT_OSS = {"attention_bias": True, "head_dim": 64, "num_experts_per_tok": 4, "experts_per_token": 4,
    "sliding_window": 128, "initial_context_length": 4096,
    "quantization_config": {"quant_method": "mxfp4"}, **UNTIED}  # fmt: skip
GLM = {"head_dim": 128, "attention_bias": True, "partial_rotary_factor": 0.5, "n_shared_experts": 1,
    "num_experts_per_tok": 8, "n_group": 1, "num_nextn_predict_layers": 1, "max_position_embeddings": 131072,
    **UNTIED}  # fmt: skip
GEMMA_2 = {"sliding_window": 4096, "sliding_window_size": 4096, "attn_logit_softcapping": 50.0,
    "cache_implementation": "hybrid"}  # fmt: skip
LLAMA_4 = _sizes("llama4_text", 48, 5120, 40, 8, 8192, 202048, intermediate_size_mlp=16384, head_dim=128,
    num_experts_per_tok=1, attention_chunk_size=8192, attention_bias=False, no_rope_layers=[],
    max_position_embeddings=1048576, **UNTIED)  # fmt: skip
LLAMA_4_VISION = 871_932_416  # parameters of the vision tower and its projector, the same in both models
VISION = {"hidden_size": 1408, "num_hidden_layers": 34, "model_type": "llama4_vision_model"}
DEEPSEEK = {"q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "n_shared_experts": 1, "num_experts_per_tok": 8, "moe_intermediate_size": 2048,
    "moe_layer_freq": 1, "ep_size": 1, "topk_method": "noaux_tc", **UNTIED}  # fmt: skip
QWEN_3 = {"head_dim": 128, "use_sliding_window": False, "sliding_window": None, "max_window_layers": 48,
    "attention_bias": False}  # fmt: skip

PUBLISHED = {
    "gpt-oss-20b": Published(_sizes("gpt_oss", 24, 2880, 64, 8, 2880, 201088, num_local_experts=32,
        layer_types=_alternating(24, 2), **GPT_OSS), 20.91e9, "arXiv 2508.10925 table 1", 0.0005),
    "gpt-oss-120b": Published(_sizes("gpt_oss", 36, 2880, 64, 8, 2880, 201088, num_local_experts=128,
        layer_types=_alternating(36, 2), **GPT_OSS), 116.83e9, "arXiv 2508.10925 table 1", 0.0001),
    "glm-4.5": Published(_sizes("glm4_moe", 92, 5120, 96, 8, 12288, 151552, n_routed_experts=160,
        moe_intermediate_size=1536, first_k_dense_replace=3, use_qk_norm=True, **GLM), 355e9,
        "arXiv 2508.06471 table 1", 0.01),
    "glm-4.5-air": Published(_sizes("glm4_moe", 46, 4096, 96, 8, 10944, 151552, n_routed_experts=128,
        moe_intermediate_size=1408, first_k_dense_replace=1, use_qk_norm=False, **GLM), 106e9,
        "arXiv 2508.06471 table 1", 0.01),
    "gemma-2-9b": Published(_sizes("gemma2", 42, 3584, 16, 8, 14336, 256000, head_dim=256, **GEMMA_2), 9_241_705_984,
        "HF safetensors"),
    "gemma-2-27b": Published(_sizes("gemma2", 46, 4608, 32, 16, 36864, 256000, head_dim=128, **GEMMA_2), 27_227_128_320,
        "HF safetensors"),
    "gemma-3-27b": Published({"model_type": "gemma3", "text_config": _sizes("gemma3_text", 62, 5376, 32, 16, 21504,
        262208, head_dim=128, sliding_window=1024), "vision_config": {"hidden_size": 1152,
        "model_type": "siglip_vision_model"}}, 1.416e9 + 25.600e9,
        "arXiv 2503.19786 table 1, without the vision encoder", 0.001),
    "gemma-3-4b": Published({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "intermediate_size": 10240,
        "model_type": "gemma3_text", "num_hidden_layers": 34, "sliding_window": 1024},
        "vision_config": {"hidden_size": 1152, "model_type": "siglip_vision_model"}}, 675e6 + 3.209e9,
        "arXiv 2503.19786 table 1, without the vision encoder", 0.002),
    "llama-4-scout": Published({"model_type": "llama4", "text_config": LLAMA_4 | {"num_local_experts": 16,
        "interleave_moe_layer_step": 1, "use_qk_norm": True}, "vision_config": VISION},
        108_641_793_536 - LLAMA_4_VISION, "HF safetensors (model card: 109B)"),
    "llama-4-maverick": Published({"model_type": "llama4", "text_config": LLAMA_4 | {"num_local_experts": 128,
        "interleave_moe_layer_step": 2, "use_qk_norm": False}, "vision_config": VISION},
        401_583_781_376 - LLAMA_4_VISION, "HF safetensors (model card: 400B)"),
    "kimi-k2": Published(_sizes("kimi_k2", 61, 7168, 64, 64, 18432, 163840, n_routed_experts=384,
        first_k_dense_replace=1, num_nextn_predict_layers=0, **DEEPSEEK), 1_026_470_731_056,
        "HF safetensors, with the scales of its fp8 weights (arXiv 2507.20534 prints 1.04T)", 0.0001),
    "deepseek-v3": Published(_sizes("deepseek_v3", 61, 7168, 128, 128, 18432, 129280, n_routed_experts=256,
        first_k_dense_replace=3, num_nextn_predict_layers=1, **DEEPSEEK), 671e9, "README_WEIGHTS.md", 0.001),
    "phi-4": Published(_sizes("phi3", 40, 5120, 40, 10, 17920, 100352, sliding_window=None, attention_bias=False,
        **UNTIED), 14_659_507_200, "HF safetensors"),
    "phi-3-mini": Published(_sizes("phi3", 32, 3072, 32, 32, 8192, 32064, sliding_window=2047, attention_bias=False,
        **UNTIED), 3_821_079_552, "HF safetensors"),
    "olmo-2-7b": Published(_sizes("olmo2", 32, 4096, 32, 32, 11008, 100352, attention_bias=False, **UNTIED),
        7_298_617_344, "HF safetensors"),
    "olmo-2-32b": Published(_sizes("olmo2", 64, 5120, 40, 8, 27648, 100352, attention_bias=False, **UNTIED),
        32_234_279_936, "HF safetensors"),
    "olmo-3-7b": Published(_sizes("olmo3", 32, 4096, 32, 32, 11008, 100278, sliding_window=4096,
        layer_types=_alternating(32, 4), **UNTIED), 7_298_011_136, "HF safetensors"),
    "minimax-m2": Published(_sizes("minimax_m2", 62, 3072, 48, 8, 1536, 200064, head_dim=128, num_local_experts=256,
        num_experts_per_tok=8, attn_type_list=[1] * 62, use_qk_norm=True, qk_norm_type="per_layer",
        use_routing_bias=True, rotary_dim=64, shared_intermediate_size=0, use_mtp=True, num_mtp_modules=3,
        mtp_transformer_layers=1, **UNTIED), 230e9, "model card", 0.01),
    "mistral-7b": Published(MISTRAL, 7_241_732_096, "HF safetensors"),
    "mixtral-8x7b": Published(MISTRAL | {"model_type": "mixtral", "sliding_window": None, "num_local_experts": 8,
        "num_experts_per_tok": 2}, 46_702_792_704, "HF safetensors"),
    "qwen2.5-7b": Published(_sizes("qwen2", 28, 3584, 28, 4, 18944, 152064, use_sliding_window=False,
        sliding_window=131072, max_window_layers=28, **UNTIED), 7_615_616_512, "HF safetensors"),
    "qwen2.5-vl-7b": Published(_sizes("qwen2_5_vl", 28, 3584, 28, 4, 18944, 152064, use_sliding_window=False,
        sliding_window=32768, max_window_layers=28, vision_config={"depth": 32}, **UNTIED), 7_615_616_512,
        "the language model is Qwen2.5-7B"),
    "qwen3-8b": Published(_sizes("qwen3", 36, 4096, 32, 8, 12288, 151936, **QWEN_3, **UNTIED), 8_190_735_360,
        "HF safetensors"),
    "qwen3-30b-a3b": Published(_sizes("qwen3_moe", 48, 2048, 32, 4, 6144, 151936, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768, decoder_sparse_step=1, mlp_only_layers=[], **QWEN_3,
        **UNTIED), 30_532_122_624, "HF safetensors"),
    "llama-3.1-8b": Published(_sizes("llama", 32, 4096, 32, 8, 14336, 128256, attention_bias=False, mlp_bias=False,
        pretraining_tp=1, **UNTIED), 8_030_261_248, "HF safetensors"),
    "llama-3.2-1b": Published(_sizes("llama", 16, 2048, 32, 8, 8192, 128256, head_dim=64, attention_bias=False,
        tie_word_embeddings=True), 1_235_814_400, "HF safetensors"),
    "mistral-small-24b": Published(_sizes("mistral", 40, 5120, 32, 8, 32768, 131072, head_dim=128, sliding_window=None,
        **UNTIED), 23_572_403_200, "HF safetensors"),
}  # fmt: skip

REFUSED = {
    "mamba-2": ({"d_model": 2560, "n_layer": 64, "ssm_cfg": {"layer": "Mamba2"}}, "has Mamba layers"),
    "mamba-2 of transformers": ({"model_type": "mamba2", "num_hidden_layers": 64}, "has Mamba layers"),
    "qwen3-next": ({"model_type": "qwen3_next", "full_attention_interval": 4}, "has gated linear attention"),
    "minimax-text-01": ({"model_type": "minimax_text_01", "attn_type_list": [0, 1]}, "has lightning attention"),
    "modernbert": ({"model_type": "modernbert", "hidden_size": 1024}, "is an encoder"),
    "bart": ({"model_type": "bart", "d_model": 1024}, "is an encoder-decoder"),
    "deepseek-v3.2": ({"model_type": "deepseek_v32", "index_topk": 2048}, "has sparse attention"),
    "gemma-3n": ({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}}, "has per-layer embeddings"),
    "siglip": ({"model_type": "siglip_vision_model"}, "is a vision encoder"),
}
