"""Profiles of the PyTorch profiler (Kineto), one file per rank, as ops.

A rank's ops are found in one of three ways, the same for all ranks of a job: by their annotations (`kineto_annotated`), from
its GPU kernels (`kineto_kernels`), or from gloo's collectives (`kineto_host`). Steps are PyTorch's ProfilerStep#N; those that
all ranks have are used. The ranks' clocks are made one by the ops in which they meet (`clocks`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..core.errors import DataError
from ..core.units import format_s
from ..trace.columns import MAX_ROWS
from ..trace.trace import BusyClass, JobShape, KernelPool, KernelRows, OpTable, check_columns
from .annotated import annotated_ops, gpu_ops, host_ops, is_annotated, placed
from .clocks import Clocks, Meetings, compare_clocks
from .events import RankProfile, Spans, What, codes_of, read_profiles
from .file import kineto_events
from .kernels import RankKernels, kernels_in_ops
from .names import CLASSES, kernel_class
from .ops import Meets, Peers, RankOps, join, steps_of
from .place import (
    ProfiledJob,
    WorkerPlace,
    annotated_job,
    rank_by_name,
    rank_of,
    stated_place,
    unannotated_job,
    world_size_of,
)
from .rank_events import Source

ANNOTATED, GPU = "annotated ops", "GPU kernels"
NS, US = 1e-9, 1e-6


class _Rank(NamedTuple):
    """One file, reduced to its ops."""

    path: Path
    rank: int
    world_size: int
    base_ns: int
    way: str
    place: WorkerPlace | None
    ops: RankOps
    busy: tuple[BusyClass, ...] = ()
    kernels: RankKernels | None = None
    notes: tuple[str, ...] = ()


def read_kineto(
    paths: Sequence[Path], rank: int | None = None, kernels: bool = False, events: Source = kineto_events
) -> tuple[OpTable, JobShape]:
    """Ops of a job from its profiles: by default one per rank, as `export_chrome_trace` writes them (JSON, gzipped or not).

    Ranks of a job without annotations are data-parallel replicas if they do the same ops and meet in groups of all; else each
    is its own pipeline stage and the groups tie them.

    Args:
        paths: files, in any order.
        rank: of a single file that does not say it, or says it wrongly.
        kernels: whether the kernels inside the ops are kept, too.
        events: gives the events of a file, those of every rank in it.

    Returns:
        Ops with start times in seconds from the first on a common clock, and the degrees.

    Raises:
        DataError: a file is no such profile, cut off, or holds an impossible value; steps, ranks or degrees are missing or
            contradict each other. Names the file, the event and the field, and the remedy.
    """
    if not paths:
        raise DataError("no profile was given. Name one file per rank.")
    if rank is not None and len(paths) > 1:
        raise DataError(f"--rank {rank}: it says the rank of one file, and there are {len(paths)}. Leave it out.")
    ranks = sorted(_read_ranks([Path(path) for path in paths], rank, kernels, events), key=lambda found: found.rank)
    source = str(paths[0]) if len(paths) == 1 else f"{ranks[0].path.parent} ({len(paths)} profiles)"
    _check_ranks(ranks)
    n_rank = len(ranks)
    steps, step_notes = _common_steps(source, ranks)
    kept = [np.isin(found.ops.step, steps) for found in ranks]
    parts = [found.ops.pick(mine) for found, mine in zip(ranks, kept, strict=True)]
    at = np.repeat(np.arange(n_rank, dtype=np.int32), [len(part) for part in parts])
    ops, world = join(parts), max(found.world_size for found in ranks)
    if ranks[0].way == ANNOTATED:
        job = annotated_job(source, ops, [found.place for found in ranks])
    else:
        job = unannotated_job(ops, at, n_rank, world)
    start, end = _seconds(ranks, job.ops, at)
    clocks = compare_clocks(_meetings(job, at, end), n_rank)
    if ranks[0].way != ANNOTATED and any(found.place for found in ranks):
        step_notes.append(
            "the metadata 'prism' are not used, because forward-compute and backward-compute are not annotated"
        )
    said = dict.fromkeys(note for found in ranks for note in found.notes)
    notes = (f"read from {ranks[0].way}", *job.notes, *job.ops.notes, *said, *step_notes, *_missing(n_rank, world))
    start, end = clocks.corrected(at, start), clocks.corrected(at, end)
    table = _table(source, job, at, np.array([found.rank for found in ranks]), start, end)
    busy = tuple(one for found in ranks for one in found.busy)
    table = replace(
        table, busy=busy, may_differ=ranks[0].way == GPU, kernels=_joined_kernels(ranks, kept) if kernels else None
    )
    return replace(table, clock_error_s=clocks.error_s, notes=(*notes, *_clock_notes(clocks, ranks))), job.shape


def _joined_kernels(ranks: list[_Rank], kept: list[NDArray[np.bool_]]) -> KernelRows:
    """Kernels of all ranks in the kept ops [op] of each, which follow each other in the table."""
    known: dict[KernelPool, int] = {}
    first, parts, pools = 0, [], []
    for found, mine in zip(ranks, kept, strict=True):
        assert found.kernels is not None
        part = found.kernels.of_ops(mine, first)
        place = np.array([known.setdefault(pool, len(known)) for pool in part.pools], dtype=np.int64)
        parts.append(part)
        pools.append(place[part.pool] if len(place) else part.pool)
        first += int(mine.sum())
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in ("op", "start_us", "added_us")]
    return KernelRows(columns[0], np.concatenate(pools), tuple(known), columns[1] * US, columns[2] * US)


def _read_ranks(paths: Sequence[Path], stated: int | None, kernels: bool, source: Source) -> list[_Rank]:
    ranks, n_op = [], 0
    for path in paths:
        for profile in read_profiles(path, kernels, source):
            ranks.append(_read_rank(profile, paths, stated, kernels))
            n_op += len(ranks[-1].ops)
            if n_op > MAX_ROWS:
                raise DataError(
                    f"{path}: with it the profiles hold more than {MAX_ROWS:,} ops, which is what fits into 2 GB of memory. "
                    "Record fewer steps or ranks."
                )
    return ranks


def _read_rank(profile: RankProfile, paths: Sequence[Path], stated: int | None, kernels: bool) -> _Rank:
    path, place, notes = profile.path, stated_place(profile), profile.notes
    rank = rank_of(profile) if stated is None else stated
    if profile.n_parts > 1:
        file_number = rank_by_name(path, paths) if rank is None else rank
        rank = file_number * profile.n_parts + profile.part
    elif rank is None:
        rank = rank_by_name(path, paths)
        how = "rank 0 is assumed (--rank says another)" if len(paths) == 1 else "ranks are numbered as the files are"
        notes = (*notes, f"no distributedInfo.rank: {how}")
    peers = Peers(rank, world_size_of(profile))
    if is_annotated(profile):
        way, ops = ANNOTATED, annotated_ops(profile, place or WorkerPlace())
    elif len(profile.spans[What.KERNEL]) + len(profile.spans[What.GPU_COMMUNICATION]):
        way, ops = GPU, gpu_ops(profile, peers)
    else:
        way, ops = profile.header.host_words, host_ops(profile, peers)
    inside = kernels_in_ops(profile, ops, by_stream=way == GPU) if kernels else None
    busy = busy_by_class(profile, rank)
    return _Rank(path, rank, peers.world_size, _base_ns(profile), way, place, ops, busy, inside, notes)


def _base_ns(profile: RankProfile) -> int:
    """Origin of the file's times, in nanoseconds; 0 for the epoch, which old versions use."""
    base = profile.header.values.get("baseTimeNanoseconds", 0)
    if type(base) is not int or not 0 <= base < 2**63:
        raise DataError(f"{profile.path}: baseTimeNanoseconds: {str(base)[:40]} is not a whole number of nanoseconds")
    return base


