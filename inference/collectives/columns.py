"""Columns of a table of collectives, and its rows made plain: one duration per row, known operations, two GPUs or more.

Rows that are no measurement of a collective are dropped and counted: one GPU alone, operations that are no collective of the cost
model, times of more than an hour (placeholders), and rows that their source flags as suspect (TCP fallback, wrong results).
"""

from __future__ import annotations

from typing import cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.errors import FitError
from prism_jax.core.kernels import COLLECTIVES
from prism_jax.core.registry import did_you_mean

from ..data.columns import ModelColumn
from ..data.raw_table import as_floats, column_of

COLUMNS = (
    ModelColumn("op", ("collective", "operation", "kind"), required=True, text=True),
    ModelColumn("message_bytes", ("msg_bytes", "bytes", "size_bytes", "size"), required=True, positive=True),
    ModelColumn("n_gpus", ("ngpus", "num_gpus", "gpus", "n_ranks", "nranks"), required=True, positive=True),
    ModelColumn(
        "duration_s",
        ("time_us", "time_us_out_of_place", "latency_us", "time", "duration", "latency"),
        required=True,
        positive=True,
    ),
    ModelColumn("duration_in_place_s", ("time_us_in_place",)),
    ModelColumn("n_nodes", ("nodes", "num_nodes", "nnodes")),
    ModelColumn("gpus_per_node", ("ppn", "num_gpus_per_node")),
    ModelColumn("gpu", ("device", "gpu_model"), text=True),
    ModelColumn("network", ("system", "fabric", "cluster"), text=True),
    ModelColumn("library", ("backend",), text=True),
    ModelColumn("source", ("source_repo",), text=True),
    ModelColumn("setting", ("notes", "config"), text=True),
    ModelColumn("in_place", (), text=True),
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

    def drop(where: NDArray[np.bool_], rule: str) -> None:
        nonlocal rows
        if where.any():
            dropped.append(f"{int(where.sum()):,} rows dropped: {rule}")
            rows = cast(pd.DataFrame, rows[~where])

    suspect = says(rows, "setting", SUSPECT)
    drop(suspect & says(rows, "setting", "fallback"), "flagged by their source as run over a TCP or transport fallback")
    drop(says(rows, "setting", SUSPECT), "flagged as suspect by their source (wrong results)")
    drop(floats(rows, "n_gpus") < 2, "one GPU alone communicates with nobody")
    others = np.isin(texts(rows, "op"), OTHER_OPS)
    drop(others, f"no collective of the cost model ({', '.join(OTHER_OPS[:2])}, ...)")
    drop(floats(rows, "duration_s") > LONGEST_S, "more than an hour, a placeholder")
    rows = rows.assign(n_nodes=_nodes(rows))
    drop(np.isnan(floats(rows, "n_nodes")), "neither n_nodes nor gpus_per_node is known")
    inside = np.isin([text.lower() for text in texts(rows, "in_place")], ("in", "1", "true", "in_place"))
    rows = rows.assign(in_place=inside.astype(float))
    return rows.reset_index(drop=True), tuple(dropped)


def floats(rows: pd.DataFrame, name: str) -> NDArray[np.float64]:
    """The column's numbers."""
    return as_floats(column_of(rows, name))


def texts(rows: pd.DataFrame, name: str) -> list[str]:
    """The column's texts."""
    return [str(text) for text in column_of(rows, name)]


def says(rows: pd.DataFrame, name: str, what: str) -> NDArray[np.bool_]:
    """Tells which rows' text in the column contains `what`, upper or lower case."""
    return np.array([what.lower() in text.lower() for text in texts(rows, name)], dtype=bool)


def known_op(op: str) -> str:
    """The operation as the cost model calls it.

    Raises:
        FitError: there is none of that name.
    """
    plain = str(op).strip().lower().replace("-", "_").replace(" ", "_")
    if plain in COLLECTIVES or plain in OTHER_OPS:
        return plain
    short = plain.replace("_", "")
    if short in SPELLINGS:
        return SPELLINGS[short]
    raise FitError(f"op {op!r} is no collective{did_you_mean(plain, COLLECTIVES)}")


def _one_duration_per_row(frame: pd.DataFrame) -> pd.DataFrame:
    """A table with a time out of place and one in place in each row has two rows for each."""
    if "duration_in_place_s" not in frame:
        return frame
    both = floats(frame, "duration_in_place_s") > 0.0
    out = frame.drop(columns="duration_in_place_s")
    if not both.any():
        return out
    before = texts(out, "in_place") if "in_place" in out else [""] * len(out)
    inside = cast(pd.DataFrame, out[both]).assign(in_place="in", duration_s=floats(frame, "duration_in_place_s")[both])
    return pd.concat([out.assign(in_place=np.where(both, "out", before)), inside])


def _nodes(rows: pd.DataFrame) -> NDArray[np.float64]:
    """Nodes of every row: as stated, else from the GPUs per node, else one where the network says so; NaN if unknown."""
    n_gpus = floats(rows, "n_gpus")
    stated = floats(rows, "n_nodes") if "n_nodes" in rows else np.full(len(rows), np.nan)
    if "gpus_per_node" in rows:
        stated = np.where(np.isnan(stated), np.ceil(n_gpus / floats(rows, "gpus_per_node")), stated)
    alone = says(rows, "network", "single node") | says(rows, "network", "one node")
    return np.minimum(np.where(np.isnan(stated) & alone, 1.0, stated), n_gpus)
