# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false, reportIndexIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Runs that the GPUs of a node share: found in the table, and taken out of the differences between GPUs.

A data-parallel job, or a test that is started on a whole node, gives one row per GPU and run; what the run meets (other load,
heat) is common to them. Within a node, log time = GPU + run + rest: sums of squares of run means and of the rest are all that
the model needs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

NO_RUN = ""
SHARED = 0.5  # of the rows stand in runs of several GPUs; otherwise a column does not name runs


def run_names(rows: pd.DataFrame) -> pd.Series:
    """Name of the run of each row, by start time or by run label, whichever several GPUs of a node share; empty where none do."""
    for name in ("time", "run"):
        if name not in rows or rows[name].isna().all():
            continue
        label = rows[name].astype(str).where(rows[name].notna(), NO_RUN)
        group = rows.assign(label=label).groupby(["node", "series", "label"])["gpu"]
        n_gpu, n_row = group.transform("nunique"), group.transform("size")
        named = (n_row == n_gpu) & (label != NO_RUN)
        if (named & (n_gpu > 1)).mean() > SHARED:
            return label.where(named, NO_RUN)  # a GPU alone on its node has runs, too
    return pd.Series(NO_RUN, index=rows.index)


def within_cells(
    rows: pd.DataFrame, kernels: Sequence[str], covariates: pd.DataFrame
) -> tuple[dict[str, np.ndarray], pd.DataFrame]:
    """Pooled sums of the rest (see `FleetData`), and one row per node and series with shared runs: kernel, gpus, runs, square."""
    both = pd.concat([rows["log_s"], covariates], axis=1)
    deviation = both - both.groupby([rows["gpu"], rows["series"]]).transform("mean")
    in_run = rows["run_of_node"] != NO_RUN
    keys = [rows["node"], rows["series"], rows["run_of_node"]]
    size = rows.groupby(keys)["gpu"].transform("size")
    mean = deviation.groupby(keys).transform("mean").where(in_run, 0.0)
    rest = (deviation - mean).to_numpy(dtype=float)
    which = rows["kernel"].to_numpy(dtype=str)
    blocks = _blocks(rows[in_run], mean.loc[in_run], size[in_run])
    products = np.stack([rest[which == name].T @ rest[which == name] for name in kernels])
    dof = np.array([_dof(rows[which == name], blocks[blocks["kernel"] == name]) for name in kernels])
    return {"dof": dof, "syy": products[:, 0, 0], "sxy": products[:, 0, 1:], "sxx": products[:, 1:, 1:]}, blocks


def _blocks(rows: pd.DataFrame, run_mean: pd.DataFrame, size: pd.Series) -> pd.DataFrame:
    frame = rows[["node", "series", "kernel", "run_of_node"]].assign(size=size)
    runs = frame.drop_duplicates(["node", "series", "run_of_node"])
    means, n = run_mean.loc[runs.index].to_numpy(dtype=float), runs["size"].to_numpy(dtype=float)
    pairs = [(i, j) for i in range(means.shape[1]) for j in range(means.shape[1])]
    runs = runs.assign(**{product(i, j): n * means[:, i] * means[:, j] for i, j in pairs})
    grouped = runs.groupby(["node", "series", "kernel"])
    sums = {product(i, j): (product(i, j), "sum") for i, j in pairs}
    found = grouped.agg(gpus=("size", "mean"), runs=("size", "size"), **sums).reset_index()
    return found[found["runs"] > 1]


def product(i: int, j: int) -> str:
    """Column of the sum over runs of GPUs times the product of the run means of columns i and j; 0 is log seconds."""
    return f"product_{i}_{j}"


def _dof(rows: pd.DataFrame, blocks: pd.DataFrame) -> float:
    """Rows less one per GPU and series, less one per shared run but the first of each block."""
    n_cell = rows.groupby(["gpu", "series"]).ngroups
    return float(max(len(rows) - n_cell - (blocks["runs"] - 1).sum(), 0))


def run_counts(
    blocks: pd.DataFrame,
    nodes: np.ndarray,
    cells: pd.DataFrame,
    cell_node: pd.Series,
    kernels: Sequence[str],
    several_kernels: bool,
    n_covariate: int,
) -> dict[str, Any]:
    """The fields of `FleetData` that tell of shared runs."""
    by_node = blocks.groupby("node")["runs"].mean()
    per_cell = blocks.set_index(["node", "series"])["runs"]
    of_cell = pd.MultiIndex.from_arrays([cell_node, cells["series"]])
    cell_runs = per_cell.reindex(of_cell).fillna(np.inf).to_numpy(dtype=float)
    node_runs = by_node.reindex(nodes).fillna(np.inf).to_numpy(dtype=float)
    n = n_covariate + 1
    products = np.stack([[blocks[product(i, j)].to_numpy(dtype=float) for j in range(n)] for i in range(n)])
    products = np.moveaxis(products, 2, 0)
    return {
        "block_kernel": np.searchsorted(np.asarray(kernels), blocks["kernel"].to_numpy(dtype=str)),
        "block_gpus": blocks["gpus"].to_numpy(dtype=float),
        "block_dof": blocks["runs"].to_numpy(dtype=float) - 1.0,
        "block_square": products[:, 0, 0],
        "block_sxy": products[:, 0, 1:],
        "block_sxx": products[:, 1:, 1:],
        "node_runs": np.full_like(node_runs, np.inf) if several_kernels else node_runs,
        "cell_runs": cell_runs if several_kernels else np.full_like(cell_runs, np.inf),
        "shared_runs": bool(len(blocks) > 0),
    }
