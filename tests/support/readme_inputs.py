"""Small files under the names that README.md uses for files of its readers."""

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.kernel_pools.made import MadeJob, write_made_job
from tests.support.training_logs import LOGS

STEP = Path(__file__).parents[1] / "data" / "hlo" / "mlp_step.py"
SCRIPT = Path(__file__).resolve().parents[1] / "data" / "launch_scripts" / "quoted_and_array.sh"

JOB = """\
name: small
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
framework: megatron-core
"""
REFUSED = """\
# 240 devices whose batch cannot be divided among the replicas
name: my job
model: llama-3-8b
cluster: dgx-h100
plan:
  tp: 8
  pp: 1
  dp: 30
  micro_batch: 1
  global_batch: 2048
  seq_len: 8192
"""
SPACE = "tp: [8]\npp: [8]\nschedule: [1f1b]\nmicro_batch: [1, 2]\nrecompute: [full]\nzero_stage: [1]\n"
LOG = """\
# nccl-tests version 2.17.1 nccl-headers=22704 nccl-library=22704
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
{ranks}#
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}"""
CHANGES = (
    "",
    "plan.micro_batch=2",
    "plan.global_batch=32",
    "plan.global_batch=64",
    "plan.seq_len=2048",
    "plan.tp=2 plan.dp=4",
)


def write_inputs(folder: Path) -> None:
    """All files that printed commands read, apart from those that an earlier command writes."""
    rng = np.random.default_rng(0)
    (folder / "my_job.yaml").write_text(JOB)
    (folder / "space.yaml").write_text(SPACE)
    (folder / "step.py").write_text(STEP.read_text())
    write_made_job(MadeJob(0, n_step=12, n_layer=1), folder / "profiles")
    (folder / "run.sh").write_text(SCRIPT.read_text())
    _kernels(rng).to_csv(folder / "gemm_times.csv", index=False)
    _steps(rng).to_parquet(folder / "runs.parquet")
    (folder / "all_reduce.log").write_text(_collectives(rng))
    queue = pd.DataFrame(
        {"submit_s": np.arange(40) * 60, "gpus": np.tile([1, 8], 20), "duration_s": rng.integers(60, 900, 40)}
    )
    queue.to_csv(folder / "jobs.csv", index=False)
    jobs = pd.DataFrame({"job": "my_job.yaml", "set": CHANGES})
    jobs.to_csv(folder / "my_jobs.csv", index=False)
    runs = jobs.assign(measured_step_time_s=[0.02, 0.02, 0.04, 0.08, 0.04, 0.03])
    runs.head(3).to_csv(folder / "my_runs.csv", index=False)
    runs.tail(3).to_csv(folder / "my_other_runs.csv", index=False)
    faster = runs.assign(set=runs["set"] + " cluster=dgx-h100", measured_step_time_s=runs["measured_step_time_s"] / 2)
    pd.concat([runs.head(1), faster.head(1)]).to_csv(folder / "many_runs.csv", index=False)
    (folder / "train.log").write_text(LOGS["MaxText"].write([9.0, *(0.02 * np.exp(0.05 * rng.standard_normal(40)))]))
    for name, level in (("before", 0.02), ("after", 0.0195)):
        steps = pd.DataFrame({"step": np.arange(400), "duration_s": level * np.exp(0.005 * rng.standard_normal(400))})
        steps.to_csv(folder / f"{name}.csv", index=False)
    nodes = pd.DataFrame(
        {"host": [f"gpu-a-{n:02d}" for n in range(16)], "slowdown": 1.0 + 0.02 * (np.arange(16) * 5 % 7)}
    )
    nodes.to_csv(folder / "nodes.csv", index=False)


def _kernels(rng: np.random.Generator) -> pd.DataFrame:
    """40 GPUs on 10 nodes, 5 runs each."""
    gpu = np.repeat(np.arange(40), 5)
    log = 0.02 * rng.standard_normal(40)[gpu] + 0.003 * rng.standard_normal(len(gpu))
    names = {"gpu": [f"gpu{i:02d}" for i in gpu], "node": [f"node{i // 4}" for i in gpu]}
    return pd.DataFrame({**names, "duration_s": 0.02 * np.exp(log)})


def _steps(rng: np.random.Generator) -> pd.DataFrame:
    run = np.repeat(np.arange(24), 60)
    duration_s = 0.5 * np.exp((0.004 + 0.002 * (run % 8)) * rng.standard_normal(len(run)))
    labels = {"run": run, "system": run // 3, "benchmark": run // 12, "n_gpus": 8.0 * 2 ** (run // 3 % 3)}
    return pd.DataFrame({**labels, "duration_s": duration_s})


def _collectives(rng: np.random.Generator) -> str:
    """All-reduces of 16 H100 on two hosts."""
    place = "#  Rank {0:2d} Group  0 Pid  {1} on  host-{2} device  {3} [0x{0:02x}] NVIDIA H100 80GB\n"
    ranks = "".join(place.format(rank, 4000 + rank, *divmod(rank, 8)) for rank in range(16))
    sizes = 2 ** np.arange(10, 31)
    return LOG.format(ranks=ranks, rows="".join(_row(int(size), rng) for size in sizes))


def _row(size: int, rng: np.random.Generator) -> str:
    out_us, in_us = (20.0 + size / 4e5) * np.exp(0.02 * rng.standard_normal(2))
    what = f"{size:12d}{size // 4:14d}     float     sum      -1"
    return f"{what} {out_us:8.2f}    0.00    0.00       0 {in_us:8.2f}    0.00    0.00     N/A\n"
