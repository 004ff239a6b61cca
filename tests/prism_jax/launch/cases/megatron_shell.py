"""Scripts of Megatron-LM and its forks."""

from .case import Case, but

ARRAYS = """#!/bin/bash
GPUS_PER_NODE=8
NNODES=${NNODES:-4}
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES)
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --num-attention-heads 32
    --seq-length 4096
    --max-position-embeddings 4096
    --group-query-attention --num-query-groups 8
    --ffn-hidden-size 14336 --swiglu # --ffn-hidden-size 11008
    # --num-layers 80
    --vocab-size 128000
)
PARALLEL=(--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} ${PARALLEL[@]} \
    --micro-batch-size 1 --global-batch-size 128 --bf16 --recompute-activations
"""
READ = {"layers": 32, "hidden": 4096, "heads": 32, "kv": 8, "ffn": 14336, "seq": 4096, "tp": 4, "pp": 2, "micro": 1, "batch": 128,
        "gpus": 32, "dtype": "bf16", "recompute": "selective"}  # fmt: skip
BASE = Case("arrays", ARRAYS, READ)
QUOTED = """#!/bin/bash
#SBATCH --nodes=4 --exclusive
#SBATCH --ntasks-per-node=1
#SBATCH --gres=gpu:8
export CUDA_DEVICE_MAX_CONNECTIONS=1
MASTER_ADDR=$(scontrol show hostnames $SLURM_JOB_NODELIST | head -n 1)
TP=4
PP=2
MBS=1
GBS=$((MBS * 32 * TP))
GPT_ARGS="
    --tensor-model-parallel-size ${TP} \\
    --pipeline-model-parallel-size ${PP} \\
    --sequence-parallel \\
    --num-layers 32 --hidden-size 4096 --ffn-hidden-size 14336 --num-attention-heads 32 \\
    --group-query-attention --num-query-groups 8 \\
    --seq-length 4096 --max-position-embeddings 4096 --swiglu --vocab-size 128000 \\
    --micro-batch-size $MBS --global-batch-size $GBS --bf16 \\
    --recompute-granularity selective
"
LAUNCH="torchrun --nproc_per_node 8 --nnodes $SLURM_NNODES --rdzv_endpoint $MASTER_ADDR:6000"
CMD="$LAUNCH pretrain_gpt.py $GPT_ARGS"
echo $CMD
srun --jobid $SLURM_JOBID bash -c "$CMD --save $OUT"
"""
DEEPSPEED = """#!/bin/bash
ZERO_STAGE=1
CONFIG=./ds_config.$SLURM_JOBID.json
cat <<EOT > $CONFIG
{
  "train_micro_batch_size_per_gpu": 2,
  "train_batch_size": 256,
  "gradient_clipping": 1.0,
  "zero_optimization": {"stage": $ZERO_STAGE},
  "bf16": {"enabled": true}
}
EOT
DS=" --deepspeed --deepspeed_config ${CONFIG} --zero-stage ${ZERO_STAGE} --deepspeed-activation-checkpointing "
ARGS=" --tensor-model-parallel-size 4 --pipeline-model-parallel-size 4 --num-layers 24 --hidden-size 2048 --num-attention-heads 16 \\
  --seq-length 2048 --max-position-embeddings 2048 --micro-batch-size 2 --global-batch-size 256 --bf16 --vocab-size 50257 \\
  --checkpoint-activations $DS"
deepspeed --num_nodes 4 --num_gpus 8 pretrain_gpt.py $ARGS
"""
EIGHT = ("--pipeline-model-parallel-size 2", "--pipeline-model-parallel-size 8")
MLA = (
    "--multi-latent-attention --q-lora-rank 1536 --kv-lora-rank 512 --qk-head-dim 128 --qk-pos-emb-head-dim 64 --v-head-dim 128 "
    "--num-experts 64 --moe-router-topk 6 --moe-ffn-hidden-size 1408 --expert-model-parallel-size 8"
)
CASES = [
    BASE,
    Case("string behind srun", QUOTED, READ),
    Case("DeepSpeed", DEEPSPEED, {"layers": 24, "hidden": 2048, "heads": 16, "seq": 2048, "micro": 2, "batch": 256, "tp": 4, "pp": 4, "dp": 2,
                                  "gpus": 32, "zero": 1, "dtype": "bf16", "recompute": "full"}),
    but(BASE, "given nodes", variables={"NNODES": "2"}, expected={"gpus": 16}),
    but(BASE, "equals", ("--seq-length 4096", "--seq-length=8192"), expected={"seq": 8192}),
    but(BASE, "layout", EIGHT, ("--bf16", "--bf16 --pipeline-model-parallel-layout \"Et*3|(t*4|)*6t*5L\""), expected={"pp": 8, "split": "[3, 4, 4, 4, 4, 4, 4, 5]"}),
    but(BASE, "layout with escapes", EIGHT, ("--bf16", "--bf16 --pipeline-model-parallel-layout Et*2\\|\\(tt\\|\\)*14ttL"),
        expected={"pp": 8, "vpp": 2, "split": "1"}),
    but(BASE, "layout of a string", EIGHT, ("--bf16", "--bf16 --pipeline-model-parallel-layout \"'E,t*1|t*4|t*5,|(t*4|)*4t*6,m,L'\""),
        expected={"pp": 8, "split": "[1, 4, 5, 4, 4, 4, 4, 6]"}),
    but(BASE, "layout of other layers is not modelled", EIGHT, ("--bf16", "--bf16 --pipeline-model-parallel-layout 'Et|tL'"), expected={"pp": 8, "split": "1"}),
    but(BASE, "ends", ("--bf16", "--bf16 --decoder-first-pipeline-num-layers 15 --decoder-last-pipeline-num-layers 17"), expected={"split": "[15, 17]"}),
    but(BASE, "chunks", ("--bf16", "--bf16 --num-layers-per-virtual-pipeline-stage 4"), expected={"vpp": 4}),
    but(BASE, "experts", ("--bf16", "--bf16 --num-experts 8 --moe-router-topk 2 --expert-model-parallel-size 4"), expected={"experts": 8, "top_k": 2, "ep": 4}),
    but(BASE, "latent attention", ("--group-query-attention --num-query-groups 8", MLA),
        expected={"kv": 1, "experts": 64, "top_k": 6, "ep": 8, "model.mla.kv_lora_rank": 512, "model.moe.ffn_hidden": 1408}),
    but(BASE, "full recomputation", ("--recompute-activations", "--recompute-granularity full --recompute-method uniform --recompute-num-layers 1"),
        expected={"recompute": "full"}),
    but(BASE, "fp8", ("--bf16", "--bf16 --fp8-format hybrid --fp8-recipe blockwise"), expected={"dtype": "fp8", "plan.fp8_recipe": "blockwise"}),
    but(BASE, "context", ("--bf16", "--bf16 --context-parallel-size 2"), expected={"cp": 2, "dp": 2}),
    but(BASE, "over ssh", ("torchrun ${DIST", 'ssh node1 "cd /x && torchrun ${DIST'), ("--recompute-activations\n", '--recompute-activations"\n')),
    but(BASE, "a converter behind", ("--recompute-activations\n", "--recompute-activations\npython tools/checkpoint/convert.py --num-layers 32 "
        "--tensor-model-parallel-size 1\n")),
    but(BASE, "a sourced file", ("--vocab-size 128000\n)", '--vocab-size 128000\n)\nsource "$(dirname "$0")/env/parallel.sh"'),
        ("PARALLEL=(--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel)\n", ""),
        others={"env/parallel.sh": "PARALLEL=(--tensor-model-parallel-size 8 --pipeline-model-parallel-size 1)\n"}, expected={"tp": 8, "pp": 1}),
    but(BASE, "a sourced file is not there", ("PARALLEL=(--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel)\n",
        "source ../env/parallel.sh\n"), refused=r"\$PARALLEL|env/parallel.sh"),
    but(BASE, "open size", ("--hidden-size 4096", "--hidden-size $(python sizes.py)"), refused=r"\$\(python sizes.py\) \(line 7"),
]  # fmt: skip
