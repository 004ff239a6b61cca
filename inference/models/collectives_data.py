"""Cells, curves and knots of a table of collectives.

A *cell* is one message size of one configuration at one scale; its repeats (in place, out of place, runs) tell the noise apart from
the curve. A *fabric* is what shares a law: operation, GPU, network and source. Configurations of a fabric differ in library and
setting. A *curve* is a fabric at one scale, held at *knots* along

    x = log2(bytes) - SLOPE log2(n_gpus),

since what changes with size (protocols, ring against tree) moves partly with the message and partly with its share per GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from prism_jax.errors import DataError

from .collectives_columns import FABRIC, SETTING, plain_rows
from .collectives_laws import REFERENCE_GPUS, Place, place

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLOPE = 0.5  # between features at fixed bytes (0) and at fixed bytes per GPU (1); A100 and GH200 tables do not tell them apart
SPACING = 1.0  # octaves between knots: nccl-tests doubles sizes
BEYOND = 3.0  # octaves of knots beyond the measured sizes, where curves go back to their law
REACH = 3.0  # octaves over which residuals of a law are alike: a protocol's range of sizes spans a few
ACROSS = 1.0  # doublings of scale that going from one node to several is worth, on top
NUGGET = 1e-6  # keeps the factorisation of the knots' correlation stable


@dataclass(frozen=True)
class CollectivesData:
    """What the likelihood needs.

    Attributes:
        fabrics: "op | gpu | network | source", in the order of `curve_fabric`.
        fabric_op: operation of each fabric.
        configs: "fabric | library | setting", in the order of `config`.
        config_fabric: [config].
        n_deviation: how many pairs of configuration and regime (in a node, across nodes) have a deviation of their own.
        deviation_across: whether that regime is across nodes, [deviation].
        deviation_of: deviation of every configuration in either regime; -1 for none, [config, regime].
        knots: positions along x, [knot].
        whiten: inverse Cholesky factor of the knots' correlation, [knot, knot].
        curve_fabric, curve_gpus, curve_nodes: of every curve, [curve]; curves of a fabric follow one another with scale.
        curve_hops, curve_net_hops, curve_bus: see `Place`, [curve].
        curve_from: the curve one scale below in the same fabric; -1 for the first, [curve].
        curve_step: doublings of scale between the two, [curve].
        curve, config: of every cell, [cell].
        log_bytes, n_gpus, n_nodes, hops, net_hops, bus: of every cell; see `Place`, [cell].
        knot, weight: the knot below and how far the next one is mixed in, [cell].
        log_s: median log seconds of the cell's repeats, [cell].
        in_place: share of in-place repeats, [cell].
        repeat, repeat_in_place, repeat_gpus, repeat_fabric: log deviation from the cell, scaled to an independent draw,
            that of `in_place`, scale and fabric, [repeat].
        notes: rows dropped, by rule.
    """

    fabrics: tuple[str, ...]
    fabric_op: tuple[str, ...]
    configs: tuple[str, ...]
    config_fabric: Ints
    n_deviation: int
    deviation_across: Ints
    deviation_of: Ints
    knots: Floats
    whiten: Floats
    curve_fabric: Ints
    curve_gpus: Floats
    curve_nodes: Floats
    curve_hops: Floats
    curve_net_hops: Floats
    curve_bus: Floats
    curve_from: Ints
    curve_step: Floats
    curve: Ints
    config: Ints
    log_bytes: Floats
    n_gpus: Floats
    n_nodes: Floats
    hops: Floats
    net_hops: Floats
    bus: Floats
    knot: Ints
    weight: Floats
    log_s: Floats
    in_place: Floats
    repeat: Floats
    repeat_in_place: Floats
    repeat_gpus: Floats
    repeat_fabric: Ints
    notes: tuple[str, ...]

    @property
    def where(self) -> Place:
        """Place of every cell."""
        return Place(self.n_gpus, self.n_nodes, self.hops, self.net_hops, self.bus)

    @property
    def curve_where(self) -> Place:
        """Place of every curve."""
        return Place(self.curve_gpus, self.curve_nodes, self.curve_hops, self.curve_net_hops, self.curve_bus)


def from_frame(frame: pd.DataFrame) -> CollectivesData:
    """The data of a checked table.

    Raises:
        DataError: no row is left.
        FitError: an operation is unknown.
    """
    rows, notes = plain_rows(frame)
    if rows.empty:
        raise DataError(f"no measurement of a collective on two or more GPUs is left ({'; '.join(notes) or 'no rows'})")
    rows["fabric"] = joined(rows, FABRIC)
    rows["of_config"] = joined(rows, (*FABRIC, *SETTING))
    cells, repeats = _cells(rows)
    fabrics = tuple(sorted(set(cells["fabric"])))
    configs = cells[["of_config", "fabric", "op"]].drop_duplicates("of_config").sort_values("of_config")
    fabric_op = configs.drop_duplicates("fabric").set_index("fabric")["op"]
    deviation_of = _deviations(cells, tuple(configs["of_config"]))
    curves = _curves(cells, fabrics)
    x = axis(cells["message_bytes"], cells["n_gpus"])
    knots = np.arange(np.floor(x.min()) - BEYOND, np.ceil(x.max()) + BEYOND + SPACING, SPACING)
    knot, weight = between_knots(knots, x)
    curve_op = fabric_op[curves["fabric"]].to_numpy(str)
    curve_at = place(curve_op, curves["n_gpus"].to_numpy(float), curves["n_nodes"].to_numpy(float))
    at = place(cells["op"].to_numpy(str), cells["n_gpus"].to_numpy(float), cells["n_nodes"].to_numpy(float))
    key = list(zip(cells["fabric"], cells["n_gpus"], cells["n_nodes"], strict=True))
    number = {one: i for i, one in enumerate(zip(curves["fabric"], curves["n_gpus"], curves["n_nodes"], strict=True))}
    return CollectivesData(
        fabrics=fabrics,
        fabric_op=tuple(str(fabric_op[name]) for name in fabrics),
        configs=tuple(configs["of_config"]),
        config_fabric=_index(configs["fabric"], fabrics),
        n_deviation=int(deviation_of.max()) + 1,
        deviation_across=np.nonzero(deviation_of >= 0)[1],
        deviation_of=deviation_of,
        knots=knots,
        whiten=np.linalg.inv(correlate(knots)),
        curve_fabric=_index(curves["fabric"], fabrics),
        curve_gpus=curve_at.n_gpus,
        curve_nodes=curve_at.n_nodes,
        curve_hops=curve_at.hops,
        curve_net_hops=curve_at.net_hops,
        curve_bus=curve_at.bus,
        curve_from=curves["before"].to_numpy(np.int64),
        curve_step=curves["step"].to_numpy(float),
        curve=np.array([number[one] for one in key], dtype=np.int64),
        config=_index(cells["of_config"], tuple(configs["of_config"])),
        log_bytes=np.log(cells["message_bytes"].to_numpy(float)),
        n_gpus=at.n_gpus,
        n_nodes=at.n_nodes,
        hops=at.hops,
        net_hops=at.net_hops,
        bus=at.bus,
        knot=knot,
        weight=weight,
        log_s=cells["log_s"].to_numpy(float),
        in_place=cells["share"].to_numpy(float),
        repeat=repeats["deviation"].to_numpy(float),
        repeat_in_place=repeats["deviation_in_place"].to_numpy(float),
        repeat_gpus=repeats["n_gpus"].to_numpy(float),
        repeat_fabric=_index(repeats["fabric"], fabrics),
        notes=notes,
    )


def joined(rows: pd.DataFrame, columns: tuple[str, ...]) -> pd.Series:
    """One name per row, of the columns' values."""
    values = rows[list(columns)].apply(lambda column: column.str.replace("|", "/", regex=False))
    return pd.Series([" | ".join(parts) for parts in values.itertuples(index=False)], index=rows.index)


