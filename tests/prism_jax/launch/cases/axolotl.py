"""axolotl YAML."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case
from .llama_factory import Z2

TEXT = """base_model: NousResearch/Meta-Llama-3-8B
# optionally might have model_type or tokenizer_type
model_type: LlamaForCausalLM
tokenizer_type: AutoTokenizer

datasets:
  - path: tatsu-lab/alpaca
    type: alpaca
dataset_prepared_path: last_run_prepared
val_set_size: 0.05
output_dir: ./outputs/out

sequence_len: 8192
sample_packing: true
pad_to_sequence_len: true

wandb_project:
wandb_entity:

gradient_accumulation_steps: 8
micro_batch_size: 1
num_epochs: 1
optimizer: paged_adamw_8bit
lr_scheduler: cosine
learning_rate: 2e-5

bf16: auto
tf32: false

gradient_checkpointing: true
gradient_checkpointing_kwargs:
  use_reentrant: false
flash_attention: true
weight_decay: 0.0
special_tokens:
  pad_token: <|end_of_text|>
"""
LORA = "adapter: lora\nlora_r: 32\nlora_alpha: 16\nlora_dropout: 0.05\nlora_target_linear: true\n"
QLORA = "load_in_8bit: false\nload_in_4bit: true\nadapter: qlora\nlora_r: 16\nlora_target_modules:\n  - q_proj\n  - v_proj\n"
OLD_FSDP = """fsdp:
  - full_shard
  - auto_wrap
fsdp_config:
  fsdp_offload_params: true
  fsdp_state_dict_type: FULL_STATE_DICT
"""
NEW_FSDP = "fsdp_version: 2\nfsdp_config:\n  offload_params: false\n  reshard_after_forward: true\n"
MESH = NEW_FSDP + "dp_replicate_size: 2\ndp_shard_size: 2\ntensor_parallel_size: 2\n"
BASE = stated(
    "layers=32 hidden=4096 ffn=14336 heads=32 kv=8 seq=8192 micro=1 batch=64 gpus=8 dtype=bf16 recompute=full "
    "software.attention=flash2"
)


def _case(name: str, add: str, more: Mapping[str, Any], *changes: tuple[str, str], **rest: Any) -> Case:
    text = TEXT + add
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    rest = {"options": {"n_devices": 8}} | rest
    return Case(name, text, {**BASE, **more}, "axolotl.yml", **rest)


CASES = [
    _case("full", "", {"model.adapters.rank": 1}),
    _case(
        "lora", LORA, {"model.adapters.rank": 32, "model.adapters.targets": "['all']", "model.adapters.dropout": 0.05}
    ),
    _case(
        "qlora",
        QLORA,
        {
            "model.adapters.rank": 16,
            "model.adapters.quantised": "nf4",
            "model.adapters.targets": "['q_proj', 'v_proj']",
        },
    ),
    _case("fsdp", OLD_FSDP, {"zero": 3, "plan.sharding": "fsdp", "plan.offload_parameters": True}),
    _case("fsdp 2", NEW_FSDP, {"zero": 3, "plan.sharding": "fsdp"}),
    _case(
        "mesh says the GPUs",
        MESH,
        {"plan.sharding": "hsdp", "tp": 2, "dp": 4, "plan.dp_shard": 2, "batch": 32},
        options={},
    ),
    _case("context", "context_parallel_size: 2\n", {"cp": 2, "dp": 4, "batch": 32}),
    _case("sequence parallelism of before", "sequence_parallel_degree: 4\n", {"cp": 4, "dp": 2, "batch": 16}),
    _case("deepspeed by its name", "deepspeed: deepspeed_configs/zero3_bf16.json\n", {"zero": 3}),
    _case(
        "deepspeed followed",
        "deepspeed: deepspeed_configs/a.json\n",
        {"zero": 2},
        others={"deepspeed_configs/a.json": Z2},
    ),
    _case(
        "no checkpointing", "", {"recompute": "none"}, ("gradient_checkpointing: true", "gradient_checkpointing: false")
    ),
    _case("fp16", "", {"dtype": "fp16"}, ("bf16: auto", "fp16: true")),
    _case("bf16 true", "", {"dtype": "bf16"}, ("bf16: auto", "bf16: true")),
    _case(
        "old names",
        "",
        {"seq": 4096, "micro": 2, "batch": 128},
        ("sequence_len: 8192", "sequence_len: 4096"),
        ("micro_batch_size: 1", "micro_batch_size: 2"),
    ),
    _case("GPUs are asked for", "", {}, options={}, refused="--gpus N"),
    Case(
        "command line",
        "accelerate launch --num_processes 4 -m axolotl.cli.train axolotl.yml\n",
        BASE | {"gpus": 4, "batch": 32},
        others={"axolotl.yml": TEXT},
    ),
    Case(
        "axolotl train",
        "CUDA_VISIBLE_DEVICES=0,1,2,3 axolotl train axolotl.yml --micro-batch-size 2\n",
        BASE | {"gpus": 4, "micro": 2, "batch": 64},
        others={"axolotl.yml": TEXT},
    ),
]
INNER = "fsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: false\n  fsdp_reshard_after_forward: true\n  fsdp_activation_checkpointing: true\n"
CASES += [
    _case(
        "fsdp 2 by its configuration alone",
        INNER,
        {"zero": 3, "plan.sharding": "fsdp", "recompute": "full"},
        ("gradient_checkpointing: true", "gradient_checkpointing: false"),
    ),
    _case("fp8", "fp8: true\n", {"dtype": "fp8"}, ("bf16: auto", "bf16:")),
    _case("nothing of fsdp", "fsdp:\nfsdp_config:\ndeepspeed:\n", {"zero": 0}),
]
