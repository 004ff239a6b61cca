"""Configurations of Megatron-LM itself: `MODEL_ARGS` of its tests and `--yaml-cfg`."""

from .case import Case

CASES = [
    Case(
        "model-args",
        """ENV_VARS:
  CUDA_DEVICE_MAX_CONNECTIONS: 1
TEST_TYPE: regular
MODEL_ARGS:
  --num-layers: 12
  --hidden-size: 512
  --num-attention-heads: 8
  --micro-batch-size: 4
  --global-batch-size: 32
  --seq-length: 1024
  --max-position-embeddings: 1024
  --vocab-file: /data/vocab.json
  --tokenizer-type: GPT2BPETokenizer
  --tensor-model-parallel-size: 2
  --pipeline-model-parallel-size: 2
  --sequence-parallel: true
  --untie-embeddings-and-output-weights: false
  --no-bias-gelu-fusion: true
  --bf16: true
""",
        {
            "layers": 12,
            "hidden": 512,
            "heads": 8,
            "ffn": 2048,
            "kv": 8,
            "micro": 4,
            "batch": 32,
            "seq": 1024,
            "tp": 2,
            "pp": 2,
            "gpus": 8,
            "dtype": "bf16",
            "vocab": 50432,
            "model.tied_embeddings": True,
        },
        file="model_config.yaml",
        options={"n_devices": 8},
    ),
    Case(
        "yaml-cfg",
        """num_layers: 24
micro_batch_size: 2
global_batch_size: 128
seq_length: 4096
bf16: true
tokenizer_type: Llama2Tokenizer
use_distributed_optimizer: true
language_model:
  num_layers: 24
  hidden_size: 2048
  num_attention_heads: 16
  num_query_groups: 4
  ffn_hidden_size: 5504
  activation_func: swiglu
  add_bias_linear: false
  normalization: RMSNorm
  recompute_granularity: full
  recompute_method: uniform
  recompute_num_layers: 1
model_parallel:
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  context_parallel_size: 2
  sequence_parallel: true
""",
        {
            "layers": 24,
            "hidden": 2048,
            "heads": 16,
            "kv": 4,
            "ffn": 5504,
            "micro": 2,
            "batch": 128,
            "seq": 4096,
            "tp": 4,
            "pp": 2,
            "cp": 2,
            "gpus": 64,
            "dtype": "bf16",
            "recompute": "full",
            "zero": 1,
            "model.gated": True,
        },
        file="gpt.yaml",
        options={"n_devices": 64},
    ),
]