def axis(n_bytes: ArrayLike, n_gpus: ArrayLike) -> Floats:
    """Where a message stands along the knots."""
    return np.log2(np.asarray(n_bytes, float)) - SLOPE * np.log2(np.asarray(n_gpus, float))


def scale_of(n_gpus: ArrayLike, n_nodes: ArrayLike) -> Floats:
    """Where a group stands along scale, in doublings."""
    return np.log2(np.asarray(n_gpus, float)) + ACROSS * (np.asarray(n_nodes, float) > 1)


def correlate(knots: Floats) -> Floats:
    """Cholesky factor of the knots' correlation (Matern 3/2)."""
    apart = np.sqrt(3.0) * np.abs(knots[:, None] - knots[None]) / REACH
    return np.linalg.cholesky((1.0 + apart) * np.exp(-apart) + NUGGET * np.eye(len(knots)))


def between_knots(knots: Floats, x: Floats) -> tuple[Ints, Floats]:
    """The knot below each of `x`, and the share of the next one; positions outside are moved to the ends."""
    inside = np.clip(x, knots[0], knots[-1])
    below = np.clip(np.floor((inside - knots[0]) / SPACING).astype(np.int64), 0, len(knots) - 2)
    return below, (inside - knots[below]) / SPACING


def doublings(n_gpus: ArrayLike) -> Floats:
    """Doublings of scale above the reference, the measure in which noise grows."""
    return np.log2(np.asarray(n_gpus, float) / REFERENCE_GPUS)


