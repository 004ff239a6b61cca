"""Parts of embedding tables: which device holds which columns and rows of which table, and the embedding kernel that serves them.

What a plan leaves open is placed by load: the heaviest parts first, each to the device with the least so far. Of a table with
a copy on every device there is one part, of no device, with the batch of one: `EVERYWHERE`. `LookupKernel` reads or updates
all parts of a device in one pass; the slowest device counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple

from ...core.arrays import Flags, Floats, Positions, Values, is_numpy, namespace
from ...core.lazy import np
from ...plan.fields import AUTO, HYBRID, TableShard, TableSharding
from ...system.hardware import Device
from .lookup_law import Lookups, TableSeconds, lookup_law, seconds_of_traffic, traffic
from .tables import EmbeddingTable

MEMORY_SHARE = 0.25  # of a device's share of bytes held in what counts as its load, so that equal loads spread memory


class Load(NamedTuple):
    """One table that is cut into equal parts.

    Attributes:
        item: index of the table.
        work: of one part, in any unit.
        held_bytes: of one part.
        devices: of its parts, in their order; empty: where they balance best.
    """

    item: int
    work: float
    held_bytes: float
    devices: tuple[int, ...] = ()


def balanced(
    loads: Sequence[Load], n_part: Mapping[int, int], n_device: int, node_size: int = 0
) -> dict[int, list[int]]:
    """item -> devices of its parts; parts of one item are on devices of their own as long as there are enough.

    Args:
        node_size: where it is given, parts of one item are on as few nodes as hold them.
    """
    work, held = (
        sum(getattr(load, name) * n_part[load.item] for load in loads) / n_device for name in ("work", "held_bytes")
    )
    total = np.zeros(n_device)
    found: dict[int, list[int]] = {}
    for load in sorted(loads, key=lambda load: (not load.devices, -load.work, -load.held_bytes, load.item)):
        n = n_part[load.item]
        own = load.work / max(work, 1e-300) + MEMORY_SHARE * load.held_bytes / max(held, 1e-300)
        if load.devices:
            chosen = [load.devices[part % len(load.devices)] for part in range(n)]
        else:
            order = _least_loaded(total, n, node_size)
            chosen = [int(order[part % len(order)]) for part in range(n)]
        np.add.at(total, chosen, own)
        found[load.item] = chosen
    return found


def _least_loaded(total: Floats, n: int, node_size: int) -> Positions:
    """Devices by load, the least first; of the least loaded nodes that hold `n` parts together."""
    if not node_size or n == 1:
        return np.argsort(total, kind="stable")
    nodes = np.sort(total.reshape(-1, node_size), axis=1)[:, : min(n, node_size)].sum(axis=1)
    chosen = np.argsort(nodes, kind="stable")[: -(-n // node_size)]
    devices = (chosen[:, None] * node_size + np.arange(node_size)).ravel()
    return devices[np.argsort(total[devices], kind="stable")]


EVERYWHERE = -1
# What sending a byte takes over moving it in memory, on a DGX H100: 3.35 TB/s of memory, 0.45 of NVLink, 0.05 of a port for each
# of eight devices that share what leaves a node.
INNER_LINK, OUTER_LINK = 7.5, 67.0 / 8.0
VECTOR_BYTES = 2.0  # of an element that is sent
NARROWEST = 64  # elements of a row below which lookups waste bandwidth, see `traffic.NARROW`


class Parts(NamedTuple):
    """Parts of the tables on devices, as columns [part].

    Attributes:
        table: index of its table.
        device: holder of the part, or `EVERYWHERE`.
        lookups: of the part in one step.
        vectors: pooled vectors that it sends, over the samples of the step: 1, of rows of a table that every sample reads once
            their share.
        is_summed: its vectors are partial sums, to which other parts of the table add theirs.
        is_scattered: rows on all devices: partial sums are reduced and scattered instead of exchanged.
    """

    table: Positions
    device: Positions
    lookups: Lookups
    vectors: Floats
    is_summed: Flags
    is_scattered: Flags


@lru_cache(maxsize=256)
def parts_of(tables: tuple[EmbeddingTable, ...], written: TableSharding, n_device: int, batch: int) -> Parts:
    """All parts of the tables on `n_device` devices for a batch of all of them.

    Notes:
        Where nothing is written: a table of no more rows than a device has samples is copied, since its gradients are then fewer
        than its pooled vectors; others are cut where one would be more than a device's mean load, and placed by load.
    """
    owner, apart, shards = _apart(tables, written, n_device, batch)
    cut = [_cut(table, shard, n_device, batch) for table, shard in zip(apart, shards, strict=True)]
    placed = _placed(apart, shards, cut, n_device, batch, written.node_size)
    table = np.repeat(np.arange(len(apart)), [len(own.rows) for own in cut])
    columns = [np.concatenate([getattr(own, name) for own in cut]) for name in Lookups._fields[:-1]]
    reuse = tuple(one for own in cut for one in own.reuse)
    n_part = [_n_part(shard, n_device) for shard in shards]
    rows = [shard.way == "row" and n > 1 for shard, n in zip(shards, n_part, strict=True)]
    summed = [cut_rows and own.pooling > 1.0 for cut_rows, own in zip(rows, apart, strict=True)]
    whole = [own and n == n_device and not written.node_size for own, n in zip(summed, n_part, strict=True)]
    vectors = [_vectors(own, shard, n_device) for own, shard in zip(apart, shards, strict=True)]
    per_part = (np.array(own)[table] for own in (vectors, summed, whole))
    return Parts(owner[table], np.array(placed), Lookups(*columns, reuse=reuse), *per_part)


def _apart(
    tables: Sequence[EmbeddingTable], written: TableSharding, n_device: int, batch: int
) -> tuple[Positions, list[EmbeddingTable], list[TableShard]]:
    """Tables with how each is cut, and the index of the table that each is of: of a hybrid one copied rows and other rows.

    Notes:
        A row is copied where a batch reads it more often than there are nodes, on one node devices. Then its gradient, which
        crosses once per node, is less than a vector and its gradient per lookup. Source: HugeCTR, hybrid embedding
        (`calculate_threshold`, both exchanges bound by bandwidth).
    """
    usual, stated = usual_shards(tables, n_device, batch, written.node_size, written.usual), written.by_table
    least = n_device / max(written.node_size, 1)
    found: list[tuple[int, EmbeddingTable, TableShard]] = []
    for index, (table, own) in enumerate(zip(tables, usual, strict=True)):
        shard = stated.get(table.name) or own
        parts = _hybrid(table, batch, n_device, least) if shard.way == HYBRID else [(table, shard)]
        found += [(index, *part) for part in parts]
    owner, apart, shards = zip(*found, strict=True)
    return np.array(owner), list(apart), list(shards)


def _hybrid(
    table: EmbeddingTable, batch: int, n_device: int, least: float
) -> Iterator[tuple[EmbeddingTable, TableShard]]:
    """A copied table of the rows that are read more than `least` times, and one of the others that is spread over all devices."""
    often = table.reuse.frequent(table.rows, batch * table.pooling, least)
    n = min(round(often.rows), table.rows) if often.share > 0.0 else 0
    share = often.share if n < table.rows else 1.0
    if n:
        yield replace(table, rows=n, pooling=table.pooling * share, reuse=often.own), TableShard("dp")
    if rows := table.rows - n:
        rest = replace(table, rows=rows, pooling=table.pooling * (1.0 - share), reuse=often.rest)
        yield rest, TableShard("row", min(n_device, rows))


def usual_shards(
    tables: Sequence[EmbeddingTable], n_device: int, batch: int, node_size: int, usual: str = AUTO
) -> list[TableShard]:
    """Returns the usual shards of tables that a plan does not name."""
    if n_device == 1:
        return [TableShard("table") for _ in tables]
    if usual == HYBRID:
        return [TableShard(HYBRID) for _ in tables]
    loads = [_load(table, batch, node_size) for table in tables]
    copied = [table.rows <= batch // n_device for table in tables]
    mean = sum(load for load, copy in zip(loads, copied, strict=True) if not copy) / n_device
    return [
        TableShard("dp") if copy else _usual(table, load / mean, n_device, node_size)
        for table, load, copy in zip(tables, loads, copied, strict=True)
    ]


def _usual(table: EmbeddingTable, load: float, n_device: int, node_size: int) -> TableShard:
    """Returns the shard of a table whose load is `load` times a device's mean; its rows stay in few nodes, which sum up."""
    n = min(int(np.ceil(load - 0.25)), n_device, table.rows)
    if table.pooling <= 1.0 and (node_size or n > 1) and table.rows >= n_device:
        return TableShard("row", n_device)
    if n <= 1:
        return TableShard("table")
    if node_size:
        n = n if n < node_size else min(round(n / node_size) * node_size, n_device)
        return TableShard("row", min(n, table.rows))
    if 2 * n > n_device and table.rows >= n_device:
        return TableShard("row", n_device)
    return TableShard("column", n) if table.dim % n == 0 and table.dim // n >= NARROWEST else TableShard("row", n)


