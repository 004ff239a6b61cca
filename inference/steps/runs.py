"""Runs from a table of step times, and the shape of a run: the quantile function of its step times over their median.

A shape is a vector [..., knot] of `ln(|q - 1| + FLOOR)`, `q` the quantile of step / median at each of `LEVELS`. Between
knots the quantile function is linear in the normal score; below the first it goes on so; above the last the excess
grows like that of an exponential tail, which is what rare stalls look like.

Where rows name ranks, a step is its slowest rank.

Jobs of a `group` follow one deterministic schedule (sequence length, batch size): their steps are divided by the median
over the group's runs at the same position. Clocks that tick coarsely are read in blocks of steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from prism_jax.core.arrays import Floats
from prism_jax.trace.level_changes import levels_note

LEVELS = np.array([0.01, 0.05, 0.1, 0.2, 0.3, 0.4, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
N_BELOW = 6
P95, P99 = 10, 11
FLOOR = 1e-4  # of a step: ties and rounding of logs; excesses below it are alike
SMALLEST = 1e-3  # of the median: where the lower tail ends, so that step times stay positive
TAIL_SCORES = np.linspace(-5.0, 5.0, 1001)


def shape_of(relative: Floats) -> Floats:
    """Shape of one run; [knot].

    Args:
        relative: step times over their median, [step].
    """
    q = np.quantile(relative, LEVELS)
    side = np.where(LEVELS < 0.5, -1.0, 1.0)
    return np.log(np.maximum(side * (q - 1.0), 0.0) + FLOOR)


def excess(shape: Floats) -> Floats:
    """Quantiles over the median minus one, in the order of `LEVELS`, never decreasing; [..., knot]."""
    size = np.maximum(np.exp(np.minimum(shape, 20.0)) - FLOOR, 0.0)
    below = np.maximum.accumulate(size[..., N_BELOW - 1 :: -1], axis=-1)[..., ::-1]
    above = np.maximum.accumulate(size[..., N_BELOW:], axis=-1)
    return np.concatenate([-np.minimum(below, 1.0 - SMALLEST), above], axis=-1)


def ratios(shape: Floats) -> Floats:
    """p95/p50 and p99/p50; [..., 2]."""
    return 1.0 + excess(shape)[..., [P95, P99]]


def quantile(shape: Floats, prob: Floats) -> Floats:
    """Step time over its median at probabilities `prob` (0 to 1 exclusive) of one shape [knot]; as `prob`."""
    q = 1.0 + np.insert(excess(shape), N_BELOW, 0.0)
    levels = np.insert(LEVELS, N_BELOW, 0.5)
    score, knots = ndtri(prob), ndtri(levels)
    value = np.interp(score, knots, q)
    slope = (q[1] - q[0]) / (knots[1] - knots[0])
    value = np.where(score < knots[0], np.maximum(q[0] + slope * (score - knots[0]), SMALLEST), value)
    scale = (q[-1] - q[-2]) / np.log((1.0 - levels[-2]) / (1.0 - levels[-1]))
    beyond = np.log((1.0 - levels[-1]) / np.maximum(1.0 - np.asarray(prob), 1e-300))
    return np.where(score > knots[-1], q[-1] + scale * np.maximum(beyond, 0.0), value)


def cdf(shape: Floats, relative: Floats) -> Floats:
    """Probability that a step takes at most `relative` times the median; as `relative`."""
    prob = ndtr(TAIL_SCORES)
    rising = quantile(shape, prob) + 1e-12 * np.arange(prob.size)  # ties: any increasing function will do
    return np.interp(relative, rising, prob, left=0.0, right=1.0)


def ks_distance(relative: Floats, prob: Floats) -> float:
    """Kolmogorov-Smirnov distance of sorted values [step] from a distribution with `prob` = its CDF at them."""
    n = relative.size
    upper = np.searchsorted(relative, relative, side="right") / n
    lower = np.searchsorted(relative, relative, side="left") / n
    return float(max(np.max(upper - prob), np.max(prob - lower)))


def lag_one(relative: Floats) -> float:
    """Lag-1 autocorrelation of the normal scores of consecutive values; 0 where they do not vary."""
    rank = np.argsort(np.argsort(relative, kind="stable"), kind="stable")
    score = ndtri((rank + 0.5) / relative.size)
    if relative.size < 3 or np.ptp(relative) == 0.0:
        return 0.0
    return float(np.clip(np.corrcoef(score[1:], score[:-1])[0, 1], -0.95, 0.95))


# Left out of every run: warm-up; reproduces the published trivial baselines best (of 0, 1, 2, 3, 5, 10)
FIRST_STEPS = 3
MIN_POINTS = 20  # of a run: its p95 is then still an interpolation between two steps
MIN_GROUP_RUNS = 3  # a schedule is a median over at least these
COARSE_TICK = 0.003  # of the median: a clock of 1 ms under steps of less than 0.3 s; read in blocks
BLOCK = 10  # steps: brings the tick of a 60 ms step from 1.7% to 0.2%
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
        job: fields of the job that the head of a log states; empty where there is none.
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
    job: str = ""

    @property
    def level(self) -> float:
        """ln(total time / scheduled time)."""
        return float(np.log(self.total_s / self.schedule_s))

    @property
    def key(self) -> tuple[object, ...]:
        """Key that repeats of a configuration have in common."""
        size = self.n_gpus if np.isfinite(self.n_gpus) else -1.0
        return (*(self.labels[name] for name in LABELS), self.labels["group"], size, *filter(None, [self.job]))

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
    """GPU model in short, such as "H100" for "NVIDIA H100-SXM5-80GB"; the name itself where no model number is found."""
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
        notes.append(
            f"{lone} runs left out: their group has fewer than {MIN_GROUP_RUNS} runs, no schedule can be recognised"
        )
    if schedules is None:
        notes += _level_notes(runs)
    return RunTable(tuple(runs), known, tuple(notes))


MOST_LEVEL_STEPS = 20_000  # of all runs together, that are looked at for changes of level
MOST_LEVEL_NOTES = 3


def _level_notes(runs: Sequence[Run]) -> list[str]:
    """Runs whose level changes, so that one law of their steps mixes unlike ones."""
    notes: list[str] = []
    n_left = MOST_LEVEL_STEPS
    for run in runs:
        n_left -= len(run.relative)
        if n_left < 0 or len(notes) == MOST_LEVEL_NOTES:
            break
        if np.isfinite(run.step_s):
            steps = FIRST_STEPS + np.arange(len(run.relative))
            note = levels_note(run.step_s * run.relative, steps)
            notes += [f"{run.name}: {note}"] if note else []
    return notes


def _ordered(frame: pd.DataFrame) -> pd.DataFrame:
    """The columns read here, blanks filled, validation pauses and first steps dropped, in the order of the steps."""
    table: Any = pd.DataFrame({"run": frame["run"].astype(str), "duration_s": frame["duration_s"].astype(float)})
    for name in (*LABELS, "group", "job"):
        column: Any = frame[name] if name in frame else pd.Series("", index=frame.index)
        table[name] = column.astype(object).where(column.notna(), "").astype(str)
    table["n_gpus"] = _numbers(frame, "n_gpus")
    table["n_steps"] = _numbers(frame, "n_steps").fillna(1.0)
    order = table.groupby(["run", "metric"], sort=False).cumcount()
    table["step"] = _numbers(frame, "step").fillna(order.astype(float))
    table = table[(_numbers(frame, "flag") != 1.0).to_numpy()]
    if "rank" in frame and "step" in frame:
        table = _slowest_ranks(table, frame["rank"].loc[table.index])
    table = table.sort_values(["run", "metric", "step"], kind="stable")
    return table[table.groupby(["run", "metric"], sort=False).cumcount() >= FIRST_STEPS]


def _slowest_ranks(table: Any, rank: Any) -> Any:
    """One row per step, the slowest rank of it; a step that a rank has twice was run twice."""
    table = table.assign(rank=rank.astype(object).where(rank.notna(), "").astype(str))
    table = table.sort_values(["run", "metric", "step", "rank", "duration_s"], kind="stable")
    again = table.groupby(["run", "metric", "step", "rank"], sort=False).cumcount()
    slowest = table.assign(again=again).groupby(["run", "metric", "step", "again"])["duration_s"].idxmax()
    return table.loc[np.sort(slowest.to_numpy())].drop(columns="rank")


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
        job=str(rows["job"][0]),
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
