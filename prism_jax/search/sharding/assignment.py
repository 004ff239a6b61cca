"""Assignment: how every table is cut and where its parts are, and the same as plans and job files write it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int

from ...errors import DataError
from ...hints import did_you_mean
from ...plan.table_sharding import TableShard
from .cut import Cut
from .problem import ShardingProblem
from .sharders.base import greedy
from .sharders.lpt import predicted_s


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


def assignment_of(problem: ShardingProblem, shards: Mapping[str, TableShard]) -> Assignment:
    """The assignment that a plan writes down; parts without devices go where the greedy rule on predicted seconds puts them.

    Raises:
        DataError: unknown table, or a device or number of parts that the job does not have.
    """
    names = [table.name for table in problem.tables]
    for name, shard in shards.items():
        if name not in names:
            raise DataError(f"plan.tables: the model has no table {name!r}{did_you_mean(name, names)}")
        _check(problem, name, shard)
    own = [shards.get(name, TableShard("table")) for name in names]
    cuts = tuple(_cut(problem, shard) for shard in own)
    fixed = np.concatenate([_codes(problem, shard, cut) for shard, cut in zip(own, cuts, strict=True)])
    task = problem.task(cuts)
    return Assignment(cuts, tuple(greedy(task, predicted_s(task), fixed).tolist()))


def _check(problem: ShardingProblem, name: str, shard: TableShard) -> None:
    n, table = problem.n_ranks, next(table for table in problem.tables if table.name == name)
    parts = max(shard.n_part, len(shard.devices))
    if parts > n or max(shard.devices, default=0) >= n:
        raise DataError(
            f"plan.tables.{name}: {shard}, but the job has {n} GPUs, 0 to {n - 1}. Use fewer parts, or others."
        )
    if shard.way == "column" and table.dim % shard.n_part:
        raise DataError(
            f"plan.tables.{name}: {shard}, but its {table.dim} columns cannot be cut into {shard.n_part} equal parts"
        )


def _cut(problem: ShardingProblem, shard: TableShard) -> Cut:
    if shard.way == "column":
        return Cut(1, shard.n_part)
    by_rows = shard.way == "row" and (shard.devices or 0 < shard.n_part < problem.n_ranks)
    return Cut(shard.n_part or len(shard.devices), 1) if by_rows else Cut()


def _codes(problem: ShardingProblem, shard: TableShard, cut: Cut) -> Int[np.ndarray, " piece"]:
    """Codes of its parts, -1 where they are open."""
    if shard.way == "dp":
        return np.array([problem.n_ranks + 1])
    if shard.way == "row" and cut.rows == 1 and not shard.devices:
        return np.array([problem.n_ranks])
    return np.array(shard.devices or (-1,) * (cut.rows * cut.columns))


def recut(old: Assignment, cuts: Sequence[Cut], n_ranks: int) -> Int[np.ndarray, " piece"]:
    """Codes under other cuts: those of tables whose cut stays, -1 for parts of the others."""
    found, codes = [], list(old.codes)
    for before, after in zip(old.cuts, cuts, strict=True):
        own, codes = codes[: before.rows * before.columns], codes[before.rows * before.columns :]
        found += own if before == after else [-1] * (after.rows * after.columns)
    return np.array(found)
