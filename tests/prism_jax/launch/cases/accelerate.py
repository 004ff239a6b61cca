"""accelerate YAML and DeepSpeed JSON: with a recipe of TRL, with each other, and alone."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case
from .llama_factory import FSDP, Z2, Z3

RECIPE = """# Model arguments
model_name_or_path: mistralai/Mistral-7B-v0.1
model_revision: main
torch_dtype: bfloat16
attn_implementation: flash_attention_2

# Data training arguments
dataset_mixer:
  HuggingFaceH4/ultrachat_200k: 1.0
dataset_splits:
- train_sft
preprocessing_num_workers: 12

# SFT trainer config
bf16: true
do_eval: true
gradient_accumulation_steps: 2
gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
learning_rate: 2.0e-05
max_seq_length: 2048
num_train_epochs: 1
per_device_train_batch_size: 16
report_to:
- tensorboard
"""
ZERO3 = """compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
  offload_optimizer_device: none
  offload_param_device: none
  zero3_init_flag: true
  zero3_save_16bit_model: true
  zero_stage: 3
distributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
use_cpu: false
"""
BY_FILE = """distributed_type: DEEPSPEED
deepspeed_config:
  deepspeed_config_file: ../templates/zero.json
  zero3_init_flag: false
num_processes: 2
"""
OLD = """compute_environment: LOCAL_MACHINE
distributed_type: FSDP
fsdp_config:
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_backward_prefetch: BACKWARD_PRE
  fsdp_forward_prefetch: false
  fsdp_offload_params: false
  fsdp_sharding_strategy: FULL_SHARD
  fsdp_state_dict_type: SHARDED_STATE_DICT
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""
MESH = """distributed_type: FSDP
fsdp_config:
  fsdp_activation_checkpointing: true
  fsdp_reshard_after_forward: true
  fsdp_version: 2
mixed_precision: bf16
num_machines: 1
num_processes: 8
parallelism_config:
  parallelism_config_cp_size: 1
  parallelism_config_dp_replicate_size: 2
  parallelism_config_dp_shard_size: 2
  parallelism_config_tp_size: 2
"""
MULTI = """compute_environment: LOCAL_MACHINE
distributed_type: MULTI_GPU
gpu_ids: all
mixed_precision: fp16
num_machines: 2
num_processes: 8
"""
ALONE = """{"train_batch_size": 256, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 8,
 "optimizer": {"type": "AdamW", "params": {"lr": 3e-5}}, "fp16": {"enabled": true}, "zero_optimization": {"stage": 2,
 "cpu_offload": true}}
"""
CONFIG = """{"architectures": ["LlamaForCausalLM"], "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 5632,
 "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32, "num_hidden_layers": 22,
 "num_key_value_heads": 4,
 "tie_word_embeddings": false, "torch_dtype": "bfloat16", "vocab_size": 32000}
"""
BASE = stated(
    "layers=32 hidden=4096 ffn=14336 heads=32 kv=8 seq=2048 micro=16 batch=256 gpus=8 dtype=bf16 recompute=full"
)
MODEL = ["model=mistral-7b", "plan.seq_len=1024", "plan.micro_batch=2", "plan.global_batch=64"]


def _case(name: str, config: str, more: Mapping[str, Any], recipe: str = RECIPE, **rest: Any) -> Case:
    others = {"a.yaml": config} | rest.pop("others", {})
    return Case(name, recipe, {**BASE, **more}, "recipe.yaml", others, list(others), **rest)


PARTS = {"distributed_type: FSDP": "distributed_type: FSDP\nnum_processes: 8"}
CASES = [
    _case("zero 3", ZERO3, {"zero": 3}),
    _case(
        "accumulation by accelerate",
        ZERO3.replace("  zero_stage", "  gradient_accumulation_steps: 2\n  zero_stage"),
        {"zero": 3},
        RECIPE.replace("gradient_accumulation_steps: 2\n", ""),
    ),
    _case(
        "offload",
        ZERO3.replace("optimizer_device: none", "optimizer_device: cpu"),
        {"zero": 3, "plan.offload_optimizer": "1.0"},
    ),
    _case("json beside", BY_FILE, {"zero": 2, "gpus": 2, "batch": 64}, others={"zero.json": Z2}),
    _case("fsdp 1", OLD, {"zero": 3, "plan.sharding": "fsdp", "gpus": 16, "batch": 512}),
    _case("gradients alone", OLD.replace("FULL_SHARD", "SHARD_GRAD_OP"), {"zero": 2, "gpus": 16, "batch": 512}),
    _case("by number", OLD.replace("FULL_SHARD", "1"), {"zero": 3, "gpus": 16, "batch": 512}),
    _case(
        "hybrid",
        OLD.replace("FULL_SHARD", "HYBRID_SHARD"),
        {"plan.sharding": "hsdp", "plan.dp_shard": 8, "gpus": 16, "batch": 512},
    ),
    _case("not sharded", OLD.replace("FULL_SHARD", "NO_SHARD"), {"zero": 0, "gpus": 16, "batch": 512}),
    _case("fsdp 2", FSDP, {"zero": 3, "plan.sharding": "fsdp", "gpus": 4, "batch": 128}),
    _case(
        "fsdp 2 without resharding",
        FSDP.replace("forward: true", "forward: false"),
        {"zero": 2, "gpus": 4, "batch": 128},
    ),
    _case(
        "fsdp on the host",
        FSDP.replace("params: false", "params: true"),
        {"plan.offload_parameters": True, "gpus": 4, "batch": 128},
    ),
    _case(
        "mesh",
        MESH,
        {"tp": 2, "dp": 4, "plan.sharding": "hsdp", "plan.dp_shard": 2, "batch": 128},
        RECIPE.replace("gradient_checkpointing: true", "gradient_checkpointing: false"),
    ),
    _case(
        "context",
        MESH.replace("cp_size: 1", "cp_size: 2").replace("replicate_size: 2", "replicate_size: 1"),
        {"tp": 2, "cp": 2, "dp": 2, "plan.sharding": "fsdp", "batch": 64},
    ),
    _case("copies", MULTI, {"zero": 0, "dtype": "bf16"}),
    _case("precision of accelerate", MULTI, {"dtype": "fp16"}, RECIPE.replace("bf16: true\n", "")),
    _case(
        "model by its file",
        ZERO3,
        {"layers": 22, "hidden": 2048, "ffn": 5632, "kv": 4, "zero": 3},
        RECIPE.replace("Mistral-7B-v0.1", "of-mine"),
        others={"config.json": CONFIG},
    ),
    Case(
        "accelerate alone",
        ZERO3,
        {"gpus": 8, "zero": 3, "dtype": "bf16"},
        "a.yaml",
        options={"overrides": MODEL},
    ),
    Case("accelerate asks", ZERO3, file="a.yaml", refused=r"does not say which model it is of.*plan\.seq_len=N"),
    Case(
        "deepspeed alone",
        ALONE,
        {"gpus": 8, "micro": 4, "batch": 256, "zero": 2, "dtype": "fp16", "plan.offload_optimizer": "1.0"},
        "ds.json",
        options={"overrides": MODEL[:2]},
    ),
    Case(
        "deepspeed of auto alone", Z3, {"gpus": 16, "zero": 3}, "ds.json", options={"overrides": MODEL, "n_devices": 16}
    ),
]
