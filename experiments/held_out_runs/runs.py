"""Runs of the shared step series: seconds of every log entry, and what the configuration plans for it.

- modded-nanogpt: what is planned is the median over the *other* runs of its group at the same step, since the length of its steps
  follows a schedule; groups of three runs at least; validation pauses are left out.
- Megatron-LM CI and BigScience: steps are planned alike; a group is one branch on one kind of machine, or one project.
- MLPerf: single steps where they are logged (GPT-3, Llama 3.1), else times between two lines of a log; re-submitted runs are left
  out; a group is one system of one submitter.

A run counts if its first tenth has `FEWEST` entries without warm-up, a source if it has `FEWEST_OF_SOURCE` runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from prism_jax.core.arrays import Floats, Ints
from prism_jax.trace.step_log import StepLog, without_warm_up

FIRST = 0.1  # share of the entries that a prediction sees
FEWEST = 3  # entries of it
FEWEST_RUNS = 3  # of a group whose schedule is told by the others
FEWEST_OF_SOURCE = 10  # runs, since all sources count alike
SINGLE_STEPS = ("gpt3", "llama31_405b", "llama31_8b")


@dataclass(frozen=True)
class HeldOutRun:
    """One run, cut after its first tenth.

    Attributes:
        source: benchmark or project, which is left out as a whole.
        group: runs of one system, or of one configuration.
        n_gpus: NaN where unknown.
        first_s: [entry] seconds per planned second (per step where nothing is planned) of the first tenth, warm-up left out.
        n_first: entries of the first tenth, warm-up included.
        total_s, planned: [entry] seconds of the later entries, and what was planned for them.
    """

    source: str
    group: str
    n_gpus: float
    first_s: Floats
    n_first: int
    total_s: Floats
    planned: Floats

    def later_s(self, n_entries: int) -> float:
        """Seconds of the next entries over what was planned for them."""
        return float(self.total_s[:n_entries].sum() / self.planned[:n_entries].sum())


def held_out_runs(data: Path) -> list[HeldOutRun]:
    """All runs with enough entries."""
    folder = data / "variability"
    found = [_cut(*row) for row in (*_training(folder), *_mlperf(folder))]
    runs = [run for run in found if run is not None]
    size = Counter(run.source for run in runs)
    return [run for run in runs if size[run.source] >= FEWEST_OF_SOURCE]


def _cut(source: str, group: str, n_gpus: float, total_s: Floats, planned: Floats, n_steps: Ints) -> HeldOutRun | None:
    """The run from seconds [entry], what was planned for them and the steps they hold."""
    good = np.isfinite(total_s) & (total_s > 0) & np.isfinite(planned) & (planned > 0)
    total_s, planned, n_steps = total_s[good], planned[good], n_steps[good]
    n_first = int(FIRST * len(total_s))
    if n_first < FEWEST:
        return None
    log = StepLog(source, group, np.arange(n_first), total_s[:n_first] / planned[:n_first], n_steps[:n_first])
    log, _ = without_warm_up(log)
    if len(log) < FEWEST:
        return None
    return HeldOutRun(source, group, n_gpus, log.step_s, n_first, total_s[n_first:], planned[n_first:])


Row = tuple[str, str, float, Floats, Floats, Ints]
SOURCES = {"KellerJordan/modded-nanogpt": "nanogpt", "NVIDIA/Megatron-LM CI golden values": "megatron-ci"}


def _counts(n_steps: pd.Series) -> Ints:
    """Steps of each entry; one where that is not known."""
    return np.maximum(n_steps.fillna(1.0).to_numpy(float), 1.0).astype(int)


def _training(folder: Path) -> Iterator[Row]:
    runs = pd.read_csv(folder / "training_runs.csv.gz", usecols=["run_id", "source", "group", "num_gpus"])
    steps: Any = pd.read_csv(folder / "training_steps.csv.gz").query("flag != 1").sort_values(["run_id", "step"])
    by_run = dict(iter(steps.groupby("run_id")))
    of_groups: Any = runs.groupby(["source", "group"])
    for (source, group), members in of_groups:
        name = SOURCES.get(str(source), "bigscience")
        logs = [by_run[run_id] for run_id in members.run_id if run_id in by_run]
        if name != "nanogpt":
            alike = [_counts(log.n_steps).astype(float) for log in logs]
        elif len(logs) >= FEWEST_RUNS:
            alike = _schedules(logs)
        else:
            continue
        for log, planned, n_gpus in zip(logs, alike, members.num_gpus, strict=False):
            yield name, str(group), n_gpus, log.dt_ms.to_numpy(float) / 1e3, planned, _counts(log.n_steps)


def _schedules(logs: list[pd.DataFrame]) -> list[Floats]:
    """[run][entry] median over the other runs of the group, at the same step."""
    table = pd.DataFrame({i: log.drop_duplicates("step").set_index("step").dt_ms for i, log in enumerate(logs)})
    found = []
    for i, log in enumerate(logs):
        others = table.drop(columns=i)
        usual = others.median(axis=1).where(others.notna().sum(axis=1) >= FEWEST_RUNS - 1)
        found.append(usual.reindex(log.step).to_numpy(float) / 1e3)
    return found


def _mlperf(folder: Path) -> Iterator[Row]:
    columns = ["run_id", "benchmark", "submitter", "system", "num_gpus", "dup_of"]
    runs = pd.read_csv(folder / "mlperf_runs.csv.gz", usecols=columns, low_memory=False)
    series: Any = pd.read_csv(folder / "mlperf_series.csv.gz").merge(runs[runs.dup_of.isna()], on="run_id")
    of_lines = (series.metric == "log_dt_ms") & ~series.benchmark.isin(SINGLE_STEPS)
    for _, run in series[of_lines | (series.metric == "step_s")].groupby(["run_id", "metric"]):
        run = run.sort_values("i")
        single = run.metric.iloc[0] == "step_s"
        n_steps = np.ones(len(run), int) if single else _counts(run.n_steps)
        total_s = run.value.to_numpy(float) * (1.0 if single else 1e-3)
        group = f"{run.submitter.iloc[0]}/{run.system.iloc[0]}"
        yield str(run.benchmark.iloc[0]), group, float(run.num_gpus.iloc[0]), total_s, n_steps.astype(float), n_steps
