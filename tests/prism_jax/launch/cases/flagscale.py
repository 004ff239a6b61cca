"""FlagScale: an experiment with its training beside it, or the training alone."""

from .case import Case, but

TRAIN = """system:
  tensor_model_parallel_size: 2
  pipeline_model_parallel_size: 4
  expert_model_parallel_size: 4
  sequence_parallel: true
  use_distributed_optimizer: true
  precision:
    bf16: true
  logging:
    log_interval: 1
model:
  num_layers: 32
  hidden_size: 4096
  ffn_hidden_size: 14336
  num_attention_heads: 32
  seq_length: 4096
  swiglu: true
  normalization: RMSNorm
  group_query_attention: true
  num_query_groups: 8
  disable_bias_linear: true
  position_embedding_type: rope
  untie_embeddings_and_output_weights: true
  num_experts: 8
  moe_router_topk: 2
  micro_batch_size: 1
  global_batch_size: 512
  optimizer:
    lr: 1e-4
data:
  data_path: <xxxx>
  tokenizer:
    tokenizer_type: QwenTokenizerFS
    vocab_size: 151851
    make_vocab_size_divisible_by: 64
"""
EXPERIMENT = """defaults:
  - _self_
  - train: 8x7b
experiment:
  exp_name: mixtral
  task: {type: train, backend: megatron, entrypoint: flagscale/train/train_gpt.py}
  runner:
    backend: torchrun
    nnodes: 8
    nproc_per_node: 8
action: run
hydra:
  run: {dir: "${experiment.exp_name}/hydra"}
"""
READ = {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv": 8, "seq": 4096, "micro": 1, "batch": 512, "tp": 2, "pp": 4,
        "ep": 4, "experts": 8, "top_k": 2, "gpus": 64, "dtype": "bf16", "recompute": "none", "vocab": 151936}  # fmt: skip
ALONE = Case("training alone", TRAIN, READ, file="8x7b.yaml", options={"n_devices": 64})
DENSE = "  num_experts: 8\n  moe_router_topk: 2\n"
CASES = [
    ALONE,
    Case("experiment", EXPERIMENT, READ, file="train.yaml", others={"train/8x7b.yaml": TRAIN}),
    Case("training is not there", EXPERIMENT, file="train.yaml", refused=r"train/8x7b.yaml \(line 1\).*--root DIR"),
    Case("training elsewhere", EXPERIMENT, READ, file="conf/train.yaml", others={"other/train/8x7b.yaml": TRAIN},
         options={"root": "other"}),
    but(ALONE, "dense", (DENSE, ""), ("  expert_model_parallel_size: 4\n", ""), expected={"experts": 0, "ep": 1, "top_k": 1}),
    but(ALONE, "query groups need a flag", ("  group_query_attention: true\n", ""), expected={"kv": 32}),
    but(ALONE, "recomputation", ("  precision:", "  recompute_granularity: full\n  recompute_method: uniform\n"
        "  recompute_num_layers: 1\n  precision:"), expected={"recompute": "full"}),
    but(ALONE, "context", ("  precision:", "  context_parallel_size: 2\n  precision:"), expected={"cp": 2, "dp": 4}),
    but(ALONE, "chunks", ("  precision:", "  num_layers_per_virtual_pipeline_stage: 4\n  precision:"), expected={"vpp": 2}),
    but(ALONE, "uneven ends", ("  precision:", "  decoder_first_pipeline_num_layers: 7\n  precision:"), ("num_layers: 32", "num_layers: 31"),
        expected={"layers": 31, "split": "[7, 8, 8, 8]"}),
    but(ALONE, "fp16", ("bf16: true", "fp16: true"), expected={"dtype": "fp16"}),
    but(ALONE, "reference in the file", ("  seq_length: 4096", "  max_position_embeddings: 8192\n  seq_length: ${model.max_position_embeddings}"),
        expected={"seq": 8192}),
    but(ALONE, "open variable", ("global_batch_size: 512", "global_batch_size: ${oc.env:GBS}"), refused=r"\$GBS \(line 2\d.*--env GBS"),
    but(ALONE, "given variable", ("global_batch_size: 512", "global_batch_size: ${oc.env:GBS}"), variables={"GBS": "1024"},
        expected={"batch": 1024}),
    but(ALONE, "overrides behind", arguments=("model.num_layers=16", "system.pipeline_model_parallel_size=2"),
        expected={"layers": 16, "pp": 2, "dp": 16}),
    but(ALONE, "GPUs are asked for", options={}, refused=r"--gpus N"),
]  # fmt: skip
