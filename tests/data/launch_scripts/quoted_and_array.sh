#!/bin/bash
#SBATCH --nodes=4
#SBATCH --gpus-per-node=8
GPUS_PER_NODE=${GPUS_PER_NODE:-8}
NNODES=${NNODES:-4}
WORLD_SIZE=$(($GPUS_PER_NODE*$NNODES))
MODEL_SIZE=${1:-7}
CHECKPOINT_PATH=$2
if [[ ${MODEL_SIZE} == 7 ]]; then HIDDEN_SIZE=4096; NUM_HEAD=32; NUM_LAYERS=32; INTER=11008
elif [[ ${MODEL_SIZE} == 13 ]]; then HIDDEN_SIZE=5120; NUM_HEAD=40; NUM_LAYERS=40; INTER=13824; fi
if [ $SP = true ]; then sp_options=" --sequence-parallel"; fi
DISTRIBUTED_ARGS="
    --nproc_per_node $GPUS_PER_NODE \
    --nnodes $NNODES \
    --master_addr ${MASTER_ADDR:-localhost}
"
GPT_ARGS=(
    --num-layers $NUM_LAYERS
    --hidden-size $HIDDEN_SIZE   # comment
    --ffn-hidden-size "${INTER}"
    --num-attention-heads $NUM_HEAD
)
cmd="torchrun $DISTRIBUTED_ARGS pretrain_gpt.py ${GPT_ARGS[@]} \
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size=2 \
    --micro-batch-size 1 --global-batch-size $((WORLD_SIZE * 4)) --seq-length 4096 --bf16 $sp_options --tokenizer-type Llama2Tokenizer \
    --save $CHECKPOINT_PATH --no-gradient-accumulation-fusion"
echo $cmd
eval $cmd 2>&1 | tee log.txt
