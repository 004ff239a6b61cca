"""Ops of a GPU rank from its kernels: every NCCL kernel is an op, everything else is merged into runs of compute.

A run holds the kernels of one stream that the host launched between two of its marks; a mark is the launch of an NCCL kernel or
a call that makes a stream wait for another (cudaStreamWaitEvent). So a run begins where a wait for communication may begin, and
because the marks come from the program and not from the clock, every step has the same runs. Time in which the stream idles
inside a run (late launches) counts as part of the run. Where launches were not recorded, the starts of kernels take their place.

The stream with most compute is "compute", the others "compute 2", ...; streams with NCCL kernels alone are "communication", ...
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ...._typing import Floats
from ....errors import DataError
from .communication import Peers, communication_ops
from .ops import RankOps, Rows, join, rank_ops, step_at, steps_of
from .spans import RankProfile, Spans, What

COMPUTE = "compute"
NO_LAUNCHES = "launches were not recorded: runs of compute end where communication starts, which may vary between steps"


class _Placed(NamedTuple):
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
    compute = _placed(profile, profile.spans[What.KERNEL], steps)
    communication = _placed(profile, profile.spans[What.GPU_COMMUNICATION], steps)
    streams = _stream_names(compute.spans, communication.spans)
    marks = np.sort(np.concatenate([communication.launch_us, profile.spans[What.WAIT].start_us]))
    streams_of = np.array([streams[lane] for lane in communication.spans.lane.tolist()], dtype=str)
    meetings = communication_ops(
        profile, communication.spans, communication.step, communication.launch_us, streams_of, peers
    )
    ops = join([_runs(compute, marks, streams), meetings])
    return ops if len(profile.spans[What.LAUNCH]) else replace(ops, notes=(NO_LAUNCHES,))


def _placed(profile: RankProfile, kernels: Spans, steps: Spans) -> _Placed:
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
    if len(kernels) > 0 and len(launches) == 0 and len(gpu_steps) == 0:
        raise DataError(
            f"{profile.path}: kernels, but neither their launches (cuda_runtime) nor ProfilerStep#N on the GPU, so that their "
            "steps cannot be told. Record with ProfilerActivity.CPU and ProfilerActivity.CUDA."
        )
    inside = step >= 0
    return _Placed(kernels.pick(inside), step[inside], np.where(known, launch_us, kernels.start_us)[inside])


def launch_times(kernels: Spans, launches: Spans) -> Floats:
    """Start of the host call with the kernel's correlation number, NaN where there is none."""
    launches = launches.pick(launches.link >= 0)
    if len(launches) == 0:
        return np.full(len(kernels), np.nan)
    order = np.argsort(launches.link, kind="stable")
    links = launches.link[order]
    at = np.minimum(np.searchsorted(links, kernels.link), len(links) - 1)
    return np.where(links[at] == kernels.link, launches.start_us[order][at], np.nan)


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


def _runs(compute: _Placed, marks: Floats, streams: dict[int, str]) -> RankOps:
    """One op per stream and interval between marks that has any kernel."""
    spans, step = compute.spans, compute.step
    interval = np.searchsorted(marks, compute.launch_us, side="right")
    order = np.lexsort((spans.start_us, interval, spans.lane, step))
    keys = np.stack([step[order], spans.lane[order], interval[order]])
    new = np.ones(len(order), dtype=bool)
    new[1:] = (keys[:, 1:] != keys[:, :-1]).any(axis=0)
    first = np.flatnonzero(new)
    if len(first) == 0:
        return rank_ops(step=np.zeros(0), op_type=[], start_us=np.zeros(0), duration_us=np.zeros(0))
    start = spans.start_us[order][first]
    end = np.maximum.reduceat(spans.end_us[order], first)
    names = [streams[lane] for lane in keys[1, first].tolist()]
    return rank_ops(step=keys[0, first], op_type=names, stream=names, start_us=start, duration_us=end - start)
