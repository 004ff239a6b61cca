"""Which columns a table of collectives has, and its rows made plain: one duration per row, known operations, two GPUs or more.

Rows that are no measurement of a collective are dropped and counted: one GPU alone, operations that are no collective of the cost
model, times of more than an hour (placeholders), and rows that their source flags as suspect (TCP fallback, wrong results).
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd

from prism_jax.errors import FitError
from prism_jax.hints import did_you_mean

from ..data.columns import Column
from .collectives_laws import OPS

COLUMNS = (
    Column("op", ("collective", "operation", "kind"), required=True, text=True),
    Column("message_bytes", ("msg_bytes", "bytes", "size_bytes", "size"), required=True, positive=True),
    Column("n_gpus", ("ngpus", "num_gpus", "gpus", "n_ranks", "nranks"), required=True, positive=True),
    Column(
        "duration_s",
        ("time_us", "time_us_out_of_place", "latency_us", "time", "duration", "latency"),
        required=True,
        positive=True,
    ),
    Column("duration_in_place_s", ("time_us_in_place",)),
    Column("n_nodes", ("nodes", "num_nodes", "nnodes")),
    Column("gpus_per_node", ("ppn", "num_gpus_per_node")),
    Column("gpu", ("device", "gpu_model"), text=True),
    Column("network", ("system", "fabric", "cluster"), text=True),
    Column("library", ("backend",), text=True),
    Column("source", ("source_repo",), text=True),
    Column("setting", ("notes", "config"), text=True),
    Column("in_place", (), text=True),
)
FABRIC = ("op", "gpu", "network", "source")
SETTING = ("library", "setting")

SPELLINGS = {
    "allreduce": "all_reduce",
    "allgather": "all_gather",
    "reducescatter": "reduce_scatter",
    "alltoall": "all_to_all",
    "sendrecv": "p2p",
    "send_recv": "p2p",
    "broadcast": "broadcast",
    "p2p": "p2p",
}
OTHER_OPS = ("ep_dispatch", "ep_combine", "reduce", "gather", "scatter", "hypercube")  # measured, but no part of a step
LONGEST_S = 3600.0  # some tables write 1e12 us where nothing was measured
SUSPECT = "SUSPECT"  # what flagged rows say in their notes


def plain_rows(frame: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Rows with all canonical columns (text never blank, `in_place` 0 or 1), and how many were dropped by which rule.

    Raises:
        FitError: an operation is unknown.
    """
    rows = _one_duration_per_row(frame.copy())
    for name in (column.name for column in COLUMNS if column.text):
        rows[name] = rows[name].fillna("").astype(str) if name in rows else ""
    rows["op"] = [known_op(op) for op in rows["op"]]
    dropped: list[str] = []

    def drop(where: pd.Series, rule: str) -> None:
        nonlocal rows
        if where.any():
            dropped.append(f"{int(where.sum()):,} rows dropped: {rule}")
            rows = cast(pd.DataFrame, rows[~where])

    suspect = rows["setting"].str.contains(SUSPECT)
    fallback = suspect & rows["setting"].str.contains("fallback")
    drop(fallback, "flagged by their source as run over a TCP or transport fallback")
    drop(rows["setting"].str.contains(SUSPECT), "flagged as suspect by their source (wrong results)")
    drop(rows["n_gpus"] < 2, "one GPU alone communicates with nobody")
    drop(rows["op"].isin(OTHER_OPS), f"no collective of the cost model ({', '.join(OTHER_OPS[:2])}, ...)")
    drop(rows["duration_s"] > LONGEST_S, "more than an hour, a placeholder")
    rows["n_nodes"] = _nodes(rows)
    drop(rows["n_nodes"].isna(), "neither n_nodes nor gpus_per_node is known")
    rows["in_place"] = rows["in_place"].str.lower().isin(("in", "1", "true", "in_place")).astype(float)
    return rows.reset_index(drop=True), tuple(dropped)


def known_op(op: str) -> str:
    """The operation as the cost model calls it.

    Raises:
        FitError: there is none of that name.
    """
    plain = str(op).strip().lower().replace("-", "_").replace(" ", "_")
    if plain in OPS or plain in OTHER_OPS:
        return plain
    short = plain.replace("_", "")
    if short in SPELLINGS:
        return SPELLINGS[short]
    raise FitError(f"op {op!r} is no collective{did_you_mean(plain, OPS)}")


def _one_duration_per_row(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with a time out of place and one in place in each row has two rows for each."""
    if "duration_in_place_s" not in frame:
        return frame
    both = frame["duration_in_place_s"] > 0.0
    inside = frame[both].assign(in_place="in")
    inside["duration_s"] = inside["duration_in_place_s"]
    out = frame.copy()
    if both.any():
        out.loc[both, "in_place"] = "out"
    return pd.concat([out, inside]).drop(columns="duration_in_place_s")


def _nodes(rows: pd.DataFrame) -> np.ndarray:
    """Nodes of every row: as stated, else from the GPUs per node, else one where the network says so; NaN if unknown."""
    stated = rows["n_nodes"].to_numpy(float) if "n_nodes" in rows else np.full(len(rows), np.nan)
    n_gpus = rows["n_gpus"].to_numpy(float)
    if "gpus_per_node" in rows:
        stated = np.where(np.isnan(stated), np.ceil(n_gpus / rows["gpus_per_node"].to_numpy(float)), stated)
    alone = rows["network"].str.contains("single node|one node|intra", case=False).to_numpy(bool)
    return np.minimum(np.where(np.isnan(stated) & alone, 1.0, stated), n_gpus)
