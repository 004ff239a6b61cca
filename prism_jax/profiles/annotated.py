"""Finds the ops of a rank in its profile: by annotations, from its GPU kernels, or from gloo's collectives on the host.

From kernels, every NCCL kernel is an op, everything else is merged into runs of compute. A run holds the kernels of one stream
that the host launched between two of its marks; a mark is the launch of an NCCL kernel or a call that makes a stream wait for
another (cudaStreamWaitEvent). So a run begins where a wait for communication may begin, and because the marks come from the
program and not from the clock, every step has the same runs. Time in which the stream idles inside a run (late launches) counts
as part of the run. Where launches were not recorded, the starts of kernels take their place.

The stream with most compute is "compute", the others "compute 2", ...; streams with NCCL kernels alone are "communication", ...

Without a GPU, ops are gloo's collectives and the rest of each step. Every step has one compute op before each communication and
one after the last: from the end of all communication so far to the start of the next, of length zero where the next one has begun
by then. Together they fill the step, so that compute which overlaps communication counts as communication.

A program may name its ops, as `names.annotation` understands it. An op lasts from the first start to the last end of the GPU
kernels that were launched while the host was inside its annotation (by any thread, as the backward pass has its own), joined with
the GPU's own span of the annotation; where there is neither, as long as the host was inside.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..core.errors import DataError
from ..trace.pipeline import BACKWARD, CLIP, EMBEDDING, FORWARD, REPLICA_COLLECTIVES, TRANSFERS
from ..trace.rank_times import earlier
from ..trace.trace import NONE
from .events import RankProfile, Spans, What, codes_of
from .ops import Meets, NamedOps, Peers, RankOps, Rows, communication_ops, join, step_at, steps_of
from .place import WorkerPlace

COMPUTE = "compute"
NO_LAUNCHES = "launches were not recorded: runs of compute end where communication starts, which may vary between steps"


class PlacedKernels(NamedTuple):
    """Kernels that belong to a step, with when they were launched."""

    spans: Spans
    step: Rows
    launch_us: Floats


def gpu_ops(profile: RankProfile, peers: Peers) -> RankOps:
    """Ops of the rank's kernels.

    Raises:
        DataError: no steps, or nothing that says to which step a kernel belongs.
    """
    steps = steps_of(profile)
    compute = placed(profile, profile.spans[What.KERNEL], steps)
    communication = placed(profile, profile.spans[What.GPU_COMMUNICATION], steps)
    streams = _stream_names(compute.spans, communication.spans)
    marks = np.sort(np.concatenate([communication.launch_us, profile.spans[What.WAIT].start_us]))
    streams_of = np.array([streams[lane] for lane in communication.spans.lane.tolist()], dtype=str)
    meetings = communication_ops(
        profile, communication.spans, communication.step, communication.launch_us, streams_of, peers
    )
    ops = join([_runs(compute, marks, streams), meetings])
    return ops if len(profile.spans[What.LAUNCH]) or profile.header.by_time else replace(ops, notes=(NO_LAUNCHES,))


def placed(profile: RankProfile, kernels: Spans, steps: Spans) -> PlacedKernels:
    """Kernels in the step in which the host launched them.

    A kernel without a recorded launch lies in the GPU's own span of a step, if the profile has such spans; else in no step (it
    was launched before the recording).
    """
    launches = profile.spans[What.LAUNCH]
    launch_us = launch_times(kernels, launches)
    known = ~np.isnan(launch_us)
    step = np.where(known, step_at(np.where(known, launch_us, 0.0), steps), -1)
    gpu_steps = profile.spans[What.GPU_STEP]
    for lane in np.unique(gpu_steps.lane):
        here = ~known & (kernels.lane == lane)
        step[here] = step_at(kernels.start_us[here], gpu_steps.pick(gpu_steps.lane == lane))
    by_time = profile.is_whole or profile.header.by_time
    if len(kernels) > 0 and len(launches) == 0 and len(gpu_steps) == 0 and not by_time:
        raise DataError(
            f"{profile.path}: kernels, but neither their launches (cuda_runtime) nor ProfilerStep#N on the GPU, so that their "
            "steps are not known. Record with ProfilerActivity.CPU and ProfilerActivity.CUDA."
        )
    if by_time:
        step = np.where(known, step, step_at(kernels.start_us, steps))
    inside = step >= 0
    return PlacedKernels(kernels.pick(inside), step[inside], _in_turn(kernels, launch_us)[inside])


def _in_turn(kernels: Spans, launch_us: Floats) -> Floats:
    """Launch times; where none was recorded that of the kernel before on the stream, as streams run in order.

    Kernels before the first recorded launch of their stream were launched no later than it, nor than they start.
    """
    found = launch_us.copy()
    for lane in np.unique(kernels.lane[np.isnan(launch_us)]):
        mine = np.flatnonzero(kernels.lane == lane)
        mine = mine[np.argsort(kernels.start_us[mine], kind="stable")]
        known = np.flatnonzero(~np.isnan(launch_us[mine]))
        before = np.searchsorted(known, np.arange(len(mine)), side="right") - 1
        first = launch_us[mine[known[0]]] if len(known) else np.inf
        earlier = np.minimum(kernels.start_us[mine], first)
        found[mine] = np.where(before >= 0, launch_us[mine[known]][before], earlier) if len(known) else earlier
    return found


def launch_times(kernels: Spans, launches: Spans) -> Floats:
    """Start of the host call with the kernel's correlation number, NaN where there is none."""
    launches = launches.pick(launches.link >= 0)
    if len(launches) == 0:
        return np.full(len(kernels), np.nan)
    order = np.argsort(launches.link, kind="stable")
    links = launches.link[order]
    at = np.minimum(np.searchsorted(links, kernels.link), len(links) - 1)
    return np.where(links[at] == kernels.link, launches.start_us[order][at], np.nan)


