"""Primus: modules with overrides over a model file."""

from .case import Case, but

TEXT = """work_group: ${PRIMUS_TEAM:amd}
exp_name: ${PRIMUS_EXP_NAME:llama3-pretrain}
workspace: ./output
modules:
  pre_trainer:
    framework: megatron
    config: pre_trainer.yaml
    model: ${PRIMUS_MODEL:llama3.1_8B}.yaml
    overrides:
      stderr_sink_level: DEBUG
      train_iters: 50
      micro_batch_size: 2
      global_batch_size: 128
      seq_length: ${PRIMUS_SEQ_LENGTH:8192}
      max_position_embeddings: 8192
      tensor_model_parallel_size: ${PRIMUS_TP:1}
      pipeline_model_parallel_size: ${PRIMUS_PP:2}
      expert_model_parallel_size: ${PRIMUS_EP:1}
      overlap_grad_reduce: true
      gradient_accumulation_fusion: false
      mock_data: true
      recompute_granularity: full
      recompute_method: block
      recompute_num_layers: 8
      bf16: true
"""
MODEL = """includes:
  - llama_base.yaml
num_layers: 24
hidden_size: 2048
ffn_hidden_size: 8192
num_attention_heads: 16
group_query_attention: true
num_query_groups: 4
"""
LLAMA = """tokenizer_type: Llama2Tokenizer
swiglu: true
normalization: RMSNorm
untie_embeddings_and_output_weights: true
add_bias_linear: false
position_embedding_type: rope
num_layers: 99
"""
BASE = Case(
    "model by name",
    TEXT,
    {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv": 8, "seq": 8192, "micro": 2, "batch": 128, "tp": 1, "pp": 2,
     "gpus": 16, "dtype": "bf16", "recompute": "full", "vocab": 128256, "plan.recompute_num_layers": 8},
    file="examples/llama3.yaml",
    options={"n_devices": 16},
)  # fmt: skip
OWN = {"layers": 24, "hidden": 2048, "ffn": 8192, "heads": 16, "kv": 4, "vocab": 32000}
FILES = {"conf/models/megatron/mine.yaml": MODEL, "conf/models/megatron/llama_base.yaml": LLAMA}
NAMED = ("${PRIMUS_MODEL:llama3.1_8B}", "mine")
CASES = [
    BASE,
    but(BASE, "model by its file", NAMED, others=FILES, options={"n_devices": 16, "root": "conf"}, expected=OWN),
    but(BASE, "model beside it", NAMED, others={"examples/mine.yaml": MODEL, "examples/llama_base.yaml": LLAMA}, expected=OWN),
    but(BASE, "given variables", variables={"PRIMUS_TP": "4", "PRIMUS_PP": "1"}, expected={"tp": 4, "pp": 1, "dp": 4}),
    but(BASE, "another model", variables={"PRIMUS_MODEL": "llama2_7B"}, expected={"ffn": 11008, "kv": 32, "vocab": 32000}),
    but(BASE, "experts", variables={"PRIMUS_MODEL": "mixtral_8x7B_v0.1", "PRIMUS_EP": "8"},
        expected={"experts": 8, "top_k": 2, "ep": 8, "vocab": 32000}),
    but(BASE, "dense models have no ep", variables={"PRIMUS_EP": "8"}, expected={"ep": 1}),
    but(BASE, "an unknown model", variables={"PRIMUS_MODEL": "secret_9B"}, refused=r"secret_9B.*--model config.json"),
    but(BASE, "no recomputation", ("recompute_granularity: full", "recompute_granularity: null"),
        expected={"recompute": "none", "plan.recompute_num_layers": "1"}),
    but(BASE, "fp8", ("      bf16: true", "      bf16: true\n      fp8: hybrid"), expected={"dtype": "fp8"}),
    but(BASE, "overrides of the model", NAMED, ("      train_iters: 50", "      num_layers: 8"), others=FILES,
        options={"n_devices": 16, "root": "conf"}, expected={**OWN, "layers": 8}),
    but(BASE, "context", ("      mock_data: true", "      context_parallel_size: 4"), expected={"cp": 4, "dp": 2}),
    but(BASE, "post training", ("pre_trainer:\n", "post_trainer:\n")),
    but(BASE, "distributed optimizer", ("mock_data: true", "use_distributed_optimizer: true"), expected={"zero": 1}),
]  # fmt: skip
