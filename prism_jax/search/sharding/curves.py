"""Seconds of one part of a table over how many rows a step looks up, for every way to hold it."""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

from ..._typing import Floats
from ...workload.dlrm.law import LookupLaw
from ...workload.dlrm.table import EmbeddingTable
from ...workload.dlrm.traffic import Lookups, traffic
from .cut import Cut


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
