"""Runs from a table of step times: labels, relative step times, and how much was dropped.

Jobs of a `group` follow one deterministic schedule (sequence length, batch size): their steps are divided by the median
over the group's runs at the same position. Clocks that tick coarsely are read in blocks of steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax._typing import Floats

from .shape import lag_one, shape_of

FIRST_STEPS = (
    3  # left out of every run: warm-up; reproduces the published trivial baselines best (of 0, 1, 2, 3, 5, 10)
)
MIN_POINTS = 20  # of a run: its p95 is then still an interpolation between two steps
MIN_GROUP_RUNS = 3  # a schedule is a median over at least these
COARSE_TICK = 0.003  # of the median: a clock of 1 ms under steps of less than 0.3 s; read in blocks
BLOCK = 10  # steps: brings the tick of a 60 ms step from 1.7 % to 0.2 %
LABELS = ("metric", "benchmark", "system", "submitter", "gpu", "round", "framework")
BETWEEN_LOGS = "log_dt_ms"  # metric of times between log lines
GPU_CLASS = re.compile(r"\b(GB|MI|[ABHKLPTV])\d{2,4}[SX]?")


@dataclass(frozen=True)
class Run:
    """One run of one metric.

    Attributes:
        name, labels: run, and its value of each of `LABELS` plus "group" ("" where the table has none).
        n_gpus: NaN where unknown.
        relative: step (or block) times over schedule and median, in order, [step].
        total_s, schedule_s: sums of durations and of the schedule (1 s per row where there is none) over the same rows.
        n_steps: steps in all.
        step_s: typical step, seconds: the median over rows; NaN where a schedule tells steps apart, or the table holds times
            between log lines without the number of steps.
        is_mean: a row is the mean over several steps.
    """

    name: str
    labels: Mapping[str, str]
    n_gpus: float
    relative: Floats
    total_s: float
    schedule_s: float
    n_steps: float
    step_s: float = np.nan
    is_mean: bool = False

    @property
    def level(self) -> float:
        """ln(total time / scheduled time)."""
        return float(np.log(self.total_s / self.schedule_s))

    @property
    def key(self) -> tuple[object, ...]:
        """What repeats of a configuration have in common."""
        size = self.n_gpus if np.isfinite(self.n_gpus) else -1.0
        return (*(self.labels[name] for name in LABELS), self.labels["group"], size)

    @cached_property
    def shape(self) -> Floats:
        """Coordinates of the distribution of relative step times, [knot]."""
        return shape_of(self.relative)

    @cached_property
    def ratios(self) -> Floats:
        """Measured p95/p50 and p99/p50, [2]."""
        return np.quantile(self.relative, [0.95, 0.99])

    @cached_property
    def ar1(self) -> float:
        """Lag-one autocorrelation of relative step times."""
        return lag_one(self.relative)


Schedule = Mapping[str, pd.Series]


@dataclass(frozen=True)
class RunTable:
    """All runs of a table, the schedules of their groups, and notes on what was dropped."""

    runs: tuple[Run, ...]
    schedules: Schedule
    notes: tuple[str, ...] = field(default=())


def gpu_class(name: str) -> str:
    """As "H100" of "NVIDIA H100-SXM5-80GB"; the name itself where no model number is found."""
    found = GPU_CLASS.search(name.upper())
    return found.group(0) if found else name


def read_runs(frame: pd.DataFrame, schedules: Schedule | None = None) -> RunTable:
    """Runs of a table with at least `MIN_POINTS` values each.

    Args:
        schedules: known schedules by group (of a fit, when left-out runs are read); None makes them from `frame`.
    """
    table = _ordered(frame)
    known = _schedules(table) if schedules is None else schedules
    runs, short, lone = [], 0, 0
    columns = {name: table[name].to_numpy() for name in table.columns}
    starts = np.flatnonzero(~table.duplicated(["run", "metric"]).to_numpy())
    for first, end in pairwise([*starts.tolist(), len(table)]):
        rows = {name: values[first:end] for name, values in columns.items()}
        group = str(rows["group"][0])
        if group and group not in known:
            lone += 1
            continue
        run = _run(rows, known[group] if group else None)
        short += run is None
        runs += [run] if run is not None else []
    notes = []
    if short:
        notes.append(f"{short} runs left out: fewer than {MIN_POINTS} values after the first {FIRST_STEPS}")
    if lone:
        notes.append(f"{lone} runs left out: their group has fewer than {MIN_GROUP_RUNS} runs, no schedule can be told")
    return RunTable(tuple(runs), known, tuple(notes))


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns read here, blanks filled, validation pauses and first steps dropped, in the order of the steps."""
    table: Any = pd.DataFrame({"run": frame["run"].astype(str), "duration_s": frame["duration_s"].astype(float)})
    for name in (*LABELS, "group"):
        column: Any = frame[name] if name in frame else pd.Series("", index=frame.index)
        table[name] = column.astype(object).where(column.notna(), "").astype(str)
    table["n_gpus"] = _numbers(frame, "n_gpus")
    table["n_steps"] = _numbers(frame, "n_steps").fillna(1.0)
    order = table.groupby(["run", "metric"], sort=False).cumcount()
    table["step"] = _numbers(frame, "step").fillna(order.astype(float))
    table = table[(_numbers(frame, "flag") != 1.0).to_numpy()]
    table = table.sort_values(["run", "metric", "step"], kind="stable")
    return table[table.groupby(["run", "metric"], sort=False).cumcount() >= FIRST_STEPS]


