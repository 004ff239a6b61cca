# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Measured power as tables that `inference.fitting.fit(..., model="power")` reads."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

SWEEPS = {
    "gpt3-175b+a100_sxm_bf16.csv": ("A100", "gpt3-175b"),
    "bloom+a100_sxm_bf16.csv": ("A100", "bloom"),
    "gpt3-175b+a40_bf16.csv": ("A40", "gpt3-175b"),
}
ZEUS = {
    "gpu": "device",
    "network": "workload",
    "epoch_s": "duration_s",
    "avg_power_w": "power_watts",
    "power_limit_w": "power_limit_watts",
}


def clock_sweeps(data: Path) -> pd.DataFrame:
    """Pipeline stages at every clock; stages whose figures repeat those of another one are left out."""
    found = []
    for file, (device, workload) in SWEEPS.items():
        rows = pd.read_csv(data / "scaling" / "stage_sweeps" / file)
        alike = rows.groupby(["stage", "instruction"])["energy"].transform("first").round(6)
        rows = rows.assign(first=alike).drop_duplicates(["first", "instruction", "frequency"]).drop(columns="first")
        rows = rows.rename(columns={"frequency": "clock_mhz", "time": "duration_s", "energy": "energy_joules"})
        found.append(rows.assign(device=device, workload=workload, stage=rows["stage"].astype(str)))
    return pd.concat(found, ignore_index=True)


def power_limits(data: Path) -> pd.DataFrame:
    """Epochs of five networks under every power limit."""
    rows = pd.read_csv(data / "scaling" / "zeus_power_limit.csv").drop(columns="energy_j").rename(columns=ZEUS)
    return rows.assign(batch_size=rows["batch_size"].astype(str))


def job_power(data: Path) -> pd.DataFrame:
    """Whole runs with node power, a row per benchmark and system; one of two measurements of the same runs."""
    runs = pd.read_csv(data / "scaling" / "mlperf_power_runs.csv")
    series = pd.read_csv(data / "scaling" / "mlperf_power_series_10s.csv.gz")
    keys = ["submitter", "system", "benchmark"]
    least = series.groupby(keys)["node_w_min"].min().rename("least_w").reset_index()
    runs = runs[runs["submitter"] != "smc-dc-power"]
    means = runs.groupby([*keys, "gpus"])[["node_power_mean_w", "duration_s"]].mean().reset_index()
    return means.merge(least, on=keys)
