"""slime: a script that sources the arguments of its model."""

from .case import Case, but

MODEL = """MODEL_ARGS=(
   --swiglu
   --num-layers 36
   --hidden-size 4096
   --ffn-hidden-size 12288
   --num-attention-heads 32
   --group-query-attention
   --num-query-groups 8
   --use-rotary-position-embeddings
   --disable-bias-linear
   --normalization "RMSNorm"
   --rotary-base "${MODEL_ARGS_ROTARY_BASE:-1000000}"
   --vocab-size 151936
   --kv-channels 128
   --qk-layernorm
   --untie-embeddings-and-output-weights
)
"""
MOE = """NLAYERS=48
FIRST_K_DENSE_REPLACE=1
arr=()
for ((i=0; i<NLAYERS; i++)); do
  if (( i < FIRST_K_DENSE_REPLACE )); then
    arr+=(0)
  else
    arr+=(1)
  fi
done
printf -v MOE_LAYER_FREQ "[%s]" "$(IFS=', '; echo "${arr[*]}")"
""" + MODEL.replace("--num-layers 36", "--num-layers 48").replace(
    ")\n", '   --num-experts 128 --moe-router-topk 8 --moe-ffn-hidden-size 768 --moe-layer-freq "$MOE_LAYER_FREQ"\n)\n'
)
TEXT = """#!/bin/bash
pkill -9 sglang
set -ex
NVLINK_COUNT=$(nvidia-smi topo -m 2>/dev/null | grep -o 'NV[0-9][0-9]*' | wc -l)
if [ "$NVLINK_COUNT" -gt 0 ]; then
    HAS_NVLINK=1
else
    HAS_NVLINK=0
fi
SCRIPT_DIR="$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")" &>/dev/null && pwd)"
source "${SCRIPT_DIR}/models/qwen3-8B.sh"

CKPT_ARGS=(
   --hf-checkpoint /root/Qwen3-8B
   #--hf-checkpoint /root/Qwen3-8B-FP8
   --ref-load /root/Qwen3-8B_torch_dist
)
ROLLOUT_ARGS=(
   --prompt-data /root/dapo.jsonl
   --rollout-batch-size 32
   --n-samples-per-prompt 8
   --rollout-max-response-len 8192
   --global-batch-size 256
   --balance-data
)
PERF_ARGS=(
   --tensor-model-parallel-size 2
   --sequence-parallel
   --pipeline-model-parallel-size 1
   --context-parallel-size 1
   --expert-model-parallel-size 1
   --expert-tensor-parallel-size 1
   --recompute-granularity full
   --recompute-method uniform
   --recompute-num-layers 1
   # --micro-batch-size 1
   --use-dynamic-batch-size
   --max-tokens-per-gpu 9216
)
ray start --head --num-gpus 8 --disable-usage-stats
RUNTIME_ENV_JSON="{
  \\"env_vars\\": {
    \\"PYTHONPATH\\": \\"/root/Megatron-LM/\\",
    \\"NCCL_NVLS_ENABLE\\": \\"${HAS_NVLINK}\\"
  }
}"
ray job submit --address="http://127.0.0.1:8265" \\
   --runtime-env-json="${RUNTIME_ENV_JSON}" \\
   -- python3 train.py \\
   --actor-num-nodes 1 \\
   --actor-num-gpus-per-node 8 \\
   --colocate \\
   ${MODEL_ARGS[@]} \\
   ${CKPT_ARGS[@]} \\
   ${ROLLOUT_ARGS[@]} \\
   ${PERF_ARGS[@]}
"""
BESIDE = {"models/qwen3-8B.sh": MODEL}
BASE = Case(
    "dynamic batches",
    TEXT,
    {"layers": 36, "hidden": 4096, "ffn": 12288, "heads": 32, "kv": 8, "seq": 8192, "micro": 1, "batch": 256, "tp": 2, "pp": 1, "cp": 1,
     "gpus": 8, "dtype": "bf16", "recompute": "full", "vocab": 152064, "model.qk_norm": True},
    others=BESIDE,
)  # fmt: skip
PARENT = ('"${SCRIPT_DIR}/models/qwen3-8B.sh"', '"${SCRIPT_DIR}/../../scripts/models/qwen3-8B.sh"')
CASES = [
    BASE,
    but(BASE, "two sequences fit in", ("--max-tokens-per-gpu 9216", "--max-tokens-per-gpu 20480"), expected={"micro": 2}),
    but(BASE, "context parallelism holds more", ("--context-parallel-size 1", "--context-parallel-size 2"), expected={"cp": 2, "micro": 2, "dp": 2}),
    but(BASE, "micro-batch", ("   --use-dynamic-batch-size\n   --max-tokens-per-gpu 9216", "   --micro-batch-size 4"), expected={"micro": 4}),
    but(BASE, "prompt", ("--balance-data", "--rollout-max-prompt-len 1024"), expected={"seq": 9216}),
    but(BASE, "batch of samples", ("   --global-batch-size 256\n", ""), expected={"batch": 256}),
    but(BASE, "nodes", ("--actor-num-nodes 1", "--actor-num-nodes 8"), expected={"gpus": 64, "dp": 32}),
    but(BASE, "open nodes", ("--actor-num-nodes 1", "--actor-num-nodes ${NUM_NODES}"), refused=r"\$NUM_NODES.*--gpus N"),
    but(BASE, "experts", others={"models/qwen3-8B.sh": MOE},
        expected={"layers": 48, "experts": 128, "top_k": 8, "model.moe.n_dense_first": 1, "model.moe.ffn_hidden": 768}),
    but(BASE, "experts divided", ("--expert-model-parallel-size 1", "--expert-model-parallel-size 4"), others={"models/qwen3-8B.sh": MOE},
        expected={"layers": 48, "experts": 128, "top_k": 8, "ep": 4, "plan.etp": 1}),
    but(BASE, "model file elsewhere", PARENT, file="repo/examples/a/run.sh", others={"repo/scripts/models/qwen3-8B.sh": MODEL},
        options={"root": "repo"}),
    but(BASE, "model by its checkpoint", others={}, expected={"vocab": 151936}),
    but(BASE, "neither file nor known checkpoint", ("--hf-checkpoint /root/Qwen3-8B\n", "--hf-checkpoint /root/secret\n"), others={},
        refused=r"\$MODEL_ARGS|models/qwen3-8B.sh"),
    but(BASE, "prefix of source", ('source "${SCRIPT_DIR}', 'MODEL_ARGS_ROTARY_BASE=5000000 source "${SCRIPT_DIR}')),
]  # fmt: skip
