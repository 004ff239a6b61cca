"""Cut: into how many equal parts a table is cut, and the parts of all tables with what they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ...workload.dlrm.table import EmbeddingTable
from .task import Pieces

LEAST_DIM = 4  # columns of a part: 16 bytes, what a thread reads at once


class Cut(NamedTuple):
    """Equal parts of a table; one of the two is 1."""

    rows: int = 1
    columns: int = 1

    def finer(self, table: EmbeddingTable, n_ranks: int) -> list[Cut]:
        """Twice as many columns, and twice as many rows, where there are as many and no more parts than ranks."""
        found = []
        columns, rows = 2 * self.columns, 2 * self.rows
        if self.rows == 1 and columns <= n_ranks and table.dim % columns == 0 and table.dim // columns >= LEAST_DIM:
            found.append(Cut(1, columns))
        if self.columns == 1 and rows < n_ranks and rows <= table.rows:
            found.append(Cut(rows, 1))
        return found


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
