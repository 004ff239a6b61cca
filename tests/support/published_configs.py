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
    "qwen3-next-80b-a3b": Published(_sizes("qwen3_next", 48, 2048, 16, 2, 5120, 151936, decoder_sparse_step=1,
        full_attention_interval=4, head_dim=256, attention_bias=False, linear_conv_kernel_dim=4, linear_key_head_dim=128,
        linear_num_key_heads=16, linear_num_value_heads=32, linear_value_head_dim=128, mlp_only_layers=[],
        moe_intermediate_size=512, num_experts=512, num_experts_per_tok=10, partial_rotary_factor=0.25,
        shared_expert_intermediate_size=512, **UNTIED), 79_674_391_296, "HF safetensors"),
    "llama-3.1-8b": Published(_sizes("llama", 32, 4096, 32, 8, 14336, 128256, attention_bias=False, mlp_bias=False,
        pretraining_tp=1, **UNTIED), 8_030_261_248, "HF safetensors"),
    "llama-3.2-1b": Published(_sizes("llama", 16, 2048, 32, 8, 8192, 128256, head_dim=64, attention_bias=False,
        tie_word_embeddings=True), 1_235_814_400, "HF safetensors"),
    "mistral-small-24b": Published(_sizes("mistral", 40, 5120, 32, 8, 32768, 131072, head_dim=128, sliding_window=None,
        **UNTIED), 23_572_403_200, "HF safetensors"),
}  # fmt: skip

QWEN_NEXT = {"full_attention_interval": 4, "linear_num_value_heads": 32, "linear_num_key_heads": 16,
    "linear_value_head_dim": 128, "linear_key_head_dim": 128, "linear_conv_kernel_dim": 4}  # fmt: skip
MAMBA = {"mamba_d_head": 64, "mamba_n_groups": 1, "mamba_d_state": 128, "mamba_d_conv": 4, "mamba_chunk_size": 256,
    "mamba_expand": 2, "rms_norm_eps": 1e-5}  # fmt: skip
NEMOTRON_H = {"model_type": "nemotron_h", "num_attention_heads": 32, "mamba_head_dim": 64, "n_groups": 8,
    "ssm_state_size": 128, "conv_kernel": 4, "chunk_size": 128, "vocab_size": 131072, "mlp_hidden_act": "relu2",
    "expand": 2, "layer_norm_epsilon": 1e-5, **UNTIED}  # fmt: skip
PATTERN_8B = "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-"
PATTERN_NANO = "MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME"
PATTERN_SUPER = "MEMEMEM*" + 2 * "EMEMEMEM*" + 4 * "EMEMEMEMEM*" + "EMEMEMEM*" + "EMEMEMEME"

