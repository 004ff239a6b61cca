"""Configurations of nanotron."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case

TEXT = """checkpoints:
  checkpoint_interval: 1000
  resume_checkpoint_path: null
data_stages:
- data:
    dataset:
      hf_dataset_or_datasets: stas/openwebtext-10k
      hf_dataset_splits: train
      text_column_name: text
    num_loading_workers: 1
    seed: 42
  name: Stable Training Stage
  start_training_step: 1
general:
  project: debug
  run: llama_%date_%jobid
  seed: 42
lighteval: null
logging:
  log_level: info
model:
  ddp_bucket_cap_mb: 25
  dtype: bfloat16
  init_method:
    std: 0.025
  make_vocab_size_divisible_by: 1
  model_config:
    bos_token_id: 1
    hidden_act: silu
    hidden_size: 2048
    initializer_range: 0.02
    intermediate_size: 8192
    is_llama_config: true
    max_position_embeddings: 4096
    num_attention_heads: 32
    num_hidden_layers: 16
    num_key_value_heads: 8
    pad_token_id: null
    pretraining_tp: 1
    rms_norm_eps: 1.0e-05
    rope_scaling: null
    tie_word_embeddings: true
    use_cache: true
    vocab_size: 128256
optimizer:
  accumulate_grad_in_fp32: true
  clip_grad: 1.0
  learning_rate_scheduler:
    learning_rate: 0.0003
  optimizer_factory:
    adam_eps: 1.0e-08
    name: adamW
    torch_adam_is_fused: true
  zero_stage: 0
parallelism:
  dp: 4
  expert_parallel_size: 1
  pp: 2
  pp_engine: 1f1b
  tp: 2
  tp_linear_async_communication: true
  tp_mode: REDUCE_SCATTER
profiler: null
tokens:
  batch_accumulation_per_replica: 8
  micro_batch_size: 2
  sequence_length: 4096
  train_steps: 15
"""
BASE = stated(
    "layers=16 hidden=2048 ffn=8192 heads=32 kv=8 vocab=128256 seq=4096 micro=2 batch=64 tp=2 pp=2 dp=4 "
    "gpus=16 dtype=bf16 recompute=none plan.sequence_parallel=True"
)


def _case(name: str, more: Mapping[str, Any], *changes: tuple[str, str], **rest: Any) -> Case:
    text = TEXT
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return Case(name, text, {**BASE, **more}, "config.yaml", **rest)


QWEN = (
    "is_llama_config: true",
    "is_qwen2_config: true\n    moe_config: {num_experts: 8, top_k: 2, moe_intermediate_size: 1024}",
)
CASES = [
    _case("as it stands", {}),
    _case("zero", {"zero": 1}, ("zero_stage: 0", "zero_stage: 1")),
    _case("all forward, all backward", {"plan.schedule": "gpipe"}, ("pp_engine: 1f1b", "pp_engine: afab")),
    _case("whole layers are computed again", {"recompute": "full"}, ("tp: 2", "tp: 2\n  recompute_layer: true")),
    _case("context", {"cp": 2, "gpus": 32}, ("tp: 2", "tp: 2\n  context_parallel_size: 2")),
    _case("no sequence parallelism", {"plan.sequence_parallel": False}, ("REDUCE_SCATTER", "ALL_REDUCE")),
    _case(
        "one GPU",
        {"tp": 1, "pp": 1, "dp": 1, "gpus": 1, "batch": 16, "plan.sequence_parallel": "1"},
        ("dp: 4", "dp: 1"),
        ("pp: 2", "pp: 1"),
        ("tp: 2", "tp: 1"),
    ),
    _case("fp16", {"dtype": "fp16"}, ("dtype: bfloat16", "dtype: float16")),
    _case("padded vocabulary", {"vocab": 50258}, ("vocab_size: 128256", "vocab_size: 50257")),
    _case("many heads of keys", {"kv": 32}, ("num_key_value_heads: 8", "num_key_value_heads: 32")),
    _case("no heads of keys", {"kv": 32}, ("    num_key_value_heads: 8\n", "")),
    _case(
        "experts",
        {"experts": 8, "top_k": 2, "ep": 2, "model.moe.ffn_hidden": 1024},
        QWEN,
        ("expert_parallel_size: 1", "expert_parallel_size: 2"),
    ),
    _case(
        "one step without accumulation",
        {"batch": 8},
        ("batch_accumulation_per_replica: 8", "batch_accumulation_per_replica: 1"),
    ),
    _case(
        "comments and other order",
        {"micro": 6, "batch": 192},
        ("  micro_batch_size: 2", "  # micro_batch_size: 2\n  micro_batch_size: 6 # of 80 GB"),
    ),
    Case(
        "command line",
        "CUDA_DEVICE_MAX_CONNECTIONS=1 torchrun --nproc_per_node=8 --nnodes 2 run_train.py --config-file examples/config.yaml",
        BASE,
        others={"examples/config.yaml": TEXT},
    ),
    Case(
        "command line of a file that it writes",
        "cat > c.yaml <<EOF\n" + TEXT + "EOF\ntorchrun --nproc_per_node=16 run_train.py --config-file c.yaml",
        BASE,
    ),
    Case(
        "command line of a file that is not there",
        "torchrun --nproc_per_node=8 run_train.py --config-file c.yaml",
        refused=r"c\.yaml, which is not there",
    ),
    Case(
        "model without sizes",
        TEXT.replace("num_attention_heads", "n_heads"),
        file="c.yaml",
        refused="no sizes of a model",
    ),
]
