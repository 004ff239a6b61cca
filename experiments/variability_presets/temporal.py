"""How steps of one run vary: bulk, autocorrelation, one-sided spikes, and how spikes grow with the number of GPUs.

From the MLPerf Training series of single steps (`step_s` with one step per point: GPT-3 175B and Llama-3.1 405B). Left out:
re-submitted runs, the first ten steps, the three steps after every evaluation. A running median of 41 steps takes out slow drift.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

BENCHMARKS = ("gpt3", "llama31_405b")  # fixed sequence lengths: every step does the same work
SPIKE_SDS, SPIKE_MIN = 6.0, 0.01  # a spike is beyond six bulk standard deviations and 1 % of the step
MILD_SDS = 3.0


def run_table(data: Path) -> pd.DataFrame:
    """One row per run: GPU family, GPU count, bulk standard deviation, autocorrelation, spike and mild-excess counts."""
    runs = pd.read_csv(data / "variability" / "mlperf_runs.csv.gz", low_memory=False)
    runs = runs[runs.dup_of.isna() & runs.benchmark.isin(BENCHMARKS)]
    columns = ["run_id", "metric", "i", "n_steps", "t_ms", "value"]
    series = pd.read_csv(data / "variability" / "mlperf_series.csv.gz", usecols=columns)
    series = series[(series.metric == "step_s") & (series.n_steps == 1) & series.run_id.isin(runs.run_id)]
    known = runs.set_index("run_id")
    rows = []
    for run_id, points in series.groupby("run_id"):
        x = _detrended(points.sort_values("i"))
        if len(x) >= 50:
            run = known.loc[run_id]
            family = "hopper" if "H100" in run.gpu else "blackwell"
            rows.append({"family": family, "benchmark": run.benchmark, "gpus": int(run.num_gpus)} | _statistics(x))
    return pd.DataFrame(rows)


def temporal_facts(table: pd.DataFrame, family: str) -> dict[str, float]:
    """Step bulk cv, lag-1 autocorrelation, spike probabilities and size, mild excess; for one GPU family."""
    runs = table[table.family == family]
    per_config = runs.groupby(["benchmark", "gpus"]).median(numeric_only=True)
    spikes = runs.groupby(["benchmark", "gpus"])[["spikes", "steps", "spike_sum"]].sum().reset_index()
    step_prob, gpu_prob = spike_rates(spikes.gpus.to_numpy(), (spikes.spikes / spikes.steps).to_numpy())
    return {
        "runs": float(len(runs)),
        "steps": float(runs.steps.sum()),
        "step_cv": float(per_config.bulk.median()),
        "step_cv_min": float(per_config.bulk.min()),
        "step_cv_max": float(per_config.bulk.max()),
        "step_ar1": max(float(per_config.ar1.median()), 0.0),
        "stall_step_prob": step_prob,
        "stall_gpu_prob": gpu_prob,
        "stall_fraction": float(runs.spike_sum.sum() / runs.spikes.sum()),
        "mild_prob": float(runs.mild.sum() / runs.steps.sum()),
        "mild_excess": float(runs.mild_sum.sum() / runs.mild.sum()),
        "mild_excess_sd": _pooled_sd(runs.mild.sum(), runs.mild_sum.sum(), runs.mild_square_sum.sum()),
    }


def spike_rates(gpus: np.ndarray, rate: np.ndarray) -> tuple[float, float]:
    """`rate = a + b gpus` with a, b >= 0, by least squares over configurations."""
    slope, intercept = np.polyfit(gpus, rate, 1)
    if intercept < 0.0:
        return 0.0, float((gpus @ rate) / (gpus @ gpus))
    return (float(intercept), float(slope)) if slope >= 0.0 else (float(rate.mean()), 0.0)


def _pooled_sd(count: float, total: float, square: float) -> float:
    return float(np.sqrt(square / count - (total / count) ** 2))


def _detrended(points: pd.DataFrame) -> np.ndarray:
    """Step times over their running median, without the steps that start a run or follow an evaluation."""
    value = points.value.to_numpy()
    gap = np.diff(points.t_ms.to_numpy(), prepend=-np.inf) / 1e3 / np.median(value)
    after = gap > 1.8  # something other than a step happened in between
    skip = after | np.roll(after, 1) | np.roll(after, 2)
    skip[:10] = True
    base = pd.Series(value).where(~skip).rolling(41, center=True, min_periods=5).median().to_numpy()
    x = (value / base)[~skip]
    return x[np.isfinite(x)] - 1.0


def _statistics(x: np.ndarray) -> dict[str, float]:
    sd = 1.4826 * float(np.median(np.abs(x - np.median(x))))
    threshold = max(SPIKE_SDS * sd, SPIKE_MIN)
    spike = x > threshold
    mild = (x > MILD_SDS * sd) & ~spike
    clipped = np.clip(x, -4.0 * sd, 4.0 * sd)
    return {
        "steps": len(x),
        "bulk": sd,
        "ar1": float(np.corrcoef(clipped[1:], clipped[:-1])[0, 1]),
        "spikes": int(spike.sum()),
        "spike_sum": float(x[spike].sum()),
        "mild": int(mild.sum()),
        "mild_sum": float(x[mild].sum()),
        "mild_square_sum": float((x[mild] ** 2).sum()),
        "p99_over_p50": float(np.quantile(1.0 + x, 0.99) / np.median(1.0 + x)),
    }
