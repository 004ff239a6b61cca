"""Synthetic traces with a known truth, for tests of everything that reads, replays, fits or predicts traced jobs; no JAX.

Two ways. `record` runs the event simulator of `trace_oracle` and writes down what a profiler would: independent of the package,
slow. `timed` gives such a skeleton other seconds of work, by the package's own dependencies in plain NumPy: for many steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from prism_jax.recorded.effects import Effects
from prism_jax.trace.assemble import assemble
from prism_jax.trace.dependencies import Dependencies
from prism_jax.trace.pipeline import dependencies
from prism_jax.trace.trace import JobShape, OpRow, OpTable, Trace
from tests.support.trace_oracle import PipelineJob, Task, simulate_step

FIRST_STEP, STEP_APART_S = 10, 1000.0
TYPICAL_S = {  # of work
    "forward-compute": 0.1,
    "backward-compute": 0.2,
    "params-all-gather": 0.02,
    "grads-reduce-scatter": 0.04,
    "separate-grads-all-reduce": 0.03,
    "embedding-grads-all-reduce": 0.02,
    "layernorm-grads-all-reduce": 0.003,
    "gc": 0.002,
    "optimizer-clip-main-grad": 0.004,
    "optimizer": 0.02,
}
TRANSFER_S = 0.005  # of everything else

Place = tuple[str, int, int, int, int]  # op type, stage, index, replica, step
Draw = Callable[[Task], float]


@dataclass(frozen=True)
class Recording:
    """What was written down, and the truth behind it.

    Attributes:
        rows: as a reader of traces would collect them.
        work_s, host_s: seconds of work and of host gaps of every op; the gaps of a step's very first ops count from the earliest.
        step_s: [step] from the first start to the last end.
    """

    job: PipelineJob
    rows: list[OpRow]
    work_s: dict[Place, float]
    host_s: dict[Place, float]
    step_s: NDArray[np.float64]

    @property
    def shape(self) -> JobShape:
        return JobShape("synthetic", dp=self.job.dp, pp=self.job.pp, virtual_stages=self.job.virtual_stages)

    def table(self) -> OpTable:
        return OpTable.from_rows("synthetic.csv", self.rows)

    def trace(self) -> Trace:
        return assemble(self.table(), self.shape)

    def truth(self, trace: Trace) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Seconds of work and of host gaps, both [op, replica, step] in the order of `trace`."""
        run, gap = np.empty_like(trace.start_s), np.empty_like(trace.start_s)
        for (index, replica, step), _ in np.ndenumerate(run):
            op = trace.ops[index]
            place = (op.op_type, op.stage, op.seq, replica, int(trace.steps[step]))
            run[index, replica, step], gap[index, replica, step] = self.work_s[place], self.host_s[place]
        return run, gap


def draws(seed: int, spread: float = 0.4, host_s: float = 0.0) -> tuple[Draw, Draw]:
    """Random seconds of work, and of host gaps that are `host_s` on average (0 before what waits for nothing)."""
    rng = np.random.default_rng(seed)

    def work(task: Task) -> float:
        return TYPICAL_S.get(task.op_type, TRANSFER_S) * rng.lognormal(0.0, spread)

    return work, lambda task: float(rng.exponential(host_s)) if host_s and not task.at_once else 0.0


def record(job: PipelineJob, n_step: int, work: Draw, host: Draw = lambda task: 0.0) -> Recording:
    """Steps of `job` as its profilers record them, on a clock of its own per step."""
    rows, work_s, host_s, step_s = [], {}, {}, []
    for step in range(FIRST_STEP, FIRST_STEP + n_step):
        tasks = simulate_step(job, work, host)
        first = min(task.start_s for task in tasks)
        step_s.append(max(task.end_s for task in tasks) - first)
        for task in tasks:
            place = (task.op_type, task.stage, task.index, task.replica, step)
            work_s[place] = task.work_s
            host_s[place] = task.start_s - first if task.at_once else task.host_s
            rows.append(_row(task, step))
    return Recording(job, rows, work_s, host_s, np.array(step_s))


def _row(task: Task, step: int) -> OpRow:
    return OpRow(
        step,
        task.replica,
        task.stage,
        0,
        task.op_type,
        task.micro_batch,
        task.chunk,
        STEP_APART_S * step + task.start_s,
        task.end_s - task.start_s,
    )


@lru_cache
def skeleton(job: PipelineJob) -> tuple[Trace, Dependencies]:
    """One recorded step of `job` and its dependencies."""
    trace = record(job, 1, *draws(0, spread=0.0)).trace()
    return trace, dependencies(trace)


def timed(
    job: PipelineJob,
    run_s: NDArray[np.float64],
    gap_s: NDArray[np.float64] | float = 0.0,
    needs: Dependencies | None = None,
) -> Trace:
    """A trace of `job` whose ops took `run_s` [op, replica, step] of work, in the order of ops of `skeleton(job)`.

    Args:
        gap_s: of the host, before every op, [op, replica, step].
        needs: who waits for whom, if not what the rules say; barriers that are not recorded show in later starts.
    """
    trace, by_rule = skeleton(replace(job, dp=min(job.dp, 2)))
    start, end = _run(needs or by_rule, run_s, np.broadcast_to(gap_s, run_s.shape))
    origin = start.min(axis=(0, 1))
    n_replica, n_step = run_s.shape[1:]
    return replace(
        trace,
        job=JobShape("synthetic", dp=n_replica, pp=job.pp, virtual_stages=job.virtual_stages),
        steps=np.arange(FIRST_STEP, FIRST_STEP + n_step),
        start_s=start - origin,
        end_s=end - origin,
        rank=(np.arange(job.pp) * n_replica + np.arange(n_replica)[:, None]).astype(np.int32),
    )


