"""Memory traffic of embedding tables for one batch (bytes, forward and backward, per table), and its seconds on a device.

A *part* of a table (some of its rows or columns on one device) is a table of that size with its own batch and pooling, so that
every way of sharding costs by the same formulas; arrays are [table]. Forward, a device takes
`start_s + max(sum of forward_dram_s, sum of forward_cache_s)` over its tables, backward alike, so assignments are sums.

Seconds of m bytes follow a bandwidth that grows with the size of the kernel, and the last-level cache:

    m <= m1         t = t_s
    m1 < m < m2     t = m / BW(m),  BW(m) = 10^(L / (1 + e^(-k (log2 m - x0))) + b) GB/s
    m >= m2         t = m / BW_max + t_s

Measured on V100 and A100; another device runs at the same share of its datasheet bandwidth, with latencies that stay:
`t(m) = t_anchor(m BW_anchor / BW)`.

Source: universal multi-GPU performance model (arXiv 2404.12674) and its published code (owensgroup/ml_perf_model).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ...core.arrays import Floats, Values, namespace
from ...core.errors import SpecError
from ...core.lazy import np
from ...core.registry import did_you_mean
from ...system.hardware import Device
from .tables import Reuse


@dataclass(frozen=True)
class BandwidthCurve:
    """Seconds over bytes of one kernel on one device; see the module.

    Attributes:
        latency_bytes, full_bytes: m1 and m2.
        full_bytes_per_s: BW_max.
        start_s: t_s.
        height, middle, steepness, floor: L, x0, k, b.
        sheet_bytes_per_s: bandwidth in the datasheet of that device.
    """

    latency_bytes: float
    full_bytes: float
    full_bytes_per_s: float
    start_s: float
    height: float
    middle: float
    steepness: float
    floor: float
    sheet_bytes_per_s: float

    def seconds(self, n_bytes: Values) -> Values:
        """Seconds, [*cell]; 0 for no bytes."""
        xp = namespace(n_bytes)
        size = xp.asarray(n_bytes, dtype=float)
        safe = xp.maximum(size, 1.0)
        power = self.height / (1.0 + xp.exp(-self.steepness * (xp.log2(safe) - self.middle))) + self.floor
        between = xp.maximum(safe / (1e9 * 10.0**power), self.start_s)
        full = safe / self.full_bytes_per_s + self.start_s
        found = xp.where(size <= self.latency_bytes, self.start_s, xp.where(size < self.full_bytes, between, full))
        return xp.where(size > 0.0, found, 0.0)


V100 = BandwidthCurve(
    2.0**16, 2.0**30, 816.95e9, 4.83e-6, 1.9472, 19.817, 0.55556, 0.95524, sheet_bytes_per_s=900e9
)  # fmt: skip
A100 = BandwidthCurve(
    2.0**14, 2.0**29, 1391.1e9, 6.45e-6, 2.2096, 20.352, 0.62529, 0.93243, sheet_bytes_per_s=1555e9
)  # fmt: skip

# Bytes per second that one multiprocessor reads of the last-level cache: V100 2,847.5 GB/s over 80, A100 2,270.9 GB/s over 108
# (the same code). Later ones at A100's bytes per clock, by the boost clocks of datasheets: 1.41 GHz of A100, 1.755 of H100 SXM,
# 1.92 of B200, 2.52 of L40S; A40 and A10 1.74.
CACHE_BYTES_PER_S = {
    "volta": 2847.5e9 / 80,
    "turing": 2847.5e9 / 80,
    "ampere": 2270.9e9 / 108,
    "ga10x": 2270.9e9 / 108 * 1.74 / 1.41,
    "hopper": 2270.9e9 / 108 * 1.755 / 1.41,
    "blackwell": 2270.9e9 / 108 * 1.92 / 1.41,
    "ada": 2270.9e9 / 108 * 2.52 / 1.41,
}


@dataclass(frozen=True)
class LookupLaw:
    """Seconds of embedding kernels on a device.

    Attributes:
        curve: of the device that was measured.
        dram_bytes_per_s, cache_bytes_per_s: of this one.
        cache_bytes: last-level cache.
        n_sm: multiprocessors.
    """

    curve: BandwidthCurve
    dram_bytes_per_s: Values
    cache_bytes_per_s: float
    cache_bytes: float
    n_sm: int

    @property
    def start_s(self) -> float:
        """Seconds of the smallest kernel."""
        return self.curve.start_s

    def seconds(self, dram_bytes: Values, cache_bytes: Values) -> Values:
        """Returns the seconds [*cell] of one kernel that moves so many bytes of device memory and of the cache meanwhile."""
        xp = namespace(dram_bytes, cache_bytes, self.dram_bytes_per_s)
        scale = self.curve.full_bytes_per_s / self.dram_bytes_per_s
        return xp.maximum(self.curve.seconds(dram_bytes * scale), cache_bytes / self.cache_bytes_per_s)


def lookup_law(device: Device, cache_bytes: float) -> LookupLaw:
    """The law of a device; `cache_bytes` of its last-level cache, as `cost.efficiency` has it."""
    curve = V100 if device.generation in ("volta", "turing") else A100
    share = curve.full_bytes_per_s / curve.sheet_bytes_per_s
    each = CACHE_BYTES_PER_S.get(device.generation, CACHE_BYTES_PER_S["ampere"])
    return LookupLaw(curve, share * device.hbm_bytes_per_s, each * device.n_sm, cache_bytes, device.n_sm)


# Bytes per second of copies from pinned memory, 0.8 of 16 lanes: PCIe 3 (V100, T4), 4 (A100, Ada), 5 (H100 and later).
PCIE_BYTES_PER_S = {"volta": 12.6e9, "turing": 12.6e9, "hopper": 50e9, "blackwell": 50e9, "blackwell-rtx": 50e9}
USUAL_BYTES_PER_S = 25e9
START_S = 10e-6  # of a call of the driver (arXiv 2404.12674, T4)


@dataclass(frozen=True)
class HostCopy:
    """Kernel that copies `n_bytes` from the host."""

    n_bytes: float

    def seconds(self, device: Device, cache_bytes: float) -> float:
        """Returns the time of the copy; the cache has no part in it."""
        return START_S + self.n_bytes / PCIE_BYTES_PER_S.get(device.generation, USUAL_BYTES_PER_S)


SECTOR = 32.0  # bytes, the least that memory moves
WARPS = 45.0  # resident per multiprocessor, each one lookup of a sample (FBGEMM)
CACHE_SHARE = 0.9  # of the last-level cache that rows can have
INDEX_BYTES = 4.0
SORT_BYTES = 3 * 12.0  # per index: three passes that read and write pairs of index and position
NARROW = ((64.0, 1.0), (32.0, 1.1), (0.0, 1.55))  # (dim above, seconds over those of the bytes)
OPTIMIZERS = {"sgd": 0.0, "rowwise_adagrad": SECTOR, "adagrad": 1.0}
"""State of a row that the update reads and writes: bytes of a row-wise one; adagrad: as wide as the row."""


class Lookups(NamedTuple):
    """Lookups of one device for one batch, [table].

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


