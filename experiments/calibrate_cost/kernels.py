# pyright: reportAttributeAccessIssue=false
"""Microbenchmarks against the roofline: fitted tile model of matrix products, fused attention, and the pace of the host."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from prism_jax.cost.compute import attention_s, gemm_s
from prism_jax.cost.efficiency import Efficiency, efficiency
from prism_jax.system import catalog

# generation, device, rows of the table by GPU and software, dtype
GEMM_TABLES = (
    ("ampere", "a100-80gb", "A100-SXM-80GB", "torch nn.Linear forward", "fp16"),
    ("ampere", "a100-80gb", "A100-SXM-80GB", "TensorRT-LLM", "bf16"),
    ("hopper", "gh200", "GH200-96GB", "torch nn.Linear forward", "fp16"),
    ("hopper", "h100-sxm", "H100-SXM-80GB", "TensorRT-LLM", "bf16"),
    ("hopper", "h100-sxm", "H100-SXM-80GB", "TensorRT-LLM", "fp8"),
    ("blackwell", "b200", "B200-SXM", "TensorRT-LLM", "bf16"),
    ("blackwell", "b200", "B200-SXM", "TensorRT-LLM", "fp8"),
    ("ada", "l40s", "L40S", "TensorRT-LLM", "bf16"),
)
GEMM_COLUMNS = ["generation", "gpu", "software", "dtype", "n", "gemm_max", "gemm_k_half", "mean_error", "bias"]
SMALLEST_FLOPS = 2e10  # below, launch gaps decide


def gemm(data: Path) -> pd.DataFrame:
    """Fitted `gemm_max` and `gemm_k_half` per table, and the mean error of the shipped constants."""
    table = pd.read_csv(data / "kernels" / "gemm.csv.gz", low_memory=False)
    out = []
    for generation, device_name, gpu, software, dtype in GEMM_TABLES:
        rows = table[(table.gpu == gpu) & (table.dtype == dtype) & (table.op == "gemm") & table.time_us.notna()]
        rows = rows[rows.software.str.startswith(software) & (2 * rows.m * rows.n * rows.k > SMALLEST_FLOPS)]
        device, shipped = catalog.device(device_name), replace(efficiency(generation), in_step=1.0)
        peak = device.peak(dtype) * (shipped.gemm_fp8 if dtype == "fp8" else 1.0)

        def log_error(eff: Efficiency, rows=rows, peak=peak, device=device):
            return np.log(gemm_s(rows.m, rows.n, rows.k, 1.0, peak, device, eff) / (rows.time_us.to_numpy() * 1e-6))

        def fit(x, shipped=shipped, log_error=log_error):
            return log_error(replace(shipped, gemm_max=x[0], gemm_k_half=x[1]))

        found = least_squares(fit, [shipped.gemm_max, 100.0], x_scale=[0.1, 50.0], loss="soft_l1", f_scale=0.1).x
        error = np.expm1(log_error(shipped))
        out.append((generation, gpu, software, dtype, len(rows), *found, np.abs(error).mean(), error.mean()))
    return pd.DataFrame(out, columns=GEMM_COLUMNS)


# Two boards of one package, and the watts of the second over those of the first.
BOARDS = (("B200-SXM", "B300-SXM", 1100 / 1000), ("GB200", "GB300", 1400 / 1200))
HELD_AT_THE_LIMIT_FLOPS = 4e12  # milliseconds: long enough for the power limit to hold


def boards(data: Path) -> pd.DataFrame:
    """How much faster the same products run on a board with more watts, and the exponent of the watts that says so."""
    table = pd.read_csv(data / "kernels" / "gemm.csv.gz", low_memory=False)
    table = table[(table.op == "gemm") & table.software.str.startswith("TensorRT-LLM")]
    table = table[2 * table.m * table.n * table.k > HELD_AT_THE_LIMIT_FLOPS]
    out = []
    for less, more, watts in BOARDS:
        for dtype in ("bf16", "fp8", "fp8_block"):
            own = table[table.dtype == dtype].pivot_table(index=["m", "n", "k"], columns="gpu", values="tflops")
            ratio = (own[more] / own[less]).dropna()
            out.append((less, more, dtype, len(ratio), ratio.median(), np.log(ratio.median()) / np.log(watts)))
    return pd.DataFrame(out, columns=["less", "more", "dtype", "n", "faster", "exponent"])


def attention(data: Path) -> pd.DataFrame:
    """Fitted share of peak and half-waves of fused attention; SimuMax counts the full square, backward 2.5 x forward."""
    table = pd.read_csv(data / "kernels" / "attention.csv")
    out = []
    for generation, device_name, gpu in (("ampere", "a100-pcie", "A100-PCIe"), ("blackwell", "b200", "B200-SXM")):
        device, shipped = catalog.device(device_name), efficiency(generation)
        for op, backward in (("sdp_fwd", False), ("sdp_bwd", True)):
            rows = table[(table.gpu == gpu) & (table.op == op)]
            useful = rows.tflops.to_numpy() * 1e12 * (0.5 if not backward else 0.5 * 2.0 / 2.5)
            heads, length = (rows.heads * rows.batch).to_numpy(), rows.seq_len.to_numpy(dtype=float)

            def log_error(x, rows=(length, heads, useful), backward=backward, device=device, shipped=shipped):
                length, heads, useful = rows
                side = "backward" if backward else "forward"
                eff = replace(shipped, **{f"attention_{side}": x[0], f"attention_{side}_half_waves": x[1]})
                work = 0.5 * 4.0 * heads * length**2 * 128 * (2.0 if backward else 1.0)
                seconds = attention_s(work, length, heads, 128, backward, device.peak("bf16"), device.n_sm, eff)
                return np.log(seconds * useful / work)

            found = least_squares(log_error, [0.5, 1.0])
            out.append((generation, op, len(rows), *found.x, np.abs(np.expm1(found.fun)).mean()))
    return pd.DataFrame(out, columns=["generation", "op", "n", "share", "half_waves", "mean_error"])


def host(data: Path) -> pd.DataFrame:
    """Milliseconds per layer and micro-batch where the layer is too small to keep the device busy."""
    steps = pd.read_csv(data / "steps" / "steps.csv.gz", low_memory=False)
    steps = steps[(steps.pp == 1) & (steps.micro_batch == 1)]
    small = steps[
        steps.model.str.startswith("GPT-h1024", na=False) | (steps.source.str.contains("nanotron") & (steps.tp == 8))
    ]
    small = small[small.num_gpus <= 8]
    per_layer = small.measured_step_time_s / (small.global_batch / small.dp * small.layers)
    return (1e3 * per_layer).groupby([small.source, small.model, small.tp]).agg(["size", "median", "std"]).reset_index()
