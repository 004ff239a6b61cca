"""Small files for every command that writes: made from a seed, nothing in them is from a real machine."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from experiments.kernel_pools.made import MadeJob, write_made_job

JOB = """\
name: small
model: {n_layers: 2, hidden: 1024, n_heads: 16, ffn_hidden: 4096, vocab: 1000}
cluster: dgx-a100
plan: {micro_batch: 1, global_batch: 16, seq_len: 1024, dp: 8}
variability: a100-default
framework: megatron-core
"""
PLACED = JOB.replace("dp: 8", "dp: 16").replace("cluster: dgx-a100", "cluster: {preset: dgx-a100, n_devices: 16}")
SPACE = "tp: [1, 2]\npp: [1, 2]\nmicro_batch: [1, 2]\nrecompute: [full]\n"
HEAD = {
    "bf16": True,
    "ffn_hidden_size": 4096,
    "global_batch_size": 16,
    "hidden_size": 1024,
    "micro_batch_size": 1,
    "num_attention_heads": 16,
    "num_layers": 2,
    "padded_vocab_size": 1024,
    "pipeline_model_parallel_size": 1,
    "seq_length": 1024,
    "tensor_model_parallel_size": 1,
    "use_distributed_optimizer": True,
    "world_size": 8,
}  # of a log of Megatron-LM
KEPT = "kept.npz"  # a fit for commands that read one; `fit fleet` makes it
CHANGES = ("", "plan.micro_batch=2", "plan.global_batch=32", "plan.global_batch=64", "plan.seq_len=2048")
NCCL = """\
# nccl-tests version 2.17.1 nccl-headers=22704 nccl-library=22704
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 64 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1
#
# Using devices
{ranks}#
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
{rows}"""
RANK = "#  Rank {0:2d} Group  0 Pid  {1} on  host-{2} device  {3} [0x{0:02x}] NVIDIA H100 80GB\n"


SCRIPT = """#!/bin/bash
torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 24 --hidden-size 1024 --num-attention-heads 16 --seq-length 512 \\
    --micro-batch-size 4 --global-batch-size 64 --tensor-model-parallel-size 1 --vocab-size 30000 --bf16
