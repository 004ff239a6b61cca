"""Scripts of Megatron-LM and its forks."""

from .case import Case

FRONT = """#!/bin/bash
GPUS_PER_NODE=8
NNODES=${NNODES:-4}
DISTRIBUTED_ARGS=(--nproc_per_node $GPUS_PER_NODE --nnodes $NNODES)
"""
CASES = [
    Case(
        "arrays",
        FRONT
        + """
MODEL_ARGS=(
    --num-layers 32
    --hidden-size 4096
    --num-attention-heads 32
    --seq-length 4096
    --max-position-embeddings 4096
    --group-query-attention --num-query-groups 8
    --ffn-hidden-size 14336 --swiglu # --ffn-hidden-size 11008
    --vocab-size 128000
)
PARALLEL=(--tensor-model-parallel-size 4 --pipeline-model-parallel-size 2 --sequence-parallel)
torchrun ${DISTRIBUTED_ARGS[@]} pretrain_gpt.py ${MODEL_ARGS[@]} ${PARALLEL[@]} \\
    --micro-batch-size 1 --global-batch-size 128 --bf16 --recompute-activations
""",
        {
            "layers": 32,
            "hidden": 4096,
            "heads": 32,
            "kv": 8,
            "ffn": 14336,
            "seq": 4096,
            "tp": 4,
            "pp": 2,
            "micro": 1,
            "batch": 128,
            "gpus": 32,
            "dtype": "bf16",
            "recompute": "selective",
        },
    ),
]
