"""Megatron-Bridge: `run_config.yaml` of a checkpoint."""

from .case import Case, but

TEXT = """_target_: megatron.bridge.training.config.ConfigContainer
checkpoint:
  _target_: megatron.bridge.training.config.CheckpointConfig
  save_interval: 500
comm_overlap: null
dataset:
  _target_: megatron.bridge.training.config.GPTDatasetConfig
  sequence_length: 8192
  random_seed: 1234
  tokenizer:
    _call_: true
    _target_: megatron.bridge.training.tokenizers.tokenizer._NullTokenizer
ddp:
  grad_reduce_in_fp32: true
  overlap_grad_reduce: true
  overlap_param_gather: true
  use_distributed_optimizer: true
mixed_precision:
  _target_: megatron.bridge.training.mixed_precision.MixedPrecisionConfig
  bf16: true
  fp8: null
  fp8_recipe: tensorwise
model:
  _target_: megatron.bridge.models.llama.llama_provider.Llama3ModelProvider
  activation_func:
    _call_: false
    _target_: torch.nn.functional.silu
  add_bias_linear: false
  attention_backend:
    _args_:
    - 5
    _call_: true
    _target_: megatron.core.transformer.enums.AttnBackend
  attention_dropout: 0.0
  bf16: true
  context_parallel_size: 2
  expert_model_parallel_size: 1
  ffn_hidden_size: 14336
  gated_linear_unit: true
  generation_config:
    config_dict:
      max_length: 20
      top_k: 50
  hidden_dropout: 0.0
  hidden_size: 4096
  kv_channels: 128
  make_vocab_size_divisible_by: 128
  moe_router_topk: 2
  normalization: RMSNorm
  num_attention_heads: 32
  num_layers: 32
  num_moe_experts: null
  num_query_groups: 8
  params_dtype:
    _call_: false
    _target_: torch.bfloat16
  pipeline_model_parallel_layout: null
  pipeline_model_parallel_size: 2
  position_embedding_type: rope
  recompute_granularity: null
  recompute_modules:
  - core_attn
  seq_length: 131072
  sequence_parallel: true
  share_embeddings_and_output_weights: false
  should_pad_vocab: false
  tensor_model_parallel_size: 4
  transformer_impl: transformer_engine
  virtual_pipeline_model_parallel_size: null
  vocab_size: 128256
optimizer:
  optimizer: adam
  exp_avg_dtype:
    _call_: false
    _target_: torch.float32
train:
  global_batch_size: 256
  micro_batch_size: 1
  train_iters: 100
"""
BASE = Case(
    "llama",
    TEXT,
    {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv": 8, "seq": 8192, "micro": 1, "batch": 256, "tp": 4, "pp": 2,
     "cp": 2, "experts": 0, "gpus": 64, "dtype": "bf16", "recompute": "none", "vocab": 128256, "zero": 1, "model.gated": True,
     "model.tied_embeddings": False},
    file="run_config.yaml",
    options={"n_devices": 64},
)  # fmt: skip
EXPERTS = (
    ("num_moe_experts: null", "num_moe_experts: 64\n  moe_ffn_hidden_size: 1408"),
    ("expert_model_parallel_size: 1", "expert_model_parallel_size: 8"),
)
CASES = [
    BASE,
    but(BASE, "experts", *EXPERTS, expected={"experts": 64, "top_k": 2, "ep": 8, "model.moe.ffn_hidden": 1408}),
    but(BASE, "experts by groups of ranks", *EXPERTS, ("  moe_router_topk: 2", "  moe_router_topk: 6\n  expert_tensor_parallel_size: 1"),
        expected={"experts": 64, "top_k": 6, "ep": 8, "plan.etp": 1}),
    but(BASE, "full recomputation", ("recompute_granularity: null", "recompute_granularity: full\n  recompute_method: block\n"
        "  recompute_num_layers: 4"), expected={"recompute": "full", "plan.recompute_num_layers": 4}),
    but(BASE, "selective recomputation", ("recompute_granularity: null", "recompute_granularity: selective"),
        expected={"recompute": "selective"}),
    but(BASE, "chunks", ("virtual_pipeline_model_parallel_size: null", "virtual_pipeline_model_parallel_size: 4"),
        expected={"vpp": 4}),
    but(BASE, "layout", ("pipeline_model_parallel_layout: null", "pipeline_model_parallel_layout: Et*15|t*17L"),
        expected={"split": "[15, 17]"}),
    but(BASE, "ends", ("  num_moe_experts: null", "  num_layers_in_first_pipeline_stage: 15\n  num_layers_in_last_pipeline_stage: 17"),
        expected={"split": "[15, 17]"}),
    but(BASE, "fp8", ("  fp8: null", "  fp8: hybrid"), expected={"dtype": "fp8", "plan.fp8_recipe": "tensorwise"}),
    but(BASE, "precision in a word", ("mixed_precision:\n  _target_: megatron.bridge.training.mixed_precision.MixedPrecisionConfig\n"
        "  bf16: true\n  fp8: null\n  fp8_recipe: tensorwise\n", "mixed_precision: bf16_with_mxfp8_mixed\n"), expected={"dtype": "mxfp8"}),
    but(BASE, "padded", ("should_pad_vocab: false", "should_pad_vocab: true"), ("128256", "128001"), expected={"vocab": 128512}),
    but(BASE, "tied", ("share_embeddings_and_output_weights: false", "share_embeddings_and_output_weights: true"),
        expected={"model.tied_embeddings": True}),
    but(BASE, "no groups", ("num_query_groups: 8", "num_query_groups: null"), expected={"kv": 32}),
    but(BASE, "not gated", ("gated_linear_unit: true", "gated_linear_unit: false"), expected={"model.gated": False}),
    but(BASE, "hybrid", ("  num_moe_experts: null", "  is_hybrid_model: true"), refused="Mamba"),
    but(BASE, "tags of Python", ("    _call_: false\n    _target_: torch.bfloat16", "    !!python/object/apply:torch.dtype {a: 1}")),
    but(BASE, "overrides behind", arguments=("train.global_batch_size=512", "model.tensor_model_parallel_size=8"),
        expected={"batch": 512, "tp": 8, "dp": 2}),
]  # fmt: skip
