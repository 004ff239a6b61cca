"""Rows of a trace laid out as dense arrays (op, replica, step), with what is incomplete left out and named.

Every replica and step runs the same kernels, so an entry of the layout of kernels is a kernel's place in the program: the op, the
name, and how often the op has run it before. Where sizes at a place change from step to step (sequences of any length), its pool
is that of all such sizes.
"""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Ints
from ..core.errors import DataError
from .rank_times import earlier
from .trace import ANY_SIZE, NONE, JobShape, KernelPool, KernelRows, OpTable, Trace, TraceKernels, TraceOp

Keys = NDArray[np.int64]
FIELDS = ("pp", "op_type", "seq", "stream", "group", "micro_batch", "chunk")  # that tell ops of a step apart
MAX_KEY = 2**62
MAX_CELLS = 200_000_000  # of (op, replica, step): 1.6 GB of start times
MAX_KERNEL_CELLS = 50_000_000  # of (entry, replica, step): 400 MB
VARYING = "varying"  # shapes of kernels that are nothing alike
_NUMBER = re.compile(r"(\d+)")


def assemble(table: OpTable, job: JobShape) -> Trace:
    """The trace of `table`.

    Every worker (dp, pp) must do the ops of the skeleton once a step: those that most workers of its stage do in most steps.
    Steps in which a worker lacks an op, or has another one, are left out and named. Tensor-parallel peers that were recorded
    one by one count as one worker, from the first start to the last end. Some dp ranks may not have been recorded at all.

    Raises:
        DataError: ranks outside the job's degrees, a dp rank of which a stage was not recorded, no complete step.
    """
    recorded = _recorded_replicas(table, job)
    n_replica = len(recorded)
    key, unique = _op_keys(table)
    n_key = len(unique)
    steps, step = np.unique(table.step, return_inverse=True)
    if n_key * n_replica * len(steps) > MAX_CELLS:
        raise DataError(
            f"{table.source}: {n_key:,} ops x {n_replica:,} replicas x {len(steps):,} steps are too many. Cut the trace."
        )
    replica = np.searchsorted(recorded, table.dp)
    cell = (key, replica, step)
    start = np.full((n_key, n_replica, len(steps)), np.inf)
    end = np.full(start.shape, -np.inf)
    np.minimum.at(start, cell, table.start_s)
    np.maximum.at(end, cell, table.start_s + table.duration_s)
    present = np.isfinite(start)
    in_skeleton = present.mean(axis=(1, 2)) > 0.5
    complete = (present == in_skeleton[:, None, None]).all(axis=(0, 1))
    left_out = _notes(table, unique, present, in_skeleton, complete, steps, recorded)
    common = np.asarray(present.all(axis=(1, 2)))
    if table.may_differ and 2 * complete.sum() <= len(steps) and common.any():
        in_skeleton, complete = common, np.ones(len(steps), dtype=bool)
        share = float(table.duration_s[~common[key]].sum() / max(table.duration_s.sum(), 1e-300))
        left_out = [
            f"the workers or steps differ: only ops that all have are used; the others are {share:.2%} of the time"
        ] * (not common.all())
    if not complete.any():
        raise DataError(f"{table.source}: no step is complete on every worker. {left_out[0]}")
    notes = [*table.notes, *left_out]
    if n_replica < job.dp:
        notes.append(f"{n_replica} of {job.dp} data-parallel ranks were recorded; the others are taken to be like them")
    rows = np.flatnonzero(in_skeleton)
    first = int(np.flatnonzero(complete)[0])
    rows = rows[np.lexsort((rows, start[rows, 0, first], unique["pp"][rows]))]
    start, end = start[rows][..., complete], end[rows][..., complete]
    origin = start.min(axis=(0, 1))
    rank = _ranks(table, job, recorded)
    return Trace(
        source=table.source,
        job=job,
        ops=tuple(_op(table, unique[r]) for r in rows),
        steps=steps[complete],
        start_s=start - origin,
        end_s=end - origin,
        rank=rank,
        clock_error_s=table.clock_error_s,
        notes=tuple(notes),
        kernels=_kernels(table, (key, replica, step), rows, complete, rank),
        busy=table.busy,
    )


def _kernels(
    table: OpTable, cell: tuple[Keys, Keys, Keys], rows: Keys, complete: NDArray[np.bool_], rank: Ints
) -> TraceKernels | None:
    """Kernels of the ops and steps that are kept; of tensor-parallel peers those of the lowest rank.

    Args:
        cell: (key, replica, step) of every row of the table.
        rows: keys of the ops that are kept, in order.
        complete: [step] whether it is kept.
        rank: [replica, pp] of the workers.
    """
    if table.kernels is None:
        return None
    key, replica, step = cell
    place = np.full(int(key.max()) + 1, -1)
    place[rows] = np.arange(len(rows))
    mine = (table.rank == NONE) | (table.rank == rank[replica, table.pp])
    at = np.where(complete, np.cumsum(complete) - 1, -1)[step]
    shape = len(rows), len(rank), int(complete.sum())
    return lay_out(table.source, table.kernels, (np.where(mine, place[key], -1), replica, at), shape)


