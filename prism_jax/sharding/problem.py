"""Defines ShardingProblem: the tables of a job on its cluster, which makes tasks for all cuts and all draws of look-ups.

A cut is into how many equal parts a table is cut, which share what the table is asked for.

| held | rows | look-ups of a sample | samples | exchange |
|---|---|---|---|---|
| whole, or a part of r x c (rows, columns) | E / r | L / r | B | all-to-all of B D / c |
| rows over all n | E / n | L / n | B | reduce-scatter of B D, all-gather of its gradient; L <= 1: all-to-all of B D L |
| copies | E | L | B / n | gradients of E D with those of the dense layers |

B is the batch of all ranks for one micro-batch. Costs are those of `workload.dlrm` (`parts`, `traffic`, `blocks`). Look-ups of a
table vary from step to step: its pooling is multiplied by a factor, and seconds follow it on a grid of factors, between which
they are linear.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from ..core.arrays import Floats
from ..workload.dlrm.lookup_law import LookupLaw, Lookups, state_bytes, traffic
from ..workload.dlrm.tables import EmbeddingTable
from .task import Pieces, ShardingTask, StepRest

LEAST_DIM = 4  # columns of a part: 16 bytes, what a thread reads at once


class Cut(NamedTuple):
    """Equal parts of a table; one of the two is 1."""

    rows: int = 1
    columns: int = 1


def pieces_of(tables: Sequence[EmbeddingTable], cuts: Sequence[Cut]) -> Pieces:
    """Parts of all tables, in the order of tables."""
    n_part = np.array([cut.rows * cut.columns for cut in cuts])
    table = np.repeat(np.arange(len(cuts)), n_part)
    cut = np.array(cuts, dtype=float)[table]
    own = np.array([(one.rows, one.dim, one.pooling) for one in tables], dtype=float)[table]
    return Pieces(
        tuple(one.name for one in tables),
        table,
        n_part[table],
        np.maximum(own[:, 0] / cut[:, 0], 1.0),
        own[:, 1] / cut[:, 1],
        own[:, 2] / cut[:, 0],
    )


def part_curves(
    table: EmbeddingTable,
    cut: Cut,
    n_ranks: int,
    batch: int,
    law: LookupLaw,
    factors: Float[np.ndarray, " factor"],
    optimizer: str,
    output_bytes: float,
) -> Float[np.ndarray, "way part resource factor"]:
    """Seconds that a part keeps device memory and cache busy, in lookup and update, if look-ups are `factors` times the mean.

    Args:
        batch: samples of all ranks; a rank of a copy has its share of them.
    """
    n, n_factor = float(n_ranks), len(factors)
    share_rows, share_batch = np.array([1.0, 1.0 / n, 1.0]), np.array([1.0, 1.0, 1.0 / n])

    def cells(of_way: Floats) -> Floats:
        return np.repeat(of_way, n_factor)

    own = Lookups(
        cells(np.maximum(table.rows / cut.rows * share_rows, 1.0)),
        np.full(3 * n_factor, table.dim / cut.columns),
        cells(table.pooling / cut.rows * share_rows) * np.tile(factors, 3),
        cells(batch * share_batch),
        np.full(3 * n_factor, float(table.element_bytes)),
        (table.reuse,) * (3 * n_factor),
    )
    moved = traffic(own, law, optimizer, output_bytes)
    dram, cache = float(law.dram_bytes_per_s), law.cache_bytes_per_s
    forward = [moved.forward_dram / dram, moved.forward_cache / cache]
    backward = [moved.backward_dram / dram, moved.backward_cache / cache]
    return np.moveaxis(np.array([forward, backward]).reshape(2, 2, 3, n_factor), 2, 0)


def between(
    curves: Float[np.ndarray, "way part resource piece factor"],
    factors: Float[np.ndarray, " factor"],
    lookups: Float[np.ndarray, "piece sample"],
) -> Float[np.ndarray, "way part resource piece sample"]:
    """Curves at the given factors, linear between those that were computed."""
    at = np.clip(lookups, factors[0], factors[-1])
    low = np.clip(np.searchsorted(factors, at) - 1, 0, len(factors) - 2)
    share = (at - factors[low]) / (factors[low + 1] - factors[low])
    index = np.broadcast_to(low, (*curves.shape[:3], *low.shape))
    first, second = (np.take_along_axis(curves, index + step, axis=-1) for step in (0, 1))
    return first + (second - first) * share


FACTORS = np.exp(np.linspace(-2.5, 2.5, 21))  # of look-ups, where seconds are computed


@dataclass(frozen=True, eq=False)
class ShardingProblem:
    """Tables, ranks and laws.

    Attributes:
        tables: all tables.
        n_ranks: ranks.
        batch: samples of a micro-batch on all ranks.
        law: seconds of lookup kernels on a device.
        capacity_bytes: memory of a rank that is left for tables.
        rest: of the step.
        optimizer, output_bytes: as in `workload.dlrm.lookup_law.traffic`.
        kernel_factor: of the seconds of lookup kernels inside a training step over `law`.
        copy_bytes: memory of an element of a copied table, with its gradient and optimizer state.
        spread: [table] standard deviation over mean of a step's look-ups, from step to step; empty: they do not vary.
        split: whether tables may be cut, spread by rows or copied; else all are whole.
    """

    tables: tuple[EmbeddingTable, ...]
    n_ranks: int
    batch: int
    law: LookupLaw
    capacity_bytes: float
    rest: StepRest
    optimizer: str = "sgd"
    output_bytes: float = 4.0
    kernel_factor: float = 1.0
    copy_bytes: float = 16.0
    spread: tuple[float, ...] = ()
    split: bool = True
    _known: dict[tuple[int, Cut, int], Floats] = field(default_factory=dict, repr=False)

    @property
    def uncut(self) -> tuple[Cut, ...]:
        """No table is cut."""
        return (Cut(),) * len(self.tables)

    @property
    def varies(self) -> bool:
        """Whether look-ups vary from step to step."""
        return any(spread > 0.0 for spread in self.spread)

    def finer(self, table: int, cut: Cut) -> list[Cut]:
        """The table cut into twice as many columns, and into twice as many rows, where it has them and there are ranks."""
        if not self.split:
            return []
        own, columns, rows, found = self.tables[table], 2 * cut.columns, 2 * cut.rows, []
        if cut.rows == 1 and columns <= self.n_ranks and own.dim % columns == 0 and own.dim // columns >= LEAST_DIM:
            found.append(Cut(1, columns))
        if cut.columns == 1 and rows < self.n_ranks and rows <= own.rows:
            found.append(Cut(rows, 1))
        return found

    def even_cuts(self) -> list[tuple[Cut, ...]]:
        """All tables cut into 1, 2, 4, ... columns or rows, each as far as it can be."""
        found = [self.uncut]
        for by_rows in (False, True):
            last = self.uncut
            while True:
                options = [[c for c in self.finer(t, cut) if (c.rows > 1) == by_rows] for t, cut in enumerate(last)]
                if not any(options):
                    break
                last = tuple(own[0] if own else cut for own, cut in zip(options, last, strict=True))
                found.append(last)
        return found

    def task(self, cuts: Sequence[Cut], lookups: Float[np.ndarray, "table sample"] | None = None) -> ShardingTask:
        """Task of assigning the parts of `cuts`; noise-free, or under factors of the look-ups.

        Args:
            cuts: [table].
            lookups: factor of every table's look-ups in every step that is drawn.
        """
        pieces = pieces_of(self.tables, cuts)
        if lookups is None:
            seconds = self._curves(cuts, pieces, np.ones(1))
        else:
            seconds = between(self._curves(cuts, pieces, FACTORS), FACTORS, lookups[pieces.table])
        if (seconds[:, :, 1] <= seconds[:, :, 0]).all():  # the cache never decides: half of the sums
            seconds = seconds[:, :, :1]
        sent, joint = self._moved(pieces, np.array([cut.rows for cut in cuts])[pieces.table])
        allowed = self._allowed(pieces)
        return ShardingTask(
            pieces, self.n_ranks, seconds, self._held(pieces), sent, joint, allowed, self.capacity_bytes, self.rest
        )

    def _moved(self, pieces: Pieces, n_row: Floats) -> tuple[Floats, Floats]:
        """[way, piece] what a rank sends to every other in an exchange, and what goes into the collective of a way."""
        n, pooled = self.n_ranks, self.batch * pieces.dims * self.output_bytes
        pooling = pieces.pooling * n_row  # of the table
        seldom = pooling <= 1.0  # parts by rows of such tables send only the vectors that they have
        whole = np.where(seldom & (n_row > 1), pieces.pooling, 1.0) * pooled / n
        none = np.zeros_like(pooled)
        by_rows = np.where(seldom, pooling / n * pooled / n, 0.0)
        return np.stack([whole, by_rows, none]), np.stack(
            [none, np.where(seldom, 0.0, pooled), pieces.rows * pieces.dims * self._element_bytes(pieces)]
        )

    def _element_bytes(self, pieces: Pieces) -> Floats:
        return np.array([table.element_bytes for table in self.tables], dtype=float)[pieces.table]

    def _allowed(self, pieces: Pieces) -> Bool[np.ndarray, "way piece"]:
        """Parts of a table are on one rank each, and so is a table that has fewer rows than ranks."""
        many = np.full(len(pieces), self.split and self.n_ranks > 1) & (pieces.parts == 1)
        return np.stack([np.ones(len(pieces), bool), many & (pieces.rows >= self.n_ranks), many])

    def _held(self, pieces: Pieces) -> Float[np.ndarray, "way piece"]:
        """Bytes of rows and optimizer state of every way."""
        row = pieces.dims * self._element_bytes(pieces) + state_bytes(pieces.dims, self.optimizer)
        whole = pieces.rows * row
        return np.stack([whole, whole / self.n_ranks, self.copy_bytes * pieces.rows * pieces.dims])

    def _curves(
        self, cuts: Sequence[Cut], pieces: Pieces, factors: Floats
    ) -> Float[np.ndarray, "way part resource piece factor"]:
        """Seconds of every piece at every factor; made once per table and cut."""
        known = self._known
        for table, cut in enumerate(cuts):
            if (key := (table, cut, len(factors))) not in known:
                n, batch, own = self.n_ranks, self.batch, self.tables[table]
                curves = part_curves(own, cut, n, batch, self.law, factors, self.optimizer, self.output_bytes)
                known[key] = self.kernel_factor * curves
        found = [known[table, cut, len(factors)] for table, cut in enumerate(cuts)]
        return np.stack([found[table] for table in pieces.table], axis=3)
