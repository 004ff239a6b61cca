"""Measured collectives against `system.network`: nothing is fitted here.

The shares in `system/collectives.py` were read off these tables.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from prism_jax.cost.block_cost import collective_s
from prism_jax.system import catalog

SIZES = [2e3, 1e5, 1e6, 4e6, 3e7, 3e8, 1e11]


def across_nodes(data: Path) -> pd.DataFrame:
    """Mean relative error of all-reduce on 2 to 64 A100 (8 x 200 Gb/s InfiniBand) by size and devices."""
    rows = pd.read_csv(data / "collectives" / "allreduce_a100_ib.csv")
    rows = rows[(rows.num_gpus > 1) & (rows.msg_bytes >= SIZES[0])]
    cluster = catalog.cluster("azure-nd-a100-v4", 64)
    rows["error"] = [
        collective_s("all_reduce", size, cluster, 1, n).seconds * 1e6 / measured - 1.0
        for size, n, measured in zip(rows.msg_bytes, rows.num_gpus, rows.time_us_in_place, strict=True)
    ]
    return rows.pivot_table(index=pd.cut(rows.msg_bytes, SIZES), columns="num_gpus", values="error", observed=True)


def in_node(data: Path) -> pd.DataFrame:
    """The same for every collective inside one node, aiconfigurator tables (NCCL 2.26 and 2.27)."""
    rows = pd.read_csv(data / "collectives" / "collectives.csv.gz", low_memory=False)
    rows = rows.loc[(rows.source_repo == "ai-dynamo/aiconfigurator") & (rows.bytes >= SIZES[0])]
    rows["op"] = rows["op"].replace({"alltoall": "all_to_all"})
    parts = []
    for gpu, name in (("A100-SXM-80GB", "dgx-a100"), ("H100-SXM-80GB", "dgx-h100"), ("B200-SXM", "dgx-b200")):
        cluster, part = catalog.cluster(name, 8), rows.loc[rows.gpu == gpu].copy()
        part["error"] = [
            collective_s(op, size, cluster, 1, int(n)).seconds * 1e6 / measured - 1.0
            for op, size, n, measured in zip(part.op, part.bytes, part.ngpus, part.time_us, strict=True)
        ]
        parts.append(part)
    every = pd.concat(parts)
    size = pd.cut(every.bytes, SIZES)
    return every.pivot_table(index=["gpu", "op", "ngpus"], columns=size, values="error", observed=True)
