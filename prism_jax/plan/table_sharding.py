"""How one embedding table is spread over devices, as plans and job files write it.

    table          whole, on one device              row       rows over all devices      dp   a copy on every device
    column:4       columns in 4 parts                row:4     rows in 4 parts
    hybrid         copies of the rows that are read often, the others over all devices

Parts go where they balance best, unless devices are named: `table@3`, `column:2@0,5`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ..bounds import MOST_DEVICES
from ..errors import PlanError, Problem

AUTO, HYBRID = "auto", "hybrid"
WAYS = ("table", "row", "column", "dp", HYBRID)
_FORMS = "table, row, row:4, column:4, dp or hybrid"
_WRITTEN = re.compile(rf"({'|'.join(WAYS)})(?::(\d{{1,9}}))?(?:@(\d{{1,9}}(?:,\d{{1,9}})*))?")


@dataclass(frozen=True)
class TableShard:
    """The sharding of one table.

    Attributes:
        way: one of `WAYS`.
        n_part: row and column: parts; 0: one per device. Of table 1, of dp and hybrid 0.
        devices: that hold part 0, 1, ...; empty: where they balance best.
    """

    way: str
    n_part: int = 0
    devices: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.way not in WAYS:
            raise PlanError.of(Problem("tables", f"{self.way!r}, but it must be one of {', '.join(WAYS)}"))
        fixed = {"table": 1, "dp": 0, HYBRID: 0}.get(self.way, self.n_part)
        if self.n_part not in (0, fixed) or not 0 <= self.n_part <= MOST_DEVICES:
            raise PlanError.of(Problem("tables", f"{self}: only row and column have parts"))
        object.__setattr__(self, "n_part", fixed)
        if self.devices and len(self.devices) != (self.n_part or len(self.devices)):
            raise PlanError.of(Problem("tables", f"{self}: {self.n_part} parts on {len(self.devices)} devices"))
        if self.devices and (self.way in ("dp", HYBRID) or len(set(self.devices)) < len(self.devices)):
            raise PlanError.of(Problem("tables", f"{self}: a copy is on every device, and a device holds one part"))
        if self.way == "column" and self.n_part == 0:
            raise PlanError.of(Problem("tables", "column, but it needs its number of parts. Write column:4."))

    def __str__(self) -> str:
        parts = f":{self.n_part}" if self.way in ("row", "column") and self.n_part else ""
        return f"{self.way}{parts}" + (f"@{','.join(map(str, self.devices))}" if self.devices else "")


@dataclass(frozen=True)
class TableSharding:
    """How the embedding tables of a model are spread over devices.

    Attributes:
        of: (table, how it is sharded); tables that are not named are sharded as `usual` says.
        usual: auto: as balances best; hybrid: all of them so.
        node_size: devices that first sum up and exchange pooled vectors among themselves, before these cross the network
            (TorchRec `table_row_wise`, HugeCTR `hier_auto`); 0: all exchange with all. A job fills it in from its cluster.
    """

    of: tuple[tuple[str, TableShard], ...] = ()
    usual: str = AUTO
    node_size: int = 0

    @property
    def written(self) -> str | dict[str, str]:
        """As job files have it: auto or hybrid, or table: text."""
        return {name: str(shard) for name, shard in self.of} or self.usual

    @property
    def by_table(self) -> dict[str, TableShard]:
        """Table -> how it is sharded."""
        return dict(self.of)


def parse_sharding(written: object) -> TableSharding:
    """`auto`, `hybrid`, or a mapping of tables to texts that `parse_shard` reads.

    Raises:
        PlanError: neither.
    """
    if written in (AUTO, HYBRID):
        return TableSharding(usual=str(written))
    if not isinstance(written, Mapping) or not all(isinstance(one, str) for pair in written.items() for one in pair):
        raise PlanError.of(Problem("tables", f"must be {AUTO}, {HYBRID}, or a mapping of tables to {_FORMS}"))
    return TableSharding(tuple((name, parse_shard(text)) for name, text in written.items()))


def parse_shard(text: str) -> TableShard:
    """`column:4@0,1,2,3` as a `TableShard`.

    Raises:
        PlanError: not of that form.
    """
    found = _WRITTEN.fullmatch(text.replace(" ", ""))
    if not found:
        raise PlanError.of(Problem("tables", f"{text!r}, but it must be {_FORMS}, perhaps with @devices"))
    way, n_part, devices = found.groups()
    return TableShard(way, int(n_part or 0), tuple(map(int, devices.split(","))) if devices else ())
