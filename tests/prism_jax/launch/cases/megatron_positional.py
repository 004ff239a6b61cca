"""Scripts of Megatron-LM with positional arguments, which decide sizes by a chain of `if`."""

from .case import Case, but

TEXT = """#!/bin/bash
set -e
ENV=$1
MODEL_SIZE=$2
BATCH_SIZE=$3
GLOBAL_BATCH_SIZE=$4
SEQ_LEN=$5
PR=${6}
TP=$7
PP=$8
CP=$9
SP=${10}
DO=${11}
FL=${12}
AC=${13:-none}
if [ $ENV = dsw ]; then
    NNODES=1
    GPUS_PER_NODE=${KUBERNETES_GPUS:-8}
elif [ $ENV = dlc ]; then
    NNODES=${WORLD_SIZE}
    GPUS_PER_NODE=${KUBERNETES_CONTAINER_RESOURCE_GPU}
fi
gqa_options=""
moe_options=""
if [ $MODEL_SIZE = 7B ]; then
    NUM_LAYERS=32; HIDDEN_SIZE=4096; NUM_ATTN_HEADS=32; INTERMEDIATE_SIZE=11008
elif [ $MODEL_SIZE = 70B ]; then
    NUM_LAYERS=80
    HIDDEN_SIZE=8192
    NUM_ATTN_HEADS=64
    INTERMEDIATE_SIZE=28672
    gqa_options=" \\
        --group-query-attention \\
        --num-query-groups 8"
elif [ $MODEL_SIZE = A2.7B ]; then
    NUM_LAYERS=24 HIDDEN_SIZE=2048 NUM_ATTN_HEADS=16 INTERMEDIATE_SIZE=5632
    moe_options="--num-experts 60 --moe-router-topk 4 --moe-ffn-hidden-size 1408 --expert-model-parallel-size 4"
fi
case $AC in
    full) activation_checkpoint_options="--recompute-method uniform --recompute-num-layers 1 --recompute-granularity full" ;;
    sel) activation_checkpoint_options="--recompute-activations" ;;
    *) activation_checkpoint_options="" ;;
esac
if [ $PR = fp16 ]; then
    pr_options="--fp16 --initial-loss-scale 65536"
elif [ $PR = bf16 ]; then
    pr_options="--bf16"
elif [ $PR = fp8 ]; then
    pr_options="--bf16 --fp8-format hybrid"
fi
if [ $DO = true ]; then do_options="--use-distributed-optimizer"; else do_options=""; fi
[ $FL = true ] && flash_options="--use-flash-attn" || flash_options=""
if [ $SP = true ] && [ $TP -gt 1 ]; then sp_options="--sequence-parallel"; else sp_options=" "; fi
TRAIN_ITERS=$(( 1000000000 / GLOBAL_BATCH_SIZE / SEQ_LEN ))
megatron_options=" \\
    --num-layers ${NUM_LAYERS} --hidden-size ${HIDDEN_SIZE} --num-attention-heads ${NUM_ATTN_HEADS} \\
    --ffn-hidden-size ${INTERMEDIATE_SIZE} --seq-length ${SEQ_LEN} --max-position-embeddings ${SEQ_LEN} \\
    --micro-batch-size ${BATCH_SIZE} --global-batch-size ${GLOBAL_BATCH_SIZE} --train-iters ${TRAIN_ITERS} \\
    --tensor-model-parallel-size ${TP} --pipeline-model-parallel-size ${PP} --context-parallel-size ${CP} \\
    --padded-vocab-size 152064 --swiglu --normalization RMSNorm --untie-embeddings-and-output-weights"
run_cmd="torchrun --nproc_per_node $GPUS_PER_NODE --nnodes $NNODES --master_port 6000 pretrain_qwen.py
 ${megatron_options} ${activation_checkpoint_options} ${pr_options} ${do_options} ${flash_options} ${sp_options} ${gqa_options} ${moe_options}"
echo ${run_cmd}
eval ${run_cmd}
set +x
"""


def _given(*changes: tuple[int, str]) -> tuple[str, ...]:
    """Positional arguments, some of them changed by their number."""
    words = ["dsw", "7B", "1", "64", "4096", "bf16", "2", "2", "1", "true", "true", "true"]
    for number, word in changes:
        words[number - 1] = word
    return tuple(words)


BASE = Case(
    "7B",
    TEXT,
    {"layers": 32, "hidden": 4096, "ffn": 11008, "heads": 32, "kv": 32, "seq": 4096, "micro": 1, "batch": 64, "tp": 2, "pp": 2, "cp": 1,
     "gpus": 8, "dtype": "bf16", "recompute": "none", "zero": 1, "vocab": 152064, "model.gated": True, "plan.sequence_parallel": True},
    arguments=_given(),
)  # fmt: skip
LARGE = {"layers": 80, "hidden": 8192, "ffn": 28672, "heads": 64, "kv": 8}
CASES = [
    BASE,
    but(BASE, "70B", arguments=_given((2, "70B")), expected=LARGE),
    but(BASE, "experts", arguments=_given((2, "A2.7B"), (8, "1")),
        expected={"layers": 24, "hidden": 2048, "ffn": 5632, "heads": 16, "kv": 16, "experts": 60, "top_k": 4, "ep": 4, "pp": 1, "dp": 4}),
    but(BASE, "fp16", arguments=_given((6, "fp16")), expected={"dtype": "fp16"}),
    but(BASE, "fp8", arguments=_given((6, "fp8")), expected={"dtype": "fp8"}),
    but(BASE, "no sharing of states", arguments=_given((11, "false")), expected={"zero": 0}),
    but(BASE, "no sequence parallelism", arguments=_given((10, "false")), expected={"plan.sequence_parallel": False}),
    but(BASE, "full recomputation", arguments=(*_given(), "full"), expected={"recompute": "full"}),
    but(BASE, "some recomputation", arguments=(*_given(), "sel"), expected={"recompute": "selective"}),
    but(BASE, "batches and degrees", arguments=_given((3, "2"), (4, "256"), (5, "8192"), (7, "4"), (8, "1"), (9, "2")),
        expected={"micro": 2, "batch": 256, "seq": 8192, "tp": 4, "pp": 1, "cp": 2}),
    but(BASE, "GPUs of the environment", variables={"KUBERNETES_GPUS": "4"}, expected={"gpus": 4}),
    but(BASE, "a cluster", arguments=_given((1, "dlc")), variables={"WORLD_SIZE": "4", "KUBERNETES_CONTAINER_RESOURCE_GPU": "8"},
        expected={"gpus": 32}),
    but(BASE, "a cluster of unknown size", arguments=_given((1, "dlc")), refused=r"\$WORLD_SIZE|\$KUBERNETES"),
    but(BASE, "a cluster by --gpus", arguments=_given((1, "dlc")), options={"n_devices": 64}, expected={"gpus": 64}),
    but(BASE, "nothing given", arguments=(), refused=r"\$\w+ \(line \d+, for .*positional arguments behind the file"),
    but(BASE, "few given", arguments=_given()[:5], refused=r"\$\w+ \(line \d+, for "),
    but(BASE, "a size that it does not know", arguments=_given((2, "900B")), refused=r"NUM_LAYERS|num-layers|n_layers"),
]  # fmt: skip
