#!/bin/sh
# A sweep as an array of Slurm: 64 tasks, each with its share of the points, all writing into one folder that nodes share.
#
#   sbatch slurm_sweep.sh
#
# The same command without --shard, after the array, prints the whole table. A task that is started again goes on where it stopped.
#SBATCH --job-name=prism-jax-sweep
#SBATCH --array=0-63
#SBATCH --ntasks=1
#SBATCH --cpus-per-task=1
#SBATCH --mem=4G
#SBATCH --requeue
set -eu
prism-jax sweep "${JOB:-llama3_405b_16384}" --set plan.tp=4,8,16 --set plan.micro_batch=1,2,4 \
    --resume "${RESULTS:-results/sweep}" --shard auto
