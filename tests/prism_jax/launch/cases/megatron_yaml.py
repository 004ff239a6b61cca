"""Configurations of Megatron-LM itself: `MODEL_ARGS` of its tests and `--yaml-cfg`."""

from ..heads import stated
from .case import Case, but

ARGS, CFG = (
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
        stated(
            "layers=12 hidden=512 heads=8 ffn=2048 kv=8 micro=4 batch=32 seq=1024 tp=2 pp=2 gpus=8 dtype=bf16 "
            "vocab=50432 model.tied_embeddings=True"
        ),
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
        stated(
            "layers=24 hidden=2048 heads=16 kv=4 ffn=5504 micro=2 batch=128 seq=4096 tp=4 pp=2 cp=2 gpus=64 "
            "dtype=bf16 recompute=full zero=1 model.gated=True"
        ),
        file="gpt.yaml",
        options={"n_devices": 64},
    ),
)
MOE = "  --bf16: true\n  --num-experts: 8\n  --moe-router-topk: 2\n  --expert-model-parallel-size: 2\n"
FLAT = """num-layers: 16
hidden-size: 1024
num-attention-heads: 16
seq-length: 2048
micro-batch-size: 2
global-batch-size: 64
tensor-model-parallel-size: 2
vocab-size: 32000
bf16: true
"""
CASES = [
    ARGS,
    CFG,
    but(ARGS, "experts", ("  --bf16: true\n", MOE), expected={"experts": 8, "top_k": 2, "ep": 2}),
    but(ARGS, "a flag that is false is not given", ("  --bf16: true", "  --fp16: true\n  --bf16: false"), expected={"dtype": "fp16"}),
    but(ARGS, "rows of the vocabulary", ("  --tokenizer-type: GPT2BPETokenizer", "  --tokenizer-type: NullTokenizer\n  --vocab-size: 131072"),
        expected={"vocab": 131328}),
    but(ARGS, "layout", ("  --sequence-parallel: true", "  --pipeline-model-parallel-layout: Et*5|t*7L"), expected={"split": "[5, 7]"}),
    but(ARGS, "chunks", ("  --sequence-parallel: true", "  --num-layers-per-virtual-pipeline-stage: 2"), expected={"vpp": 3}),
    but(ARGS, "recomputation", ("  --sequence-parallel: true", "  --recompute-granularity: full\n  --recompute-method: uniform\n"
        "  --recompute-num-layers: 1"), expected={"recompute": "full"}),
    but(ARGS, "hybrid", ("  --bf16: true", '  --bf16: true\n  --hybrid-override-pattern: "M-M*"'), refused="Mamba"),
    but(ARGS, "a number that is none", ("--num-layers: 12", "--num-layers: many"), options={"n_devices": 8}, refused=r"line \d+: .*num-layers"),
    but(CFG, "gelu", ("activation_func: swiglu", "activation_func: gelu"), expected={"model.gated": False}),
    but(CFG, "no groups", ("  num_query_groups: 4\n", ""), expected={"kv": 16}),
    but(CFG, "fp16", ("bf16: true", "fp16: true"), expected={"dtype": "fp16"}),
    but(CFG, "variables", ("micro_batch_size: 2", "micro_batch_size: ${MBS}"), variables={"MBS": "4"}, expected={"micro": 4}),
    Case("flat", FLAT.replace("-", "_"), {"layers": 16, "hidden": 1024, "heads": 16, "seq": 2048, "micro": 2, "batch": 64, "tp": 2, "gpus": 8,
                                          "vocab": 32000}, file="a.yaml", options={"n_devices": 8}),
    Case("flat with hyphens", FLAT, {"layers": 16, "hidden": 1024, "heads": 16, "seq": 2048, "micro": 2, "batch": 64, "tp": 2, "gpus": 8},
         file="a.yaml", options={"n_devices": 8}),
    Case("flat JSON", '{\n\t"num_layers": 16,\n\t"hidden_size": 1024, "num_attention_heads": 16, "seq_length": 2048,\n\t"micro_batch_size": 2,'
         '"global_batch_size": 64, "tensor_model_parallel_size": 2, "vocab_size": 32000, "bf16": true}\n',
         {"layers": 16, "hidden": 1024, "heads": 16, "seq": 2048, "micro": 2, "batch": 64, "tp": 2}, file="args.json", options={"n_devices": 8}),
]  # fmt: skip
