"""Time that a recorded job lost to stragglers, and to which: counterfactual replays of the recorded steps.

In the ideal step every op lasts as long as its kind does on average: compute its mean, communication the median of its transfer
(over ranks, stages and steps). The slowdown S is the mean recorded step over the mean ideal one, host gaps left out of both.

- Slowdown of a part (op type, stage, dp rank): the ideal steps with that part as recorded, over the ideal steps. Of a worker: the
  smaller one of its stage and of its dp rank.
- M_W, M_S: share of the lost time that returns when the worst 3% of workers, or the last stage, run ideally.

Source: Lin et al., "Understanding Stragglers in Large Model Training Using What-if Analysis", arXiv 2505.05713, equations 1-5.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from ..core.arrays import Floats
from ..explain.types import Stragglers
from ..trace.dependencies import durations
from ..trace.pipeline import COMMUNICATION, TRANSFERS, dependencies
from ..trace.trace import Trace
from .effects import ROUNDING
from .replay import ReplayProgram, replay, replay_program

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