def _run(needs: Dependencies, run_s: NDArray[np.float64], gap_s: NDArray[np.float64]) -> tuple[NDArray, NDArray]:
    """Start and end of every op."""
    start, end = np.zeros_like(run_s), np.zeros_like(run_s)
    members = needs.members()
    left = [len(ops) for ops in members]
    for op in needs.order.tolist():
        start[op] = np.max([end[u] for u in needs.after[op]], axis=0, initial=0.0) + gap_s[op]
        group = int(needs.group[op])
        if group < 0:
            end[op] = start[op] + run_s[op]
            continue
        left[group] -= 1
        if left[group] == 0:
            last = start[members[group]].max(axis=0)
            if needs.meets_replicas[op]:
                last = np.broadcast_to(last.max(axis=0), last.shape)
            end[members[group]] = last + run_s[members[group]]
            start[[peer for peer in members[group] if needs.hidden_meeting[peer]]] = last
    return start, end


def without_micro_batches(trace: Trace) -> Trace:
    """The same recording, if its profiler had named no micro-batches."""
    return replace(trace, ops=tuple(op._replace(micro_batch=-1, chunk=-1) for op in trace.ops))


def ops_of(trace: Trace, *op_types: str) -> list[int]:
    """Numbers of the ops of some types."""
    return [i for i, op in enumerate(trace.ops) if op.op_type in op_types]


def effects_of(holder: Any) -> Effects:
    """What the compute of a fitted job, or of a law of its steps, shares."""
    assert holder.effects is not None
    return holder.effects


@dataclass(frozen=True)
class Law:
    """How the compute of a synthetic job varies; standard deviations are of log seconds.

    Attributes:
        step, rank: effects of a step, and of a worker.
        micro_batch: what forward and backward on all stages of one micro-batch share.
        own: of a single op.
        replica_stratum, step_stratum: variance of the means of micro-batches of a replica's step, and of a whole step, over
            that of independent ones.
        slow: (replica, stage) -> log factor on top.
        last_stage: log factor of the last stage.
    """

    step: float = 0.0
    rank: float = 0.0
    micro_batch: float = 0.0
    own: float = 0.0
    replica_stratum: float = 1.0
    step_stratum: float = 1.0
    slow: Mapping[tuple[int, int], float] | None = None
    last_stage: float = 0.0


@dataclass(frozen=True)
class Planted:
    """Work that follows a `Law`.

    Attributes:
        run_s: [op, replica, step] seconds.
        step, rank, micro_batch: the effects in it, [step], [replica, stage] and [mb, replica, step].
    """

    run_s: NDArray[np.float64]
    step: NDArray[np.float64]
    rank: NDArray[np.float64]
    micro_batch: NDArray[np.float64]


def planted(job: PipelineJob, n_step: int, seed: int, law: Law) -> Planted:
    """Work of `job` under `law`; what is not compute is always as long."""
    trace, _ = skeleton(replace(job, dp=min(job.dp, 2)))
    rng = np.random.default_rng(seed)
    step = law.step * rng.standard_normal(n_step)
    rank = law.rank * rng.standard_normal((job.dp, job.pp))
    for worker, factor in (law.slow or {}).items():
        rank[worker] += factor
    score = scores(rng, (job.n_micro_batch, job.dp, n_step), law.replica_stratum, law.step_stratum)
    run = np.empty((len(trace.ops), job.dp, n_step))
    for index, op in enumerate(trace.ops):
        run[index] = TYPICAL_S.get(op.op_type, TRANSFER_S)
        if op.op_type.endswith("-compute"):
            own = law.own * rng.standard_normal((job.dp, n_step))
            log = step + rank[:, op.stage, None] + law.micro_batch * score[op.micro_batch] + own
            run[index] *= np.exp(log + law.last_stage * (op.stage == job.pp - 1))
    return Planted(run, step, rank, law.micro_batch * score)


def scores(
    rng: np.random.Generator, shape: tuple[int, int, int], replica: float = 1.0, step: float = 1.0
) -> NDArray[np.float64]:
    """Normal scores [mb, replica, step] whose means vary `replica` and `step` times as much as those of independent ones."""
    own = rng.standard_normal(shape)
    of_replica = own.mean(axis=0)
    of_step = of_replica.mean(axis=0)
    return own - of_replica + np.sqrt(replica) * (of_replica - of_step) + np.sqrt(step) * of_step


def trace_at(source: Path | str, **stated: Any) -> Trace:
    """The trace that `open_trace` finds there."""
    from prism_jax.recorded.formats.open_trace import open_trace

    found = open_trace(source, **stated)
    assert isinstance(found, Trace)
    return found


@lru_cache
def measured(folder: Path, name: str) -> Trace:
    """The published trace SE or ST, out of the folder of measured data."""
    return trace_at(folder / "traces" / f"trace-{name}.parquet")
