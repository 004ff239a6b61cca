"""How steps of one run vary: bulk, autocorrelation, mild one-sided excess, and the quantiles that rare stalls decide.

From the MLPerf Training series of single steps (`step_s`: GPT-3 175B, Llama-3.1 405B and 8B; of 8B most submitters log
the last step of every 32). Left out: re-submitted runs, the first ten steps, the three steps after every evaluation.
A running median of 41 steps takes out slow drift. All numbers are shares of the step time.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from prism_jax.core.robust import robust_sd

LONG_STEPS = (
    "gpt3",
    "llama31_405b",
)  # steps of seconds, every one logged: these also tell autocorrelation and mild excess
QUANTILES = (0.9, 0.95, 0.98, 0.99, 0.995)
SPIKE_SDS, SPIKE_MIN = 6.0, 0.01  # a spike is beyond six bulk standard deviations and 1% of the step
MILD_SDS = 3.0
LARGE = 0.05  # of the step: beyond it only rare large stalls reach, at every scale
CONFIG = ["family", "submitter", "system", "benchmark", "gpus"]


def step_series(data: Path) -> pd.DataFrame:
    """One row per run: family, submitter, system, benchmark, GPU count, and its `_statistics`."""
    runs = pd.read_csv(data / "variability" / "mlperf_runs.csv.gz", low_memory=False)
    known = runs[runs.dup_of.isna()].set_index("run_id")
    columns = ["run_id", "metric", "i", "n_steps", "t_ms", "value"]
    series = pd.read_csv(data / "variability" / "mlperf_series.csv.gz", usecols=columns)
    series = series.loc[(series.metric == "step_s") & series.n_steps.notna() & series.run_id.isin(known.index)]
    rows = []
    for run_id, points in series.groupby("run_id"):
        every = int(points.n_steps.iloc[0])
        x = _detrended(points.sort_values("i"), every)
        if len(x) >= 50:
            run = known.loc[run_id]
            family = "hopper" if "H100" in run.gpu or "H200" in run.gpu else "blackwell"
            where = [family, run.submitter, run.system, run.benchmark, int(run.num_gpus)]
            rows.append(dict(zip(CONFIG, where, strict=True)) | _statistics(x))
    return pd.DataFrame(rows)


def configurations(series: pd.DataFrame) -> pd.DataFrame:
    """One row per (system, benchmark, GPU count): medians over its runs, in which a single monster step or run does not show."""
    table = series.groupby(CONFIG).median(numeric_only=True)
    table["runs"] = series.groupby(CONFIG).size()
    return table.reset_index()


def temporal_facts(series: pd.DataFrame, family: str) -> dict[str, float]:
    """Step bulk cv, lag-1 autocorrelation, mild excess: medians over (benchmark, GPU count); for one GPU family."""
    runs = series.loc[series.family == family]
    all_runs = runs.groupby(["benchmark", "gpus"]).median(numeric_only=True)
    long_steps = runs[runs.benchmark.isin(LONG_STEPS)].groupby(["benchmark", "gpus"]).median(numeric_only=True)
    return {
        "runs": float(len(runs)),
        "steps": float(runs.steps.sum()),
        "step_cv": float(all_runs.bulk.median()),
        "step_cv_min": float(all_runs.bulk.min()),
        "step_cv_max": float(all_runs.bulk.max()),
        "step_ar1": max(float(long_steps.ar1.median()), 0.0),
        "mild_prob": float(long_steps.mild.median()),
        "mild_excess": float(long_steps.mild_excess.median()),
        "mild_excess_sd": float(
            np.hypot(long_steps.mild_excess_sd.median(), _robust_sd(long_steps.mild_excess.dropna()))
        ),
    }


def _detrended(points: pd.DataFrame, every: int) -> np.ndarray:
    """Step times over their running median, minus one, without the steps that start a run or follow an evaluation."""
    value = points.value.to_numpy()
    skip = np.zeros(len(value), dtype=bool)
    skip[: 10 if every == 1 else 3] = True
    if every == 1:  # the last step of a block of 32 does not follow an evaluation
        gap = np.diff(points.t_ms.to_numpy(), prepend=-np.inf) / 1e3 / np.median(value)
        after = gap > 1.8  # something other than a step happened in between
        skip |= after | np.roll(after, 1) | np.roll(after, 2)
    base = pd.Series(value).where(~skip).rolling(41, center=True, min_periods=5).median().to_numpy()
    x = (value / base)[~skip]
    return x[np.isfinite(x)] - 1.0


def _robust_sd(x: pd.Series) -> float:
    return robust_sd(x.dropna().to_numpy())


def _statistics(x: np.ndarray) -> dict[str, float]:
    """Statistics of one run; `q0.99` is p99/p50 - 1."""
    sd = robust_sd(x)
    spike = x > max(SPIKE_SDS * sd, SPIKE_MIN)
    mild = (x > MILD_SDS * sd) & ~spike
    large = x > LARGE
    clipped = np.clip(x, -4.0 * sd, 4.0 * sd)
    quantiles = (1.0 + np.quantile(x, QUANTILES)) / (1.0 + np.median(x)) - 1.0
    return {
        "steps": len(x),
        "bulk": sd,
        "ar1": float(np.corrcoef(clipped[1:], clipped[:-1])[0, 1]),
        "spikes": float(spike.mean()),
        "spike_size": float(np.median(x[spike])) if spike.any() else np.nan,
        "large": float(large.mean()),
        "large_size": float(np.median(x[large])) if large.any() else np.nan,
        "mild": float(mild.mean()),
        "mild_excess": float(x[mild].mean()) if mild.any() else np.nan,
        "mild_excess_sd": float(x[mild].std()) if mild.any() else np.nan,
    } | {f"q{u:g}": float(q) for u, q in zip(QUANTILES, quantiles, strict=True)}
