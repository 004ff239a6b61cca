"""Job traces of two clusters under every scheduling policy, and what a scheduler gains by knowing distributions.

Groups of Philly (2017) and Microsoft ITP (2021) with 100 jobs at least, the whole trace, as many GPUs as would be busy
in all but 20% of the time if nothing waited. One line per group: mean completion time over FIFO's, median and 90% interval over
seeds. `--estimates` compares estimates with point estimates instead, for GPUs that differ by 1, 3 and 9%.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from prism_jax.core.page import Table
from prism_jax.core.page_text import block_lines
from prism_jax.core.readable import duration
from prism_jax.queue.compare import QueueCase, QueueRow, compare
from prism_jax.queue.jobs import capacity_of
from prism_jax.queue.policies import POLICIES
from prism_jax.queue.trace_file import read_queue_trace
from prism_jax.queue.world import ESTIMATES
from prism_jax.variability.config import preset

FOLDER = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "reliability"
TRACES = {"philly": "jobs_philly_2017.parquet", "itp": "jobs_microsoft_itp_2021.parquet"}
FEWEST = 100  # jobs of a group
N_CORES = 2
PUBLISHED = "published for schedulers that know durations or distributions: .3 to .8"


class Task(NamedTuple):
    """One group with its spreads between GPUs."""

    trace: str
    group: str
    n_seeds: int
    percent: float
    cvs: tuple[float, ...]
    estimates: tuple[str, ...]
    folder: Path


class Found(NamedTuple):
    """What came of a task."""

    name: str
    n_jobs: int
    n_gpus: int
    load: float
    rows: list[QueueRow]
    cpu_s: float


def solve(task: Task) -> Found:
    started = time.process_time()
    jobs = read_queue_trace(task.folder / TRACES[task.trace], task.group).jobs
    n_gpus = capacity_of(jobs, task.percent)
    setting = QueueCase(n_gpus, preset("v100-longhorn"), 1.0, 60.0, range(task.n_seeds))
    estimates = [ESTIMATES.named(name) for name in task.estimates]
    rows = compare(jobs, setting, task.cvs, list(POLICIES), estimates)
    load = jobs.work_gpu_s / n_gpus / float(jobs.submit_s[-1])
    return Found(f"{task.trace} {task.group}", len(jobs), n_gpus, load, rows, time.process_time() - started)


def tasks(given: argparse.Namespace) -> Iterator[Task]:
    """Groups, the largest first."""
    cvs = (0.01, 0.03, 0.09) if given.estimates else (given.cv,)
    estimates = ESTIMATES.names if given.estimates else ("mean",)
    sizes = []
    for trace, file in TRACES.items():
        groups = read_queue_trace(given.data / file).groups
        sizes += [(len(read_queue_trace(given.data / file, group).jobs), trace, group) for group in groups]
    for n_jobs, trace, group in sorted(sizes, reverse=True):
        if n_jobs >= FEWEST:
            yield Task(trace, group, given.seeds, given.percent, cvs, estimates, given.data)


def by_policy(found: Sequence[Found]) -> None:
    """Mean completion time over FIFO's of every policy and group."""
    rows = []
    for each in found:
        fifo = next(row for row in each.rows if row.policy == "fifo")
        rest = [row for row in each.rows if row.policy != "fifo"]
        cells = [f"{row.over_fifo.median:.3f} ({row.over_fifo.p5:.3f} to {row.over_fifo.p95:.3f})" for row in rest]
        rows.append(
            [
                each.name,
                f"{each.n_jobs:,}",
                str(each.n_gpus),
                f"{each.load:.2f}",
                duration(fifo.figures.jct_mean_s),
                *cells,
            ]
        )
    policies = [name for name in POLICIES.names if name != "fifo"]
    print("\n".join(block_lines(Table("", ["group", "jobs", "GPUs", "load", "FIFO JCT", *policies], rows))))
    for policy in policies:
        ratios = np.array([row.over_fifo.median for each in found for row in each.rows if row.policy == policy])
        low, middle, high = np.quantile(ratios, (0.0, 0.5, 1.0))
        below = f"{(ratios <= 1.0).sum()} of {len(ratios)} groups at or below FIFO"
        inside = f"{((ratios >= 0.3) & (ratios <= 0.8)).sum()} within .3 to .8, {(ratios < 0.3).sum()} below"
        print(f"{policy:<5} median {middle:.3f}, {low:.3f} to {high:.3f}; {below}; {inside}")
    print(PUBLISHED)


def by_estimate(found: Sequence[Found]) -> None:
    """Completion time over that of point estimates, all groups together: median and range of the groups' medians."""
    rows = []
    kinds = dict.fromkeys((row.cv, row.policy, row.estimate) for each in found for row in each.rows if row.over_point)
    for cv, policy, estimate in kinds:
        own = [
            row for each in found for row in each.rows if (row.cv, row.policy, row.estimate) == (cv, policy, estimate)
        ]
        medians = np.array([row.over_point.median for row in own if row.over_point])
        below = sum(row.over_point.p95 < 1.0 for row in own if row.over_point)
        above = sum(row.over_point.p5 > 1.0 for row in own if row.over_point)
        on_time = np.mean([row.figures.on_time_prob for row in own])
        low, middle, high = np.quantile(medians, (0.0, 0.5, 1.0))
        spread = f"{middle:.4f} ({low:.4f} to {high:.4f})"
        rows.append([f"{100 * cv:g}%", policy, estimate, spread, str(below), str(above), f"{100 * on_time:.2f}%"])
    columns = ["CV", "policy", "estimate", "over point estimates", "groups surely below", "surely above", "on time"]
    print("\n".join(block_lines(Table("", columns, rows))))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=FOLDER)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--cv", type=float, default=0.03)
    parser.add_argument("--percent", type=float, default=80.0, help="of the time in which no more GPUs would be busy")
    parser.add_argument("--estimates", action="store_true")
    given = parser.parse_args()
    started = time.perf_counter()
    with ProcessPoolExecutor(N_CORES) as pool:
        found = sorted(pool.map(solve, tasks(given)))
    (by_estimate if given.estimates else by_policy)(found)
    n_jobs = sum(each.n_jobs for each in found)
    cpu_s = sum(each.cpu_s for each in found)
    print(
        f"{n_jobs:,} jobs in {len(found)} groups, {given.seeds} seeds: {time.perf_counter() - started:.0f} s, CPU {cpu_s:.0f} s"
    )


if __name__ == "__main__":
    main()