PUBLISHED |= {
    "qwen3-coder-480b": Published(_sizes("qwen3_moe", 62, 6144, 96, 8, 8192, 151936, num_experts=160,
        num_experts_per_tok=8, moe_intermediate_size=2560, qkv_bias=False, use_qk_norm=True,
        shared_expert_intermediate_size=0, mlp_only_layers=[], **UNTIED), 480.15e9, "HF safetensors", 0.0001),
    "qwen3-next-80b": Published(_sizes("qwen3_next", 48, 2048, 16, 2, 5120, 151936, num_experts=512,
        num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512, **QWEN_NEXT, **UNTIED),
        79_674_391_296, "HF safetensors"),
    "nemotron-h-8b": Published(NEMOTRON_H | {"hidden_size": 4096, "num_key_value_heads": 8, "attention_head_dim": 128,
        "hybrid_override_pattern": PATTERN_8B, "num_hidden_layers": 52, "mamba_num_heads": 128,
        "intermediate_size": 21504}, 8.10e9, "arXiv 2504.03624 (8B), HF safetensors", 0.001),
    "nemotron-3-nano-30b": Published(NEMOTRON_H | {"hidden_size": 2688, "num_key_value_heads": 2, "head_dim": 128,
        "hybrid_override_pattern": PATTERN_NANO, "num_hidden_layers": 52, "mamba_num_heads": 64,
        "intermediate_size": 1856, "moe_intermediate_size": 1856, "moe_shared_expert_intermediate_size": 3712,
        "n_routed_experts": 128, "n_shared_experts": 1, "num_experts_per_tok": 6}, 31.6e9, "model card: 31.6B", 0.001),
    "nemotron-3-super-120b": Published(NEMOTRON_H | {"hidden_size": 4096, "num_key_value_heads": 2, "head_dim": 128,
        "hybrid_override_pattern": PATTERN_SUPER, "num_hidden_layers": 88, "mamba_num_heads": 128,
        "intermediate_size": 2688, "moe_intermediate_size": 2688, "moe_shared_expert_intermediate_size": 5376,
        "moe_latent_size": 1024, "n_routed_experts": 512, "n_shared_experts": 1, "num_experts_per_tok": 22,
        "num_nextn_predict_layers": 1}, 120.6e9, "model card: 120.6B, 12.7B active", 0.001),
    "bamba-9b": Published(_sizes("bamba", 32, 4096, 32, 8, 14336, 128256, attn_layer_indices=[9, 18, 27],
        mamba_n_heads=128, **MAMBA, **UNTIED), 9.78e9, "model card", 0.001),
    "granite-4-tiny": Published(_sizes("granitemoehybrid", 40, 1536, 12, 4, 512, 100352, num_local_experts=64,
        num_experts_per_tok=6, shared_intermediate_size=1024, mamba_n_heads=48,
        layer_types=(["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, **MAMBA, tie_word_embeddings=True), 6.94e9,
        "model card: 7B, 1B active", 0.001),
    "deepseek-v3.2": Published(_sizes("deepseek_v32", 61, 7168, 128, 128, 18432, 129280, n_routed_experts=256,
        first_k_dense_replace=3, index_topk=2048, index_n_heads=64, index_head_dim=128, **DEEPSEEK), 671e9,
        "as V3, without the indexer", 0.001),
    "deepseek-moe-16b": Published(_sizes("deepseek", 28, 2048, 16, 16, 10944, 102400, n_routed_experts=64,
        n_shared_experts=2, num_experts_per_tok=6, moe_intermediate_size=1408, first_k_dense_replace=1, **UNTIED),
        16_375_728_128, "HF safetensors"),
    "moonlight-16b": Published(_sizes("deepseek_v3", 27, 2048, 16, 16, 11264, 163840, n_routed_experts=64,
        first_k_dense_replace=1, **DEEPSEEK | {"q_lora_rank": None, "n_shared_experts": 2, "num_experts_per_tok": 6,
        "moe_intermediate_size": 1408}), 15_960_110_208, "HF safetensors"),
    "ernie-4.5-21b": Published(_sizes("ernie4_5_moe", 28, 2560, 20, 4, 12288, 103424, moe_num_experts=64, moe_k=6,
        moe_intermediate_size=1536, moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=-1,
        moe_layer_interval=1, use_bias=False), 21.83e9, "model card", 0.001),
    "hunyuan-a13b": Published(_sizes("hunyuan_v1_moe", 32, 4096, 32, 8, 3072, 128167, num_experts=64,
        moe_topk=[8] * 32, moe_intermediate_size=[3072] * 32, num_shared_expert=[1] * 32, tie_word_embeddings=True),
        80.4e9, "model card: 80B", 0.001),
    "olmoe-1b-7b": Published(_sizes("olmoe", 16, 2048, 16, 16, 1024, 50304, num_experts=64, num_experts_per_tok=8,
        **UNTIED), 6_919_161_856, "HF safetensors"),
    "phi-3.5-moe": Published(_sizes("phimoe", 32, 4096, 32, 8, 6400, 32064, num_local_experts=16,
        num_experts_per_tok=2, attention_bias=True, lm_head_bias=True, **UNTIED), 41_873_153_344 - 32064,
        "HF safetensors, without the head's bias"),
    "dbrx": Published({"model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
        "max_seq_len": 32768, "attn_config": {"kv_n_heads": 8}, "ffn_config": {"ffn_act_fn": {"name": "silu"},
        "ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4}, **UNTIED}, 131_596_523_520,
        "HF safetensors"),
    "falcon-40b": Published({"model_type": "falcon", "hidden_size": 8192, "num_hidden_layers": 60,
        "num_attention_heads": 128, "num_kv_heads": 8, "multi_query": True, "parallel_attn": True, "bias": False,
        "new_decoder_architecture": True, "vocab_size": 65024, "layer_norm_epsilon": 1e-5}, 41_303_293_952,
        "HF safetensors"),
    "falcon-7b": Published({"model_type": "falcon", "hidden_size": 4544, "n_layer": 32, "n_head": 71,
        "multi_query": True, "parallel_attn": True, "bias": False, "vocab_size": 65024, "layer_norm_epsilon": 1e-5},
        7_217_189_760 - 65024 * 4544, "HF safetensors, the tied head counted once"),
    "starcoder": Published({"model_type": "gpt_bigcode", "n_embd": 6144, "n_layer": 40, "n_head": 48,
        "n_inner": 24576, "n_positions": 8192, "vocab_size": 49152, "multi_query": True}, 15_517_456_384,
        "HF safetensors"),
    "starcoder2-7b": Published(_sizes("starcoder2", 32, 4608, 36, 4, 18432, 49152, hidden_act="gelu_pytorch_tanh",
        norm_epsilon=1e-5, use_bias=True), 7_173_923_840, "HF safetensors"),
    "gpt-j-6b": Published({"model_type": "gptj", "n_embd": 4096, "n_layer": 28, "n_head": 16, "vocab_size": 50400,
        "rotary_dim": 64, "n_positions": 2048, "layer_norm_epsilon": 1e-5, **UNTIED}, 6_050_882_784 - 50400,
        "HF safetensors, without the head's bias"),
    "phi-2": Published(_sizes("phi", 32, 2560, 32, 32, 10240, 51200, hidden_act="gelu_new", layer_norm_eps=1e-5,
        **UNTIED), 2_779_683_840 - 51200, "HF safetensors, without the head's bias"),
    "bloom": Published({"model_type": "bloom", "hidden_size": 14336, "n_layer": 70, "num_attention_heads": 112,
        "vocab_size": 250880, "layer_norm_epsilon": 1e-5}, 176_247_271_424 - 2 * 14336,
        "arXiv 2211.05100 (176,247M), without the norm behind its embedding"),
    "stablelm-2-1.6b": Published(_sizes("stablelm", 24, 2048, 32, 32, 5632, 100352, layer_norm_eps=1e-5,
        use_qkv_bias=True, hidden_act="silu", **UNTIED), 1_644_515_328, "HF safetensors"),
    "command-r": Published(_sizes("cohere", 40, 8192, 64, 64, 22528, 256000, layer_norm_eps=1e-5, use_qk_norm=False),
        34_980_831_232, "HF safetensors"),
    "gemma-7b": Published(_sizes("gemma", 28, 3072, 16, 16, 24576, 256000, head_dim=256), 8_537_680_896,
        "HF safetensors"),
    "granite-3.1-8b": Published(_sizes("granite", 40, 4096, 32, 8, 12800, 49155, tie_word_embeddings=True),
        8_170_848_256, "HF safetensors"),
    "internlm2-7b": Published(_sizes("internlm2", 32, 4096, 32, 8, 14336, 92544, bias=False, **UNTIED), 7_737_708_544,
        "HF safetensors"),
    "chatglm3-6b": Published({"model_type": "chatglm", "num_layers": 28, "padded_vocab_size": 65024,
        "hidden_size": 4096, "ffn_hidden_size": 13696, "kv_channels": 128, "num_attention_heads": 32,
        "seq_length": 8192, "rmsnorm": True, "multi_query_attention": True, "multi_query_group_num": 2,
        "add_bias_linear": False, "add_qkv_bias": True, **UNTIED}, 6_243_584_000, "HF safetensors"),
    "glm-4-9b": Published(_sizes("glm", 40, 4096, 32, 2, 13696, 151552, head_dim=128, attention_bias=True, **UNTIED),
        9_399_951_360, "HF safetensors"),
    "glm-4-9b-0414": Published(_sizes("glm4", 40, 4096, 32, 2, 13696, 151552, head_dim=128, attention_bias=True,
        **UNTIED), 9_400_279_040, "HF safetensors"),
    "smollm3-3b": Published(_sizes("smollm3", 36, 2048, 16, 4, 11008, 128256, no_rope_layers=[1, 1, 1, 0] * 9,
        layer_types=["full_attention"] * 36, use_sliding_window=False, tie_word_embeddings=True), 3_075_098_624,
        "HF safetensors"),
    "minicpm-2b": Published(_sizes("minicpm", 40, 2304, 36, 36, 5760, 122753, tie_word_embeddings=True),
        2_724_880_896, "HF safetensors"),
    "qwen-7b": Published({"model_type": "qwen", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "intermediate_size": 22016, "vocab_size": 151936, "kv_channels": 128,
        "no_bias": True, "layer_norm_epsilon": 1e-6, **UNTIED}, 7_721_324_544, "HF safetensors"),
    "internvl's language model": Published({"model_type": "internvl_chat", "vision_config": {"hidden_size": 1024},
        "llm_config": _sizes("qwen2", 28, 3584, 28, 4, 18944, 152064, **UNTIED)}, 7_615_616_512, "Qwen2.5-7B"),
    "params.json of llama-3-70b": Published({"dim": 8192, "ffn_dim_multiplier": 1.3, "multiple_of": 4096,
        "n_heads": 64, "n_kv_heads": 8, "n_layers": 80, "norm_eps": 1e-5, "vocab_size": 128256}, 70_553_706_496,
        "HF safetensors"),
    "params.json of mistral-7b": Published({"dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336,
        "n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-5, "vocab_size": 32000}, 7_241_732_096, "HF safetensors"),
    "nemotron-nano-9b-v2": Published(NEMOTRON_H | {"hidden_size": 4480, "num_key_value_heads": 8, "head_dim": 128,
        "hybrid_override_pattern": "M-M-M-MM-M-M-M*-M-M-M*-M-M-M-M*-M-M-M-M*-M-MM-M-M-M-M-M-", "num_hidden_layers": 56,
        "mamba_num_heads": 128, "mamba_head_dim": 80, "num_attention_heads": 40, "intermediate_size": 15680}, 8.888e9,
        "HF safetensors", 0.0001),
    "granite-4-1b": Published(_sizes("granitemoehybrid", 40, 1536, 12, 4, 4096, 100352, num_local_experts=0,
        num_experts_per_tok=0, shared_intermediate_size=4096, mamba_n_heads=48,
        layer_types=(["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, **MAMBA, tie_word_embeddings=True), 1.46e9,
        "model card: 1.5B", 0.002),
    "llada-8b": Published({"model_type": "llada", "d_model": 4096, "n_layers": 32, "n_heads": 32, "n_kv_heads": 32,
        "mlp_hidden_size": 12288, "vocab_size": 126464, "rms_norm_eps": 1e-5, "weight_tying": False}, 8.02e9,
        "HF safetensors", 0.001),
    "qwen3-omni's language model": Published({"model_type": "qwen3_omni_moe", "thinker_config": {"text_config": _sizes(
        "qwen3_omni_moe_text", 48, 2048, 32, 4, 768, 151936, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768, **QWEN_3, **UNTIED), "audio_config": {"d_model": 1280}}}, 30_532_122_624, "Qwen3-30B-A3B"),
    "a decoder of a name that nobody knows": Published(_sizes("of_tomorrow", 32, 4096, 32, 8, 14336, 128256,
        rms_norm_eps=1e-5, **UNTIED), 8_030_261_248, "Llama 3.1 8B"),
}  # fmt: skip

REFUSED = {
    "mamba-2": ({"d_model": 2560, "n_layer": 64, "ssm_cfg": {"layer": "Mamba2"}}, "Mamba layers only"),
    "mamba-2 of transformers": ({"model_type": "mamba2", "num_hidden_layers": 64}, "has Mamba layers only"),
    "minimax-text-01": ({"model_type": "minimax_text_01", "attn_type_list": [0, 1]}, "has lightning attention"),
    "modernbert": ({"model_type": "modernbert", "hidden_size": 1024}, "is an encoder"),
    "bart": ({"model_type": "bart", "d_model": 1024}, "is an encoder-decoder"),
    "jamba": ({"model_type": "jamba", "hidden_size": 4096}, "has layers of Mamba-1"),
    "gemma-3n": ({"model_type": "gemma3n", "text_config": {"model_type": "gemma3n_text"}}, "has per-layer embeddings"),
    "siglip": ({"model_type": "siglip_vision_model"}, "is a vision encoder"),
    "flux": ({"_class_name": "FluxTransformer2DModel", "num_layers": 19}, "configuration of a diffusion model"),
    "an adapter": ({"peft_type": "LORA", "r": 16}, "configuration of an adapter. Give the config.json of its base"),
    "a tokenizer": ({"tokenizer_class": "LlamaTokenizer"}, "model_type is missing, and so are hidden_size and num_att"),
    "deepseek-v4": (_sizes("deepseek_v4", 43, 4096, 64, 1, 2048, 129280, compress_ratios=[0, 4, 128]),
        "compress_ratios = .* attention to compressed keys is not modelled"),
    "hyper-connections": (_sizes("new", 43, 4096, 64, 1, 2048, 129280, hc_mult=4), "several residual streams"),
    "mimo-v2": (_sizes("mimo_v2_flash", 48, 4096, 64, 4, 16384, 152576, head_dim=192, v_head_dim=128),
        "v_head_dim = 128, but only 192 is modelled"),
    "openelm": ({"model_type": "openelm", "num_query_heads": [12, 16]}, "has layers whose widths differ one by one"),
}  # fmt: skip
