# pyright: reportAttributeAccessIssue=false
# (of pandas without stubs, every expression may be of any type)
"""Writes the variability presets of work that is no transformer: what its steps vary by, whole steps alone.

python experiments/other_workloads/presets.py [--data FOLDER] [--out prism_jax/variability/presets]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.other_workloads.runs import cnn_runs, lambda_runs
from experiments.variability_presets.run import toml_text
from prism_jax.core.robust import robust_sd

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = "experiments/other_workloads/presets.py"
COMPUTE = ("gemm", "attention", "memory")
LAMBDA = (
    "ResNet-50 at the largest batch on H100 SXM cloud nodes, iterations after the 20th (lambdal/deeplearning-benchmark)"
)
CNN = "32 torchvision networks, DataParallel training on 2 to 4 consumer GPUs (ryujaehun/pytorch-gpu-benchmark, MIT)"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data" / "nonllm")
    parser.add_argument("--out", type=Path, default=ROOT / "prism_jax" / "variability" / "presets")
    given = parser.parse_args()
    sections = {
        "lambda-h100-resnet": cloud(lambda_runs(given.data)),
        "host-bound-cnn": host_bound(cnn_runs(given.data)),
    }
    for name, section in sections.items():
        (given.out / f"{name}.toml").write_text(toml_text(name, section, SCRIPT), encoding="utf-8")
        print(name, {key: value for key, value in section.items() if key != "source"})


def cloud(runs: pd.DataFrame) -> dict[str, Any]:
    """Nodes that the device paces: medians over runs; nodes by their one-GPU runs."""
    own = runs[runs.gpu == "H100-80GB-SXM5"]
    one = own[(own.gpus == 1) & own.machine.str.fullmatch(r"n[0-9a-f]{6}")]  # one fleet, its names hashed
    level = one.groupby(["work", "machine"]).step_s.median().groupby("work").apply(_log_spread).mean()
    section: dict[str, Any] = {
        "source": f"{LAMBDA}: {len(own)} runs; steps: median CV over runs, whose tails are hardly longer than Normal ones; GPUs: "
        f"{one.machine.nunique()} nodes of one fleet, one GPU each, robust spread of their medians. Collectives: not told apart.",
        "step_ar1": float(own.ar1.median()),
        "step": {"kind": "normal", "cv": float(own.cv.median())},
        "stalls": [],
    }
    return section | {name: {"gpu": {"kind": "log_normal", "cv": float(level)}} for name in COMPUTE}


def _log_spread(step_s: pd.Series) -> float:
    log_s = np.log(step_s.to_numpy())
    return robust_sd(log_s)


def host_bound(runs: pd.DataFrame) -> dict[str, Any]:
    """Steps that the host paces: an exponential tail through the median p95 and p99, and the spread of the bulk."""
    own = runs[(runs.gpus > 1) & runs.work.isin(["train half", "train float"])]
    p95, p99 = float(own.p95.median()) - 1.0, float(own.p99.median()) - 1.0
    mean = (p99 - p95) / np.log(5.0)  # P(excess > x) = prob exp(-x / mean): 5% and 1%
    prob = min(0.05 * float(np.exp(p95 / mean)), 1.0)
    return {
        "source": f"{CNN}: {len(own)} runs; bulk: median robust spread; stalls: exponential through the median p95 and p99 over "
        "p50. GPUs and links: no data, left constant.",
        "step_ar1": float(max(own.ar1.median(), 0.0)),
        "step": {"kind": "normal", "cv": float(own.spread.median())},
        "stalls": [{"step_prob": prob, "mean_fraction": float(mean)}],
    }


if __name__ == "__main__":
    main()
