"""Scores thousands of assignments at once (seconds of the step, memory, an objective that memory masks), and names one of them.

Assignments are columns [piece, candidate] of codes (`task`). Loads of ranks are sums over pieces: with one sample a weighted
count, with many a product of a 0-1 matrix [candidate rank, piece] and seconds [piece, part sample], in blocks of bounded memory.
An Assignment says how every table is cut and where its parts are, as plans and job files write it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from ..core.arrays import Floats
from ..plan.fields import TableShard
from .problem import Cut
from .task import COPIES, ROWS, WHOLE, ShardingTask

Objective = Callable[[Floats], Floats]  # steps [..., sample] -> value [...]
MOST_NUMBERS = 1 << 22  # in the largest array of a block
NO_ROOM = 1e9  # value of an assignment that does not fit, in the unit of the objective; more the less it fits


@dataclass(frozen=True)
class Loads:
    """Seconds and bytes per rank that assignments lead to.

    Attributes:
        task: that was asked.
        seconds_s: [candidate, rank, part, sample] seconds of the tables of every rank.
        exchange_s: [candidate] seconds of the exchange of a part.
        rows_s: [candidate, part] seconds of the collectives of tables whose rows are spread.
        copies_s: [candidate] seconds that copies add to the end of the step.
        sent_bytes: [candidate, rank] what a rank sends to every other.
        held_bytes: [candidate, rank] memory of the tables.
    """

    task: ShardingTask
    seconds_s: Float[np.ndarray, "candidate rank part sample"]
    exchange_s: Float[np.ndarray, " candidate"]
    rows_s: Float[np.ndarray, "candidate part"]
    copies_s: Float[np.ndarray, " candidate"]
    sent_bytes: Float[np.ndarray, "candidate rank"]
    held_bytes: Float[np.ndarray, "candidate rank"]

    @property
    def step_s(self) -> Float[np.ndarray, "candidate sample"]:
        """Seconds of the step: in every part the ranks wait for the slowest."""
        rest, slowest = self.task.rest, self.seconds_s.max(axis=1)
        joint = self.exchange_s[:, None] + self.rows_s
        with_rows = np.any(self.rows_s > 0.0, axis=-1, keepdims=True)
        parts = [
            rest.paced(part, slowest[:, part] + joint[:, part, None], with_rows) for part in range(slowest.shape[1])
        ]
        return rest.n_micro_batch * sum(parts[1:], parts[0]) + (self.copies_s + rest.fixed_s)[:, None]

    def unevenness(self) -> Float[np.ndarray, " candidate"]:
        """Squared coefficients of variation between ranks, of the seconds of every part and of what is sent, summed."""
        loads = np.concatenate([self.seconds_s.mean(axis=-1), self.sent_bytes[..., None]], axis=-1)
        mean = loads.mean(axis=1)
        return (loads.var(axis=1) / np.where(mean > 0.0, mean, 1.0) ** 2).sum(axis=-1)


def loads(task: ShardingTask, codes: Int[np.ndarray, "piece candidate"]) -> Loads:
    """Loads of all ranks under every assignment; all in one block, so ask for few at once."""
    _, n_part, n_resource, n_piece, n_sample = task.seconds_s.shape
    n_candidate, n, rest = codes.shape[1], task.n_ranks, task.rest
    columns = np.moveaxis(task.seconds_s, 3, 1).reshape(3, n_piece, -1)
    by_rank, by_all = _sums(codes, n, columns)
    busy = (by_rank + by_all[:, None]).reshape(n_candidate, n, n_part, n_resource, n_sample).max(axis=3)
    seconds = busy + np.where(busy > 0.0, np.array(rest.start_s)[:, None], 0.0)
    rows, copies = (_of_way(task.joint_bytes[way], way) for way in (ROWS, COPIES))
    sums, shared = _sums(codes, n, np.stack([task.sent_bytes, task.held_bytes, rows, copies], axis=-1))
    sent, held = (sums[..., column] + shared[:, None, column] for column in (0, 1))
    rows_s = np.stack([law(shared[:, 2]) for law in rest.rows_laws], axis=-1)
    return Loads(task, seconds, rest.exchange.seconds(sent), rows_s, rest.copies_law(shared[:, 3]), sent, held)


def _of_way(of_piece: Floats, way: int) -> Floats:
    """[way, piece] values that only one way has."""
    found = np.zeros((3, len(of_piece)))
    found[way] = of_piece
    return found


def _sums(codes: Int[np.ndarray, "piece candidate"], n: int, columns: Floats) -> tuple[Floats, Floats]:
    """Sums of whole pieces by rank [candidate, rank, column], and of those that all ranks hold [candidate, column].

    Args:
        columns: [way, piece, column].
    """
    (n_piece, n_candidate), whole = codes.shape, columns[WHOLE]
    columns, shared = whole, columns[ROWS:]
    if columns.shape[1] <= 8:
        place = (codes + (n + 2) * np.arange(n_candidate)).ravel()
        table = np.empty((n_candidate, n, columns.shape[1]))
        for column in range(columns.shape[1]):
            weights = np.broadcast_to(columns[:, column, None], codes.shape).ravel()
            table[..., column] = np.bincount(place, weights, (n + 2) * n_candidate).reshape(n_candidate, n + 2)[:, :n]
    else:
        held = (codes.T[:, None, :] == np.arange(n)[:, None]).astype(columns.dtype)
        table = (held.reshape(-1, n_piece) @ columns).reshape(n_candidate, n, -1)
    everywhere = np.zeros((n_candidate, columns.shape[1]))
    for way, code in ((ROWS, n), (COPIES, n + 1)):
        is_held = codes == code
        if is_held.any():
            everywhere += is_held.T.astype(float) @ shared[way - 1]
    return table, everywhere


def steps(task: ShardingTask, codes: Int[np.ndarray, "piece candidate"]) -> Float[np.ndarray, "candidate sample"]:
    """Seconds of the step under every assignment, fit or not."""
    return np.concatenate([loads(task, block).step_s for block in _blocks(task, codes)])


def values(
    task: ShardingTask, codes: Int[np.ndarray, "piece candidate"], objective: Objective, uneven: float = 0.0
) -> Float[np.ndarray, " candidate"]:
    """Objective of every assignment; at least `NO_ROOM` where a rank has too little memory or a way is not allowed.

    Args:
        uneven: share of the value that is added per unit of unevenness (`Loads.unevenness`), so that a search that looks at one
            rank at a time makes progress while two ranks are equally slow; 0: the objective as it is.
    """
    return np.concatenate([_values(task, block, objective, uneven) for block in _blocks(task, codes)])


def _values(
    task: ShardingTask, codes: Int[np.ndarray, "piece candidate"], objective: Objective, uneven: float
) -> Floats:
    found = loads(task, codes)
    value = objective(found.step_s)
    if uneven:
        value = value * (1.0 + uneven * found.unevenness())
    excess = np.maximum(found.held_bytes / task.capacity_bytes - 1.0, 0.0).sum(axis=-1)
    refused = task.refused(codes)
    return np.where((excess > 0.0) | (refused > 0), NO_ROOM * (1.0 + excess + refused), value)


def _blocks(
    task: ShardingTask, codes: Int[np.ndarray, "piece candidate"]
) -> Iterator[Int[np.ndarray, "piece candidate"]]:
    """Candidates in blocks that need bounded memory."""
    _, n_part, n_resource, n_piece, n_sample = task.seconds_s.shape
    size = max(1, MOST_NUMBERS // (task.n_ranks * max(n_part * n_resource * n_sample, n_piece)))
    for first in range(0, codes.shape[1], size):
        yield codes[:, first : first + size]


@dataclass(frozen=True)
class Assignment:
    """Assignment of all tables to ranks.

    Attributes:
        cuts: [table] equal parts of every table.
        codes: [piece] codes of the parts, table by table (`task`).
    """

    cuts: tuple[Cut, ...]
    codes: tuple[int, ...]

    @property
    def columns(self) -> Int[np.ndarray, "piece candidate"]:
        """Columns of the assignment as one candidate of the evaluator."""
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


def recut(old: Assignment, cuts: Sequence[Cut]) -> Int[np.ndarray, " piece"]:
    """Codes under other cuts: those of tables whose cut stays, -1 for parts of the others."""
    found, codes = [], list(old.codes)
    for before, after in zip(old.cuts, cuts, strict=True):
        own, codes = codes[: before.rows * before.columns], codes[before.rows * before.columns :]
        found += own if before == after else [-1] * (after.rows * after.columns)
    return np.array(found)