def _numbers(frame: pd.DataFrame, name: str) -> Any:
    """A column as numbers; NaN where it, or a value of it, is not there."""
    column: Any = frame[name] if name in frame else pd.Series(np.nan, index=frame.index)
    numbers: Any = pd.to_numeric(column, errors="coerce")
    return numbers.astype(float)


def _schedules(table: pd.DataFrame) -> dict[str, pd.Series]:
    """Group -> median duration by step, for groups with enough runs."""
    grouped: Any = table[table["group"] != ""]
    enough = grouped.groupby("group")["run"].transform("nunique") >= MIN_GROUP_RUNS
    medians = grouped[enough].groupby(["group", "step"])["duration_s"].median()
    return {str(name): rows.droplevel(0) for name, rows in medians.groupby(level=0)}


def _run(rows: Mapping[str, NDArray[Any]], schedule: pd.Series | None) -> Run | None:
    duration = rows["duration_s"]
    if schedule is None:
        planned = np.ones_like(duration)
    else:
        planned = schedule.reindex(rows["step"]).to_numpy(float)
        duration, planned = duration[np.isfinite(planned)], planned[np.isfinite(planned)]
    if duration.size < MIN_POINTS:
        return None
    relative = _in_blocks(duration, planned) if _is_coarse(duration) else duration / planned
    if relative.size < MIN_POINTS:
        return None
    step_s, is_mean = (np.nan, False) if schedule is not None else _typical_step(rows)
    labels = {name: str(rows[name][0]) for name in (*LABELS, "group")}
    labels["gpu"] = gpu_class(labels["gpu"])
    labels["system"] = _system(labels)
    return Run(
        name=str(rows["run"][0]),
        labels=labels,
        n_gpus=float(rows["n_gpus"][0]),
        relative=relative / np.median(relative),
        total_s=float(duration.sum()),
        schedule_s=float(planned.sum()),
        n_steps=float(rows["n_steps"].sum()),
        step_s=step_s,
        is_mean=is_mean,
    )


def _typical_step(rows: Mapping[str, NDArray[Any]]) -> tuple[float, bool]:
    """Median seconds of a step over rows (blocks of rows, where the clock is coarse), and whether these are means of steps."""
    duration, n_steps = rows["duration_s"], rows["n_steps"]
    several = bool(np.median(n_steps) > 1.0)
    if rows["metric"][0] == BETWEEN_LOGS and not several:
        return np.nan, False
    step_s = duration / n_steps
    if _is_coarse(duration):
        return float(np.median(_in_blocks(step_s, np.ones_like(step_s)))), True
    return float(np.median(step_s)), several


def _system(labels: Mapping[str, str]) -> str:
    """Submitter and system: submitters give the same name to machines of their own; the group, where there is neither."""
    name, owner = labels["system"], labels["submitter"]
    return (f"{owner}/{name}" if owner and not name.startswith(f"{owner}/") else name) if name else labels["group"]


def _is_coarse(duration: Floats) -> bool:
    """Whether all values are whole milliseconds and one of them matters."""
    ticks = duration * 1e3
    return bool(np.all(np.abs(ticks - np.round(ticks)) < 1e-6)) and COARSE_TICK * float(np.median(duration)) < 1e-3


def _in_blocks(duration: Floats, planned: Floats) -> Floats:
    n = duration.size // BLOCK
    kept = n * BLOCK
    return duration[:kept].reshape(n, BLOCK).sum(axis=1) / planned[:kept].reshape(n, BLOCK).sum(axis=1)