def kernel_streams(profile: RankProfile) -> dict[int, str]:
    """Name of every stream by its number, as `gpu_ops` calls it."""
    steps = steps_of(profile)
    compute, communication = (
        placed(profile, profile.spans[what], steps).spans for what in (What.KERNEL, What.GPU_COMMUNICATION)
    )
    return _stream_names(compute, communication)


def _stream_names(compute: Spans, communication: Spans) -> dict[int, str]:
    """Name of every stream by its number; the same on all ranks even if the numbers are not."""
    lanes, place = np.unique(compute.lane, return_inverse=True)
    busy = np.bincount(place, weights=compute.duration_us, minlength=len(lanes))
    first = int(np.argmax(busy)) if len(lanes) else 0
    ordered = [*lanes[first : first + 1], *np.delete(lanes, slice(first, first + 1))]
    alone = np.setdiff1d(communication.lane, lanes)
    return {**_numbered_names(COMPUTE, ordered), **_numbered_names("communication", alone)}


def _numbered_names(name: str, lanes: NDArray | list) -> dict[int, str]:
    return {int(lane): name if index == 0 else f"{name} {index + 1}" for index, lane in enumerate(lanes)}


def _runs(compute: PlacedKernels, marks: Floats, streams: dict[int, str]) -> RankOps:
    """One op per stream and interval between marks that has any kernel."""
    spans, step = compute.spans, compute.step
    interval = np.searchsorted(marks, compute.launch_us, side="right")
    order = np.lexsort((spans.start_us, interval, spans.lane, step))
    keys = np.stack([step[order], spans.lane[order], interval[order]])
    new = np.ones(len(order), dtype=bool)
    new[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    first = np.flatnonzero(new)
    if len(first) == 0:
        return NamedOps(np.zeros(0), [], np.zeros(0), np.zeros(0)).coded()
    start = spans.start_us[order][first]
    end = np.maximum.reduceat(spans.end_us[order], first)
    names = [streams[lane] for lane in keys[1, first].tolist()]
    return NamedOps(keys[0, first], names, start, end - start, stream=names).coded()


HOST_COMPUTE, STREAM = "compute", "gloo"


def host_ops(profile: RankProfile, peers: Peers) -> RankOps:
    """Ops of the rank's host.

    Communication is taken from gloo's own spans ("gloo:all_reduce"), else from the calls ("c10d::allreduce_").

    Raises:
        DataError: no steps.
    """
    steps = steps_of(profile)
    for what in (What.COMMUNICATION, What.COMMUNICATION_CALL):
        spans = profile.spans[what]
        step = step_at(spans.start_us, steps)
        if (step >= 0).any():
            break
    inside = step >= 0
    spans, step = spans.pick(inside), step[inside]
    streams = np.full(len(spans), STREAM)
    return join([_between(steps, spans), communication_ops(profile, spans, step, spans.start_us, streams, peers)])


def _between(steps: Spans, spans: Spans) -> RankOps:
    """Compute before, between and after the communication `spans` of every step; both by start."""
    at = np.searchsorted(steps.start_us, spans.start_us, side="right") - 1
    start, end, step = [], [], []
    for index in range(len(steps)):
        mine = slice(*np.searchsorted(at, [index, index + 1]))
        begins, ends = spans.start_us[mine], spans.end_us[mine]
        free = np.maximum.accumulate([steps.start_us[index], *ends])
        start.append(free)
        end.append(np.maximum(free, [*begins, steps.end_us[index]]))
        step.append(np.full(len(free), steps.code[index]))
    starts, ends_ = np.concatenate(start), np.concatenate(end)
    numbers: Rows = np.concatenate(step)
    names = np.full(len(starts), HOST_COMPUTE)
    return NamedOps(numbers, names, starts, ends_ - starts, stream=names).coded()


MEETS = {**dict.fromkeys(REPLICA_COLLECTIVES, Meets.REPLICAS), EMBEDDING: Meets.STAGES, CLIP: Meets.ALL}


def is_annotated(profile: RankProfile) -> bool:
    """Whether both passes are annotated."""
    codes = np.unique(profile.spans[What.OP].code).tolist()
    return {FORWARD, BACKWARD} <= {name for code in codes for name in profile.annotations[code].op_types}


def annotated_ops(profile: RankProfile, place: WorkerPlace) -> RankOps:
    """The annotated ops of a rank at `place`.

    Raises:
        DataError: no steps.
    """
    steps = steps_of(profile)
    spans = profile.spans[What.OP]
    step = step_at(spans.start_us, steps)
    spans, step = spans.pick(step >= 0), step[step >= 0]
    row, names = _expanded(profile, spans)
    kept = _outermost(spans, row, names)
    row, names = row[kept], names[kept]
    start, end = _on_gpu(profile, spans)
    spans, step, start, end = spans.pick(row), step[row], start[row], end[row]
    micro_batch, chunk, model_chunk = _fields(profile, spans)
    _, at = np.unique(names, return_inverse=True)
    number = earlier((step, at), start)
    groups, meets = _groups(names, number, micro_batch, model_chunk, place)
    return NamedOps(
        step,
        names,
        start,
        end - start,
        group=groups,
        micro_batch=micro_batch,
        chunk=chunk,
        side=np.array([_side(name) for name in names.tolist()], dtype=np.int32),
        size=np.where(np.array(groups, dtype=str) == "", -1, 0),
        meets=meets,
    ).coded()


def _side(name: str) -> int:
    """-1 for a send, 1 for a receive, 0 for any other op."""
    if name not in TRANSFERS:
        return 0
    return -1 if TRANSFERS[name].is_send else 1


def _expanded(profile: RankProfile, spans: Spans) -> tuple[Rows, NDArray[np.str_]]:
    """Row and op type of every op; a call that sends and receives is several ops."""
    types = [found.op_types for found in profile.annotations]
    count = codes_of(profile.annotations, lambda found: len(found.op_types))[spans.code]
    row = np.repeat(np.arange(len(spans)), count)
    names = [name for code in spans.code.tolist() for name in types[code]]
    return row, np.array(names, dtype=str)


def _outermost(spans: Spans, row: Rows, names: NDArray[np.str_]) -> NDArray[np.bool_]:
    """Ops that do not lie inside another of their type on their thread (PyTorch annotates optimizers by itself)."""
    kept = np.ones(len(row), dtype=bool)
    start, end, lane = spans.start_us[row], spans.end_us[row], spans.lane[row]
    _, place = np.unique(names, return_inverse=True)
    for key in np.unique(np.stack([place, lane]), axis=1).T:
        mine = np.flatnonzero((place == key[0]) & (lane == key[1]))
        mine = mine[np.lexsort((-end[mine], start[mine]))]
        latest = np.maximum.accumulate(end[mine])
        kept[mine[1:]] = end[mine][1:] > latest[:-1]
    return kept


def _on_gpu(profile: RankProfile, spans: Spans) -> tuple[Floats, Floats]:
    """Start and end of every op's work."""
    start, end = np.full(len(spans), np.inf), np.full(len(spans), -np.inf)
    for what in (What.KERNEL, What.GPU_COMMUNICATION):
        kernels = profile.spans[what]
        launch_us = launch_times(kernels, profile.spans[What.LAUNCH])
        known = ~np.isnan(launch_us)
        _widen_by_launches(spans, kernels.pick(known), launch_us[known], start, end)
    _widen_by_link(spans, profile.spans[What.GPU_OP], start, end)
    found = end >= start
    return np.where(found, start, spans.start_us), np.where(found, end, spans.end_us)


def _widen_by_launches(spans: Spans, kernels: Spans, launch_us: Floats, start: Floats, end: Floats) -> None:
    order = np.argsort(launch_us)
    first = np.searchsorted(launch_us[order], spans.start_us)
    last = np.searchsorted(launch_us[order], spans.end_us)
    some = np.flatnonzero(last > first)
    if len(some) == 0:
        return
    ranges = np.stack([first[some], last[some]], axis=1).ravel()  # reduceat: every other value is that of a range
    starts = np.minimum.reduceat(np.append(kernels.start_us[order], np.inf), ranges)[::2]
    ends = np.maximum.reduceat(np.append(kernels.end_us[order], -np.inf), ranges)[::2]
    start[some] = np.minimum(start[some], starts)
    end[some] = np.maximum(end[some], ends)


def _widen_by_link(spans: Spans, gpu: Spans, start: Floats, end: Floats) -> None:
    """Join with the GPU's spans (one per stream) of the same annotation and number."""
    gpu = gpu.pick(gpu.link >= 0)
    if len(gpu) == 0:
        return
    keys, at = np.unique(np.stack([spans.code, spans.link]), axis=1, return_inverse=True)
    known = {(code, link): index for index, (code, link) in enumerate(keys.T.tolist())}
    starts, ends = np.full(len(known), np.inf), np.full(len(known), -np.inf)
    pairs = zip(gpu.code.tolist(), gpu.link.tolist(), strict=True)
    place = np.array([known.get(pair, -1) for pair in pairs], dtype=np.int64)
    seen = place >= 0
    np.minimum.at(starts, place[seen], gpu.start_us[seen])
    np.maximum.at(ends, place[seen], gpu.end_us[seen])
    np.minimum(start, starts[at.reshape(-1)], out=start)
    np.maximum(end, ends[at.reshape(-1)], out=end)


def _fields(profile: RankProfile, spans: Spans) -> tuple[Rows, Rows, Rows]:
    """Micro-batch, chunk within the stage, chunk in model order of every op."""
    micro_batch = codes_of(profile.annotations, lambda found: found.micro_batch)[spans.code]
    chunk = codes_of(profile.annotations, lambda found: found.chunk)[spans.code]
    model_chunk = codes_of(profile.annotations, lambda found: found.model_chunk)[spans.code]
    mine = np.unique(model_chunk[model_chunk != NONE])
    if len(mine) > 1:
        chunk = np.where(model_chunk == NONE, chunk, np.searchsorted(mine, model_chunk))
    return micro_batch, chunk, model_chunk


def _groups(
    names: NDArray[np.str_], number: Rows, micro_batch: Rows, model_chunk: Rows, place: WorkerPlace
) -> tuple[list[str], NDArray[np.int32]]:
    """Group of every op, "" for none, and who meets in it."""
    rows = zip(names.tolist(), number.tolist(), micro_batch.tolist(), model_chunk.tolist(), strict=True)
    groups = [_group(name, n, mb, q, place) for name, n, mb, q in rows]
    meets = [
        (Meets.STAGES if name in TRANSFERS else MEETS[name]) if group else Meets.NOBODY
        for name, group in zip(names.tolist(), groups, strict=True)
    ]
    return groups, np.array(meets, dtype=np.int32)


def _group(name: str, number: int, micro_batch: int, model_chunk: int, place: WorkerPlace) -> str:
    if name in TRANSFERS:
        transfer = TRANSFERS[name]
        way = transfer.step
        by_model = model_chunk != NONE and micro_batch != NONE
        mine, n_place = (model_chunk, NONE) if by_model else (place.pp, place.pp_size)
        if not by_model and place.virtual_stages <= 1 and not 0 <= mine + way < n_place:
            return ""  # recorded, but there is nobody on that side
        other = mine + way if by_model else (mine + way) % n_place
        ends = (mine, other) if transfer.is_send else (other, mine)
        return f"{transfer.direction} {ends[0]}->{ends[1]} {micro_batch if by_model else number}"
    if name in REPLICA_COLLECTIVES:
        return f"{name} {number} of stage {place.pp}" if place.dp_size != 1 else ""
    return f"{name} {number}" if name in MEETS else ""
