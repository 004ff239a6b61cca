# pyright: reportArgumentType=false
"""Whole models in true fp32 on a GPU that was left out, from the package's workloads and the laws of kernels of the other GPUs.

Models and shapes: Hugging Face's, as the operator table of the authors lists them. GPT-2 and GPT-3 run `NewGELU`, eight separate
operations; attention is eager. SwitchTrans is T5-3B with 4 experts in every second layer (its stated 5.3 billion parameters), of
which a token sees one: the work of T5-3B. Inference is the forward part without the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.kernels2 import tables
from inference.kernels import laws
from inference.kernels.data import KernelsData, from_frame
from prism_jax.cost.compute import op_seconds
from prism_jax.cost.efficiency import Efficiency
from prism_jax.cost.kernel_laws import cuda_core_device
from prism_jax.cost.step import step_cost
from prism_jax.framework.software import Software
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.hardware import Device
from prism_jax.workload.base.kernels import Kernel, KernelTable
from prism_jax.workload.base.workload import Workload
from prism_jax.workload.catalog import model, workload

PEERS = ("neusight", "habitat", "micro", "roofline")
STREAMS = ("add", "mulu", "softmax")  # whose bandwidth the memory passes of a step have
# mul, pow, mul, add, mul, tanh, add, mul of NewGELU: values moved per element; backward: the same with their saved inputs.
NEW_GELU = {"F": 18.0, "B": 28.0}
FUSED_GELU = {"F": 2.0, "B": 3.0}
# Bytes of PyTorch's operations over those of the package's list (fp32). Softmax, backward: gradient times output in a pass of its
# own, 24, mask 8, scale 8, of 24. Dropout, backward: mask to fp32, times scale, gradient, 25, of 9 (18 for two).
SEPARATE = {("softmax", "B"): 40 / 24, ("attention_dropout", "B"): 25 / 9, ("residuals", "B"): 50 / 18}


@dataclass(frozen=True)
class Laws:
    """Constants on one GPU, by kind of kernels."""

    product: Efficiency
    batched: Efficiency
    memory: Efficiency


def laws_without(gpu: str, every: dict[str, pd.DataFrame]) -> Laws:
    """Constants on `gpu` from the kernels of all other GPUs."""
    fits = {part: from_frame(rows[rows.gpu != gpu]) for part, rows in every.items()}
    product, batched = (_constants(fits["gemm"], op, gpu) for op in ("linear", "bmm"))
    streams = [_constants(fits["vector"], op, gpu) for op in STREAMS]
    names = ("memory", "memory_half_bytes", "cache_speed")
    mean = {name: float(np.exp(np.mean([np.log(getattr(eff, name)) for eff in streams]))) for name in names}
    return Laws(product, batched, replace(streams[0], **mean))


def law_values(data: KernelsData, op: str) -> dict[str, float]:
    """Constants of the law of an op in fp32, pooled over the GPUs that were measured, by name."""
    law = laws.law_of(name := f"{op} | fp32")
    assert law is not None
    return law.values(data.constants[data.classes.index(name)])


def _constants(fit: KernelsData, op: str, gpu: str) -> Efficiency:
    eff = laws.efficiency_of(cuda_core_device(catalog.device(gpu)), law_values(fit, op))
    return replace(eff, in_step=1.0)


def workload_of(name: str) -> tuple[Workload, bool]:
    """The model of a row, and whether it runs `NewGELU`."""
    gpt = model("gpt2-large")
    match name:
        case "bert_large":
            return replace(workload("bert-large"), predicted=1.0), False
        case "gpt2_large":
            return gpt, True
        case "gpt3_xl":
            return replace(
                gpt, name=name, n_layers=24, hidden=3072, n_heads=24, ffn_hidden=12288, max_seq_len=2048
            ), True
        case "gpt3_27":
            return replace(
                gpt, name=name, n_layers=32, hidden=2560, n_heads=32, ffn_hidden=10240, max_seq_len=2048
            ), True
        case "opt_13":
            opt = model("opt-175b")
            return replace(opt, name=name, n_layers=24, hidden=2048, n_heads=32, ffn_hidden=8192), False
        case _:
            return replace(workload("t5-3b"), decoder_seq_len=0, max_seq_len=2048), False


def seconds_of(row: pd.Series, device: Device, own: Laws) -> float:
    """Seconds of one forward pass, and of the backward pass where the model is trained."""
    made, new_gelu = workload_of(row.model)
    trains, fused = row["mode"] == "train", row.variant == "fusion"
    plan = _plan(row, fused)
    seconds = 0.0
    for run in made.layout:
        kernels = [op for op in made.block(run.kind, plan).kernels.ops if _runs(op, trains, row.model)]
        if not fused:
            kernels = [own_op for op in kernels for own_op in _as_hugging_face(op, new_gelu)]
        seconds += run.count * _seconds(kernels, device, own)
    if plan.n_devices == 1:
        return seconds
    cluster = replace(catalog.cluster("dgx-a100", 4), device=device)
    cost = step_cost(made, cluster, plan, own.product)
    return seconds + float(cost.comm_s.sum() + cost.end_comm_s.max())


def _plan(row: pd.Series, fused: bool) -> ParallelPlan:
    """One device; four of them as data or tensor parallel ranks. One micro-batch in a pipeline passes its stages in turn."""
    attention, fusion = ("fused_softmax", "fused") if fused else ("eager", "eager")
    software = Software(attention=attention, norm=fusion, activation="fused", cross_entropy="eager", compile=fused)
    dp, tp = (4 if row.variant.startswith(axis) else 1 for axis in ("dp", "tp"))
    return ParallelPlan(
        micro_batch=row.batch // dp,
        global_batch=row.batch,
        seq_len=row.seq,
        dp=dp,
        tp=tp,
        dtype="fp32",
        attention="unfused",
        software=software,
    )


def _runs(op: Kernel, trains: bool, name: str) -> bool:
    """Inference has no loss, no dropout, no backward; OPT has no dropout of probabilities."""
    if op.name == "attention_dropout" and name == "opt_13":
        return False
    return trains or (op.phase == "F" and op.name not in ("cross_entropy", "attention_dropout"))


def _as_hugging_face(op: Kernel, new_gelu: bool) -> list[Kernel]:
    """The operations that PyTorch runs where the package lists one kernel, or another order of the same product."""
    if op.name == "scores" and op.phase == "B":  # both gradients sum over keys or queries
        return [op._replace(n=op.k, k=op.n)]
    if (
        op.name == "values" and op.phase == "B"
    ):  # of the probabilities, over the head's width; of the values, over queries
        half = op._replace(batch=0.5 * op.batch, hbm_bytes=0.5 * op.hbm_bytes, n_launch=1.0)
        return [half, half._replace(n=op.k, k=op.n)]
    share = SEPARATE.get((op.name, op.phase), 1.0)
    if new_gelu and op.name.endswith("_act"):
        share = NEW_GELU[op.phase] / FUSED_GELU[op.phase]
    return [op._replace(hbm_bytes=op.hbm_bytes * share, n_launch=op.n_launch * max(1.0, round(share)))]


def _seconds(kernels: list[Kernel], device: Device, own: Laws) -> float:
    """Sum over kernels, each by the constants of its kind."""
    products = [op for op in kernels if op.kernel == "gemm"]
    kinds = (
        ([op for op in products if op.batch == 1.0], own.product),
        ([op for op in products if op.batch != 1.0], own.batched),
        ([op for op in kernels if op.kernel != "gemm"], own.memory),
    )
    return float(sum(op_seconds(KernelTable.of(ops), device, "fp32", eff).sum() for ops, eff in kinds if ops))


def scores(folder: Path, seed: int) -> pd.DataFrame:
    """Rows of the table with the prediction, in ms."""
    rows = pd.read_csv(folder / "kernels2" / "neusight_e2e.csv")
    rows["variant"] = rows.variant.fillna("")
    vector = tables.read(folder, "vector")
    every = {
        "gemm": tables.thinned(tables.read(folder, "gemm"), 300, seed),
        "vector": tables.thinned(vector[vector.op.isin(STREAMS)], 100, seed),
    }
    for gpu, of in rows.groupby("gpu").groups.items():
        device, own = cuda_core_device(catalog.device(str(gpu))), laws_without(str(gpu), every)
        rows.loc[of, "predicted_ms"] = [1e3 * seconds_of(row, device, own) for _, row in rows.loc[of].iterrows()]
    return rows
