#!/bin/bash
#SBATCH -N 4 --exclusive
#SBATCH --nodes=16
#SBATCH --gpus-per-node=8
#SBATCH --ntasks-per-node=1
source /opt/env.sh
source ./vars.sh
export NCCL_DEBUG=INFO
OPTIONS=" --use-mcore-models --transformer-impl transformer_engine "
while [[ $# -gt 0 ]]; do
  case "$1" in
    --tp) TP="$2"; shift 2;;
    --fp8) FP8=1; shift;;
    *) shift;;
  esac
done
TP=${TP:-2}
[[ -n "$FP8" ]] && OPTIONS+=" --fp8-format hybrid --fp8-recipe blockwise"
for NAME in exp; do :; done
case ${MODEL:-8b} in
  8b|8B) ARCH="--num-layers 32 --hidden-size 4096 --num-attention-heads 32 --group-query-attention --num-query-groups 8 --ffn-hidden-size 14336" ;;
  70b) ARCH="--num-layers 80 --hidden-size 8192 --num-attention-heads 64" ;;
esac
launch() {
  srun --label bash -c "python -u -m torch.distributed.run --nproc_per_node=8 --nnodes=$SLURM_NNODES pretrain_gpt.py $1 $OPTIONS"
}
launch "$ARCH --swiglu --bf16 --tensor-model-parallel-size $TP --pipeline-model-parallel-size 1 --micro-batch-size 1 --global-batch-size 256 --seq-length 8192 --tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Meta-Llama-3-8B --normalization RMSNorm --position-embedding-type rope --disable-bias-linear --untie-embeddings-and-output-weights --use-distributed-optimizer --overlap-grad-reduce --sequence-parallel"
