"""Command lines of Hugging Face's Trainer: torchrun, deepspeed, accelerate, Slurm; LLaVA, recipes of TRL, DeepSpeed-Chat."""

from ..heads import stated
from .accelerate import OLD, RECIPE, ZERO3
from .case import Case
from .llama_factory import Z2, Z3

LLAVA = """#!/bin/bash
deepspeed --include localhost:0,1,2,3 --master_port 20004 llava/train/train_mem.py \\
    --lora_enable True --lora_r 128 --lora_alpha 256 --mm_projector_lr 2e-5 \\
    --deepspeed ./scripts/zero3.json \\
    --model_name_or_path lmsys/vicuna-7b-v1.5 \\
    --version v1 \\
    --data_path ./playground/data/llava_v1_5_mix665k.json \\
    --vision_tower openai/clip-vit-large-patch14-336 \\
    --bf16 True \\
    --output_dir ./checkpoints/llava-v1.5-7b-lora \\
    --num_train_epochs 1 \\
    --per_device_train_batch_size 16 \\
    --per_device_eval_batch_size 4 \\
    --gradient_accumulation_steps 2 \\
    --evaluation_strategy "no" \\
    --tf32 True \\
    --model_max_length 2048 \\
    --gradient_checkpointing True \\
    --report_to wandb
"""
OF_LLAVA = stated(
    "layers=32 hidden=4096 ffn=11008 kv=32 seq=2048 micro=16 batch=128 gpus=4 zero=3 dtype=bf16 "
    "recompute=full model.adapters.rank=128"
)
TORCHRUN = """MODEL=${1:-meta-llama/Llama-2-7b-hf}
GPUS=8
export WANDB_MODE=offline
torchrun --nproc_per_node=$GPUS --nnodes=$NNODES --master_port=29500 train.py \\
    --model_name_or_path $MODEL \\
    --data_path ./alpaca_data.json \\
    --bf16 True \\
    --output_dir "out/$(date +%s)" \\
    --num_train_epochs 3 \\
    --per_device_train_batch_size $((32 / GPUS)) \\
    --gradient_accumulation_steps 8 \\
    --model_max_length 512 \\
    --fsdp "full_shard auto_wrap" \\
    --fsdp_transformer_layer_cls_to_wrap 'LlamaDecoderLayer'
"""
OF_TORCHRUN = stated("layers=32 seq=512 micro=4 batch=512 gpus=16 zero=3 plan.sharding=fsdp dtype=bf16")
SLURM = """#!/bin/bash
#SBATCH --job-name=sft
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:a100:4
export GPUS_PER_NODE=4
CMD="train.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --gradient_accumulation_steps 4 \\
  --max_seq_length 4096 \
--fp16 --gradient_checkpointing"
srun --jobid $SLURM_JOBID bash -c "python -m torch.distributed.run --nproc_per_node $GPUS_PER_NODE --nnodes $SLURM_NNODES $CMD"
"""
TRL = """ACCELERATE_LOG_LEVEL=info accelerate launch \\
  --config_file recipes/accelerate_configs/zero3.yaml scripts/run_sft.py recipes/sft.yaml \
--per_device_train_batch_size=4 --gradient_accumulation_steps=4
"""
FLAGS = """accelerate launch --num_processes 8 --num_machines 1 --mixed_precision bf16 --use_deepspeed \\
  --zero_stage 2 --dynamo_backend no \\
  sft.py --model_name_or_path Qwen/Qwen2.5-7B --dataset_name x --per_device_train_batch_size 2 \\
  --max_seq_length 2048 --use_peft --lora_r 16 \\
  --lora_target_modules q_proj k_proj v_proj o_proj
"""
CHAT = """OUTPUT=$1
ZERO_STAGE=$2
if [ "$OUTPUT" == "" ]; then
    OUTPUT=./output
fi
if [ "$ZERO_STAGE" == "" ]; then
    ZERO_STAGE=3
fi
deepspeed --num_gpus 8 main.py --data_path Dahoas/rm-static Dahoas/full-hh-rlhf --data_split 2,4,4 \\
  --model_name_or_path meta-llama/Llama-2-13b-hf \\
   --per_device_train_batch_size 4 --max_seq_len 512 --gradient_accumulation_steps 2 --gradient_checkpointing \\
  --zero_stage $ZERO_STAGE \\
   --deepspeed --dtype bf16 --output_dir $OUTPUT &> $OUTPUT/training.log
"""
SEVERAL = (
    TORCHRUN
    + "\npython eval.py --model_name_or_path out --do_eval\npython scripts/merge_lora_weights.py --model-path a"
)
TWO = LLAVA.replace("--lora_enable True --lora_r 128", "--lora_enable False --lora_r 128")
GPT2 = """python -m torch.distributed.run --nproc_per_node=4 run_clm.py --model_name_or_path gpt2 \\
  --dataset_name wikitext --do_train --fp16 \\
  --per_device_train_batch_size 8 --block_size 1024 --output_dir /tmp/x
"""
OF_CHAT = stated("layers=40 hidden=5120 seq=512 micro=4 batch=64 gpus=8 zero=2 dtype=bf16 recompute=full")
CASES = [
    Case("llava", LLAVA, OF_LLAVA),
    Case(
        "json followed",
        LLAVA.replace("zero3.json", "of_mine.json"),
        OF_LLAVA | {"zero": 2},
        others={"scripts/of_mine.json": Z2},
    ),
    Case(
        "json of another folder",
        LLAVA,
        OF_LLAVA,
        "scripts/v1_5/finetune.sh",
        {"scripts/zero3.json": Z3},
        options={"root": "."},
    ),
    Case("no adapters", TWO, OF_LLAVA | {"model.adapters.rank": 1}),
    Case("all GPUs of the host", LLAVA.replace("--include localhost:0,1,2,3 ", ""), refused="--gpus N"),
    Case(
        "visible GPUs",
        "export CUDA_VISIBLE_DEVICES=0,1\n" + LLAVA.replace("--include localhost:0,1,2,3 ", ""),
        OF_LLAVA | {"gpus": 2, "batch": 64},
    ),
    Case("four bits", LLAVA.replace("--bf16", "--bits 4 --bf16"), OF_LLAVA | {"model.adapters.quantised": "nf4"}),
    Case("torchrun", TORCHRUN, OF_TORCHRUN, variables={"NNODES": "2"}),
    Case(
        "another model by position",
        TORCHRUN,
        OF_TORCHRUN | {"layers": 40, "hidden": 5120},
        arguments=["NousResearch/Llama-2-13b-hf"],
        variables={"NNODES": "2"},
    ),
    Case("nodes are asked for", TORCHRUN, refused=r"\$NNODES"),
    Case("evaluation behind", SEVERAL, OF_TORCHRUN, variables={"NNODES": "2"}),
    Case(
        "gradients alone",
        TORCHRUN.replace("full_shard", "shard_grad_op"),
        OF_TORCHRUN | {"zero": 2},
        variables={"NNODES": "2"},
    ),
    Case(
        "slurm",
        SLURM,
        stated("layers=28 hidden=3584 seq=4096 micro=2 batch=64 gpus=8 dtype=fp16 recompute=full"),
    ),
    Case(
        "recipe",
        TRL,
        {"layers": 32, "kv": 8, "seq": 2048, "micro": 4, "batch": 128, "gpus": 8, "zero": 3, "recompute": "full"},
        others={"recipes/sft.yaml": RECIPE, "recipes/accelerate_configs/zero3.yaml": ZERO3},
    ),
    Case(
        "recipe by --config",
        TRL.replace("recipes/sft.yaml", "--config recipes/sft.yaml"),
        {"layers": 32, "micro": 4, "batch": 256, "gpus": 16, "zero": 3, "plan.sharding": "fsdp"},
        others={"recipes/sft.yaml": RECIPE, "recipes/accelerate_configs/zero3.yaml": OLD},
    ),
    Case("recipe that is not there", TRL, refused=r"sft\.yaml, which is not there"),
    Case(
        "options of accelerate",
        FLAGS,
        {
            "layers": 28,
            "micro": 2,
            "batch": 16,
            "seq": 2048,
            "gpus": 8,
            "zero": 2,
            "dtype": "bf16",
            "model.adapters.rank": 16,
            "model.adapters.targets": "['q_proj', 'k_proj', 'v_proj', 'o_proj']",
        },
    ),
    Case(
        "fsdp of accelerate",
        FLAGS.replace("use_deepspeed", "use_fsdp").replace("--zero_stage 2", "--fsdp_sharding_strategy SHARD_GRAD_OP"),
        {"micro": 2, "gpus": 8, "zero": 2, "plan.sharding": "fsdp"},
    ),
    Case("deepspeed chat", CHAT, refused=r"\$2 \(line 2, for --zero-stage\)"),
    Case("deepspeed chat by position", CHAT, OF_CHAT, arguments=["out", "2"]),
    Case(
        "run_clm",
        GPT2,
        {"layers": 12, "hidden": 768, "heads": 12, "seq": 1024, "micro": 8, "batch": 32, "gpus": 4, "dtype": "fp16"},
    ),
    Case("nothing of precision", GPT2.replace("--fp16", ""), {"layers": 12, "dtype": "fp32"}),
    Case(
        "evaluation alone",
        "python run_glue.py --model_name_or_path bert-base --do_eval --per_device_eval_batch_size 8 --do_predict",
        refused="no training|no command line",
    ),
]
GRPO = RECIPE.replace(
    "max_seq_length: 2048", "max_prompt_length: 512\nmax_completion_length: 1536\nnum_generations: 8\nuse_vllm: true"
)
LAUNCH = """PORT=$(shuf -i25000-30000 -n1)
YAML_PATH=recipes/grpo.yaml
CUDA_VISIBLE_DEVICES=0,1 ACCELERATE_LOG_LEVEL=info\\
    accelerate launch --config_file recipes/zero3.yaml --num_processes 2 --main_process_port $PORT\\
    src/open_r1/grpo.py --config $YAML_PATH\\
    --output_dir out \\
    2>&1 | tee "$LOG_PATH"
"""
CASES += [
    Case(
        "training step of reinforcement learning",
        LAUNCH,
        {"layers": 32, "seq": 2048, "micro": 16, "batch": 64, "gpus": 2, "zero": 3},
        others={"recipes/grpo.yaml": GRPO, "recipes/zero3.yaml": ZERO3},
    ),
]

