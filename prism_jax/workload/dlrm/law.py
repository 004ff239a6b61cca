"""Seconds of memory traffic of embedding kernels: bandwidth that grows with the size of the kernel, and the last-level cache.

    m <= m1         t = t_s
    m1 < m < m2     t = m / BW(m),  BW(m) = 10^(L / (1 + e^(-k (log2 m - x0))) + b) GB/s
    m >= m2         t = m / BW_max + t_s

Measured on V100 and A100; another device runs at the same share of its datasheet bandwidth, with latencies that stay:
`t(m) = t_anchor(m BW_anchor / BW)`.

Source: universal multi-GPU performance model (arXiv 2404.12674) and its published code (owensgroup/ml_perf_model).
"""

from __future__ import annotations

from dataclasses import dataclass

from ..._core.arrays import Values, namespace
from ...system.hardware import Device


@dataclass(frozen=True)
class BandwidthCurve:
    """Seconds over bytes of one kernel on one device; see the module.

    Attributes:
        latency_bytes, full_bytes: m1 and m2.
        full_bytes_per_s: BW_max.
        start_s: t_s.
        height, middle, steepness, floor: L, x0, k, b.
        sheet_bytes_per_s: what the datasheet says of that device.
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
        """[*cell] seconds; 0 for no bytes."""
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
        """[*cell] seconds of one kernel that moves so many bytes of device memory, and so many of the cache beside."""
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
    """One copy of `n_bytes`."""

    n_bytes: float

    def seconds(self, device: Device, cache_bytes: float) -> float:
        """Of the copy; the cache has no part in it."""
        return START_S + self.n_bytes / PCIE_BYTES_PER_S.get(device.generation, USUAL_BYTES_PER_S)
