"""Real step logs: the shared step series as one array of step times per run.

- modded-nanogpt: every step divided by the median over the runs of its group (the length of its steps follows a schedule); steps
  that five runs or more have;
- Megatron-LM CI: as they are;
- MLPerf: single steps (GPT-3, Llama 3.1), else times between two lines of a log (DeepCAM, Flux, Mask R-CNN: means over 10 to 50
  steps, each of which counts as one step here). Re-submitted runs are left out.

The warm-up of every log is left out by the rule of `prism-jax watch`.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from prism_jax.core.robust import robust_sd
from prism_jax.trace.step_log import StepLog, without_warm_up

SINGLE_STEPS = ("gpt3", "llama31_405b", "llama31_8b")
FEWEST_RUNS, FEWEST_STEPS = 5, 60


@dataclass(frozen=True)
class Log:
    """Step times of one run.

    Attributes:
        kind: benchmark or source.
        group: what is left out together: runs of one configuration, or of one submitter's system.
        step_s: [step] seconds.
    """

    kind: str
    group: str
    step_s: NDArray[np.float64]

    @property
    def is_tuned_on(self) -> bool:
        """Whether the settings of the detector were chosen on its group: half of the groups, by a hash of their name."""
        return zlib.crc32(self.group.encode()) % 2 == 0

    @property
    def spread(self) -> float:
        """Robust standard deviation from step to step, a share."""
        return robust_sd(np.diff(np.log(self.step_s)), 0.0) / np.sqrt(2.0)


def step_logs(data: Path) -> list[Log]:
    """All logs with enough steps."""
    folder = data / "variability"
    logs = [_warm(log) for log in (*_training(folder), *_mlperf(folder))]
    return [log for log in logs if len(log.step_s) >= FEWEST_STEPS]


def _warm(log: Log) -> Log:
    seconds = log.step_s[np.isfinite(log.step_s) & (log.step_s > 0)]
    if len(seconds) < FEWEST_STEPS:
        return Log(log.kind, log.group, seconds)
    n = len(seconds)
    kept, _ = without_warm_up(StepLog(log.kind, log.kind, np.arange(n), seconds, np.ones(n, int)))
    return Log(log.kind, log.group, np.asarray(kept.step_s))


def _training(folder: Path) -> Iterator[Log]:
    runs = pd.read_csv(folder / "training_runs.csv.gz", usecols=["run_id", "source", "group"])
    steps = pd.read_csv(folder / "training_steps.csv.gz").merge(runs, on="run_id")
    single = steps[(steps.n_steps == 1) & steps.source.str.startswith("Keller")]
    alike = single.groupby(["group", "step"]).dt_ms
    usual_ms = single.groupby("run_id").dt_ms.transform("median")
    scaled = single.assign(ms=single.dt_ms / alike.transform("median") * usual_ms)[
        alike.transform("size") >= FEWEST_RUNS
    ]
    for _, run in scaled.groupby("run_id"):
        yield Log("nanogpt", str(run.group.iloc[0]), run.ms.to_numpy() / 1e3)
    for _, run in steps[steps.source.str.startswith("NVIDIA")].groupby("run_id"):
        yield Log("megatron-ci", str(run.group.iloc[0]), run.dt_ms.to_numpy() / 1e3)


def _mlperf(folder: Path) -> Iterator[Log]:
    columns = ["run_id", "benchmark", "submitter", "system", "dup_of"]
    runs = pd.read_csv(folder / "mlperf_runs.csv.gz", usecols=columns, low_memory=False)
    series = pd.read_csv(folder / "mlperf_series.csv.gz").merge(runs[runs.dup_of.isna()], on="run_id")
    of_lines = (series.metric == "log_dt_ms") & ~series.benchmark.isin(SINGLE_STEPS)
    for _, run in series[of_lines | (series.metric == "step_s")].groupby(["run_id", "metric"]):
        run = run.iloc[np.argsort(run.i.to_numpy())]
        scale = 1.0 if run.metric.iloc[0] == "step_s" else 1e-3 / run.n_steps.to_numpy()
        yield Log(run.benchmark.iloc[0], f"{run.submitter.iloc[0]}/{run.system.iloc[0]}", run.value.to_numpy() * scale)
