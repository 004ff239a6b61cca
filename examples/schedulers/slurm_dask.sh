#!/bin/sh
# A sweep on a Dask cluster inside one allocation of Slurm: one scheduler, and one worker with one thread per task.
#
#   sbatch slurm_dask.sh
#
# Workers that are lost are started again by their nannies, and their points are dealt again.
#SBATCH --job-name=prism-jax-dask
#SBATCH --ntasks=64
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=4G
set -eu
file="${RESULTS:-$PWD}/scheduler.json"
dask scheduler --scheduler-file "$file" --no-dashboard &
scheduler=$!
srun dask worker --scheduler-file "$file" --nthreads 1 --no-dashboard &
trap 'kill $scheduler 2>/dev/null || true' EXIT
while [ ! -s "$file" ]; do sleep 1; done
address=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"].removeprefix("tcp://"))' "$file")
prism-jax sweep "${JOB:-llama3_405b_16384}" --set plan.tp=4,8,16 --set plan.micro_batch=1,2,4 \
    --resume "${RESULTS:-$PWD}/sweep.npz" --executor "dask://$address"
