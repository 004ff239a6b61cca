"""Assignment: how every table is cut and where its parts are, and the same as plans and job files write it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ...plan.table_sharding import TableShard
from .cut import Cut


@dataclass(frozen=True)
class Assignment:
    """Where all tables are.

    Attributes:
        cuts: [table] equal parts of every table.
        codes: [piece] codes of the parts, table by table (`task`).
    """

    cuts: tuple[Cut, ...]
    codes: tuple[int, ...]

    @property
    def columns(self) -> Int[np.ndarray, "piece candidate"]:
        """As one candidate of the evaluator."""
        return np.array(self.codes, np.int64)[:, None]

    def shards(self, n_ranks: int) -> tuple[TableShard, ...]:
        """[table] as plans write it."""
        found, codes = [], list(self.codes)
        for cut in self.cuts:
            own = tuple(codes[: cut.rows * cut.columns])
            codes = codes[len(own) :]
            if own[0] >= n_ranks:
                found.append(TableShard("row" if own[0] == n_ranks else "dp"))
            elif cut.rows > 1:
                found.append(TableShard("row", cut.rows, own))
            else:
                way = "table" if cut.columns == 1 else "column"
                found.append(TableShard(way, cut.columns, own))
        return tuple(found)


def recut(old: Assignment, cuts: Sequence[Cut], n_ranks: int) -> Int[np.ndarray, " piece"]:
    """Codes under other cuts: those of tables whose cut stays, -1 for parts of the others."""
    found, codes = [], list(old.codes)
    for before, after in zip(old.cuts, cuts, strict=True):
        own, codes = codes[: before.rows * before.columns], codes[before.rows * before.columns :]
        found += own if before == after else [-1] * (after.rows * after.columns)
    return np.array(found)
