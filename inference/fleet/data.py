"""A table of kernel times as the fleet model needs it: one cell per GPU and kernel, with sufficient statistics.

Rows of one cell are repeats. Those farther than `FAR` robust standard deviations from their cell's median are *disturbed runs*:
another job, a retried kernel. They are counted, with their mean excess, and kept out of the normal part of the model.

A data-parallel job, or a test that is started on a whole node, gives one row per GPU and run; what the run meets (other load,
heat) is common to them. Such runs are found in the table and taken out of the differences between GPUs: within a node, log time =
GPU + run + rest, and sums of squares of run means and of the rest are all that the model needs.

A column of GPUs that holds 0 to 7 on every host names eight places, not eight GPUs. Serial numbers and UUIDs name GPUs wherever
they are. What a column holds, its values say: those that most nodes have in common are indices. A name such as "gpu013:4" holds
both (`placed`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.errors import DataError
from prism_jax.core.robust import MAD_SD

from ..data.columns import ModelColumn

# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportCallIssue=false
# pyright: reportOperatorIssue=false, reportGeneralTypeIssues=false
# (of pandas without stubs, every expression may be of any type)

SHARED = 0.5  # of the names of GPUs that stand on several nodes: then they are indices
MOST_IN_NODE = 72  # GPUs that one name of a node holds (NVL72)
_INDEX = re.compile(r"^(?:cuda|gpu|device)[ :_#-]?(\d{1,3})$", re.IGNORECASE)  # of a GPU inside its node
_BOTH = re.compile(r"^(?P<node>.*[^:/\s])\s?[:/]\s?(?:gpu)?(?P<index>\d{1,3})$", re.IGNORECASE)
_JOINED = re.compile(r"^(?P<node>.*\d)[-_.](?:gpu|g|dev|local|rank|r)?[-_]?(?P<index>\d{1,2})$", re.IGNORECASE)


def placed(rows: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """The rows with `gpu` unique in the fleet and `node` where it can be told; and what was decided on the way.

    Args:
        rows: with the column `gpu`, and `node` or none.
    """
    rows = rows.assign(gpu=_plain(rows["gpu"]))
    if "node" not in rows or rows["node"].isna().all():
        return _from_names(rows.drop(columns="node", errors="ignore"))
    known = rows["node"].notna()
    node = _one_domain(_plain(rows["node"].where(known, "")))
    index = rows["gpu"].str.replace(_INDEX, r"\1", regex=True)
    pairs = pd.DataFrame({"gpu": index, "node": node})[known].drop_duplicates()
    n_nodes = pairs.groupby("gpu")["node"].nunique()
    if pairs["node"].nunique() < 2 or float((n_nodes > 1).mean()) <= SHARED:
        return rows.assign(node=node.where(known)), ()
    first = ", ".join(sorted(n_nodes.index)[:3])
    note = (
        f"GPUs are numbered inside their nodes ({first}, ... on {pairs['node'].nunique():,} nodes): a GPU is node and number, "
        f"{len(pairs):,} in all"
    )
    return rows.assign(node=node.where(known), gpu=(node + ":" + index).where(known, rows["gpu"])), (note,)


def _plain(values: pd.Series) -> pd.Series:
    """Names as text; numbers that were read as 3.0 are 3."""
    return values.astype(str).str.strip().str.replace(r"^(\d{1,9})\.0$", r"\1", regex=True)


def _one_domain(node: pd.Series) -> pd.Series:
    """Hosts that stand in the table with their domain and without are called by the short name."""
    names = node.unique()
    short = {name: name.partition(".")[0] for name in names}
    bare = {name for name in names if short[name] == name and name}
    domains = pd.Series([short[name] for name in names if short[name] != name], dtype=object).value_counts()
    return node.map(
        {name: short[name] if short[name] in bare and domains.get(short[name]) == 1 else name for name in names}
    )


def _from_names(rows: pd.DataFrame) -> tuple[pd.DataFrame, tuple[str, ...]]:
    """Nodes from names of GPUs that hold both, if all do and several share one."""
    names = pd.Series(sorted(rows["gpu"].unique()))
    for pattern in (_BOTH, _JOINED):
        parts = names.str.extract(pattern)
        if parts["node"].isna().any():
            continue
        sizes = parts.groupby("node").size()
        regular = len(sizes) > 1 and sizes.median() > 1 and sizes.max() <= MOST_IN_NODE
        if regular and parts["index"].nunique() <= MOST_IN_NODE:
            node = rows["gpu"].map(dict(zip(names, parts["node"], strict=True)))
            example = names.iloc[0]
            note = f"nodes are read from the names of GPUs: {example} is on {parts['node'].iloc[0]}"
            return rows.assign(node=node), (note,)
    return rows, ()


NO_RUN = ""
IN_RUNS = 0.5  # of the rows stand in runs of several GPUs; otherwise a column does not name runs


def run_names(rows: pd.DataFrame) -> pd.Series:
    """Name of the run of each row, by start time or by run label, whichever several GPUs of a node share; empty where none do."""
    for name in ("time", "run"):
        if name not in rows or rows[name].isna().all():
            continue
        label = rows[name].astype(str).where(rows[name].notna(), NO_RUN)
        group = rows.assign(label=label).groupby(["node", "series", "label"])["gpu"]
        n_gpu, n_row = group.transform("nunique"), group.transform("size")
        named = (n_row == n_gpu) & (label != NO_RUN)
        if (named & (n_gpu > 1)).mean() > IN_RUNS:
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


GPU_NAMES = (
    "gpu_uuid", "uuid", "gpu_serial", "serial", "gpu_id", "gpu_index", "local_rank", "gpu_idx", "device_id", "device_index",
    "device", "index", "rank", "global_rank",
)  # fmt: skip
COLUMNS: Sequence[ModelColumn] = (
    ModelColumn("gpu", GPU_NAMES, required=True, text=True),
    ModelColumn("duration_s", ("duration", "time", "kernel_time", "elapsed", "latency"), required=True, positive=True),
    ModelColumn("kernel", ("kernel_name", "name", "op", "benchmark"), text=True),
    ModelColumn(
        "node", ("node_key", "hostname", "host", "node_name", "host_name", "node_id", "machine", "instance"), text=True
    ),
    ModelColumn("cluster", ("site", "fleet"), text=True),
    ModelColumn("gpu_model", ("gpu_name", "model"), text=True),
    ModelColumn("input_size", ("size", "n"), text=True),
    ModelColumn("run", ("run_index", "run_id", "repeat"), text=True),
    ModelColumn("time", ("unix_ts", "timestamp"), text=True),
    ModelColumn("clock_mhz", ("freq_mhz", "sm_clock", "clocks.sm", "frequency"), positive=True),
    ModelColumn("temp_c", ("temperature", "temperature.gpu", "gpu_temp")),
    ModelColumn("power_w", ("power", "power.draw"), positive=True),
)
COVARIATES = ("clock_mhz", "temp_c", "power_w")
FAR = 6.0  # robust standard deviations; a normal run lies beyond once in 500 million
FEWEST_GPUS = 4
SERIES = ("cluster", "gpu_model", "kernel", "input_size")


@dataclass(frozen=True)
class FleetData:
    """Attributes:
    kernel: names of the kernels.
    series: names of what shares a typical time: kernel, cluster, GPU model and input size.
    gpu, node: names, text [gpu], [node]. A GPU of unknown node has a node of its own.
    covariate: names of the logged ones.
    gpu_node: node of each GPU [gpu].
    cell_gpu, cell_kernel, cell_series: index of each cell [cell].
    count, mean_log: undisturbed rows and their mean log seconds [cell].
    dof, syy, sxy, sxx: what is left of log seconds once GPUs and runs are taken out, pooled per kernel: degrees of
        freedom [kernel], sums of squares [kernel], of products with covariates [kernel, covariate] and among them
        [kernel, covariate, covariate].
    block_sxy, block_sxx: as `block_square`, of products with covariates [block, covariate], and among them
        [block, covariate, covariate].
    block_kernel, block_gpus, block_dof, block_square: per node and series with runs that several of its GPUs share: kernel,
        GPUs per run, runs less one, and sum over runs of GPUs times the squared run mean [block].
    node_runs: shared runs behind the means of each node, infinite where none are shared or kernels are several [node].
    cell_runs: the same per cell, infinite where `node_runs` tells it [cell].
    shared_runs: whether there are any.
    gpu_covariate: mean of each covariate per GPU [gpu, covariate].
    n_row, n_disturbed: rows, and disturbed ones [kernel].
    disturbed_excess: mean log excess of disturbed rows over their cell's median [kernel].
    disturbed_square: mean square of that excess over all rows [kernel].
    series_median: median of the cell means [series].
    node_median: median of the cell means over the series' median [node].
    on_nodes: whether nodes differ more than the GPUs within one.
    several_kernels: whether some GPU was measured with more than one kernel.
    notes: how GPUs and nodes were told.
    """

    kernel: Annotated[tuple[str, ...], "kernel"]
    series: Annotated[tuple[str, ...], "series"]
    gpu: Annotated[NDArray[np.str_], "gpu"]
    node: Annotated[NDArray[np.str_], "node"]
    covariate: Annotated[tuple[str, ...], "covariate"]
    gpu_node: Annotated[np.ndarray, "gpu -> node"]
    cell_gpu: Annotated[np.ndarray, "cell -> gpu"]
    cell_kernel: Annotated[np.ndarray, "cell -> kernel"]
    cell_series: Annotated[np.ndarray, "cell -> series"]
    count: Annotated[np.ndarray, "cell"]
    mean_log: Annotated[np.ndarray, "cell"]
    dof: Annotated[np.ndarray, "kernel"]
    syy: Annotated[np.ndarray, "kernel"]
    sxy: Annotated[np.ndarray, "kernel covariate"]
    sxx: Annotated[np.ndarray, "kernel covariate covariate"]
    block_kernel: Annotated[np.ndarray, "block -> kernel"]
    block_gpus: Annotated[np.ndarray, "block"]
    block_dof: Annotated[np.ndarray, "block"]
    block_square: Annotated[np.ndarray, "block"]
    block_sxy: Annotated[np.ndarray, "block covariate"]
    block_sxx: Annotated[np.ndarray, "block covariate covariate"]
    node_runs: Annotated[np.ndarray, "node"]
    cell_runs: Annotated[np.ndarray, "cell"]
    shared_runs: bool
    gpu_covariate: Annotated[np.ndarray, "gpu covariate"]
    n_row: Annotated[np.ndarray, "kernel"]
    n_disturbed: Annotated[np.ndarray, "kernel"]
    disturbed_excess: Annotated[np.ndarray, "kernel"]
    disturbed_square: Annotated[np.ndarray, "kernel"]
    series_median: Annotated[np.ndarray, "series"]
    node_median: Annotated[np.ndarray, "node"]
    on_nodes: bool
    several_kernels: bool
    notes: tuple[str, ...] = ()

    @property
    def has_nodes(self) -> bool:
        """Whether some node is known to hold several of the GPUs, and there are several nodes."""
        return 1 < len(self.node) < len(self.gpu)


def fleet_data(frame: pd.DataFrame) -> FleetData:
    """The data of a checked table.

    Raises:
        DataError: fewer than four GPUs.
    """
    rows = labelled(frame)
    gpus, nodes = _levels(rows)
    if len(gpus) < FEWEST_GPUS:
        raise DataError(
            f"{len(gpus)} GPUs are too few to tell how GPUs differ; at least {FEWEST_GPUS} are needed. "
            "Is the column of GPU names the right one (--map gpu=NAME)?"
        )
    kernels, series = tuple(sorted(rows["kernel"].unique())), tuple(sorted(rows["series"].unique()))
    covariates = tuple(
        name for name in COVARIATES if name in rows and rows[name].notna().all() and np.ptp(rows[name]) > 0.0
    )
    calm = rows[~rows["disturbed"]]
    cells = calm.groupby(["gpu", "kernel", "series"], sort=True)["log_s"].agg(["size", "mean"]).reset_index()
    median = cells.groupby("series")["mean"].median()
    rest = cells["mean"] - cells["series"].map(median)
    by_gpu = gpus.set_index("gpu")["node"]
    cell_node = cells["gpu"].map(by_gpu)
    node_names = np.asarray(nodes, dtype=str)
    gpu_names = by_gpu.index.to_numpy(dtype=str)
    within, blocks = within_cells(calm, kernels, _transformed(calm, covariates))
    several_kernels = bool(cells.groupby("gpu")["kernel"].nunique().max() > 1)
    disturbed = _disturbed(rows, kernels)
    gpu_x = _transformed(calm, covariates).groupby(calm["gpu"]).mean().reindex(gpu_names).to_numpy(dtype=float)
    return FleetData(
        kernel=kernels,
        series=series,
        gpu=gpu_names,
        node=node_names,
        covariate=covariates,
        gpu_node=np.searchsorted(node_names, by_gpu.to_numpy(dtype=str)),
        cell_gpu=np.searchsorted(gpu_names, cells["gpu"].to_numpy(dtype=str)),
        cell_kernel=np.searchsorted(np.asarray(kernels), cells["kernel"].to_numpy(dtype=str)),
        cell_series=np.searchsorted(np.asarray(series), cells["series"].to_numpy(dtype=str)),
        count=cells["size"].to_numpy(dtype=float),
        mean_log=cells["mean"].to_numpy(dtype=float),
        gpu_covariate=gpu_x,
        series_median=median.reindex(series).to_numpy(dtype=float),
        node_median=rest.groupby(cell_node).median().reindex(node_names).to_numpy(dtype=float),
        on_nodes=_on_nodes(rest, cell_node),
        several_kernels=several_kernels,
        notes=rows.attrs["notes"],
        **within,
        **run_counts(blocks, node_names, cells, cell_node, kernels, several_kernels, len(covariates)),
        **disturbed,
    )


def labelled(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with log seconds, kernel, series, node, and whether they are disturbed."""
    rows, notes = placed(frame.reset_index(drop=True))
    rows["kernel"] = rows["kernel"].fillna("").astype(str) if "kernel" in rows else "kernel"
    parts = [rows[name].fillna("").astype(str) for name in SERIES if name in rows]
    rows["series"] = parts[0].str.cat(parts[1:], sep=" | ") if parts else "kernel"
    alone = "of " + rows["gpu"]
    rows["node"] = rows["node"].where(rows["node"].notna(), alone).astype(str) if "node" in rows else alone
    rows["run_of_node"] = run_names(rows)
    rows["log_s"] = np.log(rows["duration_s"].to_numpy(dtype=float))
    rows["excess"] = rows["log_s"] - rows.groupby(["gpu", "series"])["log_s"].transform("median")
    absolute = rows["excess"].abs()
    repeated = rows.groupby(["gpu", "series"])["log_s"].transform("size") > 2
    robust_sd = absolute[repeated].groupby(rows["kernel"][repeated]).median() * MAD_SD
    limit = rows["kernel"].map(robust_sd).fillna(0.0) * FAR
    rows["disturbed"] = (absolute > limit) & repeated & (limit > 0.0)
    rows.attrs["notes"] = notes
    return rows


