"""NeMo-RL: the training step of the policy, on Megatron or on DTensor."""

from .case import Case, but

TEXT = """grpo:
  num_prompts_per_step: 64
  num_generations_per_prompt: 32
policy:
  model_name: "Qwen/Qwen2.5-7B"
  tokenizer:
    name: ${policy.model_name}
  train_global_batch_size: 512
  train_micro_batch_size: 2
  generation_batch_size: 64
  logprob_batch_size: 8
  max_total_sequence_length: 4096
  precision: "bfloat16"
  dtensor_cfg:
    enabled: false
    tensor_parallel_size: 2
    context_parallel_size: 1
    activation_checkpointing: false
  sequence_packing:
    enabled: True
    train_mb_tokens: ${mul:${policy.max_total_sequence_length}, ${policy.train_micro_batch_size}}
  megatron_cfg:
    enabled: true
    activation_checkpointing: true
    tensor_model_parallel_size: 4
    expert_tensor_parallel_size: 1
    expert_model_parallel_size: 1
    pipeline_model_parallel_size: 2
    num_layers_in_first_pipeline_stage: null
    num_layers_in_last_pipeline_stage: null
    context_parallel_size: 1
    pipeline_dtype: ${policy.precision}
    sequence_parallel: true
    optimizer:
      optimizer: "adam"
      lr: 5.0e-6
      bf16: true
      fp16: false
      params_dtype: "float32"
      use_distributed_optimizer: true
      use_precision_aware_optimizer: true
    distributed_data_parallel_config:
      grad_reduce_in_fp32: false
      overlap_grad_reduce: true
  generation:
    backend: "vllm"
    max_new_tokens: ${policy.max_total_sequence_length}
    vllm_cfg:
      tensor_parallel_size: 1
cluster:
  gpus_per_node: 8
  num_nodes: 4
"""
BASE = Case(
    "megatron",
    TEXT,
    {"layers": 28, "hidden": 3584, "ffn": 18944, "heads": 28, "kv": 4, "seq": 4096, "micro": 2, "batch": 512, "tp": 4, "pp": 2,
     "gpus": 32, "dtype": "bf16", "recompute": "full", "zero": 1},
    file="grpo.yaml",
)  # fmt: skip
SMALL = """defaults: "grpo.yaml"
policy:
  model_name: Qwen/Qwen2.5-1.5B
  megatron_cfg:
    tensor_model_parallel_size: 1
cluster:
  num_nodes: 1
"""
MOE = ("Qwen/Qwen2.5-7B", "Qwen/Qwen3-30B-A3B")
CASES = [
    BASE,
    Case("recipe over it", SMALL, {"layers": 28, "hidden": 1536, "tp": 1, "pp": 2, "gpus": 8, "dp": 4, "batch": 512},
         file="recipes/small.yaml", others={"recipes/grpo.yaml": TEXT}),
    Case("recipe alone", SMALL, file="small.yaml", refused=r"grpo.yaml \(line 1\)"),
    but(BASE, "dtensor", ("enabled: false\n    tensor", "enabled: true\n    tensor"), ("enabled: true\n    activation", "enabled: false\n    activation"),
        expected={"tp": 2, "pp": 1, "recompute": "none", "zero": 3}),
    but(BASE, "experts", MOE, ("expert_model_parallel_size: 1", "expert_model_parallel_size: 4"),
        expected={"layers": 48, "hidden": 2048, "ffn": 6144, "heads": 32, "experts": 128, "top_k": 8, "ep": 4}),
    but(BASE, "ends", ("num_layers_in_first_pipeline_stage: null", "num_layers_in_first_pipeline_stage: 13"), expected={"split": "[13, 15]"}),
    but(BASE, "context", ("context_parallel_size: 1\n    pipeline", "context_parallel_size: 2\n    pipeline"), expected={"cp": 2, "dp": 2}),
    but(BASE, "no recomputation", ("activation_checkpointing: true", "activation_checkpointing: false"), expected={"recompute": "none"}),
    but(BASE, "overrides behind", arguments=("policy.train_micro_batch_size=1", "cluster.num_nodes=8"), expected={"micro": 1, "gpus": 64}),
    but(BASE, "unknown model", ("Qwen/Qwen2.5-7B", "corp/secret-9b"), refused=r"secret-9b.*--model config.json"),
    but(BASE, "length behind", arguments=("policy.max_total_sequence_length=16384",), expected={"seq": 16384}),
    but(BASE, "fp16", ('precision: "bfloat16"', 'precision: "float16"'), ("bf16: true\n      fp16: false", "bf16: false\n      fp16: true"),
        expected={"dtype": "fp16"}),
    but(BASE, "another model", ("Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B-Instruct"),
        expected={"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv": 8}),
]  # fmt: skip
