"""The jobs of a cluster under several scheduling policies; what `prism-jax schedule` does."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from math import isfinite
from pathlib import Path

from ...errors import DataError
from ...horizon.queue.compare import Setting, compare
from ...horizon.queue.estimates import ESTIMATES
from ...horizon.queue.jobs import QueuedJobs, capacity_of, check_capacity
from ...horizon.queue.policies import POLICIES
from ...io.numbers import number_of
from ...io.tables.queue_trace import read_queue_trace
from ...io.write import run_record
from ...progress import Progress, silent
from ...report.types.horizon.queue import QueueReport
from ...report.types.record import RunRecord
from ...variability.catalog import preset

MOST_SEEDS = 1_000
MOST_RUNS = 200_000_000  # jobs times simulations: about an hour
BUSY_PERCENT = "p80"
_PERCENT = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,3})?)")


def schedule_trace(
    trace: str | Path,
    *,
    gpus: int | str = BUSY_PERCENT,
    group: str | None = None,
    policies: Sequence[str] = (),
    estimates: Sequence[str] = (),
    cvs: Sequence[float] = (0.03,),
    variability: str = "v100-longhorn",
    slack: float = 1.0,
    restart_s: float = 60.0,
    n_seeds: int = 8,
    seed: int = 0,
    progress: Progress = silent,
) -> QueueReport:
    """How long jobs wait and take under several policies, and what a scheduler gains by knowing distributions.

    Args:
        trace: table of jobs, CSV or parquet: columns submit_s, gpus, duration_s, and where known deadline_s and vc.
        gpus: of the cluster; "p80": what would be busy in all but 20 % of the time if nothing waited.
        group: reads the jobs of one group of the trace.
        policies, estimates: names (`POLICIES`, `ESTIMATES`); all of them if left out.
        cvs: standard deviations over mean of the speed of GPUs, each simulated by itself.
        variability: preset whose shape the spread between GPUs has, and whose step noise grows with it.
        slack: mean time to a deadline beyond the duration, over the duration, where the trace has no deadlines.
        restart_s: lost when an interrupted job comes back.
        n_seeds, seed: worlds, and the number of the first.

    Raises:
        DataError, SpecError: a file or an option is wrong.

    Example:
        >>> schedule_trace("jobs.csv", gpus=128, cvs=[0.01, 0.09])  # doctest: +SKIP
    """
    _check_options(cvs, slack, restart_s, n_seeds)
    chosen = _named(POLICIES, policies), _named(ESTIMATES, estimates)
    shape, found = preset(variability), read_queue_trace(trace, group)
    jobs = found.jobs
    n_gpus, told = _capacity(gpus, jobs)
    _check_size(len(jobs) * n_seeds * len(cvs) * len(chosen[0]) * len(chosen[1]))
    started = time.perf_counter()
    setting = Setting(n_gpus, shape, slack, restart_s, range(seed, seed + n_seeds))
    rows = compare(jobs, setting, cvs, *chosen, progress)
    span_s = float(jobs.submit_s[-1])
    inputs = {"trace": trace, "gpus": gpus, "group": group, "policies": list(policies), "estimates": list(estimates)}
    return QueueReport(
        source=str(trace),
        group=found.group,
        n_jobs=len(jobs),
        n_gpus=n_gpus,
        n_gpus_from=told,
        load=jobs.work_gpu_s / n_gpus / span_s if span_s > 0.0 else float("inf"),
        span_s=span_s,
        variability=variability,
        slack=slack if jobs.deadline_s is None else None,
        restart_s=restart_s,
        n_seeds=n_seeds,
        rows=tuple(rows),
        notes=(
            *found.notes,
            "intervals are over draws of GPUs, steps and deadlines; the arrivals are those of the trace",
        ),
        elapsed_s=time.perf_counter() - started,
        record=RunRecord(**run_record(inputs, seed)),
    )


def _named(registry, names: Sequence[str]) -> list:
    return [registry.named(name) for name in dict.fromkeys(names)] if names else list(registry)


def _capacity(gpus: int | str, jobs: QueuedJobs) -> tuple[int, str]:
    """GPUs of the cluster, and where the number comes from."""
    percent = _PERCENT.fullmatch(str(gpus))
    if percent is not None:
        n_gpus, busy = capacity_of(jobs, float(percent[1])), jobs.busy_gpus(float(percent[1]))
        if n_gpus == busy:
            return n_gpus, f"{gpus} of those that would be busy if nothing waited"
        why = "as many as the largest job needs" if n_gpus == jobs.gpus.max() else "a load of 0.9"
        return n_gpus, f"{why}; {gpus} of those that would be busy if nothing waited is {busy:,}"
    number = number_of(str(gpus))
    if not (isfinite(number) and number == int(number)):
        raise DataError(f"gpus = {gpus}, but it must be a whole number, or p50 to p99 of the GPUs that would be busy")
    check_capacity(jobs, int(number))
    return int(number), "stated"


def _check_options(cvs: Sequence[float], slack: float, restart_s: float, n_seeds: int) -> None:
    if not cvs:
        raise DataError("cv: none is given. Give one, such as 0.03.")
    for cv in cvs:
        if not 0.0 <= cv <= 1.0:
            raise DataError(f"cv = {cv:g}, but it must lie between 0 and 1 (0.03 is 3 %)")
    for name, value, most in (("slack", slack, 1e6), ("restart", restart_s, 1e6)):
        if not 0.0 <= value <= most:
            raise DataError(f"{name} = {value:g}, but it must lie between 0 and {most:g}")
    if not 1 <= n_seeds <= MOST_SEEDS:
        raise DataError(f"seeds = {n_seeds}, but there must be 1 to {MOST_SEEDS:,}")


def _check_size(n_runs: int) -> None:
    if n_runs > MOST_RUNS:
        raise DataError(
            f"{n_runs:,} jobs to simulate in all, more than {MOST_RUNS:,}. Ask for fewer seeds, policies or CVs."
        )
