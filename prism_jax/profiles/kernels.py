"""Finds the kernels inside the compute of one profiled rank, with their names and shapes, and what each adds to its op.

On a GPU they are what ran on its streams, except for NCCL; shapes are those of the innermost operator that was running on the
thread of the launch. A CPU's kernels are the operators of the host: each is credited with the time in which none that it calls
was running.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..trace.pipeline import TRANSFERS
from ..trace.trace import KernelPool
from .annotated import kernel_streams
from .events import RankProfile, Spans, What
from .ops import RankOps, Rows

NOT_COMPUTE = ("gloo:", "c10d::", "nccl:")


@dataclass(frozen=True)
class RankKernels:
    """One entry per kernel that runs in an op.

    Attributes:
        op: index of the op among those of the rank.
        pool: index into `pools`.
        start_us: on the rank's clock.
        added_us: what it adds to the op.
    """

    op: Rows
    pool: Rows
    pools: tuple[KernelPool, ...]
    start_us: Floats
    added_us: Floats

    def of_ops(self, kept: NDArray[np.bool_], first: int) -> RankKernels:
        """Kernels of the `kept` ops [op] alone, which are numbered from `first` on."""
        place = np.where(kept, first + np.cumsum(kept) - 1, -1)
        mine = np.flatnonzero(kept[self.op]) if len(self.op) else self.op
        return RankKernels(place[self.op[mine]], self.pool[mine], self.pools, self.start_us[mine], self.added_us[mine])


def kernels_in_ops(profile: RankProfile, ops: RankOps, *, by_stream: bool) -> RankKernels:
    """Kernels of the compute among `ops`.

    Args:
        profile: read with its works.
        ops: of the rank.
        by_stream: whether ops ran on the stream that they name; else a kernel belongs to the op in whose time it starts.
    """
    spans = profile.spans[What.KERNEL]
    if len(spans):
        streams = kernel_streams(profile)
        stream = np.array([streams.get(lane, "") for lane in spans.lane.tolist()], dtype=str)
        shapes, kernels = (
            _launched_with(profile, spans),
            _Kernels(spans.start_us, spans.end_us, spans.code, spans.duration_us),
        )
        alone = False
    else:
        spans, own_us = _operators(profile)
        stream, shapes = np.full(len(spans), ""), [profile.works[code].shapes for code in spans.code.tolist()]
        kernels, alone = _Kernels(spans.start_us, spans.end_us, spans.code, own_us), True
    op = _op_at(ops, kernels.start_us, stream if by_stream else None)
    added = kernels.own_us if alone else _added(op, kernels, ops)
    kept = np.flatnonzero((op >= 0) & (added > 0.0))
    known: dict[KernelPool, int] = {}
    names, streams_of = [profile.works[code].name for code in kernels.code[kept].tolist()], stream[kept].tolist()
    found = [
        known.setdefault(KernelPool(name, shapes[row], lane), len(known))
        for name, row, lane in zip(names, kept.tolist(), streams_of, strict=True)
    ]
    pool = np.array(found, dtype=np.int64)
    return RankKernels(op[kept], pool, tuple(known), kernels.start_us[kept], added[kept])


@dataclass(frozen=True)
class _Kernels:
    """Columns of candidates; `own_us` is the time without others that run inside."""

    start_us: Floats
    end_us: Floats
    code: Rows
    own_us: Floats


def _op_at(ops: RankOps, time_us: Floats, stream: NDArray[np.str_] | None) -> Rows:
    """Compute op that runs at a time, the one that started last; -1 for none."""
    names = np.array([*ops.op_types, ""])[ops.op_type]
    work = (ops.size == -1) & ~np.isin(names, tuple(TRANSFERS))
    lanes = np.array([*ops.streams, ""])[ops.stream]
    found = np.full(len(time_us), -1, dtype=np.int64)
    for name in np.unique(lanes[work]) if stream is not None else ("",):
        mine = np.flatnonzero(work & (lanes == name)) if stream is not None else np.flatnonzero(work)
        if len(mine) == 0:
            continue
        asked = np.flatnonzero(stream == name) if stream is not None else np.arange(len(time_us))
        mine = mine[np.argsort(ops.start_us[mine], kind="stable")]
        at = np.searchsorted(ops.start_us[mine], time_us[asked], side="right") - 1
        inside = (at >= 0) & (time_us[asked] < (ops.start_us + ops.duration_us)[mine[at]])
        found[asked] = np.where(inside, mine[at], -1)
    return found


def _added(op: Rows, kernels: _Kernels, ops: RankOps) -> Floats:
    """Microseconds of every kernel from the end of those before it in its op."""
    added = np.zeros(len(op))
    order = np.lexsort((kernels.start_us, op))
    order = order[op[order] >= 0]
    mine, start = op[order], kernels.start_us[order]
    end = np.minimum(kernels.end_us[order], (ops.start_us + ops.duration_us)[mine])
    base = ops.start_us[mine]
    first = np.ones(len(order), dtype=bool)
    first[1:] = mine[1:] != mine[:-1]
    longest = float((end - base).max(initial=0.0)) + 1.0
    group = np.cumsum(first) * longest  # so that one running maximum serves all ops
    covered = np.maximum.accumulate(end - base + group) - group if len(order) else end
    before = np.concatenate([[0.0], covered[:-1]]) if len(order) else end
    before = np.where(first, 0.0, before)
    added[order] = np.maximum(end - base - np.maximum(start - base, before), 0.0)
    return added


def _by_thread(spans: Spans) -> Spans:
    """Spans of each thread together, by start, those that call before those that are called."""
    return spans.pick(np.lexsort((-spans.duration_us, spans.start_us, spans.lane)))


def _operators(profile: RankProfile) -> tuple[Spans, Floats]:
    """Operators of the host but communication, and their microseconds without those that they call."""
    spans = _by_thread(profile.spans[What.OPERATOR])
    own, caller = spans.duration_us.copy(), _callers(spans)
    called = np.flatnonzero(caller >= 0)
    np.subtract.at(own, caller[called], spans.duration_us[called])
    codes = np.array([not work.name.startswith(NOT_COMPUTE) for work in profile.works], dtype=bool)
    kept = codes[spans.code] if len(spans) else np.zeros(0, dtype=bool)
    return spans.pick(kept), np.maximum(own[kept], 0.0)


def _callers(spans: Spans) -> Rows:
    """Index of the operator around each, -1 for none. `spans` as `_by_thread` orders them."""
    found = np.full(len(spans), -1, dtype=np.int64)
    open_: list[int] = []
    lanes, starts, ends = spans.lane.tolist(), spans.start_us.tolist(), spans.end_us.tolist()
    for at, (lane, start) in enumerate(zip(lanes, starts, strict=True)):
        while open_ and (lanes[open_[-1]] != lane or ends[open_[-1]] <= start):
            open_.pop()
        if open_:
            found[at] = open_[-1]
        open_.append(at)
    return found


def _launched_with(profile: RankProfile, kernels: Spans) -> list[str]:
    """Shapes of the inputs of the innermost operator that ran where and when a kernel was launched; "" for none."""
    launches, operators = profile.spans[What.LAUNCH], _by_thread(profile.spans[What.OPERATOR])
    linked = {link: at for at, link in enumerate(launches.link.tolist()) if link >= 0}
    at = np.array([linked.get(link, -1) for link in kernels.link.tolist()], dtype=np.int64)
    found = np.full(len(kernels), -1, dtype=np.int64)
    caller = _callers(operators)
    for lane in np.unique(operators.lane):
        here = np.flatnonzero((at >= 0) & (launches.lane[at] == lane)) if len(launches) else np.zeros(0, np.int64)
        mine = np.flatnonzero(operators.lane == lane)
        time_us = launches.start_us[at[here]] if len(here) else np.zeros(0)
        place = np.searchsorted(operators.start_us[mine], time_us, side="right") - 1
        row = np.where(place >= 0, mine[place], -1)
        while (late := (row >= 0) & (operators.end_us[row] < time_us)).any():
            row = np.where(late, caller[row], row)
        found[here] = row
    if len(operators) == 0:
        return [""] * len(kernels)
    shapes = [work.shapes for work in profile.works]
    codes = operators.code[found].tolist()
    return [shapes[code] if row >= 0 else "" for code, row in zip(codes, found.tolist(), strict=True)]
