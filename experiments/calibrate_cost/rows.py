"""Whole steps: predicted, noise-free, against the published rows, and the fit of `in_step`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

from experiments.step_tables.table import read_step_rows
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.step import StepCost, step_cost
from prism_jax.graph.build import build_graph
from prism_jax.plan.plan import ParallelPlan
from prism_jax.schedule.registry import make_schedule
from prism_jax.validation.score import MeasuredRow

SCORED = ("narayanan_t1", "narayanan_t2", "korthikanti")
# Waiting for the slowest GPU, which the noise-free step lacks: median of p50 over the noise-free step in `prism-jax validate`.
STRAGGLER_ALLOWANCE = 1.018


def longest_path_s(cost: StepCost, plan: ParallelPlan) -> float:
    """Noise-free step of the plan's schedule, level by level."""
    graph = build_graph(make_schedule(plan.schedule, plan.pp, plan.n_micro_batch, plan.virtual_stages), cost)
    duration = graph.compute_s.sum(-1) + graph.comm_s.sum(-1) + graph.send_s
    end, now = np.zeros_like(duration), np.zeros(graph.n_lane)
    for level in range(graph.n_level):
        for dep in range(graph.dep_level.shape[-1]):
            at, lane = graph.dep_level[level, :, dep], graph.dep_lane[level, :, dep]
            now = np.where(at >= 0, np.maximum(now, end[at, lane] + graph.lag_s[level, :, dep]), now)
        now = now + duration[level]
        end[level] = now
    return float((now + graph.end_compute_s + graph.end_comm_s).max())


def closed_form_s(cost: StepCost, plan: ParallelPlan) -> float:
    """Busiest stage times micro-batches, plus the way through the pipeline once: exact for equal stages of 1F1B."""
    chunk = (cost.compute_s.sum(-1) + cost.comm_s.sum(-1)).sum(0) + (2.0 * cost.p2p_s if cost.p2p_blocking else 0.0)
    stage = np.array([chunk[s :: plan.pp].sum() for s in range(plan.pp)])
    fill = (stage.sum() - stage.max()) / plan.virtual_stages
    lag = 0.0 if cost.p2p_blocking else 2.0 * cost.p2p_s.max() * (plan.pp - 1)
    return float(plan.n_micro_batch * stage.max() + fill + lag + (cost.end_compute_s + cost.end_comm_s).max())


def reference_rows(data: Path) -> list[MeasuredRow]:
    return read_step_rows(data / "steps" / "reference_rows.json")


def is_scored(row: MeasuredRow) -> bool:
    return row.id.startswith(SCORED)


def table(data: Path) -> pd.DataFrame:
    """Every reference row with its error and where its time goes, as shares of the step."""
    out = []
    for row in reference_rows(data):
        model, cluster, plan = row.job
        cost = step_cost(model, cluster, plan, efficiency(cluster.device.generation))
        seconds = longest_path_s(cost, plan)
        share = plan.n_micro_batch / plan.pp / seconds
        gemm, attention, memory = share * cost.compute_s.sum((0, 1))
        low, high = row.measured_range or (np.nan, np.nan)
        out.append(
            (row.id, row.measured_s, low, high, seconds, seconds / (row.measured_s or np.nan) - 1.0, gemm, attention)
            + (memory, share * cost.comm_s.sum(), (cost.end_compute_s + cost.end_comm_s).max() / seconds)
        )
    columns = [
        "id",
        "measured_s",
        "low_s",
        "high_s",
        "predicted_s",
        "error",
        "gemm",
        "attention",
        "memory",
        "comm",
        "end",
    ]
    return pd.DataFrame(out, columns=columns)


def fit_in_step(data: Path) -> pd.DataFrame:
    """Error over the 24 A100 rows for values of `in_step`; the shipped one leaves no bias."""
    jobs = [(row.job, row.measured_s) for row in reference_rows(data) if is_scored(row)]
    shipped, out = efficiency("ampere"), []
    for in_step in np.round(np.arange(0.86, 0.931, 0.01), 3):
        eff = replace(shipped, in_step=float(in_step))
        error = np.array(
            [
                STRAGGLER_ALLOWANCE * closed_form_s(step_cost(m, c, p, eff), p) / (measured or np.nan) - 1.0
                for (m, c, p), measured in jobs
            ]
        )
        out.append((in_step, np.abs(error).mean(), np.abs(error).max(), error.mean()))
    return pd.DataFrame(out, columns=["in_step", "mape", "worst", "bias"])


def other_sources(data: Path) -> pd.DataFrame:
    """Closed-form error by source and device over all rows of the steps table that become jobs and have no known defect.

    Notes:
        `bias_tp_overlap`: the same with `overlap.tp`, which Megatron-Core recipes switch on but tables do not state.
    """
    out = []
    for row in read_step_rows(data / "steps" / "steps.csv.gz"):
        if row.unsupported or row.defect or not row.measured_s:
            continue
        model, cluster, plan = row.job
        plans = (plan, replace(plan, overlap=replace(plan.overlap, tp=True)))
        eff = efficiency(cluster.device.generation)
        seconds, overlapped = (closed_form_s(step_cost(model, cluster, p, eff), p) for p in plans)
        kind = f"{cluster.device.name} {plan.dtype}{' moe' if model.has_experts else ''}"
        out.append((row.source[:40], kind, seconds / row.measured_s - 1.0, overlapped / row.measured_s - 1.0))
    errors = pd.DataFrame(out, columns=["source", "device", "error", "overlapped"])
    grouped = errors.groupby(["source", "device"])
    summary = grouped.error.agg(n="size", bias="mean", median="median", mape=lambda e: e.abs().mean())
    return summary.assign(bias_tp_overlap=grouped.overlapped.mean()).reset_index()
