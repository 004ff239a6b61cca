"""Gatherings that XLA for GPUs makes one of: of the same groups, in the same loop, that wait for nothing between them.

XLA for CPUs leaves each parameter's apart. Up to `MOST_BYTES` a combined one: `xla_gpu_all_gather_combine_threshold_bytes`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .....workload.captured import CapturedComm, CapturedRow

MOST_BYTES = 30.0 * 2**20  # xla/debug_options_flags.cc
Key = tuple[object, ...]


def joins(rows: Sequence[CapturedRow], last: Mapping[Key, int], key: Key, row: CapturedComm) -> int | None:
    """Index of the row that a gathering becomes part of; None: it is one of its own.

    Args:
        last: key of loop, phase and groups -> index of the latest gathering.
    """
    index = last.get(key)
    if index is None:
        return None
    before = rows[index]
    fits = isinstance(before, CapturedComm) and before.n_bytes + row.n_bytes <= MOST_BYTES and before.dtype == row.dtype
    return index if fits else None
