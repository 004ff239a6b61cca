"""table_seconds: what embedding tables cost a device for a batch, additive over tables, so that assignments are sums.

Forward, a device takes `start_s + max(sum of forward_dram_s, sum of forward_cache_s)` over its tables; backward alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..._core.arrays import Values, namespace
from ..._core.lazy_numpy import np
from ..._typing import Floats
from ...system.hardware import Device
from .law import LookupLaw, lookup_law
from .table import EmbeddingTable
from .traffic import Traffic, lookups_of, traffic


@dataclass(frozen=True)
class TableSeconds:
    """Seconds of one batch on one device, [table]; of a device they add up, see `forward_of` and `backward_of`.

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

    def forward_of(self, held: Values) -> Values:
        """[..., device] seconds of devices; `held` [..., table, device]: which, or which share of it, each one holds."""
        return self._of(held, self.forward_dram_s, self.forward_cache_s)

    def backward_of(self, held: Values) -> Values:
        """[..., device] as `forward_of`."""
        return self._of(held, self.backward_dram_s, self.backward_cache_s)

    def _of(self, held: Values, dram_s: Floats, cache_s: Floats) -> Values:
        xp = namespace(held)
        busy = xp.maximum(xp.einsum("...td,t->...d", held, dram_s), xp.einsum("...td,t->...d", held, cache_s))
        return xp.where(busy > 0.0, busy + self.start_s, 0.0)


def table_seconds(
    tables: Sequence[EmbeddingTable],
    device: Device,
    batch: float | Floats,
    *,
    cache_bytes: float,
    optimizer: str = "sgd",
    output_bytes: float = 4.0,
) -> TableSeconds:
    """What tables cost a device.

    Args:
        batch: samples whose rows are looked up: all of the step where a table is on one device; one number or [table].
        cache_bytes: last-level cache of the device: `cost.efficiency.efficiency(device.generation).cache_bytes`.
        optimizer: one of `traffic.OPTIMIZERS`.
        output_bytes: of an element of a pooled vector: 2 in mixed precision.

    Raises:
        SpecError: unknown optimizer.
    """
    law = lookup_law(device, cache_bytes)
    return seconds_of_traffic(traffic(lookups_of(tables, batch), law, optimizer, output_bytes), law)


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
