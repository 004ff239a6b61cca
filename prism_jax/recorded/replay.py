"""Replays a recorded job under given durations: how well its dependencies explain its steps, what is critical, who is slow.

There is one row per recorded op, for one replica. A transfer is two rows: the moment its worker is ready, and the transfer
itself, which waits for the ready rows of all members of its group (and for all replicas where the group spans them). A row
starts when the rows before it have ended. Host gaps and durations are given when it runs, per replica and sample.

A replay is arithmetic on arrays of replicas and samples, row after row, in the precision of the durations; nothing is compiled.
Three replays of the recorded durations check the dependencies. Criticality walks back: the seconds of the mean step that each op
type and each worker account for. The step is a maximum of sums, homogeneous of degree one in its durations, so the seconds of all
ops times their derivatives sum to the step (Euler). The derivative is one on the critical path of a step and zero off it; paths
that end together share it evenly.

Time that a job lost to stragglers, and to which, is told by counterfactual replays of the recorded steps. In the ideal step every
op lasts as long as its kind does on average: compute its mean, communication the median of its transfer (over ranks, stages and
steps). The slowdown S is the mean recorded step over the mean ideal one, host gaps left out of both.

- Slowdown of a part (op type, stage, dp rank): the ideal steps with that part as recorded, over the ideal steps. Of a worker: the
  smaller one of its stage and of its dp rank.
- M_W, M_S: share of the lost time that returns when the worst 3% of workers, or the last stage, run ideally.

Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", arXiv 2505.05713, equations 1-5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats, Ints
from ..explain.types import Stragglers
from ..trace.dependencies import Dependencies, durations, observed_waits
from ..trace.pipeline import COMMUNICATION, TRANSFERS, dependencies
from ..trace.trace import Trace, TraceOp
from .effects import ROUNDING
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


WORST_PERCENT = 3
BOTH_ENDS = {name: f"{transfer.direction}-pp-comm" for name, transfer in TRANSFERS.items()}


def stragglers(trace: Trace) -> Stragglers:
    """Counterfactual replays of `trace`."""
    needs = dependencies(trace)
    run_s = durations(trace, needs).run_s
    replays = _Replays(replay_program(trace, needs), run_s, ideal_durations(trace, run_s))
    op_type = np.array([BOTH_ENDS.get(op.op_type, op.op_type) for op in trace.ops])
    stage = np.array([op.stage for op in trace.ops])
    cells = np.ones(run_s.shape[:2], dtype=bool)
    by_stage = {int(s): replays.alone(cells & (stage == s)[:, None]) for s in np.unique(stage)}
    by_dp = {r: replays.alone(cells & (np.arange(trace.n_replica) == r)) for r in range(trace.n_replica)}
    by_worker = np.minimum(np.array(list(by_dp.values()))[:, None], np.array(list(by_stage.values())))
    worst = worst_workers(by_worker, trace.rank)
    slow = np.zeros_like(cells)
    for replica, of_stage in worst:
        slow[stage == of_stage, replica] = True
    return Stragglers(
        recorded_s=replays.recorded_s,
        ideal_s=replays.ideal_s,
        by_op_type=_descending({str(t): replays.alone(cells & (op_type == t)[:, None]) for t in np.unique(op_type)}),
        by_stage=_descending(by_stage),
        by_dp=_descending(by_dp),
        by_worker=by_worker,
        worst=worst,
        m_w=replays.recovered(slow),
        m_s=replays.recovered(cells & (stage == stage.max())[:, None]),
    )


def ideal_durations(trace: Trace, run_s: Floats) -> Floats:
    """[op, replica, step] mean of every compute op type, median transfer of every communication."""
    ideal = np.empty_like(run_s)
    op_type = np.array([op.op_type for op in trace.ops])
    transfer = np.array([op.op_type in COMMUNICATION or bool(op.group) for op in trace.ops])
    for name in np.unique(op_type):
        of_type = op_type == name
        ideal[of_type] = np.median(run_s[of_type]) if transfer[of_type].any() else run_s[of_type].mean()
    return ideal


def worst_workers(by_worker: Floats, rank: NDArray) -> tuple[tuple[int, int], ...]:
    """The slowest 3% of workers (at least one); the lower rank first among equals."""
    n_worst = -(-by_worker.size * WORST_PERCENT // 100)
    order = np.lexsort((rank.ravel(), -by_worker.ravel()))[:n_worst]
    return tuple((int(i // by_worker.shape[1]), int(i % by_worker.shape[1])) for i in order)


class _Replays:
    """Mixtures of recorded and ideal durations, replayed."""

    def __init__(self, program: ReplayProgram, recorded: Floats, ideal: Floats) -> None:
        self.program, self.recorded, self.ideal = program, recorded, ideal
        self.recorded_s = replay(program, recorded)
        self.ideal_s = replay(program, ideal)

    def alone(self, cells: NDArray[np.bool_]) -> float:
        """Slowdown of the ideal steps with `cells` [op, replica] as recorded."""
        mixed = np.where(cells[:, :, None], self.recorded, self.ideal)
        return float(replay(self.program, mixed).mean() / self.ideal_s.mean())

    def recovered(self, cells: NDArray[np.bool_]) -> float:
        """Share of the lost time that returns when `cells` [op, replica] are ideal."""
        mixed = np.where(cells[:, :, None], self.ideal, self.recorded)
        lost_s = self.recorded_s.mean() - self.ideal_s.mean()
        if abs(lost_s) <= ROUNDING * self.recorded_s.mean():
            return float("nan")
        return float((self.recorded_s.mean() - replay(self.program, mixed).mean()) / lost_s)


def _descending(values: Mapping) -> dict:
    return dict(sorted(values.items(), key=lambda item: -item[1]))