def _check_ranks(ranks: list[_Rank]) -> None:
    for one, other in pairwise(ranks):
        if one.rank == other.rank:
            raise DataError(f"{other.path}: rank {other.rank} again, as in {one.path}. Give one file per rank.")
    first = ranks[0]
    for other in ranks:
        if other.way != first.way:
            raise DataError(
                f"{other.path}: rank {other.rank} has to be read from {other.way}, but rank {first.rank} from {first.way}. "
                "Record all ranks with the same annotations and activities."
            )


def _common_steps(source: str, ranks: list[_Rank]) -> tuple[NDArray[np.int64], list[str]]:
    """Steps in which every rank has ops."""
    steps = [np.unique(found.ops.step) for found in ranks]
    numbers, count = np.unique(np.concatenate(steps), return_counts=True)
    common = numbers[count == len(ranks)]
    if len(common) == 0:
        ranges = ", ".join(
            f"rank {r.rank}: {f'{s[0]}-{s[-1]}' if len(s) else 'none'}"
            for r, s in zip(ranks[:3], steps[:3], strict=True)
        )
        raise DataError(f"{source}: no step was recorded on every rank ({ranges}). Record the same steps on all.")
    left = len(numbers) - len(common)
    return common, [f"{left} of {len(numbers)} steps were not recorded on every rank"] if left else []


