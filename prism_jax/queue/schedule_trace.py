"""The jobs of a cluster under several scheduling policies; what `prism-jax queue` does."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from pathlib import Path
from typing import Annotated

from ..core.errors import DataError
from ..core.executor import Workers
from ..core.processes import Progress, silent
from ..core.units import seconds_of
from ..core.use_case import UNRECORDED, UNTIMED_S, Argument, Option, OptionGroup, use_case
from ..result.parameters import Seed
from ..tables.column_map import ColumnMap
from ..tables.csv_rows import number_of
from ..variability.config import preset
from .compare import QueueCase, compare
from .jobs import QueuedJobs, capacity_of, check_capacity
from .policies import POLICIES
from .report import QueueReport
from .trace_file import read_queue_trace
from .world import ESTIMATES

MOST_SEEDS = 1_000
MOST_RUNS = 200_000_000  # jobs times simulations: about an hour
BUSY_PERCENT = "p80"
_PERCENT = re.compile(r"p([0-9]{1,2}(?:\.[0-9]{1,3})?)")


@dataclass(frozen=True)
class Compared(OptionGroup):
    """Policies, estimates and spreads that are compared.

    Attributes:
        policies: names of policies: fifo, sjf, srtf, las, edf, pal; may be repeated; all by default.
        estimates: durations that a scheduler knows: mean, p50, p95, matched; may be repeated; all by default.
        cvs: spread of GPU speeds, standard deviation over mean, each simulated by itself; may be repeated.
    """

    policies: Annotated[Sequence[str], Option("--policy", "NAME", recorded_as=list)] = ()
    estimates: Annotated[Sequence[str], Option("--estimate", "NAME", recorded_as=list)] = ()
    cvs: Annotated[Sequence[float], Option("--cv", "SHARE", key=None)] = (0.03,)


def restart_of(option: str, text: str) -> float:
    """Seconds of "60s"; a number alone is seconds."""
    number = number_of(text)
    return seconds_of(option, text) if isnan(number) or number < 0 else number


@dataclass(frozen=True)
class WorldOptions(OptionGroup):
    """The worlds in which the jobs of the trace run.

    Attributes:
        variability: preset whose shape the spread between GPUs has, and whose step noise grows with it
            (`prism-jax show variability`).
        slack: mean time to a deadline beyond the duration, over the duration; for traces without deadlines.
        restart_s: time lost when an interrupted job comes back.
        n_seeds: number of worlds to draw: GPUs, steps, deadlines.
        seed: number of the first world.
    """

    variability: Annotated[str, Option("--variability", "PRESET", key=None)] = "v100-longhorn"
    slack: Annotated[float, Option(metavar="SHARE", key=None)] = 1.0
    restart_s: Annotated[float, Option("--restart", "TIME", parse=restart_of, default="60s", key=None)] = 60.0
    n_seeds: Annotated[int, Option("--seeds", "N", key=None)] = 8
    seed: Seed = 0


@use_case(says="reading the trace")
def schedule_trace(
    trace: Annotated[
        str | Path, Argument(metavar="TRACE", columns=(("a table of jobs", "prism_jax.queue.trace_file:NAMES"),))
    ],
    *,
    gpus: Annotated[int | str, Option("--gpus", "N|pNN")] = BUSY_PERCENT,
    group: Annotated[str | None, Option("--group", "NAME")] = None,
    columns: ColumnMap = None,
    compared: Compared = Compared(),
    worlds: WorldOptions = WorldOptions(),
    workers: Workers = Workers(),
    progress: Progress = silent,
) -> QueueReport:
    """Simulate the queue of a cluster under several scheduling policies and duration estimates.

    Args:
        trace: table of jobs, CSV or parquet: columns submit_s, gpus, duration_s, and where known deadline_s and vc.
        gpus: GPUs of the cluster; p80: the 80th percentile of GPUs in use if no job ever queued.
        group: read one group of the trace (vc, cluster, queue).
        columns: columns of the trace and their fields, where names do not tell.
        compared: policies, estimates and spreads of GPU speeds.
        worlds: spread and number of simulated worlds.
        workers: processes that share the worlds.
        progress: told what is done.

    Raises:
        DataError, SpecError: a file or an option is wrong.

    Example:
        >>> schedule_trace("jobs.csv", gpus=128, cvs=[0.01, 0.09])  # doctest: +SKIP
    """
    _check_options(compared.cvs, worlds)
    chosen = _named(POLICIES, compared.policies), _named(ESTIMATES, compared.estimates)
    shape, found = preset(worlds.variability), read_queue_trace(trace, group, columns)
    jobs = found.jobs
    n_gpus, told = _capacity(gpus, jobs)
    _check_size(len(jobs) * worlds.n_seeds * len(compared.cvs) * len(chosen[0]) * len(chosen[1]))
    seeds = range(worlds.seed, worlds.seed + worlds.n_seeds)
    setting = QueueCase(n_gpus, shape, worlds.slack, worlds.restart_s, seeds)
    rows = compare(jobs, setting, compared.cvs, *chosen, progress, workers)
    span_s = float(jobs.submit_s[-1])
    return QueueReport(
        source=str(trace),
        group=found.group,
        n_jobs=len(jobs),
        n_gpus=n_gpus,
        n_gpus_from=told,
        load=jobs.work_gpu_s / n_gpus / span_s if span_s > 0.0 else float("inf"),
        span_s=span_s,
        variability=worlds.variability,
        slack=worlds.slack if jobs.deadline_s is None else None,
        restart_s=worlds.restart_s,
        n_seeds=worlds.n_seeds,
        rows=tuple(rows),
        notes=(
            *found.notes,
            "intervals are over draws of GPUs, steps and deadlines; the arrivals are those of the trace",
        ),
        elapsed_s=UNTIMED_S,
        record=UNRECORDED,
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


def _check_options(cvs: Sequence[float], worlds: WorldOptions) -> None:
    if not cvs:
        raise DataError("cv: none is given. Give one, such as 0.03.")
    for cv in cvs:
        if not 0.0 <= cv <= 1.0:
            raise DataError(f"cv = {cv:g}, but it must lie between 0 and 1 (0.03 is 3%)")
    for name, value, most in (("slack", worlds.slack, 1e6), ("restart", worlds.restart_s, 1e6)):
        if not 0.0 <= value <= most:
            raise DataError(f"{name} = {value:g}, but it must lie between 0 and {most:g}")
    if not 1 <= worlds.n_seeds <= MOST_SEEDS:
        raise DataError(f"seeds = {worlds.n_seeds}, but there must be 1 to {MOST_SEEDS:,}")


def _check_size(n_runs: int) -> None:
    if n_runs > MOST_RUNS:
        raise DataError(
            f"{n_runs:,} jobs to simulate in all, more than {MOST_RUNS:,}. Ask for fewer seeds, policies or CVs."
        )