def _load(table: EmbeddingTable, batch: int, node_size: int) -> float:
    """Bytes of memory whose time a table costs, about: unique rows thrice, other lookups from a cache, pooled vectors sent."""
    n = batch * table.pooling
    unique = table.reuse.unique_rows(table.rows, n)
    sent = 2.0 * (INNER_LINK + (OUTER_LINK if node_size else 0.0))  # vectors, and gradients
    return table.dim * (table.element_bytes * (3.0 * unique + n) + sent * VECTOR_BYTES * batch)


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
    tables: Sequence[EmbeddingTable],
    shards: Sequence[TableShard],
    cut: Sequence[Lookups],
    n_device: int,
    batch: int,
    node_size: int,
) -> list[int]:
    """Returns the device of every part."""
    loads = [
        Load(
            index,
            _load(table, batch, node_size) / len(own.rows),
            table.n_params * table.element_bytes / len(own.rows),
            shard.devices,
        )
        for index, (table, shard, own) in enumerate(zip(tables, shards, cut, strict=True))
        if shard.way != "dp"
    ]
    found = balanced(loads, {load.item: len(cut[load.item].rows) for load in loads}, n_device, node_size)
    return [device for index, own in enumerate(cut) for device in found.get(index, [EVERYWHERE] * len(own.rows))]