class TableTraffic(NamedTuple):
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


def traffic(of: Lookups, law: LookupLaw, optimizer: str = "sgd", output_bytes: float = 4.0) -> TableTraffic:
    """Counts the bytes that the lookups of one batch move.

    Args:
        optimizer: one of `OPTIMIZERS`.
        output_bytes: of an element of a pooled vector and of its gradient.

    Notes:
        Rows that the cache holds, with those of other tables in flight: `min(0.9 L2 / (row ceil(n_SM w / B)), E, B L)`. Per
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
    return TableTraffic(
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
    """Rounds bytes up to whole sectors."""
    return SECTOR * np.ceil(n_bytes / SECTOR)


@dataclass(frozen=True)
class TableSeconds:
    """Seconds of one batch on one device, [table]; those of the tables of a device add up.

    Attributes:
        forward_dram_s, forward_cache_s: bytes of the lookup over the bandwidths of device memory and cache.
        backward_dram_s, backward_cache_s: sort, gradients and update of the rows, the same.
        start_s: on top, once per device and pass: all tables of a device are one kernel.
        traffic: the bytes; `pooled_values` of them go to the all-to-all, `held_bytes` count against the device's memory.
    """

    forward_dram_s: Floats
    forward_cache_s: Floats
    backward_dram_s: Floats
    backward_cache_s: Floats
    start_s: float
    traffic: TableTraffic

    @property
    def forward_s(self) -> Floats:
        """Seconds of each table alone, without the start of the kernel, [table]."""
        return np.maximum(self.forward_dram_s, self.forward_cache_s)

    @property
    def backward_s(self) -> Floats:
        """Seconds of each table alone, without the start of the kernel, [table]."""
        return np.maximum(self.backward_dram_s, self.backward_cache_s)


def seconds_of_traffic(bytes_of: TableTraffic, law: LookupLaw) -> TableSeconds:
    """Returns the seconds of lookups whose traffic is known."""
    dram, cache = law.dram_bytes_per_s, law.cache_bytes_per_s
    return TableSeconds(
        bytes_of.forward_dram / dram,
        bytes_of.forward_cache / cache,
        bytes_of.backward_dram / dram,
        bytes_of.backward_cache / cache,
        law.start_s,
        bytes_of,
    )
