"""LookupKernel: the embedding kernel of a pass, which reads or updates all parts of tables on a device; the slowest counts."""

from __future__ import annotations

from dataclasses import dataclass

from ..._core.arrays import Values, namespace
from ..._core.lazy_numpy import np
from ..._typing import Floats
from ...plan.table_sharding import TableSharding
from ...system.hardware import Device
from .law import lookup_law
from .parts import EVERYWHERE, Parts, parts_of
from .seconds import TableSeconds, seconds_of_traffic
from .table import EmbeddingTable
from .traffic import traffic


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
        """Of the slowest device."""
        return self.device_seconds(device, cache_bytes).max()

    def device_seconds(self, device: Device, cache_bytes: float) -> Floats:
        """[device] seconds."""
        own = self.part_seconds(device, cache_bytes)
        pair = (own.forward_dram_s, own.forward_cache_s)
        if self.phase != "F":
            pair = (own.backward_dram_s, own.backward_cache_s)
        dram_s, cache_s = (self._per_device(part_s) for part_s in pair)
        xp = namespace(dram_s, cache_s)
        busy = xp.maximum(dram_s, cache_s)
        return xp.where(busy > 0.0, busy + own.start_s, 0.0)

    def part_seconds(self, device: Device, cache_bytes: float) -> TableSeconds:
        """[part] seconds."""
        law = lookup_law(device, cache_bytes)
        return seconds_of_traffic(traffic(self.parts.lookups, law, self.optimizer, self.output_bytes), law)

    @property
    def parts(self) -> Parts:
        """Where what is."""
        return parts_of(self.tables, self.written, self.n_device, self.batch)

    def _per_device(self, part_s: Values) -> Values:
        """[device] sums; copies count everywhere."""
        xp = namespace(part_s)
        where = self.parts.device
        held = (where[None, :] == np.arange(self.n_device)[:, None]) | (where[None, :] == EVERYWHERE)
        return xp.where(held, part_s[None, :], 0.0).sum(axis=-1)
