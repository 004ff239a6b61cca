"""Parts of embedding tables: what every device holds of which table, from what a plan says and where that says nothing.

A part has columns and rows of one table on one device. Of a table with a copy on every device there is one part, of no
device, with the batch of one: `EVERYWHERE`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from ..._core.lazy_numpy import np
from ..._typing import Floats, Positions
from ...plan.table_sharding import TableShard, TableSharding
from .balance import Load, balanced
from .table import EmbeddingTable
from .traffic import Lookups

EVERYWHERE = -1
NARROWEST = 64  # elements of a row below which lookups waste bandwidth, see `traffic.NARROW`


class Parts(NamedTuple):
    """Columns [part].

    Attributes:
        table: index of its table.
        device: that holds it; `EVERYWHERE`.
        lookups: what it is asked for in one step.
        vectors: pooled vectors that it sends, over the samples of the step: 1, of rows of a table that every sample reads once
            their share.
        is_scattered: rows on all devices: partial sums are reduced and scattered instead of exchanged.
    """

    table: Positions
    device: Positions
    lookups: Lookups
    vectors: Floats
    is_scattered: Floats


@lru_cache(maxsize=256)
def parts_of(tables: tuple[EmbeddingTable, ...], written: TableSharding, n_device: int, batch: int) -> Parts:
    """All parts of the tables on `n_device` devices for a batch of all of them.

    Notes:
        Where nothing is written: a table of no more rows than a device has samples is copied, since its gradients are then fewer
        than its pooled vectors; others are cut where one would be more than a device's mean load, and placed by load.
    """
    usual, stated = usual_shards(tables, n_device, batch), written.by_table
    shards = [stated.get(table.name) or own for table, own in zip(tables, usual, strict=True)]
    cut = [_cut(table, shard, n_device, batch) for table, shard in zip(tables, shards, strict=True)]
    placed = _placed(tables, shards, cut, n_device, batch)
    table = np.repeat(np.arange(len(tables)), [len(own.rows) for own in cut])
    columns = [np.concatenate([getattr(own, name) for own in cut]) for name in Lookups._fields[:-1]]
    reuse = tuple(one for own in cut for one in own.reuse)
    rows_apart = [_vectors(tables[index], shards[index], n_device) for index in table.tolist()]
    scattered = [
        shards[index].way == "row" and _n_part(shards[index], n_device) == n_device > 1 for index in table.tolist()
    ]
    exchanged = [one and tables[index].pooling > 1.0 for one, index in zip(scattered, table.tolist(), strict=True)]
    return Parts(
        table, np.array(placed), Lookups(*columns, reuse=reuse), np.array(rows_apart), np.array(exchanged, dtype=float)
    )


def usual_shards(tables: Sequence[EmbeddingTable], n_device: int, batch: int) -> list[TableShard]:
    """How tables are cut that a plan does not name."""
    if n_device == 1:
        return [TableShard("table") for _ in tables]
    loads = [_load(table, batch) for table in tables]
    copied = [table.rows <= batch // n_device for table in tables]
    mean = sum(load for load, copy in zip(loads, copied, strict=True) if not copy) / n_device
    return [
        TableShard("dp") if copy else _usual(table, load / mean, n_device)
        for table, load, copy in zip(tables, loads, copied, strict=True)
    ]


def _usual(table: EmbeddingTable, load: float, n_device: int) -> TableShard:
    """Of a table that is `load` times a device's mean load."""
    n = min(int(np.ceil(load - 0.25)), n_device, table.rows)
    if n <= 1:
        return TableShard("table")
    if (table.pooling <= 1.0 or 2 * n > n_device) and table.rows >= n_device:
        return TableShard("row", n_device)
    return TableShard("column", n) if table.dim % n == 0 and table.dim // n >= NARROWEST else TableShard("row", n)


def _load(table: EmbeddingTable, batch: int) -> float:
    """Bytes of memory that a table moves, about: unique rows thrice, other lookups from a cache, and pooled vectors."""
    n = batch * table.pooling
    unique = table.reuse.unique_rows(table.rows, n)
    return table.dim * table.element_bytes * (3.0 * unique + n) + 2.0 * table.dim * 2.0 * batch


def _n_part(shard: TableShard, n_device: int) -> int:
    """Parts of a table; 1 of one that is copied."""
    return 1 if shard.way == "dp" else shard.n_part or len(shard.devices) or n_device


def _vectors(table: EmbeddingTable, shard: TableShard, n_device: int) -> float:
    return min(table.pooling / _n_part(shard, n_device), 1.0) if shard.way == "row" and table.pooling <= 1.0 else 1.0


def _cut(table: EmbeddingTable, shard: TableShard, n_device: int, batch: int) -> Lookups:
    """The parts of one table, [part of the table]."""
    n = _n_part(shard, n_device)
    once = np.ones(n)
    rows, dim, pooling, samples = table.rows * once, table.dim * once, table.pooling * once, batch * once
    if shard.way == "row":
        share = _vectors(table, shard, n_device)  # a sample that reads one row concerns one part
        rows, pooling, samples = rows / n, pooling / n / share, samples * share
    elif shard.way == "column":
        dim = np.floor(table.dim / n) + (np.arange(n) < table.dim % n)
    elif shard.way == "dp":
        samples = samples / n_device
    return Lookups(np.maximum(rows, 1.0), dim, pooling, samples, table.element_bytes * once, (table.reuse,) * n)


def _placed(
    tables: Sequence[EmbeddingTable], shards: Sequence[TableShard], cut: Sequence[Lookups], n_device: int, batch: int
) -> list[int]:
    """Device of every part."""
    loads = [
        Load(
            index,
            _load(table, batch) / len(own.rows),
            table.n_params * table.element_bytes / len(own.rows),
            shard.devices,
        )
        for index, (table, shard, own) in enumerate(zip(tables, shards, cut, strict=True))
        if shard.way != "dp"
    ]
    found = balanced(loads, {load.item: len(cut[load.item].rows) for load in loads}, n_device)
    return [device for index, own in enumerate(cut) for device in found.get(index, [EVERYWHERE] * len(own.rows))]
