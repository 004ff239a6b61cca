# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportReturnType=false, reportOperatorIssue=false
# (of pandas without stubs, every expression may be of any type)
"""CM-DARE's tables and its predecessor's as the small models read them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from prism_jax.workload.cnn.architectures import CM_DARE_TOTALS

BATCH = 128.0  # of all networks; CM-DARE, section III
WARM_UP = 300  # first steps, which are left out
STEPS_PER_RUN = 64_000.0  # global steps of a run of the predecessor
NAMES = {  # as the table of clusters calls them
    "ResNet-15": "res15",
    "ResNet-32": "res32",
    "Shake-Shake-small": "shake-small",
    "Shake-Shake-big": "shake-big",
}


def step_times(folder: Path) -> pd.DataFrame:
    """20 networks on K80, 13 repeats each."""
    table = pd.read_csv(folder / "cloud" / "step_time_k80.csv")
    model = table["Model (temp)"].astype(str)
    return pd.DataFrame(
        {
            "model": model,
            "gpu": "k80",
            "family": np.where(model.str.startswith("shake"), "shake-shake", "residual"),
            "batch": BATCH,
            "flops": table["Model FLOPs"].astype(float),
            "n_params": table["Number of Parameters"].astype(float),
            "n_tensors": table["Number of Tensors"].astype(float),
            "step_s": table["Step Time (s)"].astype(float),
        }
    )


def _speeds(folder: Path, which: str) -> pd.DataFrame:
    table = pd.read_csv(folder / "cloud" / "cmdare_cluster_speed.csv.gz")
    table = table[(table["set"] == which) & (table["step"] > WARM_UP)].reset_index(drop=True)
    totals = [CM_DARE_TOTALS[NAMES[name]] for name in table["model"]]
    return table.assign(
        flops=[flops for flops, _, _ in totals],
        n_params=[float(n) for _, n, _ in totals],
        n_tensors=[float(n) for _, _, n in totals],
        gpu=table["gpu"].str.lower(),
    )


def other_gpus(folder: Path) -> pd.DataFrame:
    """One worker: four networks on K80 and V100 (and P100 where the file has it)."""
    table = _speeds(folder, "base")
    family = np.where(table["model"].str.startswith("Shake"), "shake-shake", "residual")
    gpu = table["gpu"].replace({"v100": "v100-16gb"})  # SXM2, as Google rents it
    kept = table[["model", "flops", "n_params", "n_tensors"]]
    return kept.assign(gpu=gpu, family=family, batch=BATCH, step_s=1.0 / table["steps_per_s"])


def clusters(folder: Path) -> pd.DataFrame:
    """1 to 8 K80 workers and one parameter server, four networks: steps/s over every 100 steps."""
    table = _speeds(folder, "cluster_size")
    return table[["model", "gpu", "workers", "ps", "n_params", "steps_per_s"]]


def runs(folder: Path) -> pd.DataFrame:
    """Whole runs of ResNet-32 on V100 workers, one parameter server: mean steps/s, with the number of workers."""
    table = pd.read_csv(folder / "cloud" / "transient_training_runs.csv")
    several = table["experiment"] == "experiment_1ps_vs_2ps"
    one = (table["experiment"] == "p100_v100_spot") & (table["config"] == "v100")
    workers = table["config"].str.extract(r"1ps(\d)v")[0].astype(float).where(several, 1.0)
    kept = (several & workers.notna()) | one
    rate = STEPS_PER_RUN / table["duration"]
    found = pd.DataFrame({"model": "ResNet-32", "gpu": "v100", "workers": workers, "ps": 1.0, "steps_per_s": rate})
    return found[kept].assign(n_params=float(CM_DARE_TOTALS["res32"][1])).reset_index(drop=True)


def mixed_runs(folder: Path) -> dict[str, float]:
    """Mean steps/s of runs on clusters of mixed GPUs: "2v1p1k" is two V100, a P100 and a K80."""
    table = pd.read_csv(folder / "cloud" / "transient_training_runs.csv")
    table = table[table["experiment"] == "experiment_mixed_gpu"]
    return {str(name): STEPS_PER_RUN / float(rows["duration"].mean()) for name, rows in table.groupby("config")}


def saves(folder: Path) -> pd.DataFrame:
    """20 networks saved to a store, five times each; sizes as the file states them (index in kB, others in MB)."""
    table = pd.read_csv(folder / "cloud" / "checkpoint_time.csv")
    return pd.DataFrame(
        {
            "model": table["Model"].astype(str),
            "save_s": table["Duration"].astype(float),
            "weights_bytes": 1e6 * table["Weight File Size"],
            "index_bytes": 1e3 * table["Index File Size"],
            "meta_bytes": 1e6 * table["Meta File Size"],
        }
    )


def ladders(folder: Path) -> pd.DataFrame:
    """Steps of four models on one K80 or V100 at three to five batch sizes (Gavel)."""
    table = pd.read_csv(folder / "nonllm" / "gavel_throughputs.csv")
    chosen = (table["scale_factor"] == 1) & table["batch"].notna() & table["file"].str.contains("physical")
    table = table[chosen & (table["model"] != "Recommendation")].assign(step_s=lambda t: 1.0 / t["steps_per_s"])
    table = table.groupby(["gpu", "model", "batch"])["step_s"].median().reset_index()
    table = table.assign(setup=table["gpu"] + " " + table["model"])
    n_batch = table.groupby("setup")["batch"].transform("nunique")
    return table[n_batch >= 4][["setup", "batch", "step_s"]]
