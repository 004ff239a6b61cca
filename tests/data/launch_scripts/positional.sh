#!/bin/bash
set -e
ENV=$1
MEGATRON_PATCH_PATH=$2
MODEL_SIZE=$5
BATCH_SIZE=$6
GLOBAL_BATCH_SIZE=$7
SEQ_LEN=${10}
PR=${12}
TP=${13}
PP=${14}
AC=${15}
DO=${16}
FL=${17}
SP=${18}
if [ $ENV = dsw ]; then
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
MASTER_ADDR=localhost
MASTER_PORT=$(shuf -n 1 -i 10000-65535)
NNODES=1
NODE_RANK=0
GPUS_PER_NODE=8
elif [ $ENV = dlc ]; then
NNODES=${WORLD_SIZE}
NODE_RANK=${RANK}
GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}
fi
DISTRIBUTED_ARGS="--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
if [ $MODEL_SIZE = 7B ]; then
NUM_LAYERS=32
HIDDEN_SIZE=4096
NUM_ATTN_HEADS=32
INTERMEDIATE_SIZE=11008
gqa_options=""
elif [ $MODEL_SIZE = 70B ]; then
NUM_LAYERS=80
HIDDEN_SIZE=8192
NUM_ATTN_HEADS=64
INTERMEDIATE_SIZE=28672
gqa_options=" \
		    --group-query-attention \
		    --num-query-groups 8"
fi
if [ $AC = full ]; then
    activation_checkpoint_options=" \
		    --recompute-method uniform \
            --recompute-num-layers 1 \
		    --recompute-granularity full"
elif [ $AC = sel ]; then
    activation_checkpoint_options=" \
        --recompute-activations"
elif [ $AC = none ]; then
    activation_checkpoint_options=" \
                    "
fi
if [ $PR = fp16 ]; then
    pr_options=" --fp16 --apply-query-key-layer-scaling"
elif [ $PR = bf16 ]; then
    pr_options=" --bf16"
elif [ $PR = fp8 ]; then
    pr_options=" \
        --bf16 \
        --fp8-hybrid \
        --fp8-amax-compute-algo max "
fi
if [ $DO = true ]; then do_options=" --use-distributed-optimizer"; elif [ $DO = false ]; then do_options=" "; fi
if [ $SP = true ] && [ $TP -gt 1 ]; then sp_options=" --sequence-parallel"; elif [ $SP = false ]; then sp_options=" "; fi
TRAIN_ITERS=$(( ${19} / ${GLOBAL_BATCH_SIZE} / ${SEQ_LEN} ))
NAME="${ENV}-pretrain-tp-${TP}-ac-${AC}"
megatron_options="  \
        --save ${NAME} \
        --train-iters ${TRAIN_ITERS} \
        --num-layers ${NUM_LAYERS} \
        --hidden-size ${HIDDEN_SIZE} \
        --num-attention-heads ${NUM_ATTN_HEADS} \
        --ffn-hidden-size ${INTERMEDIATE_SIZE} \
        --micro-batch-size ${BATCH_SIZE} \
        --global-batch-size ${GLOBAL_BATCH_SIZE} \
        --seq-length ${SEQ_LEN} \
        --swiglu --normalization RMSNorm --use-rotary-position-embeddings --untie-embeddings-and-output-weights \
        --tensor-model-parallel-size ${TP} \
        --pipeline-model-parallel-size ${PP} \
        --disable-bias-linear --padded-vocab-size 32000
        "
run_cmd="torchrun $DISTRIBUTED_ARGS pretrain_megatron_llama.py
 ${megatron_options} ${pr_options} ${activation_checkpoint_options} ${do_options} ${sp_options} ${gqa_options}"
echo ${run_cmd}
eval ${run_cmd}
set +x
