"""HostCopy: seconds of a copy from the host's memory to the device's, over PCI Express."""

from __future__ import annotations

from dataclasses import dataclass

from ...system.hardware import Device

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
