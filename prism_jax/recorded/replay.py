"""Replays a recorded job under given durations: step times, how well its dependencies explain its steps, and its criticality.

There is one row per recorded op, for one replica. A transfer is two rows: the moment its worker is ready, and the transfer
itself, which waits for the ready rows of all members of its group (and for all replicas where the group spans them). A row
starts when the rows before it have ended. Host gaps and durations are given when it runs, per replica and sample.

A replay is arithmetic on arrays of replicas and samples, row after row, in the precision of the durations; nothing is compiled.
Three replays of the recorded durations check the dependencies. Criticality walks back: the seconds of the mean step that each op
type and each worker account for. The step is a maximum of sums, homogeneous of degree one in its durations, so the seconds of all
ops times their derivatives sum to the step (Euler). The derivative is one on the critical path of a step and zero off it; paths
that end together share it evenly.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..trace.dependencies import Dependencies, durations, observed_waits
from ..trace.pipeline import dependencies
from ..trace.trace import Trace, TraceOp
from .recorded_job import RecordedJob
from .report import CriticalShares, MedianError, ReplayErrors

MAX_CELLS = 2**21  # ends of rows that are held at a time


class Ready(NamedTuple):
    """The moment a worker is ready for a transfer."""

    op: TraceOp

    def __str__(self) -> str:
        return f"ready for {self.op}"


class RowStart(NamedTuple):
    """Rows that start together: when those before them have ended, in all replicas if they meet."""

    before: tuple[int, ...]
    rows: tuple[int, ...]
    meets: bool


@dataclass(frozen=True)
class ReplayProgram:
    """The rows of one replica, and the order in which they run.

    Attributes:
        ops: [row] what runs.
        starts: all rows, each after those that it waits for.
        run_row: [op] row of an op's work.
        gap_row: [op] row of the gap before it: its ready row, or `run_row` for plain work.
        n_replica: replicas that run side by side.
    """

    ops: tuple[TraceOp | Ready, ...]
    starts: tuple[RowStart, ...]
    run_row: Ints
    gap_row: Ints
    n_replica: int


def replay_program(trace: Trace, needs: Dependencies, n_replica: int | None = None) -> ReplayProgram:
    """The program of `trace` under its dependencies, for `n_replica` replicas (as many as recorded by default)."""
    ops: list[TraceOp | Ready] = []
    starts: list[RowStart] = []
    run, ready = ([-1] * len(trace.ops) for _ in range(2))

    def add(before: tuple[int, ...], row_of: list[int], mine: list[int], meets: bool = False) -> None:
        for op in mine:
            row_of[op] = len(ops)
            ops.append(trace.ops[op] if row_of is run else Ready(trace.ops[op]))
        if mine:
            starts.append(RowStart(before, tuple(row_of[op] for op in mine), meets))

    members = needs.members()
    missing = [len(found) for found in members]
    for op in needs.order.tolist():
        before, group = _latest(needs.after[op], run, needs.lane), int(needs.group[op])
        add(before, run if group < 0 else ready, [op])
        if group >= 0:
            missing[group] -= 1
            if missing[group] == 0:
                arrived = tuple(ready[peer] for peer in members[group])
                for meets in (False, True):
                    add(arrived, run, [peer for peer in members[group] if needs.meets_replicas[peer] == meets], meets)
    run_row = np.array(run, dtype=np.int32)
    gap_row = np.where(needs.group < 0, run_row, np.array(ready, dtype=np.int32))
    return ReplayProgram(
        tuple(ops), tuple(starts), run_row, gap_row, trace.n_replica if n_replica is None else n_replica
    )


def _latest(after: Sequence[int], run: Sequence[int], lane: Ints) -> tuple[int, ...]:
    """Rows of the ops `after`: of several on one lane, which run one after another, the last says it all."""
    last: dict[int, int] = {}
    for op in after:
        last[int(lane[op])] = max(run[op], last.get(int(lane[op]), -1))
    return tuple(last.values())


def replay(program: ReplayProgram, run_s: NDArray, gap_s: NDArray | None = None) -> Floats:
    """Step times [sample] under the given durations, seconds: the end of the last op of all replicas.

    Args:
        program: of the trace.
        run_s: [op, replica, sample] work of every op; transfers without waiting.
        gap_s: [op, replica, sample] host gaps before ops; none if not given.
    """
    found = [
        _ends(program, run_s[..., part], 0.0 if gap_s is None else gap_s[..., part]).max(axis=(0, 1))
        for part in _blocks(program, run_s.shape[-1])
    ]
    return np.concatenate(found).astype(np.float64)


def _blocks(program: ReplayProgram, n_sample: int) -> Iterator[slice]:
    """Samples of which at most `MAX_CELLS` ends are held at a time."""
    each = max(1, MAX_CELLS // (len(program.ops) * program.n_replica))
    return (slice(first, first + each) for first in range(0, n_sample, each))


def _ends(program: ReplayProgram, run_s: NDArray, gap_s: NDArray | float) -> NDArray:
    """End of every row [row, replica, sample], in the precision of `run_s`."""
    end = np.zeros((len(program.ops), *run_s.shape[1:]), run_s.dtype)
    end[program.gap_row] = gap_s
    end[program.run_row] += run_s
    for start in program.starts:
        begin_s = _begin(start, end)
        for row in start.rows:
            end[row] += begin_s
    return end


def _begin(start: RowStart, end: NDArray) -> NDArray | float:
    """Seconds [replica, sample] at which rows start, those before them having ended."""
    if not start.before:
        return 0.0
    begin_s = reduce(np.maximum, [end[row] for row in start.before])
    return begin_s.max(axis=0, keepdims=True) if start.meets else begin_s


def replay_recorded(trace: Trace) -> ReplayErrors:
    """Relative errors of replayed steps against recorded ones.

    By the rules of the schedule alone, without host gaps (as published simulators replay); with the waits that are read off the
    recording; with host gaps too, which is an identity unless clocks disagree.
    """
    needs = dependencies(trace)
    waits = observed_waits(trace, needs).needs
    run_s, gap_s = durations(trace, waits)
    by_rule = replay(replay_program(trace, needs), durations(trace, needs).run_s)
    program = replay_program(trace, waits)
    by_rule_error = np.abs(by_rule / trace.step_s - 1.0)
    return ReplayErrors(
        median_abs_error=float(np.median(by_rule_error)),
        p90_abs_error=float(np.quantile(by_rule_error, 0.9)),
        with_observed_waits=_median_error(replay(program, run_s), trace),
        with_host_gaps=_median_error(replay(program, run_s, gap_s), trace),
    )


def _median_error(replayed_s: Floats, trace: Trace) -> MedianError:
    return MedianError(float(np.median(np.abs(replayed_s / trace.step_s - 1.0))))


HOST = "host gaps"


def trace_criticality(job: RecordedJob) -> CriticalShares:
    """Shares of the critical seconds of the recorded steps of `job`, by op type and by worker."""
    trace = job.trace
    run, gap = _critical_seconds(replay_program(trace, job.waits.needs), job.run_s, job.gap_s)
    op_type = np.array([op.op_type for op in trace.ops])
    shares = {str(name): float(run[op_type == name].sum()) for name in np.unique(op_type)} | {HOST: float(gap.sum())}
    stage = np.array([op.stage for op in trace.ops])
    by_worker = np.stack([(run + gap)[stage == s].sum(axis=0) for s in range(trace.n_stage)], axis=1)
    total = float(by_worker.sum())
    named = sorted(((name, value / total) for name, value in shares.items() if value > 0), key=lambda x: -x[1])
    return CriticalShares(dict(named), trace.by_rank(by_worker / total))


def _critical_seconds(program: ReplayProgram, run_s: Floats, gap_s: Floats) -> tuple[Floats, Floats]:
    """Mean critical seconds of the work of every op and of the gap before it, both [op, replica]."""
    run, gap = np.zeros(run_s.shape[:2]), np.zeros(run_s.shape[:2])
    for part in _blocks(program, run_s.shape[-1]):
        slope = _slopes(program, _ends(program, run_s[..., part], gap_s[..., part]))
        run += (slope[program.run_row] * run_s[..., part]).sum(axis=-1)
        gap += (slope[program.gap_row] * gap_s[..., part]).sum(axis=-1)
    return run / run_s.shape[-1], gap / run_s.shape[-1]


def _slopes(program: ReplayProgram, end: Floats) -> Floats:
    """Derivative of the step [row, replica, sample] by the seconds of every row: walks back from the last ends."""
    last = sorted(set(range(len(end))) - {row for start in program.starts for row in start.before})
    slope = np.zeros_like(end)
    slope[last] = end[last] == end[last].max(axis=(0, 1))
    slope /= slope.sum(axis=(0, 1))
    for start in reversed(program.starts):
        begin_s, share = _begin(start, end), sum(slope[row] for row in start.rows)
        decided = [end[row] == begin_s for row in start.before]
        n_decided = np.add.reduce(decided, axis=0, dtype=end.dtype) if decided else np.ones(())
        if start.meets:
            n_decided, share = (np.sum(part, axis=0, keepdims=True) for part in (n_decided, share))
        for row, mine in zip(start.before, decided, strict=True):
            slope[row] += mine * (share / n_decided)
    return slope
