"""Memory traffic of embedding tables for one batch: bytes of device memory and of the cache, forward and backward, per table.

All arrays are [table]. A *part* of a table (some of its rows or columns on one device) is a table of that size with its own batch
and pooling, so that every way of sharding costs by the same formulas.
"""

from __future__ import annotations

from typing import NamedTuple

from ..._core.lazy_numpy import np
from ..._typing import Floats
from ...errors import SpecError
from ...hints import did_you_mean
from .law import LookupLaw
from .reuse import Reuse

SECTOR = 32.0  # bytes, the least that memory moves
WARPS = 45.0  # resident per multiprocessor, each one lookup of a sample (FBGEMM)
CACHE_SHARE = 0.9  # of the last-level cache that rows can have
INDEX_BYTES = 4.0
SORT_BYTES = 3 * 12.0  # per index: three passes that read and write pairs of index and position
NARROW = ((64.0, 1.0), (32.0, 1.1), (0.0, 1.55))  # (dim above, seconds over those of the bytes)
OPTIMIZERS = {"sgd": 0.0, "rowwise_adagrad": SECTOR, "adagrad": 1.0}
"""State of a row that the update reads and writes: bytes of a row-wise one; adagrad: as wide as the row."""


class Lookups(NamedTuple):
    """What one device looks up for one batch, [table].

    Attributes:
        rows, dim, element_bytes: of the table, or of the device's part of it.
        pooling: lookups of one sample on this device.
        batch: samples.
        reuse: of each.
    """

    rows: Floats
    dim: Floats
    pooling: Floats
    batch: Floats
    element_bytes: Floats
    reuse: tuple[Reuse, ...]


class Traffic(NamedTuple):
    """Bytes of one batch, [table].

    Attributes:
        forward_dram, forward_cache: lookups and pooled vectors.
        backward_dram, backward_cache: sort of the indices, gradients, update of the rows.
        unique_rows: rows that the batch reads.
        hit_rate: share of the lookups that the cache serves.
        pooled_values: elements of pooled vectors, the exchange of which is the model's.
        held_bytes: rows and state of the optimizer.
    """

    forward_dram: Floats
    forward_cache: Floats
    backward_dram: Floats
    backward_cache: Floats
    unique_rows: Floats
    hit_rate: Floats
    pooled_values: Floats
    held_bytes: Floats


def traffic(of: Lookups, law: LookupLaw, optimizer: str = "sgd", output_bytes: float = 4.0) -> Traffic:
    """Bytes of one batch.

    Args:
        optimizer: one of `OPTIMIZERS`.
        output_bytes: of an element of a pooled vector and of its gradient.

    Notes:
        Rows that the cache holds beside those of other tables in flight: `min(0.9 L2 / (row ceil(n_SM w / B)), E, B L)`. Per
        table and sample 32 + 64 bytes of offsets and pointers, the indices, the rows and the pooled vector, in sectors of 32.
        Backward, rows are sorted: each unique one is read and written once, and every lookup reads its sample's gradient.

    Raises:
        SpecError: unknown optimizer.
    """
    if optimizer not in OPTIMIZERS:
        known = tuple(OPTIMIZERS)
        raise SpecError(
            f"optimizer {optimizer!r}, but it must be one of {', '.join(known)}{did_you_mean(optimizer, known, '')}"
        )
    n_lookups = of.batch * of.pooling
    row, pooled = _sectors(of.element_bytes * of.dim), _sectors(output_bytes * of.dim)
    room = CACHE_SHARE * law.cache_bytes / (of.element_bytes * of.dim)
    cached = np.minimum(room / np.ceil(law.n_sm * WARPS / np.maximum(of.batch, 1.0)), np.minimum(of.rows, n_lookups))
    cells = list(zip(of.reuse, of.rows.tolist(), n_lookups.tolist(), cached.tolist(), strict=True))
    hits = np.array([own.hit_rate(rows, n, held) for own, rows, n, held in cells])
    unique = np.array([own.unique_rows(rows, n) for own, rows, n, _ in cells])
    slow = np.select([of.dim > above for above, _ in NARROW], [factor for _, factor in NARROW])
    once = of.batch * (SECTOR + 64.0 + _sectors(INDEX_BYTES * of.pooling) + pooled)
    state = row * (OPTIMIZERS["adagrad"] if optimizer == "adagrad" else 0.0)
    state = state + (OPTIMIZERS["rowwise_adagrad"] if optimizer == "rowwise_adagrad" else 0.0)
    gradients = n_lookups * pooled
    apart = np.clip(room * of.element_bytes / output_bytes / np.maximum(of.batch, 1.0), 0.0, 1.0)
    again = gradients * np.maximum(1.0 - 1.0 / np.maximum(of.pooling, 1.0), 0.0) * apart  # cached since another lookup
    return Traffic(
        slow * (once + n_lookups * row * (1.0 - hits)),
        slow * n_lookups * row * hits,
        slow * (2.0 * unique * (row + state) + gradients - again) + SORT_BYTES * n_lookups,
        slow * again,
        unique,
        hits,
        of.batch * of.dim,
        of.rows * (of.dim * of.element_bytes + state_bytes(of.dim, optimizer)),
    )


def state_bytes(dim: Floats, optimizer: str) -> Floats:
    """Bytes of the optimizer's state of one row of `dim` elements; it is kept in fp32."""
    return {"adagrad": 4.0 * dim, "rowwise_adagrad": np.full_like(dim, 4.0)}.get(optimizer, np.zeros_like(dim))


def _sectors(n_bytes: Floats) -> Floats:
    """Bytes in whole sectors."""
    return SECTOR * np.ceil(n_bytes / SECTOR)