def _recorded_replicas(table: OpTable, job: JobShape) -> NDArray[np.int32]:
    """The dp ranks in `table`, ascending; all their stages are in it."""
    for name, degree in (("dp", job.dp), ("pp", job.pp), ("tp", job.tp)):
        values = getattr(table, name)
        if values.max() >= degree:
            row = int(np.argmax(values >= degree))
            raise DataError(
                f"{table.source}: row {row + 1} {name}: {values[row]}, but the job has {name} {degree} (counted from 0)"
            )
    recorded = np.unique(table.dp)
    seen = np.zeros((len(recorded), job.pp), dtype=bool)
    seen[np.searchsorted(recorded, table.dp), table.pp] = True
    if not seen.all():
        replica, pp = np.argwhere(~seen)[0]
        dp = recorded[replica]
        raise DataError(
            f"{table.source}: nothing was recorded on dp rank {dp}, stage {pp} ({(~seen).sum()} of {seen.size} workers). "
            "Record one worker of every stage, or correct the degrees in the job's metadata."
        )
    return recorded


def _op_keys(table: OpTable) -> tuple[NDArray[np.intp], NDArray]:
    """Index of every row's op among the distinct ops, and those: (pp, op_type, seq, stream, group, micro_batch, chunk)."""
    key, n = np.zeros(len(table), dtype=np.int64), 1
    worker = table.tp, table.pp, table.dp, table.step  # tensor-parallel peers count separately
    seq = earlier((table.op_type, *worker), table.start_s)
    columns = {name: seq if name == "seq" else getattr(table, name) for name in FIELDS}
    for values in columns.values():
        low, size = int(values.min()), int(values.max()) - int(values.min()) + 1
        if n * size > MAX_KEY:  # number anew those that occur
            distinct, key = np.unique(key, return_inverse=True)
            n = len(distinct)
        key *= size
        key += values
        key -= low
        n *= size
    distinct, first, index = np.unique(key, return_index=True, return_inverse=True)
    unique = np.empty(len(distinct), dtype=[(name, np.int32) for name in FIELDS])
    for name, values in columns.items():
        unique[name] = values[first]
    return index, unique


def _notes(
    table: OpTable,
    unique: NDArray,
    present: NDArray[np.bool_],
    expected: NDArray[np.bool_],
    complete: NDArray[np.bool_],
    steps: Keys,
    recorded: Ints,
) -> list[str]:
    """One line about what was left out, with an example."""
    n_out = int((~complete).sum())
    if n_out == 0:
        return []
    wrong = np.argwhere((present != expected[:, None, None]) & ~complete)
    op, replica, step = wrong[0]
    what = "lacks" if expected[op] else "alone has"
    example = (
        f"in step {steps[step]} dp rank {recorded[replica]} {what} {_op(table, unique[op])}{_differing(unique, op)}"
    )
    return [f"{n_out} of {len(steps)} steps left out, because not all workers did the same ops: {example}"]


def _differing(unique: NDArray, op: int) -> str:
    """Names the fields that distinguish ops of the same type and number (e.g. groups renamed every step)."""
    same = np.flatnonzero(unique[["pp", "op_type", "seq"]] == unique[["pp", "op_type", "seq"]][op])
    fields = [name for name in ("stream", "group", "micro_batch", "chunk") if len(np.unique(unique[name][same])) > 1]
    return f", whose {' and '.join(fields)} must be the same in every step" if fields else ""


def _op(table: OpTable, record: NDArray) -> TraceOp:
    group = int(record["group"])
    return TraceOp(
        op_type=table.op_types[int(record["op_type"])],
        stage=int(record["pp"]),
        seq=int(record["seq"]),
        micro_batch=int(record["micro_batch"]),
        chunk=int(record["chunk"]),
        stream=table.streams[int(record["stream"])],
        group="" if group == NONE else table.groups[group],
    )


def _ranks(table: OpTable, job: JobShape, recorded: NDArray[np.int32]) -> Ints:
    """[replica, pp] lowest recorded global rank of every worker; counted as tp, sp, dp, pp if the source is silent on any.

    Raises:
        DataError: two workers of one rank.
    """
    rank = np.full((len(recorded), job.pp), np.iinfo(np.int32).max, dtype=np.int32)
    np.minimum.at(rank, (np.searchsorted(recorded, table.dp), table.pp), table.rank)
    if (rank == NONE).any():
        rank = (np.arange(job.pp)[None, :] * job.dp + recorded[:, None]) * job.tp * job.sp
    first, at = np.unique(rank, return_index=True)
    if len(first) < rank.size:
        other = int(np.setdiff1d(np.arange(rank.size), at)[0])
        replica, pp = divmod(other, job.pp)
        raise DataError(
            f"{table.source}: rank {rank[replica, pp]} stands at two workers, one of them dp rank {recorded[replica]}, "
            f"stage {pp}. Correct the ranks, or leave them out."
        )
    return rank.astype(np.int32)


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
    count = earlier((op, replica, step, place), kernels.start_s[kept])
    keys, entry = np.unique(np.stack([op, place, count]), axis=1, return_inverse=True)
    entry, n_entry = entry.reshape(-1), keys.shape[1]
    if n_entry * shape[1] * shape[2] > MAX_KERNEL_CELLS:
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
    parts = [values[0] if len(set(values)) == 1 else ANY_SIZE for values in zip(*texts, strict=True)]
    return pools[0]._replace(shapes="".join(parts))
