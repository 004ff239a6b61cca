"""ShardingProblem: the tables of a job on its cluster; it makes tasks for every way to cut the tables and every draw of the
    look-ups.

| held | rows | look-ups of a sample | samples | exchange |
|---|---|---|---|---|
| whole, or a part of r x c (rows, columns) | E / r | L / r | B | all-to-all of B D / c |
| rows over all n | E / n | L / n | B | reduce-scatter of B D, all-gather of its gradient |
| copies | E | L | B / n | all-reduce of the gradient, E D |

B is the batch of the step on all ranks. A copy's update passes over the whole table. Look-ups of a table vary from step to
step: its pooling is multiplied by a factor, and seconds follow it on a grid of factors, between which they are linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from ..._typing import Floats
from ...workload.dlrm.law import LookupLaw
from ...workload.dlrm.table import EmbeddingTable
from ...workload.dlrm.traffic import Lookups, Traffic, traffic
from .exchange import Exchange, Law, free
from .task import Pieces, ShardingTask

FACTORS = np.exp(np.linspace(-2.5, 2.5, 21))  # of look-ups, where seconds are computed
LEAST_DIM = 4  # columns of a part: 16 bytes, what a thread reads at once


class Cut(NamedTuple):
    """Equal parts of a table."""

    rows: int = 1
    columns: int = 1


@dataclass(frozen=True, eq=False)
class ShardingProblem:
    """Tables, ranks and laws.

    Attributes:
        tables: all tables.
        n_ranks: ranks.
        batch: samples of a step on all ranks.
        law: seconds of lookup kernels on a device.
        capacity_bytes: memory of a rank that is left for tables.
        exchange: all-to-all of pooled vectors.
        optimizer, output_bytes: as in `workload.dlrm.table_seconds`.
        joint_laws: seconds of the collectives of tables whose rows are spread, and of copies (`ShardingTask`).
        beside_s: work beside the forward and the backward exchange, which hides as much of them.
        fixed_s: the rest of the step.
        spread: [table] standard deviation over mean of a step's look-ups, from step to step.
        rows, copies, columns: whether tables may be held that way.
    """

    tables: tuple[EmbeddingTable, ...]
    n_ranks: int
    batch: int
    law: LookupLaw
    capacity_bytes: float
    exchange: Exchange
    optimizer: str = "sgd"
    output_bytes: float = 4.0
    joint_laws: tuple[Law, Law] = (free, free)
    beside_s: tuple[float, float] = (0.0, 0.0)
    fixed_s: float = 0.0
    spread: tuple[float, ...] = ()
    rows: bool = True
    copies: bool = True
    columns: bool = True
    _known: dict[tuple[Cut, ...], Floats] = field(default_factory=dict, repr=False)

    @property
    def uncut(self) -> tuple[Cut, ...]:
        """No table is cut."""
        return (Cut(),) * len(self.tables)

    @property
    def varies(self) -> bool:
        """Whether look-ups vary from step to step."""
        return any(spread > 0.0 for spread in self.spread)

    @cached_property
    def factors(self) -> Float[np.ndarray, " factor"]:
        """Where seconds are computed; the job's own look-ups alone if they do not vary."""
        return FACTORS if self.varies else np.ones(1)

    def finer(self, table: int, cut: Cut) -> Cut | None:
        """The table cut into twice as many columns; None where it cannot be."""
        dim, n = self.tables[table].dim, 2 * cut.columns
        fits = self.columns and cut.rows == 1 and n <= self.n_ranks and dim % n == 0 and dim // n >= LEAST_DIM
        return Cut(1, n) if fits else None

    def even_cuts(self) -> list[tuple[Cut, ...]]:
        """All tables cut into 1, 2, 4, ... columns as far as each can be: between them lie all cuts by columns."""
        found = [self.uncut]
        while True:
            last = found[-1]
            finer = tuple(self.finer(table, cut) or cut for table, cut in enumerate(last))
            if finer == last:
                return found
            found.append(finer)

    def task(self, cuts: Sequence[Cut], lookups: Float[np.ndarray, "table sample"] | None = None) -> ShardingTask:
        """What assignments of the parts of `cuts` cost; noise-free, or under factors of the look-ups.

        Args:
            cuts: [table].
            lookups: factor of every table's look-ups in every step that is drawn.
        """
        pieces = self._pieces(cuts)
        curves = self._curves(tuple(cuts), pieces)
        if lookups is None:
            seconds = curves[..., len(self.factors) // 2, None]
        else:
            seconds = _between(curves, self.factors, lookups[pieces.table])
        held, pooled = self._held(pieces), self.batch * pieces.dims * self.output_bytes
        copies = pieces.rows * pieces.dims * self._column("element_bytes")[pieces.table]
        return ShardingTask(
            pieces,
            self.n_ranks,
            seconds,
            held,
            pooled / self.n_ranks,
            np.stack([np.zeros_like(pooled), pooled, copies]),
            self._allowed(pieces),
            self.capacity_bytes,
            self.exchange,
            self.joint_laws,
            (self.law.start_s, self.law.start_s),
            self.beside_s,
            self.fixed_s,
        )

    def _column(self, name: str) -> Floats:
        return np.array([getattr(table, name) for table in self.tables], dtype=float)

    def _pieces(self, cuts: Sequence[Cut]) -> Pieces:
        """Parts of all tables, in the order of tables."""
        n_part = np.array([cut.rows * cut.columns for cut in cuts])
        table = np.repeat(np.arange(len(cuts)), n_part)
        cut = np.array(cuts, dtype=float)[table]
        return Pieces(
            tuple(own.name for own in self.tables),
            table,
            n_part[table],
            self._column("rows")[table] / cut[:, 0],
            self._column("dim")[table] / cut[:, 1],
            self._column("pooling")[table] / cut[:, 0],
        )

    def _allowed(self, pieces: Pieces) -> Bool[np.ndarray, "way piece"]:
        """Parts of a table are on one rank each, and so is a table that has fewer rows than ranks."""
        many = (self.n_ranks > 1) & (pieces.parts == 1)
        return np.stack(
            [
                np.ones(len(pieces), bool),
                self.rows & many & (pieces.rows >= self.n_ranks),
                self.copies & many,
            ]
        )

    def _held(self, pieces: Pieces) -> Float[np.ndarray, "way piece"]:
        """Bytes of rows and optimizer state of every way."""
        whole = self._traffic(pieces, 1.0, 1.0, 1.0).held_bytes
        return np.stack([whole, whole / self.n_ranks, whole])

    def _traffic(self, pieces: Pieces, rows: float, batch: float, factor: float) -> Traffic:
        """Bytes of the pieces where a rank has that share of their rows, and of the batch."""
        reuse = tuple(self.tables[table].reuse for table in pieces.table)
        element = self._column("element_bytes")[pieces.table]
        samples = np.full(len(pieces), self.batch * batch)
        own = Lookups(pieces.rows * rows, pieces.dims, pieces.pooling * rows * factor, samples, element, reuse)
        return traffic(own, self.law, self.optimizer, self.output_bytes)

    def _curves(self, cuts: tuple[Cut, ...], pieces: Pieces) -> Float[np.ndarray, "way part resource piece factor"]:
        """Seconds of every piece at every factor; made once per cut."""
        if cuts not in self._known:
            n = self.n_ranks
            shares = ((1.0, 1.0), (1.0 / n, 1.0), (1.0, 1.0 / n))  # of the rows and of the batch, of every way
            self._known[cuts] = np.stack(
                [
                    np.stack([self._seconds(pieces, rows, batch, factor) for factor in self.factors], axis=-1)
                    for rows, batch in shares
                ]
            )
            self._known[cuts][2, 1, 0] += self._dense_update_s(pieces)[:, None]
        return self._known[cuts]

    def _seconds(
        self, pieces: Pieces, rows: float, batch: float, factor: float
    ) -> Float[np.ndarray, "part resource piece"]:
        moved = self._traffic(pieces, rows, batch, factor)
        dram, cache = float(self.law.dram_bytes_per_s), self.law.cache_bytes_per_s
        return np.array(
            [
                [moved.forward_dram / dram, moved.forward_cache / cache],
                [moved.backward_dram / dram, moved.backward_cache / cache],
            ]
        )

    def _dense_update_s(self, pieces: Pieces) -> Floats:
        """[piece] seconds to read a gradient as large as the table, and to read and write the table."""
        element = self._column("element_bytes")[pieces.table]
        return pieces.rows * pieces.dims * 3.0 * element / float(self.law.dram_bytes_per_s)

    def with_spread(self, spread: float | Sequence[float]) -> ShardingProblem:
        """The same with another spread of the look-ups, one or one per table."""
        own = tuple(np.broadcast_to(np.asarray(spread, float), len(self.tables)).tolist())
        return replace(self, spread=own, _known={})


def _between(
    curves: Float[np.ndarray, "way part resource piece factor"],
    factors: Float[np.ndarray, " factor"],
    lookups: Float[np.ndarray, "piece sample"],
) -> Float[np.ndarray, "way part resource piece sample"]:
    """Curves at the given factors, linear between those that were computed."""
    if len(factors) == 1:
        return np.repeat(curves, lookups.shape[1], axis=-1)
    at = np.clip(lookups, factors[0], factors[-1])
    low: Int[np.ndarray, "piece sample"] = np.clip(np.searchsorted(factors, at) - 1, 0, len(factors) - 2)
    share = (at - factors[low]) / (factors[low + 1] - factors[low])
    index = np.broadcast_to(low, (*curves.shape[:3], *low.shape))
    first, second = (np.take_along_axis(curves, index + step, axis=-1) for step in (0, 1))
    return first + (second - first) * share
