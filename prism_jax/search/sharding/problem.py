"""ShardingProblem: the tables of a job on its cluster, which makes tasks for all cuts of tables and all draws of look-ups.

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
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from jaxtyping import Bool, Float

from ..._typing import Floats
from ...workload.dlrm.law import LookupLaw
from ...workload.dlrm.table import EmbeddingTable
from ...workload.dlrm.traffic import Lookups, Traffic, traffic
from .cut import Cut, pieces_of
from .task import WHOLE, Pieces, ShardingTask, StepRest

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
        optimizer, output_bytes: as in `workload.dlrm.table_seconds`.
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

    def with_spread(self, spread: float) -> ShardingProblem:
        """The same with that spread of the look-ups of every table."""
        return replace(self, spread=(spread,) * len(self.tables), _known={})

    def finer(self, table: int, cut: Cut) -> Cut | None:
        """The table cut into twice as many columns; None where it cannot be."""
        return cut.finer(self.tables[table], self.n_ranks) if self.split else None

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
        pieces = pieces_of(self.tables, cuts)
        curves = self._curves(tuple(cuts), pieces)
        if lookups is None:
            seconds = curves[..., len(self.factors) // 2, None]
        else:
            seconds = _between(curves, self.factors, lookups[pieces.table])
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
        whole = self._traffic(pieces, 1.0, 1.0, 1.0).held_bytes
        return np.stack([whole, whole / self.n_ranks, self.copy_bytes * pieces.rows * pieces.dims])

    def _traffic(self, pieces: Pieces, rows: float, batch: float, factor: float) -> Traffic:
        """Bytes of the pieces where a rank has that share of their rows, and of the batch."""
        reuse = tuple(self.tables[table].reuse for table in pieces.table)
        samples, own_rows = np.full(len(pieces), self.batch * batch), np.maximum(pieces.rows * rows, 1.0)
        pooling = pieces.pooling * rows * factor
        own = Lookups(own_rows, pieces.dims, pooling, samples, self._element_bytes(pieces), reuse)
        return traffic(own, self.law, self.optimizer, self.output_bytes)

    def _curves(self, cuts: tuple[Cut, ...], pieces: Pieces) -> Float[np.ndarray, "way part resource piece factor"]:
        """Seconds of every piece at every factor; made once per cut."""
        if cuts not in self._known:
            n = self.n_ranks
            shares = ((1.0, 1.0), (1.0 / n, 1.0), (1.0, 1.0 / n))  # of the rows and of the batch, of every way
            found = np.zeros((len(shares), 2, 2, len(pieces), len(self.factors)))
            for way, (rows, batch) in enumerate(shares):
                if way == WHOLE or self.split:
                    for at, factor in enumerate(self.factors):
                        found[way, ..., at] = self._seconds(pieces, rows, batch, float(factor))
            self._known[cuts] = found
        return self._known[cuts]

    def _seconds(
        self, pieces: Pieces, rows: float, batch: float, factor: float
    ) -> Float[np.ndarray, "part resource piece"]:
        """Of lookup and update, over device memory and cache."""
        moved = self._traffic(pieces, rows, batch, factor)
        dram, cache = float(self.law.dram_bytes_per_s), self.law.cache_bytes_per_s
        forward = [moved.forward_dram / dram, moved.forward_cache / cache]
        backward = [moved.backward_dram / dram, moved.backward_cache / cache]
        return self.kernel_factor * np.array([forward, backward])


def _between(
    curves: Float[np.ndarray, "way part resource piece factor"],
    factors: Float[np.ndarray, " factor"],
    lookups: Float[np.ndarray, "piece sample"],
) -> Float[np.ndarray, "way part resource piece sample"]:
    """Curves at the given factors, linear between those that were computed."""
    if len(factors) == 1:
        return np.repeat(curves, lookups.shape[1], axis=-1)
    at = np.clip(lookups, factors[0], factors[-1])
    low = np.clip(np.searchsorted(factors, at) - 1, 0, len(factors) - 2)
    share = (at - factors[low]) / (factors[low + 1] - factors[low])
    index = np.broadcast_to(low, (*curves.shape[:3], *low.shape))
    first, second = (np.take_along_axis(curves, index + step, axis=-1) for step in (0, 1))
    return first + (second - first) * share
