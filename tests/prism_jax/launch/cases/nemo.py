"""NeMo: YAML of a GPT model with its trainer."""

from .case import Case, but

TEXT = """name: megatron_gpt
trainer:
  devices: 8
  num_nodes: 4
  accelerator: gpu
  precision: bf16
  max_steps: 100000
  gradient_clip_val: 1.0
exp_manager:
  name: megatron_gpt
  checkpoint_callback_params:
    model_parallel_size: ${multiply:${model.tensor_model_parallel_size}, ${model.pipeline_model_parallel_size}}
model:
  mcore_gpt: True
  micro_batch_size: 2
  global_batch_size: 256
  tensor_model_parallel_size: 4
  pipeline_model_parallel_size: 2
  virtual_pipeline_model_parallel_size: null
  encoder_seq_length: 2048
  max_position_embeddings: ${.encoder_seq_length}
  num_layers: 24
  hidden_size: 2048
  ffn_hidden_size: ${multiply:4, ${.hidden_size}}
  num_attention_heads: 16
  hidden_dropout: 0.1
  kv_channels: null
  bias: true
  activation: gelu
  normalization: layernorm
  make_vocab_size_divisible_by: 128
  tokenizer:
    library: megatron
    type: GPT2BPETokenizer
  activations_checkpoint_granularity: selective
  activations_checkpoint_method: block
  activations_checkpoint_num_layers: null
  sequence_parallel: True
  fp8: False
  fp8_hybrid: True
  data:
    data_prefix: ???
    seq_length: ${model.encoder_seq_length}
  optim:
    name: distributed_fused_adam
    lr: 2e-4
    sched: {name: CosineAnnealing, warmup_steps: 500}
"""
PLAIN = TEXT.replace("${multiply:4, ${.hidden_size}}", "8192")
BASE = Case(
    "gpt",
    PLAIN,
    {"layers": 24, "hidden": 2048, "ffn": 8192, "heads": 16, "kv": 16, "seq": 2048, "micro": 2, "batch": 256, "tp": 4, "pp": 2,
     "gpus": 32, "dtype": "bf16", "recompute": "selective", "zero": 1, "vocab": 50688},
    file="megatron_gpt_config.yaml",
)  # fmt: skip
NEMO_2 = """trainer:
  _target_: nemo.lightning.Trainer
  devices: 8
  num_nodes: 2
  plugins:
    _target_: nemo.lightning.MegatronMixedPrecision
    precision: bf16-mixed
  strategy:
    _target_: nemo.lightning.MegatronStrategy
    tensor_model_parallel_size: 2
    pipeline_model_parallel_size: 1
    context_parallel_size: 2
    sequence_parallel: true
    ddp:
      overlap_grad_reduce: true
      use_distributed_optimizer: true
model:
  _target_: nemo.collections.llm.LlamaModel
  config:
    _target_: nemo.collections.llm.Llama3Config8B
    num_layers: 32
    hidden_size: 4096
    ffn_hidden_size: 14336
    num_attention_heads: 32
    num_query_groups: 8
    gated_linear_unit: true
    normalization: RMSNorm
    position_embedding_type: rope
    seq_length: 8192
    vocab_size: 128256
data:
  _target_: nemo.collections.llm.MockDataModule
  seq_length: 4096
  micro_batch_size: 1
  global_batch_size: 64
"""
CASES = [
    BASE,
    Case("product of a resolver", TEXT, BASE.expected, file="a.yaml"),
    Case("another resolver is asked for", TEXT.replace("multiply:4", "corp:4"), file="a.yaml", refused=r"corp:4"),
    but(BASE, "fp16", ("precision: bf16", "precision: 16"), expected={"dtype": "fp16"}),
    but(BASE, "mixed", ("precision: bf16", "precision: bf16-mixed")),
    but(BASE, "fp32", ("precision: bf16", "precision: 32"), expected={"dtype": "fp32"}),
    but(BASE, "full recomputation", ("granularity: selective", "granularity: full"), ("num_layers: null", "num_layers: 2"),
        expected={"recompute": "full", "plan.recompute_num_layers": 2}),
    but(BASE, "chunks", ("virtual_pipeline_model_parallel_size: null", "virtual_pipeline_model_parallel_size: 3"), expected={"vpp": 3}),
    but(BASE, "llama", ("activation: gelu", "activation: fast-swiglu"), ("bias: true", "bias: false"),
        ("normalization: layernorm", "normalization: rmsnorm\n  num_query_groups: 8"),
        expected={"model.gated": True, "model.bias": False, "kv": 8, "model.norm": "rms"}),
    but(BASE, "experts", ("  bias: true", "  num_moe_experts: 8\n  moe_router_topk: 2\n  expert_model_parallel_size: 4"),
        expected={"experts": 8, "top_k": 2, "ep": 4}),
    but(BASE, "fp8", ("  fp8: False", "  fp8: True"), expected={"dtype": "fp8"}),
    but(BASE, "no distributed optimizer", ("distributed_fused_adam", "fused_adam"), expected={"zero": 0}),
    but(BASE, "overrides behind", arguments=("trainer.num_nodes=8", "model.tensor_model_parallel_size=8"),
        expected={"gpus": 64, "tp": 8, "dp": 4, "vocab": 51200}),
    but(BASE, "devices of the machine", ("devices: 8", "devices: auto"), refused="--gpus N"),
    Case("NeMo 2", NEMO_2, {"layers": 32, "hidden": 4096, "ffn": 14336, "heads": 32, "kv": 8, "seq": 4096, "micro": 1, "batch": 64,
                            "tp": 2, "cp": 2, "gpus": 16, "dtype": "bf16", "zero": 1, "vocab": 128256}, file="run.yaml"),
]  # fmt: skip
