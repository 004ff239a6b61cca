"""Defines ShardingTask: embedding tables, ranks, and what every way to hold a table costs, as plain arrays; exchanges and draws.

An assignment is one integer per piece of a table. Codes 0 to n - 1 hold the piece whole on that rank, `rows_code` spreads its
rows over all ranks, `copies_code` puts a copy on every rank (data parallel). A table that is cut by columns is several pieces.

A step is a row of parts, at each of which the ranks wait for the slowest (the look-ups before the forward exchange; the updates
after the backward one), exchanges of pooled rows, collectives of tables that are held by all, and what does not depend on the
assignment. The pieces of a rank are one kernel: it takes as long as the resource that is busiest (device memory, cache), and a
start. Seconds of the all-to-all of pooled vectors and of other collectives are made for thousands of assignments at once.

How many rows each table looks up in a step, over its mean, are draws that every assignment shares.

    factor = exp(s z - s^2 / 2),   s^2 = ln(1 + spread^2),   z standard normal, one per table and step

Draws are keyed by the name of the table and by what they are for, so that a table's draws do not depend on the others, and what
chooses an assignment is not what judges it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from zlib import crc32

import numpy as np
from jaxtyping import Bool, Float, Int
from scipy.special import ndtri

from ..core.arrays import Flags, Floats
from ..core.errors import DataError
from ..cost.chunk_cost import HOST_SHARPNESS
from ..workload.dlrm.sizes import SizeRule, exchange_bytes

Law = Callable[[Floats], Floats]  # bytes [...] as `Network.collective` counts them -> seconds [...]


@dataclass(frozen=True, eq=False)
class Exchange:
    """One all-to-all in which ranks send unlike amounts.

    Attributes:
        law: seconds of an even one; must not fall where there are more bytes.
        rule: which bytes of an uneven one decide.
    """

    law: Law
    rule: SizeRule = SizeRule.MAX_OF_MAX

    def seconds(self, sent_bytes: Float[np.ndarray, "*cell rank"]) -> Float[np.ndarray, "*cell"]:
        """Seconds of one exchange, of what rank i sends to each other rank."""
        return self.law(np.asarray(exchange_bytes(sent_bytes, self.rule)))

    def least_s(self, total_bytes: float, n: int) -> float:
        """Seconds of the exchange if every rank sent equally much of `total_bytes`: no assignment is faster."""
        return float(self.seconds(np.full((1, n), total_bytes / n))[0])


def free(n_bytes: Floats) -> Floats:
    """The law of collectives that take no time."""
    return np.zeros_like(n_bytes)


def per_size(law: Callable[[float], float]) -> Law:
    """A law of one number of bytes for arrays: it is asked once per distinct size, 0 bytes take no time.

    The bytes of an exchange are sums of few widths, so that thousands of assignments have few sizes.
    """
    known: dict[float, float] = {0.0: 0.0}

    def of_array(n_bytes: Floats) -> Floats:
        sizes, where = np.unique(n_bytes, return_inverse=True)
        for size in sizes.tolist():
            if size not in known:
                known[size] = float(law(size))
        return np.array([known[size] for size in sizes.tolist()])[where.reshape(np.shape(n_bytes))]

    return of_array


WHOLE, ROWS, COPIES = 0, 1, 2  # ways to hold a piece, first axis of arrays


@dataclass(frozen=True, eq=False)
class Pieces:
    """Pieces of tables that are assigned.

    Attributes:
        tables: [table] names.
        table: [piece] index of its table.
        parts: [piece] number of pieces that its table is cut into.
        rows, dims, pooling: [piece] rows, columns and mean look-ups per sample.
    """

    tables: tuple[str, ...]
    table: Int[np.ndarray, " piece"]
    parts: Int[np.ndarray, " piece"]
    rows: Float[np.ndarray, " piece"]
    dims: Float[np.ndarray, " piece"]
    pooling: Float[np.ndarray, " piece"]

    def __len__(self) -> int:
        return len(self.table)

    @property
    def names(self) -> list[str]:
        """[piece] name of its table, with its number among the parts of a table that is cut: `t3[0/2]`."""
        first = np.searchsorted(self.table, self.table)
        return [
            self.tables[t] + (f"[{i - first[i]}/{self.parts[i]}]" if self.parts[i] > 1 else "")
            for i, t in enumerate(self.table)
        ]

    def of_table(self, table: int) -> Int[np.ndarray, " piece"]:
        """Pieces of a table."""
        return np.flatnonzero(self.table == table)


def together(device_s: Floats, host_s: Floats | float) -> Floats:
    """Seconds of what the host starts kernel by kernel: the longer of the two, and more where they are close."""
    longer = np.maximum(device_s, host_s)
    return longer * (1.0 + (np.minimum(device_s, host_s) / longer) ** HOST_SHARPNESS) ** (1.0 / HOST_SHARPNESS)


@dataclass(frozen=True, eq=False)
class StepRest:
    """The step without its tables: collectives, other work, and what the host takes.

    Attributes:
        exchange: seconds of the exchanges of a step from what every rank sends.
        rows_laws: [part] seconds of the collective of tables whose rows are spread, from the bytes of all of them.
        copies_law: seconds that copies add to the end of the step, from the bytes of their gradients.
        start_s: [part] seconds that a part takes on top on every rank that has a piece.
        other_s: [part] other work of a part, which no assignment changes.
        host_s: [part] time in which the host starts the kernels of a part: `(device^6 + host^6)^(1/6)` as in `cost.chunk_cost`.
        rows_host_s: time in which the host starts the collective of rows in a part.
        n_micro_batch: how often the parts run.
        fixed_s: what remains of the step, once.
    """

    exchange: Exchange
    rows_laws: tuple[Law, Law] = (free, free)
    copies_law: Law = free
    start_s: tuple[float, float] = (0.0, 0.0)
    other_s: tuple[float, float] = (0.0, 0.0)
    host_s: tuple[float, float] = (0.0, 0.0)
    rows_host_s: float = 0.0
    n_micro_batch: int = 1
    fixed_s: float = 0.0

    def paced(self, part: int, busy_s: Floats, with_rows: Flags | bool = False) -> Floats:
        """Seconds of a part of the step whose tables and collectives take `busy_s`, with a collective of rows or without."""
        device, host = busy_s + self.other_s[part], self.host_s[part]
        return together(device, host + self.rows_host_s * np.asarray(with_rows)) if host > 0.0 else device


@dataclass(frozen=True, eq=False)
class ShardingTask:
    """Costs of assignments of pieces to ranks.

    Attributes:
        pieces: what is assigned.
        n_ranks: ranks, at least 1.
        seconds_s: [way, part, resource, piece, sample] seconds that a piece keeps a resource busy in a part of the step, on
            the rank that holds it whole or on every rank where it is held by all. One sample: the noise-free step.
        held_bytes: [way, piece] memory of a piece, on the rank that holds it or on every rank.
        sent_bytes: [way, piece] what the holder of a piece, or every rank, sends to each rank in an exchange.
        joint_bytes: [way, piece] what a piece adds to the collective of its way: rows to the reduce-scatter and all-gather of
            their sums, copies to the all-reduce of their gradients; 0 where it is whole.
        allowed: [way, piece] whether a piece may be held that way.
        capacity_bytes: memory of a rank that is left for tables.
        rest: of the step.
    """

    pieces: Pieces
    n_ranks: int
    seconds_s: Float[np.ndarray, "way part resource piece sample"]
    held_bytes: Float[np.ndarray, "way piece"]
    sent_bytes: Float[np.ndarray, "way piece"]
    joint_bytes: Float[np.ndarray, "way piece"]
    allowed: Bool[np.ndarray, "way piece"]
    capacity_bytes: float
    rest: StepRest

    @property
    def rows_code(self) -> int:
        """Code of a piece whose rows are spread over all ranks."""
        return self.n_ranks

    @property
    def copies_code(self) -> int:
        """Code of a piece that every rank has a copy of."""
        return self.n_ranks + 1

    def codes_of_way(self, codes: Int[np.ndarray, "*cell"]) -> Int[np.ndarray, "*cell"]:
        """Way of every code."""
        return np.maximum(codes - (self.n_ranks - 1), 0)

    def refused(self, codes: Int[np.ndarray, "piece candidate"]) -> Int[np.ndarray, " candidate"]:
        """Counts how often an assignment breaks a rule: a way that is not allowed, two parts of a table on one rank."""
        way = self.codes_of_way(codes)
        found = (~self.allowed[way, np.arange(len(codes))[:, None]]).sum(axis=0)
        for table in np.unique(self.pieces.table[self.pieces.parts > 1]):
            own = np.sort(codes[self.pieces.of_table(table)], axis=0)
            found = found + (own[1:] == own[:-1]).sum(axis=0)
        return found

    def choices(self) -> list[Int[np.ndarray, " choice"]]:
        """[piece] codes that a piece may have."""
        codes = np.arange(self.n_ranks + 2)
        way = self.codes_of_way(codes)
        return [codes[self.allowed[way, piece]] for piece in range(len(self.pieces))]

    def check(self) -> None:
        """Whether every piece fits somewhere, and all together.

        Raises:
            DataError: a piece is larger than what a rank has left for tables, however it is held; or all are larger than what
                all ranks have left.
        """
        held = np.where(self.allowed, self.held_bytes, np.inf)
        for piece in np.flatnonzero(held.min(axis=0) > self.capacity_bytes):
            name = self.pieces.tables[self.pieces.table[piece]]
            raise DataError(
                f"table {name!r}: its smallest share, {held[:, piece].min() / 1e9:.4g} GB, is more than the "
                f"{self.capacity_bytes / 1e9:.4g} GB that a GPU has left for tables. Use more GPUs or fewer rows."
            )
        least = np.where(
            self.allowed, self.held_bytes * np.array([1.0, self.n_ranks, self.n_ranks])[:, None], np.inf
        ).min(axis=0)
        if least.sum() > self.n_ranks * self.capacity_bytes:
            raise DataError(
                f"tables: {least.sum() / 1e9:.4g} GB with the optimizer's state, but {self.n_ranks} GPUs have "
                f"{self.n_ranks * self.capacity_bytes / 1e9:.4g} GB left for tables. Use more GPUs or fewer rows."
            )


def comparable(tasks: Sequence[ShardingTask]) -> list[ShardingTask]:
    """Tasks with the resources that all of them have, for bounds: one whose cache never decides has left it out."""
    n_resource = min(task.seconds_s.shape[2] for task in tasks)
    return [replace(task, seconds_s=task.seconds_s[:, :, :n_resource]) for task in tasks]


ASSUMED_SPREAD = 0.1  # of a step's look-ups into one table where the job states none: an assumption, not a measurement


def lookup_factors(
    tables: Sequence[str], spread: Sequence[float], n_sample: int, seed: int, purpose: str
) -> Float[np.ndarray, "table sample"]:
    """Factors of mean one; stratified, so that a table's draws follow its distribution closely."""
    factors = np.empty((len(tables), n_sample))
    for row, (name, own) in enumerate(zip(tables, spread, strict=True)):
        rng = np.random.default_rng([seed, crc32(purpose.encode()), crc32(name.encode())])
        level = (rng.permutation(n_sample) + rng.random(n_sample)) / n_sample
        log_sd = np.sqrt(np.log1p(own**2))
        factors[row] = np.exp(log_sd * ndtri(level) - 0.5 * log_sd**2)
    return factors