"""

STRAGGLERS = "GPU relative performance:\n" + "".join(
    f"  Rank={rank} Node=gpu{rank // 4} Score={score}\n"
    for rank, score in enumerate((0.99, 1.0, 0.8, 0.98, 0.99, 0.97, 0.99, 0.98))
)


def write_inputs(folder: Path, seed: int) -> None:
    """All of them."""
    rng = np.random.default_rng(seed)
    write_made_job(MadeJob(0, n_step=12, n_layer=1), folder / "profiles")
    texts = {
        "job.yaml": JOB,
        "train.sh": SCRIPT,
        "placed.yaml": PLACED,
        "space.yaml": SPACE,
        "all_reduce.log": _nccl_tests(rng),
        "stragglers.log": STRAGGLERS,
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    tables = {
        "runs.csv": pd.DataFrame(
            {"job": "job.yaml", "set": CHANGES, "measured_step_time_s": [0.02, 0.02, 0.04, 0.08, 0.04]}
        ),
        "nodes.csv": pd.DataFrame({"host": ["a", "b"], "slowdown": [1.0, 1.05]}),
        "times.csv": _kernel_times(rng),
        "steps.csv": _steps(rng),
        "log.csv": pd.DataFrame({"step": np.arange(80), "duration_s": 0.4 + 0.004 * rng.standard_normal(80)}),
        "gemm.csv": _gemm(rng),
        "overlap.csv": _overlap(rng),
        "failures.csv": _failures(rng),
        "repairs.csv": _repairs(rng),
        "spells.csv": _spells(rng),
        "checkpoints.csv": _checkpoints(rng),
        "power.csv": _power(rng),
        **_small_laws(rng),
    }
    for name, table in tables.items():
        table.to_csv(folder / name, index=False)
    # Last, so that what is drawn before stays as it was.
    (folder / "train.log").write_text(_megatron_log(rng), encoding="utf-8")


def _megatron_log(rng: np.random.Generator) -> str:
    """Arguments, then 20 steps."""
    arguments = [f"  {name} {'.' * (48 - len(name))} {value}" for name, value in HEAD.items()]
    steps = [
        f" iteration {n + 1:8d}/ 20 | elapsed time per iteration (ms): {step_ms:.1f} | global batch size: 16 |"
        for n, step_ms in enumerate(40.0 + rng.standard_normal(20))
    ]
    lines = ["-------- arguments --------", *arguments, "-------- end of arguments --------", *steps]
    return "\n".join(lines) + "\n"


def _small_laws(rng: np.random.Generator) -> dict[str, pd.DataFrame]:
    """A ladder of batches, networks by their totals, parameter servers, starts of machines, saves of files."""
    n, noise = np.arange(1.0, 25.0), np.exp(0.03 * rng.standard_normal(24))
    batch = 2.0 ** (2 + n % 6)
    return {
        "ladder.csv": pd.DataFrame({"setup": "v100", "batch": batch, "step_ms": (20.0 + batch) * noise}),
        "totals.csv": pd.DataFrame({
            "model": [f"m{i:g}" for i in n], "gpu": "k80", "batch": 128, "flops": 1e9 * n, "n_params": 1e6 * n,
            "n_tensors": 50 * n, "family": [f"f{i % 3:g}" for i in n], "step_time_s": 0.1 * n * noise,
        }),
        "servers.csv": pd.DataFrame({
            "model": "a", "gpu": "k80", "workers": 1 + n % 8, "ps": 1, "params": 2e6, "steps_per_s": 9.0 * (1 + n % 8) * noise,
        }),
        "startup.csv": pd.DataFrame({
            "provisioning_s": 1.6 * noise, "staging_s": 40.0 * noise, "booting_s": 38.0 * noise,
            "tier": ["on-demand" if i % 2 else "preemptible" for i in n], "region": [f"r{i % 3:g}" for i in n],
        }),
        "saves.csv": pd.DataFrame({
            "model": [f"m{i % 6:g}" for i in n], "save_s": (3.0 + 0.03 * n) * noise, "weights_MB": 5.0 * (1 + n % 6),
            "index_kB": 5.0 + n % 6, "meta_MB": 1.0 + n % 6,
        }),
        "lengths.csv": pd.DataFrame({"tokens": np.rint(700.0 * noise**20).clip(1).astype(int)}),
        "routing.csv": pd.DataFrame({
            "layer": n // 12, "step": n // 4% 3, "expert": n % 4, "tokens": np.rint(1000.0 * noise**9).clip(1).astype(int),
        }),
        "links.csv": pd.DataFrame({
            "node": [f"n{i % 6:g}" for i in n], "day": [f"2026-01-{1 + i // 6% 5:02g}" for i in n], "time_s": 0.01 * noise,
        }),
    }  # fmt: skip


def _nccl_tests(rng: np.random.Generator) -> str:
    """All-reduces of 16 H100 on two hosts."""
    ranks = "".join(RANK.format(rank, 4000 + rank, *divmod(rank, 8)) for rank in range(16))
    rows = ""
    for size in 2 ** np.arange(10, 31):
        out_us, in_us = (20.0 + size / 4e5) * np.exp(0.02 * rng.standard_normal(2))
        what = f"{size:12d}{size // 4:14d}     float     sum      -1"
        rows += f"{what} {out_us:8.2f}    0.00    0.00       0 {in_us:8.2f}    0.00    0.00     N/A\n"
    return NCCL.format(ranks=ranks, rows=rows)


def _kernel_times(rng: np.random.Generator) -> pd.DataFrame:
    """40 GPUs on 10 nodes, 5 runs each."""
    gpu = np.repeat(np.arange(40), 5)
    log = 0.02 * rng.standard_normal(40)[gpu] + 0.003 * rng.standard_normal(len(gpu))
    return pd.DataFrame({"gpu": gpu, "node": gpu // 4, "duration_s": 0.02 * np.exp(log)})


def _steps(rng: np.random.Generator) -> pd.DataFrame:
    """24 runs of 60 steps on 8 systems."""
    run = np.repeat(np.arange(24), 60)
    duration_s = 0.5 * np.exp((0.004 + 0.002 * (run % 8)) * rng.standard_normal(len(run)))
    labels = {"run": run, "system": run // 3, "benchmark": run // 12, "n_gpus": 8.0 * 2 ** (run // 3 % 3)}
    return pd.DataFrame({**labels, "duration_s": duration_s})


def _gemm(rng: np.random.Generator) -> pd.DataFrame:
    """Products of 40 shapes whose efficiency rises with every size."""
    m, n, k = (2.0 ** rng.integers(9, 14, 40) for _ in range(3))
    efficiency = (
        0.8 / ((1.0 + 600.0 / m) * (1.0 + 300.0 / n) * (1.0 + 500.0 / k)) * np.exp(0.03 * rng.standard_normal(40))
    )
    return pd.DataFrame(
        {"m": m, "n": n, "k": k, "gpu": "h100-sxm", "dtype": "bf16", "efficiency": efficiency, "op": "gemm"}
    )


def _overlap(rng: np.random.Generator) -> pd.DataFrame:
    """6 kernels, 12 times each, some of them held up."""
    kernel = np.repeat(np.arange(6), 12)
    alone_s = 10.0 ** rng.uniform(-5.5, -3.0, len(kernel))
    slower = np.where(rng.random(len(kernel)) < 0.4, 0.6, 0.0) + 0.008 * rng.standard_normal(len(kernel))
    return pd.DataFrame(
        {"kernel": kernel, "duration_s": alone_s, "overlapped_s": alone_s * np.exp(slower), "overlap_ratio": 1.0}
    ).assign(kernel=[f"kernel_{index}" for index in kernel])


def _failures(rng: np.random.Generator) -> pd.DataFrame:
    """12 clusters of 500 to 20,000 GPUs for 1,000 hours."""
    gpus = np.round(np.exp(rng.uniform(np.log(500), np.log(20_000), 12)))
    count = rng.poisson(1e-5 * rng.gamma(2.0, 0.5, 12) * gpus * 1000.0)
    names = [f"c{index}" for index in range(12)]
    return pd.DataFrame({"cluster": names, "gpus": gpus, "hours": 1000.0, "count": count, "kind": "gpu"})


def _repairs(rng: np.random.Generator) -> pd.DataFrame:
    """Two systems of 40 nodes with 30 downs each, twelve hours apart, back within an hour or so."""
    tables = []
    for system in range(2):
        start = 1.7e9 + np.cumsum(rng.exponential(43_200.0, 30)).round()
        end = start + (3600.0 * np.exp(rng.standard_normal(30))).round()
        node = [f"n{index}" for index in rng.integers(0, 40, 30)]
        tables.append(
            pd.DataFrame({"system": f"s{system}", "node": node, "nodes_total": 40, "start": start, "end": end})
        )
    return pd.concat(tables, ignore_index=True)


def _spells(rng: np.random.Generator) -> pd.DataFrame:
    """Single spot nodes in three zones, 60 spells of an hour or so each."""
    tables = []
    for zone in range(3):
        length = (3600.0 * np.exp(1.3 * rng.standard_normal(120))).round() + 60.0
        start = np.cumsum(length) - length
        up = np.arange(120) % 2
        tables.append(pd.DataFrame({"zone": f"z{zone}", "start_s": start, "duration_s": length, "available": up}))
    return pd.concat(tables, ignore_index=True)


def _checkpoints(rng: np.random.Generator) -> pd.DataFrame:
    """Saves of 8 sites at half the bandwidth of a network file system."""
    source = np.repeat(np.arange(8), 8)
    size = np.exp(rng.uniform(np.log(1e9), np.log(1e12), len(source)))
    log_s = np.log(size / 0.1e9) + 0.2 * rng.standard_normal(8)[source] + 0.1 * rng.standard_normal(len(source))
    names = [f"s{index}" for index in source]
    return pd.DataFrame({"source": names, "ckpt_GB": size / 1e9, "storage": "NFS", "save_total_s": np.exp(log_s)})


def _power(rng: np.random.Generator) -> pd.DataFrame:
    """A device of 400 W at twenty clocks, nine tenths of whose work follow the clock."""
    clock = np.linspace(0.5, 1.0, 20)
    noise = np.exp(0.002 * rng.standard_normal((2, 20)))
    table = {"clock_mhz": 1400.0 * clock, "duration_s": (0.1 + 0.9 / clock) * noise[0]}
    return pd.DataFrame({**table, "power_watts": 400.0 * (0.15 + 0.85 * clock**2.5) * noise[1]}).assign(
        device="gpu", workload="a"
    )
