"""Rows of the tables as rows that the package validates: models on clusters, data parallel."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from experiments.device_names import device_of_text
from experiments.nonllm_tables.models import model_of
from experiments.nonllm_tables.row import TableRow
from experiments.nonllm_tables.rule import Made
from prism_jax.core.errors import PrismError
from prism_jax.framework.software import Software
from prism_jax.job.rules import check_plan
from prism_jax.plan.plan import ParallelPlan
from prism_jax.system import catalog
from prism_jax.system.hardware import Cluster
from prism_jax.validation.score import MeasuredRow

_VENDORS = ("dle",)  # examples of the vendor of the GPUs


def step_row(row: TableRow) -> MeasuredRow:
    """The row as a job, or why there is none."""
    known = MeasuredRow(row.id, row.source, row.step_s, framework="")
    made = model_of(row)
    if made is None:
        return replace(known, unsupported="no such model")
    try:
        cluster, plan = cluster_of(row), plan_of(row, made)
        check_plan(plan, made.model, cluster)
    except PrismError as error:
        return replace(known, unsupported=f"impossible: {error}")
    return replace(known, model=made.model, cluster=cluster, plan=plan)


def step_rows(rows: Iterable[TableRow]) -> list[MeasuredRow]:
    """All of them, in the same order."""
    return [step_row(row) for row in rows]


def cluster_of(row: TableRow) -> Cluster:
    """The usual machine of the GPU, with nodes of the row's size; TF32 is the rate of its products in fp32."""
    device = device_of_text(row.gpu)
    usual = catalog.default_cluster(device.name, row.n_gpus)
    usual = with_nodes(_with_port(usual, row.network), row.gpus_per_node)
    if row.precision == "tf32":
        peaks = device.peak_flops_per_s
        device = replace(device, peak_flops_per_s={**peaks, "fp32": peaks["tf32"]})
    return replace(usual, device=device)


def _with_port(cluster: Cluster, network: str) -> Cluster:
    """The cluster with the port of a node that a row states ("100 Gb/s InfiniBand")."""
    stated = re.match(r"(\d+) Gb/s", network)
    if stated is None:
        return cluster
    inner, outer = cluster.tiers
    rate = float(stated[1]) * 1e9 / 8 / cluster.node_size
    return replace(cluster, tiers=(inner, replace(outer, bytes_per_s=rate)))


def with_nodes(cluster: Cluster, size: int) -> Cluster:
    """Nodes of another size, which keep their port to the others."""
    inner, *outer = cluster.tiers
    if not outer or size >= cluster.n_devices or inner.n_devices != cluster.node_size or size == cluster.node_size:
        return cluster
    share = cluster.node_size / size
    wider = tuple(replace(tier, bytes_per_s=tier.bytes_per_s * share) for tier in outer)
    return replace(cluster, node_size=size, tiers=(replace(inner, n_devices=size), *wider))


def plan_of(row: TableRow, made: Made) -> ParallelPlan:
    """Data parallel over all GPUs."""
    software: dict[str, Any] = dict(made.software) | ({"tuning": "vendor"} if row.table in _VENDORS else {})
    return ParallelPlan(
        micro_batch=row.batch_per_gpu,
        global_batch=row.batch_per_gpu * row.n_accumulated * row.n_gpus,
        seq_len=made.seq_len,
        dp=row.n_gpus,
        dtype="fp32" if row.precision == "tf32" else row.precision,
        attention="unfused",
        software=Software(compile=row.is_compiled or None, **software),
    )