@dataclass(frozen=True)
class LookupKernel:
    """Lookups of one pass under one sharding.

    Attributes:
        phase: F: lookup; B: sort, gradients and update.
        tables: of the model.
        written: the plan's sharding.
        n_device, batch: devices, and samples of all of them.
        optimizer, output_bytes: as in `traffic.traffic`.
    """

    phase: str
    tables: tuple[EmbeddingTable, ...]
    written: TableSharding
    n_device: int
    batch: int
    optimizer: str
    output_bytes: float

    def seconds(self, device: Device, cache_bytes: float) -> Values:
        """Returns the seconds of the slowest device."""
        return self.device_seconds(device, cache_bytes).max()

    def device_seconds(self, device: Device, cache_bytes: float) -> Floats:
        """Seconds [device] of the lookups."""
        own = self.part_seconds(device, cache_bytes)
        pair = (own.forward_dram_s, own.forward_cache_s)
        if self.phase != "F":
            pair = (own.backward_dram_s, own.backward_cache_s)
        dram_s, cache_s = (self._per_device(part_s) for part_s in pair)
        xp = namespace(dram_s, cache_s)
        busy = xp.maximum(dram_s, cache_s)
        return xp.where(busy > 0.0, busy + own.start_s, 0.0)

    def part_seconds(self, device: Device, cache_bytes: float) -> TableSeconds:
        """Seconds [part] of the lookups."""
        law = lookup_law(device, cache_bytes)
        return seconds_of_traffic(traffic(self.parts.lookups, law, self.optimizer, self.output_bytes), law)

    @property
    def parts(self) -> Parts:
        """Parts of tables, and the devices that hold them."""
        return parts_of(self.tables, self.written, self.n_device, self.batch)

    def _per_device(self, part_s: Values) -> Values:
        """Sums per device, [device]; copies count everywhere."""
        xp, where = namespace(part_s), self.parts.device
        own = where != EVERYWHERE
        copied = xp.where(own, 0.0, part_s).sum()
        if is_numpy(xp):
            return np.bincount(where[own], part_s[own], self.n_device) + copied
        return xp.zeros(self.n_device).at[where[own]].add(part_s[own]) + copied
