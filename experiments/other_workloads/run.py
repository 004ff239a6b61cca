# pyright: reportArgumentType=false
# (of pandas without stubs, every expression may be of any type)
"""How far slow steps of convolutional networks lie above the median, on machines that were left out.

python experiments/other_workloads/run.py [--data FOLDER] [--check]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from experiments.other_workloads.model import fit
from experiments.other_workloads.runs import FLOOR, LEVELS, cnn_runs, lambda_runs

DATA = Path(__file__).resolve().parents[2] / ".." / "shared" / "data" / "nonllm"
INTERVAL = (0.05, 0.5, 0.95)
COVERED = (0.85, 0.95)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--check", action="store_true", help="exit 1 where a bar is missed")
    given = parser.parse_args()
    missed = False
    for name, runs in (("lambda_resnet50_iters", lambda_runs(given.data)), ("cnn_iter_times", cnn_runs(given.data))):
        print(f"{name}: {len(runs):,} runs on {runs.machine.nunique()} machines, each left out in turn")
        for level in LEVELS:
            missed |= scored(runs, level)
    host_bound(cnn_runs(given.data), lambda_runs(given.data))
    if given.check:
        raise SystemExit(int(missed))


def scored(runs: pd.DataFrame, level: float) -> bool:
    """Prints errors of a quantile over the median on machines that were left out; whether a bar is missed."""
    name = f"p{100 * level:.0f}"
    measured = runs[name].to_numpy()
    log_excess = np.log(np.maximum(measured - 1.0, 0.0) + FLOOR)
    told, pooled, alike = (np.zeros((3, len(runs))) for _ in range(3))
    for machine in sorted(set(runs.machine)):
        out = (runs.machine == machine).to_numpy()
        rest = runs[~out]
        told[:, out] = fit(rest, log_excess[~out]).predict(runs[out], INTERVAL)
        pooled[:, out] = np.quantile(log_excess[~out], INTERVAL)[:, None]
        alike[:, out] = _alike(rest, log_excess[~out], runs[out])
    kinds = {"predicted": told, "pooled rest": pooled, "rest, same work and GPUs": alike}
    error = {kind: np.abs(found[1] - log_excess) for kind, found in kinds.items()}
    for kind, found in kinds.items():
        ratio = 1.0 + np.exp(found[1]) - FLOOR
        inside = (log_excess >= found[0]) & (log_excess <= found[2])
        covered = "" if kind.startswith("rest") else f", 90% interval covers {inside.mean():.1%}"
        print(
            f"  {name}/p50  {kind:<25} mean |ln excess| {error[kind].mean():.3f}, median error of the ratio "
            f"{np.median(np.abs(ratio / measured - 1.0)):.2%}, mean {np.mean(np.abs(ratio / measured - 1.0)):.2%}{covered}"
        )
    share = np.mean((log_excess >= told[0]) & (log_excess <= told[2]))
    return bool(error["predicted"].mean() >= error["pooled rest"].mean() or not COVERED[0] <= share <= COVERED[1])


def _alike(rest: pd.DataFrame, log_excess: np.ndarray, runs: pd.DataFrame) -> np.ndarray:
    """[3, run] quantiles of runs of the same work, network and number of GPUs on other machines; of all where there is none."""
    found = np.empty((3, len(runs)))
    known = pd.Series(log_excess).groupby([rest[name].to_numpy() for name in ("work", "model", "gpus")]).quantile
    table = {level: known(level).to_dict() for level in INTERVAL}
    fallback = np.quantile(log_excess, INTERVAL)
    for at, key in enumerate(runs[["work", "model", "gpus"]].itertuples(index=False, name=None)):
        found[:, at] = [table[level].get(key, fallback[i]) for i, level in enumerate(INTERVAL)]
    return found


def host_bound(cnn: pd.DataFrame, cloud: pd.DataFrame) -> None:
    """Prints how much more host-bound work varies than work that the device decides."""
    print("\nmedian CV, p95/p50 - 1, p99/p50 - 1")
    one = cnn.gpus == 1
    kinds = {
        "ResNet-50 at the largest batch, H100 SXM": cloud[cloud.gpu == "H100-80GB-SXM5"],
        "double precision, one GPU, training": cnn[one & (cnn.work == "train double")],
        "half precision, one GPU, inference": cnn[one & (cnn.work == "inference half")],
        "half precision, 2 to 4 GPUs, training": cnn[~one & (cnn.work == "train half")],
        "half precision, 2 to 4 GPUs, inference": cnn[~one & (cnn.work == "inference half")],
    }
    device = kinds["ResNet-50 at the largest batch, H100 SXM"].cv.median()
    for name, own in kinds.items():
        cv = own.cv.median()
        print(
            f"  {name:<42} {cv:7.3%}  {own.p95.median() - 1:7.2%}  {own.p99.median() - 1:7.2%}   {cv / device:6.1f} x"
        )


if __name__ == "__main__":
    main()
