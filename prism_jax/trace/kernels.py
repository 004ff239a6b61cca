"""Defines the kernels inside a recorded op: as rows next to the ops that a reader found, and laid out over replicas and steps.

A kernel is known by its name, the shapes of the inputs of the operator that started it, and its stream: its pool. In a run of
kernels it takes what it adds: from its start, or the end of the kernels before it if that is later, to its end. So the kernels of
a run and the rest, in which none of them ran, are as long as the run.

Every replica and step runs the same kernels, so an entry of the layout is a kernel's place in the program: the op, the name, and
how often the op has run it before. Where sizes at a place change from step to step (sequences of any length), its pool is that
of all such sizes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..core.errors import DataError

ANY, VARYING = "*", "varying"  # in the place of a size that changes from step to step; of shapes that are nothing alike
_NUMBER = re.compile(r"(\d+)")
MAX_CELLS = 50_000_000  # of (entry, replica, step): 400 MB


class KernelPool(NamedTuple):
    """Kernels that are taken to be alike.

    Attributes:
        name: of the kernel; on a CPU, of the operator.
        shapes: of the inputs of its operator as text, `ANY` for a size that changes; "" where they were not recorded.
        stream: that it ran on, "" on a CPU.
    """

    name: str
    shapes: str
    stream: str

    def __str__(self) -> str:
        return " ".join(part for part in self if part)


@dataclass(frozen=True)
class KernelRows:
    """One entry per recorded kernel.

    Attributes:
        row: of the op in the table of ops.
        pool: index into `pools`.
        start_s: on any clock that orders the kernels of an op.
        seconds: that it adds to the op.
    """

    row: NDArray[np.int64]
    pool: NDArray[np.int64]
    pools: tuple[KernelPool, ...]
    start_s: Floats
    seconds: Floats


@dataclass(frozen=True)
class TraceKernels:
    """Kernels of every op.

    Attributes:
        pools: all of them.
        op, pool: [entry] where it runs, and what it is.
        seconds: [entry, replica, step] that it adds to its op; NaN where it did not run.
    """

    pools: tuple[KernelPool, ...]
    op: Ints
    pool: Ints
    seconds: Floats

    def choose(self, steps: NDArray, replicas: NDArray) -> TraceKernels:
        """Kernels of some of the steps and replicas (indices), those that ran there."""
        seconds = self.seconds[:, np.asarray(replicas)[:, None], np.asarray(steps)[None, :]]
        ran = ~np.isnan(seconds).all(axis=(1, 2))
        return TraceKernels(self.pools, self.op[ran], self.pool[ran], seconds[ran])


def lay_out(
    source: str, kernels: KernelRows, cell: tuple[NDArray, NDArray, NDArray], shape: tuple[int, int, int]
) -> TraceKernels:
    """Lays kernels out over the ops, replicas and steps of a trace.

    Args:
        source: the file, for messages.
        kernels: as they were read.
        cell: (op, replica, step) of every row of the table of ops; op -1 or step -1 for rows that are not in the trace.
        shape: numbers of ops, replicas and steps of the trace.

    Raises:
        DataError: more kernels than fit into memory.
    """
    op, replica, step = (np.asarray(part, np.int64)[kernels.row] for part in cell)
    kept = np.flatnonzero((op >= 0) & (step >= 0))
    op, replica, step, pool = op[kept], replica[kept], step[kept], kernels.pool[kept]
    place = _number([(one.name, one.stream) for one in kernels.pools])[pool]
    count = _earlier(np.stack([op, replica, step, place]), kernels.start_s[kept])
    keys, entry = np.unique(np.stack([op, place, count]), axis=1, return_inverse=True)
    entry, n_entry = entry.reshape(-1), keys.shape[1]
    if n_entry * shape[1] * shape[2] > MAX_CELLS:
        raise DataError(
            f"{source}: {n_entry:,} kernels x {shape[1]:,} replicas x {shape[2]:,} steps are too many. Cut the trace."
        )
    seconds = np.full((n_entry, *shape[1:]), np.nan)
    seconds[entry, replica, step] = kernels.seconds[kept]
    pools, of_entry = _pools(kernels.pools, entry, pool, n_entry)
    return TraceKernels(pools, keys[0].astype(np.int32), of_entry, seconds)


def _number(texts: list[tuple[str, str]]) -> NDArray[np.int64]:
    """A number of every text, the same for equal ones."""
    known: dict[tuple[str, str], int] = {}
    return np.array([known.setdefault(text, len(known)) for text in texts], dtype=np.int64)


def _earlier(keys: NDArray[np.int64], by: Floats) -> NDArray[np.int64]:
    """Entries of the same keys [key, entry] before each, in the order of `by`."""
    order = np.lexsort((by, *keys))
    changes = (keys[:, order[1:]] != keys[:, order[:-1]]).any(axis=0)
    first = np.flatnonzero(np.concatenate([[True], changes])) if len(order) else np.zeros(0, np.int64)
    count = np.empty(len(order), np.int64)
    count[order] = np.arange(len(order)) - np.repeat(first, np.diff(first, append=len(order)))
    return count


def _pools(
    known: tuple[KernelPool, ...], entry: NDArray[np.int64], pool: NDArray[np.int64], n_entry: int
) -> tuple[tuple[KernelPool, ...], Ints]:
    """Pools by name and common shapes, and the pool of every entry."""
    pairs = np.unique(entry * len(known) + pool)
    of = np.split(pairs % max(len(known), 1), np.searchsorted(pairs, np.arange(1, n_entry) * len(known)))
    found = [_common([known[one] for one in mine.tolist()]) for mine in of[:n_entry]]
    pools = sorted(set(found))
    place = {one: index for index, one in enumerate(pools)}
    return tuple(pools), np.array([place[one] for one in found], dtype=np.int32)


def _common(pools: list[KernelPool]) -> KernelPool:
    """Name, stream, and what the shapes have in common."""
    texts = [_NUMBER.split(pool.shapes) for pool in pools]
    first = texts[0]
    if any(len(text) != len(first) or text[::2] != first[::2] for text in texts):
        return pools[0]._replace(shapes=VARYING)
    parts = [values[0] if len(set(values)) == 1 else ANY for values in zip(*texts, strict=True)]
    return pools[0]._replace(shapes="".join(parts))