def _seconds(ranks: list[_Rank], ops: RankOps, at: Ints) -> tuple[Floats, Floats]:
    """Start and end of every op, each on its rank's clock, from one origin that keeps them small."""
    base = min(found.base_ns for found in ranks)
    offset = np.array([(found.base_ns - base) * NS for found in ranks])
    origin_us = np.floor(ops.start_us.min())
    start = (ops.start_us - origin_us) * US + offset[at]
    return start, start + ops.duration_us * US


def _meetings(job: ProfiledJob, at: Ints, end_s: Floats) -> Meetings:
    """Ops that end together: those of one group and step, of the ranks that `Meets` says."""
    ops = job.ops
    rows = np.flatnonzero((ops.meets > Meets.NOBODY) & (ops.group >= 0))
    meets, rank = ops.meets[rows], at[rows]
    tp = np.where(meets >= Meets.REPLICAS, job.tp[rank] + 1, 0)
    dp = np.where(meets >= Meets.STAGES, job.dp[rank] + 1, 0)
    step = np.unique(ops.step[rows], return_inverse=True)[1]
    instance = ((ops.group[rows] * (step.max(initial=0) + 1) + step) * (job.dp.max() + 2) + dp) * (
        job.tp.max() + 2
    ) + tp
    return Meetings(rank, instance, end_s[rows], ops.side[rows])


def _table(source: str, job: ProfiledJob, at: Ints, rank: Ints, start_s: Floats, end_s: Floats) -> OpTable:
    ops = job.ops
    table = OpTable(
        source=source,
        step=ops.step,
        dp=job.dp[at],
        pp=job.pp[at],
        tp=job.tp[at],
        op_type=ops.op_type.astype(np.int32),
        op_types=ops.op_types,
        micro_batch=ops.micro_batch.astype(np.int32),
        chunk=ops.chunk.astype(np.int32),
        start_s=start_s - start_s.min(),
        duration_s=np.maximum(end_s - start_s, 0.0),
        stream=ops.stream.astype(np.int32),
        streams=ops.streams,
        group=ops.group.astype(np.int32),
        groups=ops.groups,
        rank=rank[at].astype(np.int32),
    )
    check_columns(
        source, {name: getattr(table, name) for name in ("step", "start_s", "duration_s", "micro_batch", "chunk")}
    )
    return table


def _missing(n_rank: int, world: int) -> list[str]:
    return [f"{n_rank} of {world} ranks were recorded"] if world > n_rank else []


def _clock_notes(clocks: Clocks, ranks: list[_Rank]) -> list[str]:
    if len({found.path for found in ranks}) == 1:  # of one clock
        return []
    if clocks.n_part > 1:
        alone = ranks[int(np.argmax(clocks.part > 0))].rank
        return [
            f"the clocks of {clocks.n_part} sets of ranks could not be compared, as they share no groups (rank {alone} and "
            f"rank {ranks[0].rank}, for example): their differences are taken as recorded"
        ]
    shift = np.abs(clocks.offset_s).max()
    return [
        f"clocks were aligned at collectives by up to {format_s(shift, 3)}; the remaining difference is "
        f"{format_s(clocks.error_s, 2)}"
    ]


def busy_by_class(profile: RankProfile, rank: int) -> tuple[BusyClass, ...]:
    """Time of kernels by class, of the whole recording and in its steps; communication by its kind.

    Collectives that were written down without their kernels (flight recorder) count as such; operations of a host do not.
    """
    kinds = [found.kind for found in profile.communications]
    named = sorted({*kinds, *CLASSES})
    place = {name: index for index, name in enumerate(named)}
    works = codes_of(profile.works, lambda work: place[kernel_class(work.name)])
    communication = np.array([place[kind] for kind in kinds], dtype=np.int64)
    sums = np.zeros((3, len(named)))
    steps = steps_of(profile)
    is_recorder = profile.header.by_time and len(profile.spans[What.KERNEL]) == 0
    for what, classes in (
        (What.KERNEL, works),
        (What.GPU_COMMUNICATION, communication),
        *(((What.COMMUNICATION, communication),) if is_recorder else ()),
    ):
        spans = profile.spans[what]
        inside = placed(profile, spans, steps).spans if what != What.COMMUNICATION else spans
        for row, kept, weights in ((0, spans, None), (1, spans, spans.duration_us), (2, inside, inside.duration_us)):
            sums[row] += _summed(kept, classes, weights, len(named))
    return tuple(
        BusyClass(rank, name, int(sums[0, at]), float(sums[1, at]) * US, float(sums[2, at]) * US)
        for at, name in enumerate(named)
        if sums[0, at]
    )


def _summed(spans: Spans, classes: np.ndarray, weights: np.ndarray | None, n: int) -> np.ndarray:
    """Sum of the weights by class; number of spans where there are none."""
    return np.bincount(classes[spans.code] if len(spans) else np.zeros(0, np.int64), weights=weights, minlength=n)
