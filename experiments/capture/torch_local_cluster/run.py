"""A job captured from its code against its own recording: order of the ops, and the step with the kernel times of one rank.

    python experiments/capture/torch_local_cluster/run.py

Reads `job.capture.gz`, which `prism-jax capture build.py --dp 2 --pp 2 --option ranks=all --micro-batches 6` wrote, and the
recording `examples/local_cluster` (40 steps of 4 processes). Of the recording a prediction sees one rank: how long its passes,
transfers, gaps and updates take in the mean. What the other three do follows from the captured work of their classes, the
schedule, the sequence lengths that the data loader of the code draws, and the two cores that the four processes share.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from order import COMPUTE, matched
from shared_cores import Task, simulated

from experiments.common import start
from prism_jax import Trace, open_trace, read_capture
from prism_jax.recorded.replay import replay, replay_program
from prism_jax.schedule.registry import SCHEDULES
from prism_jax.trace.dependencies import durations
from prism_jax.trace.pipeline import dependencies
from prism_jax.workload.captured.program import RankProgram

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
sys.path.insert(0, str(ROOT / "experiments" / "local_cluster"))
from job import Job  # noqa: E402

JOB = Job(sigma=0.3, slow_rank=3, seed=7)
N_CORE = 2  # of the machine of the recording
N_ROUND = 8  # of the fixed point of kernel times
P50_BAR, P95_BAR = 0.05, 0.08
END = ("grads-reduce-scatter", "optimizer-clip-main-grad", "optimizer")
Work = dict[tuple[int, int], dict[str, float]]


class Seen(NamedTuple):
    """What the recording of one rank says, means over its ops and steps.

    Attributes:
        stage, replica: of the rank.
        pass_s: F, B -> seconds, with what the other processes took of the cores.
        send_s: from the end of a pass until its result is at the neighbour.
        gap_s: of the host before a pass, the median.
        end_s: exchange of gradients, their norm, update.
    """

    stage: int
    replica: int
    pass_s: dict[str, float]
    send_s: float
    gap_s: float
    end_s: float


def seen(trace: Trace, stage: int, replica: int) -> Seen:
    """Of one rank, and of no other."""
    run_s, gap_s = durations(trace, dependencies(trace))

    def rows(*names: str) -> list[int]:
        return [i for i, op in enumerate(trace.ops) if op.stage == stage and op.op_type in names]

    sends = rows("forward-send" if stage == 0 else "backward-send")
    passes = rows(*COMPUTE.values())
    return Seen(
        stage=stage,
        replica=replica,
        pass_s={kind: float(run_s[rows(name), replica].mean()) for kind, name in COMPUTE.items()},
        send_s=max(float(run_s[sends, replica].mean()), 0.0) + float(gap_s[sends, replica].mean()),
        gap_s=float(np.median(gap_s[passes, replica])),
        end_s=float(sum((run_s + gap_s)[rows(name), replica].mean() for name in END)),
    )


def work(program: RankProgram) -> Work:
    """(stage, replica) -> FLOPs per token of both passes; the slow process is the last replica of the last stage."""
    found: Work = {}
    for stage in range(program.n_stage):
        classes = [one for one in program.classes if one.stage == stage]
        for replica in range(JOB.dp):
            one = classes[min(replica, len(classes) - 1)]
            found[stage, replica] = {"F": one.flops("F") / JOB.n_token, "B": one.flops("B", "W") / JOB.n_token}
    return found


def tasks_of(program: RankProgram, step: int, per_flop: dict[str, float], told: Seen) -> list[Task]:
    """Passes of all ranks in a step, in the order of the schedule."""
    order = SCHEDULES.named("1f1b").lay_out(program.degree("pp"), program.micro_batches, 1)
    places = [(stage, replica) for stage in range(program.n_stage) for replica in range(JOB.dp)]
    keys = [(*op.parts[0][:2], *place) for place in places for op in order.orders[place[0]]]
    index, flops = {key: at for at, key in enumerate(keys)}, work(program)
    tasks = []
    for kind, micro_batch, stage, replica in keys:
        before = (kind, micro_batch, stage - 1 if kind == "F" else stage + 1, replica)
        after = ((index[before], told.send_s),) if before in index else ()
        seconds = per_flop[kind] * flops[stage, replica][kind] * JOB.length(step, replica, micro_batch)
        tasks.append(Task(stage * JOB.dp + replica, seconds, after, told.gap_s))
    return tasks


def predicted_s(program: RankProgram, trace: Trace, told: Seen) -> np.ndarray:
    """Seconds of every step; seconds per FLOP are such that the simulated passes of the rank that was seen last as recorded."""
    flops = work(program)[told.stage, told.replica]
    per_flop = {kind: 0.7 * seconds / (flops[kind] * JOB.n_token) for kind, seconds in told.pass_s.items()}
    own, steps = told.stage * JOB.dp + told.replica, []
    n = program.micro_batches
    for _ in range(N_ROUND):
        steps, lasted = [], {"F": [], "B": []}
        for step in trace.steps.tolist():
            tasks = tasks_of(program, step, per_flop, told)
            times = simulated(tasks, N_CORE)
            mine = [at for at, task in enumerate(tasks) if task.process == own]
            kinds = [op.parts[0][0] for op in SCHEDULES.named("1f1b").lay_out(program.n_stage, n, 1).orders[told.stage]]
            for kind, at in zip(kinds, mine, strict=True):
                lasted[kind].append(times.end_s[at] - times.start_s[at])
            steps.append(max(times.end_s) + told.end_s)
        per_flop = {kind: value * told.pass_s[kind] / float(np.mean(lasted[kind])) for kind, value in per_flop.items()}
    return np.array(steps)


def alone_s(program: RankProgram, trace: Trace, told: Seen) -> np.ndarray:
    """The same without shared cores: every pass lasts as long as that of the rank that was seen, per FLOP."""
    needs, flops = dependencies(trace), work(program)
    shape = (len(trace.ops), trace.n_replica, len(trace.steps))
    run_s = np.zeros(shape)
    kind_of = {name: kind for kind, name in COMPUTE.items()}
    for i, op in enumerate(trace.ops):
        for replica in range(trace.n_replica):
            if (kind := kind_of.get(op.op_type)) is not None:
                rate = told.pass_s[kind] / flops[told.stage, told.replica][kind] / JOB.n_token
                tokens = [JOB.length(step, replica, op.micro_batch) for step in trace.steps.tolist()]
                run_s[i, replica] = rate * flops[op.stage, replica][kind] * np.array(tokens)
    return np.asarray(replay(replay_program(trace, needs), run_s, np.zeros(shape))) + told.end_s


def off(steps: np.ndarray, trace: Trace) -> tuple[float, float]:
    """Relative errors of p50 and p95."""
    p50, p95 = (float(np.quantile(steps, p) / np.quantile(trace.step_s, p) - 1.0) for p in (0.5, 0.95))
    return p50, p95


def main() -> None:
    """Prints the figures of the README."""
    start()
    program, trace = read_capture(HERE / "job.capture.gz"), open_trace(ROOT / "examples" / "local_cluster")
    assert isinstance(trace, Trace)
    right, total = matched(program, trace)
    print(f"ops in captured order: {right} of {total} ({right / total:.2%})")
    p50, p95 = np.quantile(trace.step_s, (0.5, 0.95))
    print(f"recorded: p50 {p50 * 1e3:.1f}, p95 {p95 * 1e3:.1f} ms of {len(trace.steps)} steps")
    for rank in range(JOB.n_rank):
        replica, stage = JOB.place(rank)
        told = seen(trace, stage, replica)
        (a, b), (c, d) = off(predicted_s(program, trace, told), trace), off(alone_s(program, trace, told), trace)
        bar = "yes" if abs(a) <= P50_BAR and abs(b) <= P95_BAR else "no"
        print(
            f"kernel times of rank {rank}: p50 {a:+.1%}, p95 {b:+.1%}, bar {bar}; cores not shared: {c:+.1%}, {d:+.1%}"
        )


if __name__ == "__main__":
    main()