def _levels(rows: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """One row per GPU with its node (the one it was seen on most), sorted; and the nodes, sorted."""
    pairs = rows.groupby(["gpu", "node"]).size().reset_index(name="n").sort_values("n", kind="stable")
    gpus = pairs.drop_duplicates("gpu", keep="last").sort_values("gpu").reset_index(drop=True)
    return gpus, sorted(gpus["node"].unique())


def _transformed(rows: pd.DataFrame, covariates: Sequence[str]) -> pd.DataFrame:
    """Logs of clock and power; tens of kelvin."""
    return pd.DataFrame(
        {name: rows[name] / 10.0 if name == "temp_c" else np.log(rows[name]) for name in covariates}, index=rows.index
    )


def _disturbed(rows: pd.DataFrame, kernels: Sequence[str]) -> dict[str, np.ndarray]:
    by_kernel = [rows[rows["kernel"] == name] for name in kernels]
    far = [part[part["disturbed"]] for part in by_kernel]
    return {
        "n_row": np.array([float(len(part)) for part in by_kernel]),
        "n_disturbed": np.array([float(len(part)) for part in far]),
        "disturbed_excess": np.array([float(part["excess"].mean()) if len(part) else 0.0 for part in far]),
        "disturbed_square": np.array(
            [float((part["excess"] ** 2).sum() / len(whole)) for part, whole in zip(far, by_kernel, strict=True)]
        ),
    }


def _on_nodes(rest: pd.Series, node: pd.Series) -> bool:
    """Whether node medians spread more than GPUs do around them."""
    median = rest.groupby(node).transform("median")
    apart = node.duplicated(keep=False)
    return bool(apart.sum() > 1 and (rest - median)[apart].std() < median[apart].std())
