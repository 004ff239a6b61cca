"""TableSeconds: what embedding tables cost a device for a batch, additive over tables, so that assignments are sums.

Forward, a device takes `start_s + max(sum of forward_dram_s, sum of forward_cache_s)` over its tables; backward alike.
"""

from __future__ import annotations

from dataclasses import dataclass

from ..._core.lazy_numpy import np
from ..._typing import Floats
from .law import LookupLaw
from .traffic import Traffic


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
    traffic: Traffic

    @property
    def forward_s(self) -> Floats:
        """[table] alone, without the start of the kernel."""
        return np.maximum(self.forward_dram_s, self.forward_cache_s)

    @property
    def backward_s(self) -> Floats:
        """[table] alone, without the start of the kernel."""
        return np.maximum(self.backward_dram_s, self.backward_cache_s)


def seconds_of_traffic(bytes_of: Traffic, law: LookupLaw) -> TableSeconds:
    """The same of traffic that is at hand."""
    dram, cache = law.dram_bytes_per_s, law.cache_bytes_per_s
    return TableSeconds(
        bytes_of.forward_dram / dram,
        bytes_of.forward_cache / cache,
        bytes_of.backward_dram / dram,
        bytes_of.backward_cache / cache,
        law.start_s,
        bytes_of,
    )
