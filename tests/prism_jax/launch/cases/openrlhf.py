"""OpenRLHF: command lines, texts behind `<<`, names before and since 2026, the actor of reinforcement learning."""

from collections.abc import Mapping
from typing import Any

from ..heads import stated
from .case import Case

SFT = """set -x

read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \\
   --max_len 4096 \\
   --dataset Open-Orca/OpenOrca \\
   --input_key question \\
   --train_batch_size 256 \\
   --micro_train_batch_size 2 \\
   --pretrain meta-llama/Meta-Llama-3-8B \\
   --save_path ./checkpoint/llama3-8b-sft \\
   --zero_stage 2 \\
   --max_epochs 1 \\
   --bf16 \\
   --learning_rate 5e-6 \\
   --gradient_checkpointing \\
   --packing_samples
EOF
    # --wandb [WANDB_TOKENS]
    # --ring_attn_size 4

if [[ ${1} != "slurm" ]]; then
    deepspeed --module $training_commands
fi
"""
LINE = """deepspeed --include "localhost:${DEVICE:-0,1,2,3}" --module openrlhf.cli.train_sft \\
  --train_batch_size 64 --micro_train_batch_size 1 --pretrain "${MODEL_PATH:-Qwen/Qwen2.5-7B-Instruct}" --bf16 --max_len 2048 \\
  --zero_stage 3 --gradient_checkpointing --adam_offload --lora_rank 32 --flash_attn
"""
DPO = """training_commands="openrlhf.cli.train_dpo --max_len 8192 --train_batch_size 128 --micro_train_batch_size 1 \\
   --pretrain OpenRLHF/Llama-3-8b-sft --ref_pretrain OpenRLHF/Llama-3-8b-sft --bf16 --zero_stage 3 --beta 0.1 \\
  --attn_implementation flash_attention_2"
export NNODES=2
torchrun --nproc_per_node 8 --nnodes 2 -m $training_commands
"""
RL = """ray job submit --address="http://127.0.0.1:8265" \\
   --runtime-env-json='{"working_dir": "/openrlhf"}' \\
   -- python3 -m openrlhf.cli.train_ppo_ray \\
   --ref_num_nodes 1 --ref_num_gpus_per_node 2 \\
   --actor_num_nodes 2 --actor_num_gpus_per_node 8 \\
   --vllm_num_engines 2 --vllm_tensor_parallel_size 2 \\
   --pretrain Qwen/Qwen2.5-7B --save_path /x \\
   --micro_train_batch_size 4 --train_batch_size 128 --micro_rollout_batch_size 8 --rollout_batch_size 1024 \\
   --max_epochs 1 --prompt_max_len 1024 --generate_max_len 3072 --zero_stage 3 --bf16 --gradient_checkpointing
"""
NEW = """NUM_GPUS=4
cmd=(
  deepspeed --num_gpus "$NUM_GPUS" --module openrlhf.cli.train_sft
  --model.model_name_or_path Qwen/Qwen3-8B
  --data.max_len 8192
  --train.batch_size 32
  --train.micro_batch_size 1
  --ds.zero_stage 3
  --ds.param_dtype bf16
  --ds.adam_offload
  --ds.attn_implementation flash_attention_2
  --model.gradient_checkpointing_enable
)
"${cmd[@]}"
"""
BASE = stated("layers=32 hidden=4096 kv=8 ffn=14336 seq=4096 micro=2 batch=256 gpus=8 zero=2 dtype=bf16 recompute=full")
OF_LINE = stated(
    "layers=28 seq=2048 micro=1 batch=64 gpus=4 zero=3 plan.offload_optimizer=1.0 model.adapters.rank=32 "
    "software.attention=flash2 recompute=full"
)
OF_RL = {"layers": 28, "seq": 4096, "micro": 4, "batch": 128, "gpus": 16, "zero": 3, "recompute": "full"}


def _sft(name: str, old: str, new: str, more: Mapping[str, Any]) -> Case:
    assert old in SFT
    return Case(name, SFT.replace(old, new), {**BASE, **more}, options={"n_devices": 8})


CASES = [
    _sft("sft", "", "", {}),
    Case("GPUs are asked for", SFT, refused="--gpus N"),
    _sft("ring attention", "--bf16", "--bf16 --ring_attn_size 4", {"cp": 4, "dp": 2}),
    _sft("no checkpointing", "   --gradient_checkpointing \\\n", "", {"recompute": "none"}),
    _sft("adapters", "--bf16", "--bf16 --lora_rank 64 --lora_alpha 64", {"model.adapters.rank": 64}),
    _sft("no adapters", "--bf16", "--bf16 --lora_rank 0", {"model.adapters.rank": 1}),
    _sft("a mixture", "meta-llama/Meta-Llama-3-8B", "mistralai/Mixtral-8x7B-v0.1", {"experts": 8, "top_k": 2}),
    _sft(
        "usual batch and stage",
        "   --train_batch_size 256 \\\n   --micro_train_batch_size 2 \\\n",
        "",
        {"micro": 8, "batch": 128},
    ),
    Case("one line", LINE, OF_LINE),
    Case("other GPUs", LINE, OF_LINE | {"gpus": 2}, variables={"DEVICE": "6,7"}),
    Case("other model", LINE, OF_LINE | {"layers": 32}, variables={"MODEL_PATH": "meta-llama/Meta-Llama-3-8B"}),
    Case(
        "names since 2026",
        NEW,
        stated(
            "layers=36 seq=8192 micro=1 batch=32 gpus=4 zero=3 dtype=bf16 recompute=full plan.offload_optimizer=1.0 "
            "software.attention=flash2"
        ),
    ),
    Case(
        "pairs", DPO, {"layers": 32, "seq": 8192, "micro": 1, "batch": 128, "gpus": 16, "zero": 3, "recompute": "none"}
    ),
    Case("actor", RL, OF_RL),
    Case("actor on other GPUs", RL.replace("--actor_num_nodes 2", "--actor_num_nodes 1"), OF_RL | {"gpus": 8}),
    Case(
        "a model that is not known",
        LINE.replace("Qwen/Qwen2.5-7B-Instruct", "my/model-of-mine"),
        refused="model-of-mine",
    ),
]
