"""Do lanes that slow each other reach the fixed point, and is their time between unslowed and fully slowed?

python experiments/capture/overlap/run.py [--graphs 1000] [--seed 0]

One kernel beside one collective against the closed form, for 10,000 pairs of seconds and slow-downs. Random graphs of 2 to 5
lanes: the simulation of `cost.lanes` goes from event to event; here the same is iterated to, as an independent end: durations
follow from the overlaps of the last round, overlaps from the durations, until no end moves by more than 1e-4 of the step.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from prism_jax.cost.lanes import LaneTask, lane_times

TOLERANCE, MOST_ROUNDS = 1e-4, 10


def pair_s(work_s: float, comm_s: float, slows: float) -> float:
    """Closed form: a kernel and a collective that start together; the step ends with the later."""
    done_s = comm_s / (1.0 + slows)  # of the kernel's work, while the collective runs
    return comm_s if done_s >= work_s else comm_s + work_s - done_s


def worst_pair(n: int, rng: np.random.Generator) -> float:
    """Largest relative difference from the closed form."""
    worst = 0.0
    for work_s, comm_s, slows in zip(*(10.0 ** rng.uniform(-6, 1, (2, n))), rng.uniform(0, 2, n), strict=True):
        found = lane_times([LaneTask(work_s, 0), LaneTask(comm_s, 1, slows=slows)]).total_s
        known = pair_s(work_s, comm_s, slows)
        worst = max(worst, abs(found / known - 1.0))
    return worst


def random_tasks(rng: np.random.Generator) -> list[LaneTask]:
    """Tasks on 2 to 5 lanes: each waits for some of the last ones; collectives slow compute by up to half."""
    n_lane, n = int(rng.integers(2, 6)), int(rng.integers(5, 80))
    tasks = []
    for number in range(n):
        lane = int(rng.integers(n_lane))
        n_after = int(rng.integers(0, min(number, 3) + 1))
        after = sorted({int(number - 1 - rng.integers(min(number, 8))) for _ in range(n_after)})
        slows = float(rng.uniform(0.05, 0.5)) if lane else 0.0
        tasks.append(LaneTask(float(rng.lognormal(0.0, 1.0)), lane, tuple(after), slows))
    return tasks


def iterated(tasks: Sequence[LaneTask]) -> tuple[float, int]:
    """Seconds by rounds, and how many were needed; the first round takes every task by itself."""
    ends, starts = _scheduled(tasks, [task.work_s for task in tasks])
    for n_round in range(1, MOST_ROUNDS + 5):
        before, total = list(ends), max(ends)
        starts, ends = _round(tasks, starts, ends)
        if max(abs(a - b) for a, b in zip(ends, before, strict=True)) < TOLERANCE * total:
            return max(ends), n_round
    return max(ends), n_round


def _scheduled(tasks: Sequence[LaneTask], seconds: Sequence[float]) -> tuple[list[float], list[float]]:
    free: dict[int, float] = {}
    starts, ends = [], []
    for task, took in zip(tasks, seconds, strict=True):
        start = max([free.get(task.lane, 0.0), *(ends[other] for other in task.after)])
        starts.append(start)
        ends.append(start + took)
        free[task.lane] = ends[-1]
    return ends, starts


def _round(
    tasks: Sequence[LaneTask], starts: Sequence[float], ends: Sequence[float]
) -> tuple[list[float], list[float]]:
    """Every task once: those in front as this round has them, collectives behind as the last one had them."""
    free: dict[int, float] = {}
    starts, ends = list(starts), list(ends)
    for number, task in enumerate(tasks):
        start = max([free.get(task.lane, 0.0), *(ends[other] for other in task.after)])
        own = [(a, b, other.slows) for a, b, other in zip(starts, ends, tasks, strict=True) if other.lane]
        starts[number], ends[number] = start, start + task.work_s if task.lane else _end(start, task.work_s, own)
        free[task.lane] = ends[number]
    return starts, ends


def _end(start_s: float, work_s: float, collectives: Sequence[tuple[float, float, float]]) -> float:
    """When a kernel is done that makes progress at 1 / (1 + s) while a collective runs."""
    now, left = start_s, work_s
    edges = sorted({edge for a, b, _ in collectives for edge in (a, b) if edge > start_s})
    for edge in [*edges, np.inf]:
        slows = max((s for a, b, s in collectives if a <= now < b), default=0.0)
        if left * (1.0 + slows) <= edge - now:
            return now + left * (1.0 + slows)
        left -= (edge - now) / (1.0 + slows)
        now = edge
    return now


def main() -> None:
    """Prints the figures of the README."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--graphs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    print(f"one pair against its closed form: largest relative difference {worst_pair(10_000, rng):.1e}")
    rounds, apart, inside, lost = [], [], 0, 0.0
    for _ in range(given.graphs):
        tasks = random_tasks(rng)
        times = lane_times(tasks)
        found, n_round = iterated(tasks)
        rounds.append(n_round)
        apart.append(abs(found / times.total_s - 1.0))
        least = lane_times([replace(task, slows=0.0) for task in tasks]).total_s
        slowest = max(task.slows for task in tasks)
        full = [replace(task, slows=0.0, work_s=task.work_s * (1.0 + slowest * (task.lane == 0))) for task in tasks]
        inside += least * (1 - 1e-12) <= times.total_s <= lane_times(full).total_s * (1 + 1e-12)
        lost = max(lost, _lost(tasks, times.start_s, times.end_s))
    print(f"{given.graphs:,} random graphs: {inside:,} between unslowed and fully slowed")
    print(
        f"  rounds to 1e-4: median {np.median(rounds):.0f}, most {max(rounds)}; from the simulation {max(apart):.1e} at most"
    )
    print(f"  work that is lost or made: {lost:.1e} of a kernel's at most")


def _lost(tasks: Sequence[LaneTask], starts: Sequence[float], ends: Sequence[float]) -> float:
    """Largest difference between the work of a kernel and its progress, as a share."""
    own = [(a, b, task.slows) for a, b, task in zip(starts, ends, tasks, strict=True) if task.lane]
    pairs = [(_end(a, task.work_s, own), a, b) for a, b, task in zip(starts, ends, tasks, strict=True) if not task.lane]
    return max((abs(known - b) / max(b - a, 1e-300) for known, a, b in pairs), default=0.0)


if __name__ == "__main__":
    main()
