"""Small files that the cases read, all made up: those of `experiments/kills`, and some of their own."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np

from experiments.kills.inputs import JOB, write_inputs as write_shared_inputs
from tests.support.files.execution_traces import profile_text, trace_text
from tests.support.training_logs import LOGS

ROOT = Path(__file__).resolve().parents[2]
HLO = ROOT / "tests" / "data" / "hlo"
SCRIPT = ROOT / "tests" / "data" / "launch_scripts" / "quoted_and_array.sh"
MOE = """\
model: {preset: mixtral-8x7b, moe: {imbalance: 1.2}}
cluster: {preset: dgx-h100, n_devices: 64}
plan: {tp: 2, pp: 4, dp: 8, ep: 8, micro_batch: 1, global_batch: 64, seq_len: 4096, zero_stage: 1, dtype: fp8}
variability: h100-default
framework: megatron-core
"""
TABLES = """\
model:
  kind: dlrm
  name: three
  n_dense: 0
  bottom: []
  tables:
    - {name: a, rows: 200000, dim: 32, pooling: 3}
    - {name: b, rows: 50000, dim: 32, pooling: 9}
    - {name: c, rows: 9000, dim: 32, pooling: 20}
  interaction: cat
  top: [64, 1]
cluster: {preset: dgx-a100, n_devices: 2}
plan: {dp: 2, global_batch: 4096, dtype: fp16}
"""
WRONG = """\
name: wrong
model: llama-3-9b
cluster: {preset: dgx-h100, n_devices: 240, tiers: {rail: {bandwidth: 4 Gbit}}}
plan: {tp: 8, dp: 30, micro_batch: one, global_batch: 2048, seq_len: 8192, zerostage: 1}
"""
INDIVISIBLE = """\
model: llama-3-8b
cluster: dgx-h100
plan: {tp: 8, pp: 1, dp: 30, micro_batch: 1, global_batch: 2048, seq_len: 8192}
"""
MEMORY = """\
job_id,model,layers,hidden,ffn,heads,kv_heads,vocab,seq_len,tp,pp,dp,zero_stage,micro_batch,grad_accum,status,peak_mem_reserved_gb,gpu,recompute,source
1,tiny 1B,16,2048,8192.0,32,32.0,131072,4096,1,1,8,0,1,4,Success,40,H100-SXM-80GB,none,nanotron bench
2,tiny 1B,16,2048,8192.0,32,32.0,131072,4096,1,1,8,0,1,4,OOM,,H100-SXM-80GB,none,nanotron bench
3,tiny 2B,16,2048,8192.0,32,32.0,131072,4096,1,1,8,0,512,4,OOM,,H100-SXM-80GB,none,nanotron bench
"""
PRICES = """\
cloud,date,instance,gpu,gpus,vcpus,mem_gb,network_gbps,region,zone,usd_h,spot_usd_h,source
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az1,32.77,9.8,list
aws,2025-06-01,p4d.24xlarge,A100-40GB,8,96,1152,400,us-east-1,use1-az2,32.77,9.5,list
aws,2025-06-01,abacus.1,abacus,1,1,1,1,us-east-1,use1-az2,1,,list
"""
STATE = """\
{"steps_done": 15000, "elapsed": "1d", "spent_usd": 900,
 "running": {"instance": "p4d.24xlarge", "where": "use1-az1", "count": 1, "policy": "on_demand"}}
"""
GPUS = "gpu,slowdown\n" + "".join(f"{gpu},{1.0 + 0.01 * (gpu % 5)}\n" for gpu in range(8))
OP_TABLE = ("step", "dp", "pp", "op_type", "micro_batch", "start_s", "duration_s", "rank")


def write_inputs(folder: Path) -> None:
    """Writes all of them."""
    write_shared_inputs(folder, seed=0)
    texts = {
        "moe.yaml": MOE,
        "tables.yaml": TABLES,
        "wrong.yaml": WRONG,
        "indivisible.yaml": INDIVISIBLE,
        "large.yaml": JOB.replace("n_layers: 2, hidden: 1024", "n_layers: 64, hidden: 12288"),
        "memory.csv": MEMORY,
        "prices.csv": PRICES,
        "state.json": STATE,
        "gpus.csv": GPUS,
        "execution_trace.json": trace_text(),
        "kineto.json": profile_text(),
    }
    for name, text in texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    shutil.copy(SCRIPT, folder / "run.sh")
    for name in ("mlp_fsdp2_tp4.txt", "mlp_step.py"):
        shutil.copy(HLO / name, folder / name)
    rng = np.random.default_rng(1)
    for name in ("MaxText", "Megatron-LM", "torchtitan", "DeepSpeed steps"):
        if name in LOGS:
            seconds = [9.0, *(0.02 * np.exp(0.05 * rng.standard_normal(40)))]
            (folder / f"{name.split()[0].lower()}.log").write_text(LOGS[name].write(seconds), encoding="utf-8")
    _write_queue(folder / "queue.csv", rng)
    _write_phases(folder / "phases.csv", rng)


def _write_queue(path: Path, rng: np.random.Generator) -> None:
    rows = zip(np.sort(rng.integers(0, 20_000, 60)), rng.choice([1, 4], 60), rng.integers(60, 4_000, 60), strict=True)
    path.write_text("submit_s,gpus,duration_s\n" + "".join(f"{a},{b},{c}\n" for a, b, c in rows), encoding="utf-8")


def _write_phases(path: Path, rng: np.random.Generator) -> None:
    """200 steps of which 60 are slower by a quarter."""
    seconds = 0.4 + 0.004 * rng.standard_normal(200)
    seconds[100:160] *= 1.25
    path.write_text("step,duration_s\n" + "".join(f"{n},{s:.6f}\n" for n, s in enumerate(seconds)), encoding="utf-8")
