"""Seconds of a row in parts that a factor each may scale: products, memory-bound kernels, exchange in nodes and between them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.dlrm_rows.rows import Row
from prism_jax.cost.block_cost import BlockCostModel
from prism_jax.cost.efficiency import efficiency
from prism_jax.cost.step import step_cost

PARTS = ("gemm", "memory", "scale_up", "network")


def parts_s(row: Row) -> np.ndarray:
    """[part] seconds without any correction; host time is inside the kernels it stretches."""
    eff = efficiency(row.cluster.device.generation)
    cost = step_cost(row.model, row.cluster, row.plan, eff)
    blocks = BlockCostModel(row.model, row.cluster, row.plan, eff)
    exchange = {False: 0.0, True: 0.0}
    for comm in row.model.block("tables", row.plan).comms:
        across = row.cluster.fabric.n_node(comm.stride, comm.size) > 1
        exchange[across] += float(blocks.comm_seconds(comm))
    rest = float(cost.comm_s.sum()) - sum(exchange.values())  # of the dense gradients, what no compute hides
    exchange[row.plan.dp > row.cluster.node_size] += max(rest, 0.0)
    compute = cost.compute_s.sum(axis=(0, 1))
    return np.array([compute[0], compute[1:].sum(), exchange[False], exchange[True]])


def parts_of(rows: Sequence[Row]) -> np.ndarray:
    """[row, part]; configurations that several submitters ran are costed once."""
    known: dict[Any, np.ndarray] = {}
    for row in rows:
        key = (row.model, row.cluster, row.plan)
        if key not in known:
            known[key] = parts_s(row)
    return np.stack([known[row.model, row.cluster, row.plan] for row in rows])