def _cells(rows: pd.DataFrame) -> tuple[pd.DataFrame, pd.DataFrame]:
    rows["log_s"] = np.log(rows["duration_s"].to_numpy(float))
    keys = ["op", "fabric", "of_config", "message_bytes", "n_gpus", "n_nodes"]
    groups = rows.groupby(keys, sort=True)
    cells = groups.agg(log_s=("log_s", "median"), share=("in_place", "mean"), n=("log_s", "size")).reset_index()
    every = rows.merge(cells, on=keys, suffixes=("", "_cell"))
    every = every[every["n"] > 1]
    grow = np.sqrt(every["n"] / (every["n"] - 1.0))  # of n deviations from their centre only n - 1 are free
    every = every.assign(
        deviation=(every["log_s"] - every["log_s_cell"]) * grow,
        deviation_in_place=(every["in_place"] - every["share"]) * grow,
    )
    return cells, every


def _curves(cells: pd.DataFrame, fabrics: tuple[str, ...]) -> pd.DataFrame:
    curves = cells[["fabric", "n_gpus", "n_nodes"]].drop_duplicates()
    curves = curves.assign(scale=scale_of(curves["n_gpus"], curves["n_nodes"]), order=_index(curves["fabric"], fabrics))
    curves = curves.sort_values(["order", "scale", "n_nodes"]).reset_index(drop=True)
    first = curves["order"].diff().fillna(1.0) != 0
    step = np.maximum(curves["scale"].diff().fillna(1.0), 0.1)  # 0.1: two places of one scale still differ
    return curves.assign(before=np.where(first, -1, np.arange(len(curves)) - 1), step=np.where(first, 1.0, step))


def _deviations(cells: pd.DataFrame, configs: tuple[str, ...]) -> Ints:
    """Number of the deviation of each configuration in a node and across nodes; -1 where a fabric has but one there."""
    found = np.full((len(configs), 2), -1, dtype=np.int64)
    across = cells["n_nodes"] > 1
    for regime in (0, 1):
        there = cells[across == bool(regime)][["fabric", "of_config"]].drop_duplicates()
        several = there[there.groupby("fabric")["of_config"].transform("size") > 1]
        found[_index(several["of_config"], configs), regime] = 0
    found[found == 0] = np.arange(int((found == 0).sum()))
    return found


def _index(values: pd.Series, names: tuple[str, ...]) -> Ints:
    number = {name: i for i, name in enumerate(names)}
    return np.array([number[value] for value in values], dtype=np.int64)
