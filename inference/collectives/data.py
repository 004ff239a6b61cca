"""A table of collectives as cells, curves and knots; first its rows made plain: one duration per row, known operations, two GPUs.

Rows that are no measurement of a collective are dropped and counted: one GPU alone, operations that are no collective of the cost
model, times of more than an hour (placeholders), and rows that their source flags as suspect (TCP fallback, wrong results).

A *cell* is one message size of one configuration at one scale; its repeats (in place, out of place, runs) tell the noise
apart from the curve. A *fabric* is what shares a law: operation, GPU, network and source. Configurations of a fabric
differ in library and setting. A *curve* is a fabric at one scale, held at the knots of `laws.axis`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, NamedTuple, cast

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.arrays import Floats
from prism_jax.core.errors import DataError, FitError
from prism_jax.core.kernels import COLLECTIVES
from prism_jax.core.registry import did_you_mean

from ..data.columns import ModelColumn
from ..data.raw_table import as_floats, column_of
from .laws import BEYOND, SPACING, Ints, Places, Reference, axis, between_knots, coarse, correlate, place, steps, trusts

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


@dataclass(frozen=True)
class CollectivesData:
    """Arrays of measured cells and curves that the likelihood is evaluated on.

    Attributes:
        fabrics: names, "op | gpu | network | source" without the unknown ones at its end, in the order of `curve_fabric`.
        fabric_keys: what the names are made of: the values of `FABRIC`.
        configs: names, "fabric | library | setting", in the order of `config`.
        config_fabric: [config].
        deviation_across: of pairs of configuration and regime (in a node, across nodes) with a deviation of their own, whether
            that regime is across nodes, [deviation].
        two_nodes: fabrics measured on two nodes and on more, where two may be faster than the rest says, [fabric, ...].
        held: where the law is held; the values of a `Reference`, [value, fabric].
        deviation_of: deviation of every configuration in either regime; -1 for none, [config, regime].
        knots: positions along x, [knot].
        smooth: Cholesky factor of the knots' correlation, [knot, knot].
        coarse: values at the knots of lines between a few nodes, [knot, node].
        curve_fabric, curve_gpus, curve_nodes: of every curve, [curve]; curves of a fabric follow one another with scale.
        curve_hops, curve_net_hops, curve_bus: see `Places`, [curve].
        curve_from: the curve one scale below in the same fabric; -1 for the first, [curve].
        curve_step: doublings of scale between the two, [curve].
        curve_across: whether the one is in a node and the other across nodes, [curve].
        curve, config: of every cell, [cell].
        log_bytes, n_gpus, n_nodes, hops, net_hops, bus: of every cell; see `Places`, [cell].
        knot, weight: the knot below and how far the next one is mixed in, [cell].
        log_s: median log seconds of the cell's repeats, [cell].
        trust: weight of the cell; about one, and near zero of cells far off the curve through their neighbours, [cell].
        n_row: repeats of the cell, [cell].
        in_place: share of in-place repeats, [cell].
        repeat, repeat_in_place, repeat_gpus, repeat_fabric: log deviation from the cell, scaled to an independent draw,
            that of `in_place`, scale and fabric, [repeat].
        notes: rows dropped, by rule.
    """

    fabrics: Annotated[tuple[str, ...], "fabric"]
    fabric_keys: Annotated[tuple[tuple[str, ...], ...], "fabric"]
    configs: Annotated[tuple[str, ...], "config"]
    config_fabric: Annotated[Ints, "config -> fabric"]
    deviation_across: Annotated[Ints, "deviation -> 2"]
    deviation_of: Annotated[Ints, "config 2 -> deviation or -1"]
    two_nodes: Annotated[Ints, "pair -> fabric"]
    held: Annotated[Floats, "value fabric"]
    knots: Annotated[Floats, "knot"]
    smooth: Annotated[Floats, "knot knot"]
    coarse: Annotated[Floats, "knot node"]
    curve_fabric: Annotated[Ints, "curve -> fabric"]
    curve_gpus: Annotated[Floats, "curve"]
    curve_nodes: Annotated[Floats, "curve"]
    curve_hops: Annotated[Floats, "curve"]
    curve_net_hops: Annotated[Floats, "curve"]
    curve_bus: Annotated[Floats, "curve"]
    curve_from: Annotated[Ints, "curve -> curve or -1"]
    curve_step: Annotated[Floats, "curve"]
    curve_across: Annotated[Floats, "curve"]
    curve: Annotated[Ints, "cell -> curve"]
    config: Annotated[Ints, "cell -> config"]
    log_bytes: Annotated[Floats, "cell"]
    n_gpus: Annotated[Floats, "cell"]
    n_nodes: Annotated[Floats, "cell"]
    hops: Annotated[Floats, "cell"]
    net_hops: Annotated[Floats, "cell"]
    bus: Annotated[Floats, "cell"]
    knot: Annotated[Ints, "cell -> knot"]
    weight: Annotated[Floats, "cell"]
    log_s: Annotated[Floats, "cell"]
    trust: Annotated[Floats, "cell"]
    n_row: Annotated[Floats, "cell"]
    in_place: Annotated[Floats, "cell"]
    repeat: Annotated[Floats, "repeat"]
    repeat_in_place: Annotated[Floats, "repeat"]
    repeat_gpus: Annotated[Floats, "repeat"]
    repeat_fabric: Annotated[Ints, "repeat -> fabric"]
    notes: tuple[str, ...]

    @property
    def n_deviation(self) -> int:
        """Number of deviations."""
        return len(self.deviation_across)

    @property
    def fabric_op(self) -> tuple[str, ...]:
        """Operation of every fabric."""
        return tuple([key[FABRIC.index("op")] for key in self.fabric_keys])

    @property
    def reference(self) -> Reference:
        """Place at which the law of every fabric is held, [fabric]."""
        return Reference(*self.held)

    @property
    def where(self) -> Places:
        """Place of every cell."""
        return Places(self.n_gpus, self.n_nodes, self.hops, self.net_hops, self.bus)

    @property
    def curve_where(self) -> Places:
        """Place of every curve."""
        return Places(self.curve_gpus, self.curve_nodes, self.curve_hops, self.curve_net_hops, self.curve_bus)


def from_frame(frame: pd.DataFrame) -> CollectivesData:
    """The data of a checked table.

    Raises:
        DataError: no row is left.
        FitError: an operation is unknown.
    """
    rows, notes = plain_rows(frame)
    if rows.empty:
        raise DataError(f"no measurement of a collective on two or more GPUs is left ({'; '.join(notes) or 'no rows'})")
    cells, repeats = _cells(named(rows))
    key_of = {_joined(key): key for key in _keys(rows, FABRIC)}
    fabrics = tuple(sorted(key_of))
    of_config = dict(zip(texts(cells, "of_config"), texts(cells, "fabric"), strict=True))
    configs = tuple(sorted(of_config))
    deviation_of = _deviations(cells, configs)
    curves = _curves(cells, fabrics)
    grid = _grid(cells, curves)
    at = _places(cells)
    curve_at = _places(curves)
    config = _index(texts(cells, "of_config"), configs)
    return CollectivesData(
        fabrics=fabrics,
        fabric_keys=tuple([key_of[name] for name in fabrics]),
        configs=configs,
        config_fabric=_index([of_config[name] for name in configs], fabrics),
        deviation_across=np.nonzero(deviation_of >= 0)[1],
        deviation_of=deviation_of,
        two_nodes=_two_nodes(curves, len(fabrics)),
        held=np.stack(_reference(curves, curve_at, len(fabrics))),
        knots=grid.knots,
        smooth=correlate(grid.knots),
        coarse=coarse(grid.knots),
        curve_fabric=_index(texts(curves, "fabric"), fabrics),
        curve_gpus=curve_at.n_gpus,
        curve_nodes=curve_at.n_nodes,
        curve_hops=curve_at.hops,
        curve_net_hops=curve_at.net_hops,
        curve_bus=curve_at.bus,
        curve_from=floats(curves, "before").astype(np.int64),
        curve_step=floats(curves, "step"),
        curve_across=floats(curves, "across"),
        curve=grid.curve,
        config=config,
        log_bytes=np.log(floats(cells, "message_bytes")),
        n_gpus=at.n_gpus,
        n_nodes=at.n_nodes,
        hops=at.hops,
        net_hops=at.net_hops,
        bus=at.bus,
        knot=grid.knot,
        weight=grid.weight,
        log_s=floats(cells, "log_s"),
        trust=trusts(grid.curve, config, floats(cells, "message_bytes"), floats(cells, "log_s")),
        n_row=floats(cells, "n"),
        in_place=floats(cells, "share"),
        repeat=floats(repeats, "deviation"),
        repeat_in_place=floats(repeats, "deviation_in_place"),
        repeat_gpus=floats(repeats, "n_gpus"),
        repeat_fabric=_index(texts(repeats, "fabric"), fabrics),
        notes=notes,
    )


def _reference(curves: pd.DataFrame, at: Places, n_fabric: int) -> Reference:
    """Returns the place at which the law of every fabric is held, [fabric]; curves follow one another with scale."""
    fabric, across = floats(curves, "order").astype(np.int64), at.n_nodes > 1
    smallest = [int(np.flatnonzero(fabric == i)[0]) for i in range(n_fabric)]

    def largest(side: np.ndarray) -> Floats:
        found = [at.bus[(fabric == i) & side] for i in range(n_fabric)]
        return np.array([bus[-1] if len(bus) else 1.0 for bus in found])

    return Reference(at.hops[smallest], at.net_hops[smallest], largest(~across), largest(across))


class _Grid(NamedTuple):
    """Positions of cells along their curves.

    Attributes:
        knots: positions along x, [knot].
        curve: curve of every cell, [cell].
        knot, weight: the knot below and how far the next one is mixed in, [cell].
    """

    knots: Floats
    curve: Ints
    knot: Ints
    weight: Floats


def _grid(cells: pd.DataFrame, curves: pd.DataFrame) -> _Grid:
    x = axis(floats(cells, "message_bytes"), floats(cells, "n_gpus"))
    knots = np.arange(np.floor(x.min()) - BEYOND, np.ceil(x.max()) + BEYOND + SPACING, SPACING)
    knot, weight = between_knots(knots, x)
    number = {one: i for i, one in enumerate(_scales(curves))}
    curve = np.array([number[one] for one in _scales(cells)], dtype=np.int64)
    return _Grid(knots, curve, knot, weight)


def _scales(rows: pd.DataFrame) -> Iterable[tuple[str, float, float]]:
    """Fabric, GPUs and nodes of every row: what tells one curve from another."""
    return zip(texts(rows, "fabric"), floats(rows, "n_gpus"), floats(rows, "n_nodes"), strict=True)


def _places(rows: pd.DataFrame) -> Places:
    """Place of every row."""
    return place(texts(rows, "op"), floats(rows, "n_gpus"), floats(rows, "n_nodes"))


def named(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with the names of their fabric and configuration."""
    fabrics, configs = _keys(rows, FABRIC), _keys(rows, (*FABRIC, *SETTING))
    return rows.assign(fabric=[_joined(key) for key in fabrics], of_config=[_joined(key) for key in configs])