RECIPES = """#!/bin/bash
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
MODEL=$1
TASK=$2
NUM_NODES=$SLURM_NNODES
GPUS_PER_NODE=8
WORLD_SIZE=$(($NUM_NODES*$GPUS_PER_NODE))
CONFIG_FILE=recipes/$MODEL/$TASK/config_$3.yaml
export CMD=" src/open_r1/$TASK.py $CONFIG_FILE $5"
export LAUNCHER="ACCELERATE_LOG_LEVEL=info accelerate launch --config_file recipes/accelerate_configs/$4.yaml \
    --num_machines $NUM_NODES --num_processes $WORLD_SIZE --machine_rank \\$SLURM_PROCID --role \\$(hostname -s): --tee 3 "
clear; srun --wait=60 --jobid $SLURM_JOB_ID bash -c "$LAUNCHER --role \\$SLURMD_NODENAME: $CMD" 2>&1
"""
SFT = {"recipes/m/sft/config_demo.yaml": RECIPE, "recipes/accelerate_configs/zero3.yaml": ZERO3}
CASES += [
    Case(
        "recipes by position",
        RECIPES,
        {"layers": 32, "micro": 16, "batch": 512, "gpus": 16, "zero": 3},
        others=SFT,
        arguments=["m", "sft", "demo", "zero3", ""],
        variables={"SLURM_NNODES": "2"},
    ),
    Case(
        "gpus of slurm",
        "#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --gres=gpu:h100:4\nsrun accelerate launch --multi_gpu "
        "sft.py --model_name_or_path Qwen/Qwen2.5-7B --per_device_train_batch_size 2 --max_seq_length 2048 --bf16",
        {"gpus": 8, "batch": 16},
    ),
]