def _keys(rows: pd.DataFrame, columns: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Texts of some columns of every row, without the separator of names."""
    parts = zip(*(texts(rows, column) for column in columns), strict=True)
    return [tuple([part.replace("|", "/") for part in each]) for each in parts]


def _joined(key: tuple[str, ...]) -> str:
    return " | ".join(key).rstrip(" |")


def _cells(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Cells, and the rows of cells with repeats."""
    keys = ["op", "fabric", "of_config", "message_bytes", "n_gpus", "n_nodes"]
    rows = rows.assign(log_s=np.log(floats(rows, "duration_s")))
    groups = rows.groupby(keys, sort=True)
    cells = groups.agg(log_s=("log_s", "median"), share=("in_place", "mean"), n=("log_s", "size")).reset_index()
    every = rows.merge(cells, on=keys, suffixes=("", "_cell"))
    every = cast(pd.DataFrame, every[floats(every, "n") > 1])
    n = floats(every, "n")
    grow = np.sqrt(n / (n - 1.0))  # of n deviations from their centre only n - 1 are free
    return cells, every.assign(
        deviation=(floats(every, "log_s") - floats(every, "log_s_cell")) * grow,
        deviation_in_place=(floats(every, "in_place") - floats(every, "share")) * grow,
    )


def _curves(cells: pd.DataFrame, fabrics: tuple[str, ...]) -> pd.DataFrame:
    """Fabrics at one scale, by fabric and scale (one node first), each with the one before it."""
    curves = cast(pd.DataFrame, cells[["fabric", "op", "n_gpus", "n_nodes"]]).drop_duplicates()
    curves = curves.assign(order=_index(texts(curves, "fabric"), fabrics), several=floats(curves, "n_nodes") > 1)
    curves = curves.sort_values(["order", "several", "n_gpus", "n_nodes"]).reset_index(drop=True)
    first = np.diff(floats(curves, "order"), prepend=-1.0) != 0
    before = np.where(first, -1, np.arange(len(curves)) - 1)
    n_gpus, n_nodes = floats(curves, "n_gpus"), floats(curves, "n_nodes")
    step, across = steps(n_gpus[before], n_nodes[before], n_gpus, n_nodes)
    return curves.assign(before=before, step=np.where(first, 1.0, step), across=np.where(first, 0.0, across))


def _deviations(cells: pd.DataFrame, configs: tuple[str, ...]) -> Ints:
    """Number of the deviation of each configuration in a node and across nodes; -1 where a fabric has but one there."""
    found = np.full((len(configs), 2), -1, dtype=np.int64)
    of_fabric = dict(zip(texts(cells, "of_config"), texts(cells, "fabric"), strict=True))
    across = floats(cells, "n_nodes") > 1
    for regime in (0, 1):
        there = sorted(set(np.array(texts(cells, "of_config"))[across == bool(regime)].tolist()))
        n_config = Counter(of_fabric[config] for config in there)
        several = [config for config in there if n_config[of_fabric[config]] > 1]
        found[_index(several, configs), regime] = 0
    found[found == 0] = np.arange(int((found == 0).sum()))
    return found


def _two_nodes(curves: pd.DataFrame, n_fabric: int) -> Ints:
    fabric, nodes = floats(curves, "order").astype(np.int64), floats(curves, "n_nodes")
    return np.array(
        [i for i in range(n_fabric) if (nodes[fabric == i] == 2).any() and (nodes[fabric == i] > 2).any()],
        dtype=np.int64,
    )


def _index(values: Iterable[str], names: tuple[str, ...]) -> Ints:
    number = {name: i for i, name in enumerate(names)}
    return np.array([number[value] for value in values], dtype=np.int64)
